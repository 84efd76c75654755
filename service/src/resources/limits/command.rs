//! `wakeq limits`: how many events run at a time and start in a period, over all workers.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::Context;
use crate::cli::arguments::{ListArgs, TableArgs};
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::table::Table;
use crate::resources::limits::wire::{LimitJson, LimitUseJson, PutLimit, PutLimitAnswer, RateJson};
use crate::resources::wire::List;
use wakeq::limits::{InvalidLimitName, LimitName, OnFull};

/// Maximum number of holders that a line shows.
const HOLDERS_SHOWN: usize = 3;

#[derive(Args)]
pub(crate) struct Limits {
    #[command(subcommand)]
    verb: LimitVerb,
}

#[derive(Subcommand)]
enum LimitVerb {
    /// Set a limit, or replace it
    Set(SetLimit),
    /// List the limits that are set
    List(ListLimits),
    /// Show a limit, and what is in use of it
    Show(ShowLimit),
    /// Remove a limit
    Remove(RemoveLimit),
}

/// Whose limits they are.
#[derive(Args, Clone, Copy)]
struct OwnerArg {
    /// The operator's: of a handler over all canvases together, and otherwise the default of each
    /// canvas
    #[arg(long)]
    all_canvases: bool,
}

/// Options that are not given have their defaults, also where a limit is set again.
#[derive(Args)]
struct SetLimit {
    /// canvas, handler:NAME or handler:MODULE/NAME, a key that emits name (customer:7), or a family
    /// of keys (customer), each of which has as much
    #[arg(value_parser = limit_name)]
    name: LimitName,
    /// How many events run at a time, 1 to 1,000
    #[arg(long, value_name = "N", required_unless_present = "rate")]
    concurrency: Option<u32>,
    /// How many events start in a period, retries included (100/1m, 5/s)
    #[arg(long, value_name = "COUNT/PERIOD")]
    rate: Option<CountPer>,
    /// How many may start at once if none started for a while [default: 1]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u32>,
    /// When as many run: wait, drop (the event), replace (the oldest that waits) or cancel (the
    /// oldest that runs)
    #[arg(long, value_name = "ACTION", default_value_t = OnFull::Wait, requires = "concurrency")]
    on_full: OnFull,
    /// Refuse emits that name the key while so many wait for it, 1 to 10,000
    #[arg(long, value_name = "N", requires = "concurrency")]
    waiting_max: Option<u32>,
    #[command(flatten)]
    owner: OwnerArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct ListLimits {
    #[command(flatten)]
    owner: OwnerArg,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
struct ShowLimit {
    /// The limit's name
    #[arg(value_parser = limit_name)]
    name: LimitName,
    #[command(flatten)]
    owner: OwnerArg,
    #[command(flatten)]
    uses: ListArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct RemoveLimit {
    /// The limit's name
    #[arg(value_parser = limit_name)]
    name: LimitName,
    #[command(flatten)]
    owner: OwnerArg,
    #[command(flatten)]
    json: JsonArg,
}

/// A number of starts, and their period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountPer {
    count: u32,
    period: Duration,
}

/// The text is not a number of starts per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rate looks like 100/1m or 5/s: a number of starts, and a period of 1ms to 31days")]
struct InvalidCountPer;

/// A limit, and a page of what is in use of it.
#[derive(Serialize)]
struct Shown {
    limit: LimitJson,
    uses: List<LimitUseJson>,
}

/// Parses the name of a limit. A handler without a module is one of `WORKER`.
pub(crate) fn limit_name(text: &str) -> Result<LimitName, InvalidLimitName> {
    match text.strip_prefix("handler:") {
        Some(name) if !name.contains('/') => format!("handler:WORKER/{name}").parse(),
        Some(_) | None => text.parse(),
    }
}

impl FromStr for CountPer {
    type Err = InvalidCountPer;

    fn from_str(text: &str) -> Result<Self, InvalidCountPer> {
        let (count, period) = text.split_once('/').ok_or(InvalidCountPer)?;
        let has_number = period.starts_with(|first: char| first.is_ascii_digit());
        let period = if has_number { period.to_owned() } else { format!("1{period}") };
        let period = humantime::parse_duration(&period).map_err(|_| InvalidCountPer)?;
        Ok(Self { count: count.parse().map_err(|_| InvalidCountPer)?, period })
    }
}

impl Limits {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            LimitVerb::Set(command) => command.run(context).await,
            LimitVerb::List(ListLimits { owner, table }) => {
                let head = ["NAME", "ALLOWS", "CHANGED", "BY"];
                table.print(context, owner.at(Request::get(&["limits"])), head, "no limits", row).await
            }
            LimitVerb::Show(command) => command.run(context).await,
            LimitVerb::Remove(RemoveLimit { name, owner, json }) => {
                let request = owner.at(Request::delete(&["limits", name.as_str()])).for_a_while();
                context.send(request).await?;
                json.print(&serde_json::json!({ "name": name.as_str() }), |_| {
                    show::line(format_args!("limit {name} is removed"))
                })
            }
        }
    }
}

impl OwnerArg {
    fn at(self, request: Request) -> Request {
        if self.all_canvases { request.everywhere() } else { request }
    }
}

impl SetLimit {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let put = PutLimit {
            concurrency: self.concurrency,
            rate: self.rate.map(|CountPer { count, period }| RateJson {
                count,
                period_s: period.as_secs_f64(),
                burst: self.burst,
            }),
            on_full: Some(self.on_full.into()),
            waiting_max: self.waiting_max,
        };
        let request = self.owner.at(Request::put(&["limits", self.name.as_str()])).for_a_while();
        let answer: PutLimitAnswer = context.call(request.body(&put)?).await?;
        self.json.print(&answer, |PutLimitAnswer { new, limit }| {
            let done = if *new { "is set" } else { "is replaced" };
            show::line(format_args!("limit {} {done}: {}", limit.name, allowed(limit)))
        })
    }
}

impl ShowLimit {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        let (name, owner) = (self.name.as_str(), self.owner);
        let limit = client.call(owner.at(Request::get(&["limits", name]))).await?;
        let page =
            async |page| client.call(owner.at(Request::get(&["limits", name, "uses"]).page(page))).await;
        let uses = self.uses.gather(page).await?;
        self.json.print(&Shown { limit, uses }, print)
    }
}

fn print(Shown { limit, uses }: &Shown) -> anyhow::Result<()> {
    field("limit", &limit.name)?;
    field("allows", allowed(limit))?;
    if limit.default {
        field("default", "the operator's: the canvas has no limit of this name")?;
    }
    field("changed", format_args!("{} by {}", moment(limit.updated_at), limit.updated_by))?;
    let head = ["COUNTED", ">RUNNING", ">WAITING", "NEXT START", "RUNS"];
    Table::of(head, uses.items.iter().map(|used| use_row(limit, used))).print("nothing is in use of it")?;
    show::note_of_more(uses.next_cursor.as_deref());
    Ok(())
}

fn row(limit: &LimitJson) -> [String; 4] {
    [limit.name.clone(), allowed(limit), moment(limit.updated_at), limit.updated_by.clone()]
}

fn use_row(limit: &LimitJson, used: &LimitUseJson) -> [String; 5] {
    let mut holders: Vec<String> = used.holders.iter().take(HOLDERS_SHOWN).map(ToString::to_string).collect();
    if used.running as usize > holders.len() {
        holders.push("…".to_owned());
    }
    [
        used.name.clone(),
        used.running.to_string(),
        used.waiting.to_string(),
        used.next_start.map_or_else(|| limit.start_without_time(used).to_owned(), moment),
        holders.join(" "),
    ]
}

/// What a limit allows, in words; those of a later release may be unknown here.
fn allowed(limit: &LimitJson) -> String {
    limit.definition().map_or_else(|_| "unknown to this release".to_owned(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_starts_per_period() {
        let read = |text: &str| text.parse::<CountPer>().ok().map(|of| (of.count, of.period));
        assert_eq!(read("100/1m"), Some((100, Duration::from_secs(60))));
        assert_eq!(read("5/s"), Some((5, Duration::from_secs(1))));
        assert_eq!(read("1/250ms"), Some((1, Duration::from_millis(250))));
        for text in ["", "5", "/s", "5/", "-1/s", "5/x", "five/s", "5/s/s", "5 / "] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    /// It says so only if a rate lets an event start now, and there is a place for it.
    #[test]
    fn the_next_start_is_now_only_if_one_may_start() {
        let at = chrono::DateTime::UNIX_EPOCH;
        let shown = |concurrency, rate, running, next_start| {
            let limit = LimitJson {
                name: "customer".to_owned(),
                concurrency,
                rate,
                on_full: OnFull::Wait.into(),
                waiting_max: None,
                default: false,
                created_at: at,
                created_by: "ada".to_owned(),
                updated_at: at,
                updated_by: "ada".to_owned(),
            };
            let name = "customer:7".to_owned();
            let used = LimitUseJson { name, running, holders: Vec::new(), waiting: 3, next_start };
            use_row(&limit, &used)[3].clone()
        };
        let rate = Some(RateJson { count: 5, period_s: 1.0, burst: None });
        assert_eq!(shown(Some(2), None, 2, None), "-");
        assert_eq!(shown(Some(2), None, 1, None), "-");
        assert_eq!(shown(Some(2), rate, 2, None), "-");
        assert_eq!(shown(Some(2), rate, 1, None), "now");
        assert_eq!(shown(None, rate, 0, None), "now");
        assert_eq!(shown(Some(2), rate, 2, Some(at)), moment(at));
    }

    #[test]
    fn a_handler_is_named_with_or_without_its_module() {
        let named = |text: &str| limit_name(text).map(|name| name.to_string()).ok();
        assert_eq!(named("handler:greet").as_deref(), Some("handler:WORKER/greet"));
        assert_eq!(named("handler:CRON/report").as_deref(), Some("handler:CRON/report"));
        assert_eq!(named("customer:7").as_deref(), Some("customer:7"));
        for text in ["handler:", "handler:a/b/c", "a b", "handler:QUEUE/mails"] {
            assert_eq!(named(text), None, "{text}");
        }
    }
}
