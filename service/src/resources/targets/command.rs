//! `wakeq handlers put` and `delete`: handlers that are reached over HTTP.

mod headers;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::{HandlerAddressArg, HandlerName, TableArgs};
use crate::cli::client::Request;
use crate::cli::failure::Failure;
use crate::cli::given::keep_for;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::config::DeliveryArgs;
use crate::resources::targets::wire::{self, OnDeath, Policy, PutAnswer, PutTarget, SecretText, SlowedJson};
pub(crate) use headers::HeaderArgs;
use wakeq::Name;
use wakeq::events::Keep;

/// Maximum size of a file with a secret.
const SECRET_MAX_BYTES: u64 = 1024;

#[derive(Args)]
pub(crate) struct PutTargetArgs {
    /// The handler: its name, MODULE/name when the module is not WORKER, or MODULE/name/modifier
    handler: HandlerAddressArg,
    /// URL that receives the events: https, or http if the deployment allows it
    url: String,
    /// Send a Google OIDC token for this audience, the service at the URL
    #[arg(long)]
    audience: Option<String>,
    /// Sign with the secret in this file (whsec_…) instead of a generated one
    #[arg(long, value_name = "FILE", conflicts_with = "rotate_secret")]
    secret_file: Option<PathBuf>,
    /// Generate a new secret; the old one also signs for 24 more hours
    #[arg(long)]
    rotate_secret: bool,
    /// Keep events for this long after they have ended (7days)
    ///
    /// It is 90days at most, or a time for each outcome: completed=7days,cancelled=1day. The result
    /// is the target's answer, if that is JSON.
    #[arg(long, value_name = "DURATION", value_parser = keep_for)]
    keep: Option<Keep>,
    #[command(flatten)]
    headers: HeaderArgs,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    delivery: DeliveryArgs,
}

/// Options that are not given have their defaults, also where a target is replaced.
#[derive(Args)]
#[command(next_help_heading = "Retries and limits")]
pub(crate) struct PolicyArgs {
    /// Retries of a failed event [default: 2]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// Delay of the first retry [default: 5m]
    ///
    /// Given as 30s or 5m. The default is the maximum delay if that is shorter.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    delay: Option<Duration>,
    /// Multiplier of further delays [default: 1]
    #[arg(long, value_name = "N")]
    factor: Option<u32>,
    /// Maximum delay [default: 24h]
    ///
    /// A longer Retry-After is cut to it, or to a minute if that is more.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    delay_max: Option<Duration>,
    /// Timeout of a request [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// Maximum concurrent requests per worker
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Halt the object of an event that dies
    ///
    /// The object stays halted until the event is redriven or skipped.
    #[arg(long)]
    halt_on_death: bool,
}

#[derive(Args)]
pub(crate) struct DeleteTarget {
    /// The handler: its name, MODULE/name when the module is not WORKER, or MODULE/name/modifier
    handler: HandlerAddressArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct ListTargets {
    /// Only targets of this handler: its name, or MODULE/name
    handler: Option<HandlerName>,
    #[command(flatten)]
    table: TableArgs,
}

impl ListTargets {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (module, name) = self.handler.map(|handler| (handler.module, handler.name)).unzip();
        let request = Request::get(&["targets"]).query("module", module).query("name", name);
        let head = ["HANDLER", "URL", ">RETRIES", "CHANGED", "BY"];
        self.table.print(context, request, head, "no targets", row).await
    }
}

fn row(target: &wire::TargetJson) -> [String; 5] {
    let wire::TargetJson { module, name, modifier, url, policy, updated_at, updated_by, .. } = target;
    let (retries, changed) = (policy.retries.to_string(), show::moment(*updated_at));
    [format!("{module}/{name}/{modifier}"), url.clone(), retries, changed, updated_by.clone()]
}

impl PutTargetArgs {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let secret = self.secret_file.as_deref().map(read_secret).transpose()?;
        let keep_s = self.keep.unwrap_or_default().into();
        let (policy, rotate_secret) = (Policy { keep_s, ..self.policy.over_default() }, self.rotate_secret);
        let (url, audience, headers) = (self.url, self.audience, self.headers.read()?);
        let new = PutTarget { url, policy, audience, secret, rotate_secret, headers };
        let client = context.client_to_targets(&self.delivery).await?;
        let request = at(Request::put, &self.handler)?.for_a_while().body(&new)?;
        let answer: PutAnswer = client.call(request).await?;
        self.json.print(&answer, |answer| print_put(&self.handler, answer))?;
        note_about(answer.secret.as_ref());
        Ok(())
    }
}

impl PolicyArgs {
    /// The given options, with defaults for the others.
    pub(crate) fn over_default(&self) -> Policy {
        let default = Policy::default();
        let seconds =
            |given: Option<Duration>, default: f64| given.map_or(default, |given| given.as_secs_f64());
        let delay_max_s = seconds(self.delay_max, default.delay_max_s);
        Policy {
            retries: self.retries.unwrap_or(default.retries),
            delay_s: seconds(self.delay, Policy::usual_delay_s(delay_max_s)),
            factor: self.factor.unwrap_or(default.factor),
            delay_max_s,
            timeout_s: seconds(self.timeout, default.timeout_s),
            concurrency: self.concurrency,
            on_death: self.halt_on_death.into(),
            keep_s: default.keep_s,
        }
    }
}

fn print_put(handler: &HandlerAddressArg, answer: &PutAnswer) -> anyhow::Result<()> {
    let replaced = if answer.new { "" } else { ", replacing the previous target" };
    show::line(format_args!("{handler} goes to {}{replaced}", crate::cli::text::clean(&answer.target.url)))?;
    print_woken(answer.woken, answer.waking)?;
    if let Some(kind) = answer.still {
        show::line(format_args!("{} is still {}", handler.handler, show::rule_state(kind)))?;
    }
    print_secret(answer.secret.as_ref())
}

/// Prints how many events were woken, if any were or may be.
pub(crate) fn print_woken(woken: usize, waking: bool) -> anyhow::Result<()> {
    if woken == 0 && !waking {
        return Ok(());
    }
    let so_far = if waking { " so far" } else { "" };
    show::line(format_args!("{} woken{so_far}", show::count(woken as u64, "waiting event")))
}

pub(crate) fn print_secret(secret: Option<&SecretText>) -> anyhow::Result<()> {
    secret.map_or(Ok(()), |SecretText(secret)| field("secret", secret))
}

/// Notes that a generated secret is not shown again.
pub(crate) fn note_about(secret: Option<&SecretText>) {
    if secret.is_some() {
        show::note(
            "The secret is not shown again. The receiver of the requests verifies their signatures with it.",
        );
    }
}

impl DeleteTarget {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        client.send(at(Request::delete, &self.handler)?.silent()).await?;
        self.json.print(&serde_json::json!({ "handler": self.handler.to_string() }), |_| {
            show::line(format_args!("{}: the target is deleted", self.handler))
        })
    }
}

/// Prints a target: a line for its URL, and one for its policy.
pub(crate) fn print(target: &wire::TargetJson) -> anyhow::Result<()> {
    field("target", format_args!("{} to {}", target.modifier, target.url))?;
    let Policy { retries, delay_s, factor, delay_max_s, timeout_s, concurrency, on_death, keep_s } =
        target.policy;
    let growing = if factor == 1 {
        String::new()
    } else {
        format!(", then {factor} times as long, up to {delay_max_s} s")
    };
    let halts = match on_death {
        OnDeath::Skip => "",
        OnDeath::Halt => "; objects halt when an event dies",
    };
    let kept = if keep_s.is_nothing() {
        String::new()
    } else {
        format!("; ended events are kept for {}", keep_s.written(|seconds| format!("{seconds} s")))
    };
    let at_once = concurrency.map(|concurrency| format!("; {concurrency} at once")).unwrap_or_default();
    field(
        "",
        format_args!(
            "{} after {delay_s} s{growing}; {timeout_s} s for an answer{at_once}{halts}{kept}",
            count_retries(retries)
        ),
    )?;
    if let Some(audience) = &target.audience {
        field("", format_args!("with a token for {audience}"))?;
    }
    if !target.header_names.is_empty() {
        field("", format_args!("with the headers {}", target.header_names.join(", ")))?;
    }
    if let Some(until) = target.previous_secret_until {
        field("", format_args!("also signed with the previous secret until {}", moment(until)))?;
    }
    if let Some(SlowedJson { per_second, until }) = target.slowed {
        let held = until.map(|until| format!(", and held until {}", moment(until))).unwrap_or_default();
        field("", format_args!("slowed to {per_second} per second: it answered 429 or 503{held}"))?;
    }
    match target.gone_since {
        Some(since) => field(
            "",
            format_args!(
                "nothing is sent since {}: it answered 410 Gone; put it again, or `unpause`",
                moment(since)
            ),
        ),
        None => Ok(()),
    }
}

fn count_retries(retries: u32) -> String {
    match retries {
        1 => "1 retry".to_owned(),
        retries => format!("{retries} retries"),
    }
}

pub(crate) fn read_secret(file: &Path) -> anyhow::Result<SecretText> {
    let mut secret = String::new();
    let read =
        std::fs::File::open(file).and_then(|file| file.take(SECRET_MAX_BYTES).read_to_string(&mut secret));
    read.with_context(|| format!("read the secret from {}", file.display()))?;
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(Failure::Usage(format!("there is no secret in {}", file.display())).into());
    }
    Ok(SecretText(secret.to_owned()))
}

/// The request about a handler's target.
fn at(verb: fn(&[&str]) -> Request, target: &HandlerAddressArg) -> Result<Request, Failure> {
    let (module, name) = (target.handler.module.as_str(), target.handler.name.as_str());
    match target.modifier.as_ref().map(Name::as_str) {
        Some(modifier) if wire::RESERVED_MODIFIERS.contains(&modifier) => Err(Failure::Usage(
            "`pause`, `block`, `purge`, `statistics`, `handlers`, `pull` and `leases` can't be modifiers \
             of a target: the API's paths use them"
                .to_owned(),
        )),
        Some(modifier) => Ok(verb(&["handlers", module, name, modifier])),
        None => Ok(verb(&["handlers", module, name])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_that_is_not_given_is_no_longer_than_the_longest() {
        let policy = |delay, delay_max: Option<u64>| {
            let delay_max = delay_max.map(Duration::from_secs);
            let given = PolicyArgs {
                halt_on_death: false,
                retries: None,
                delay,
                factor: None,
                delay_max,
                timeout: None,
                concurrency: None,
            };
            given.over_default().delay_s
        };
        assert_eq!((policy(None, None), policy(None, Some(10))), (300.0, 10.0));
        assert_eq!(policy(Some(Duration::from_secs(60)), Some(10)), 60.0, "to be refused with words");
    }
}
