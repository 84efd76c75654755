//! `wakeq handlers pull` and related commands: handlers whose events programs lease, and the leases
//! themselves.

use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::Context;
use crate::cli::arguments::{HandlerArg, HandlerName, TableArgs, event_id};
use crate::cli::client::Request;
use crate::cli::given::{json, keep_for};
use crate::cli::show::{self, JsonArg, moment};
use crate::cli::table::Table;
use crate::cli::text;
use crate::resources::pulled::wire::{
    CompleteEventRequest, ExtendedEvent, LeaseEventsRequest, LeasedEventJson, LeasedEvents,
    PulledHandlerJson, PutPulledAnswer,
};
use crate::resources::pulls::command::{LeasingArgs, LengthArg, ReleaseArgs};
use crate::resources::pulls::wire::{ExtendRequest, Pull, Released};
use crate::resources::targets::wire::Policy;
use wakeq::events::Keep;
use wakeq::{EventId, Name};

/// Options that are not given have their defaults, also where a handler is registered again.
#[derive(Args)]
pub(crate) struct PullHandler {
    #[command(flatten)]
    handler: HandlerArg,
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
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    delay_max: Option<Duration>,
    /// Halt the object of an event that dies
    ///
    /// The object stays halted until the event is redriven or skipped.
    #[arg(long)]
    halt_on_death: bool,
    /// Keep events for this long after they have ended (7days)
    ///
    /// It is 90days at most, or a time for each outcome: completed=7days,cancelled=1day.
    #[arg(long, value_name = "DURATION", value_parser = keep_for)]
    keep: Option<Keep>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct UnpullHandler {
    #[command(flatten)]
    handler: HandlerArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct ListPulled {
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
pub(crate) struct LeaseEvents {
    #[command(flatten)]
    handler: HandlerArg,
    #[command(flatten)]
    leasing: LeasingArgs,
    /// Name to lease under, shown with the events and listed among the programs
    #[arg(long, value_name = "NAME")]
    worker: Option<Name>,
    #[command(flatten)]
    json: JsonArg,
}

/// A leased event, and the token of its lease.
#[derive(Args)]
struct LeaseArgs {
    #[command(flatten)]
    handler: HandlerArg,
    /// The event's id
    #[arg(value_parser = event_id)]
    id: EventId,
    /// The token of its lease, as `lease` prints it
    #[arg(value_name = "LEASE")]
    lease_token: String,
}

#[derive(Args)]
pub(crate) struct ExtendEvent {
    #[command(flatten)]
    event: LeaseArgs,
    #[command(flatten)]
    length: LengthArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct CompleteEvent {
    #[command(flatten)]
    event: LeaseArgs,
    /// What came of it, as JSON, @FILE, or - for standard input
    ///
    /// It is kept with the event if that is kept after its end.
    #[arg(long, value_name = "JSON", value_parser = json)]
    result: Option<String>,
}

#[derive(Args)]
pub(crate) struct ReleaseEvent {
    #[command(flatten)]
    event: LeaseArgs,
    #[command(flatten)]
    release: ReleaseArgs,
}

impl PullHandler {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (policy, handler) = (self.policy(), self.handler.handler);
        let request = at(Request::put, &handler, &["pull"]).silent().body(&policy)?;
        let answer: PutPulledAnswer = context.client().await?.call(request).await?;
        self.json.print(&answer, |answer| {
            let replaced = if answer.new { "" } else { ", as before; the policy is replaced" };
            show::line(format_args!("{handler} is pulled{replaced}"))?;
            match answer.still {
                Some(kind) => show::line(format_args!("{handler} is still {}", show::rule_state(kind))),
                None => Ok(()),
            }
        })
    }

    /// The given options, with defaults for the others.
    fn policy(&self) -> Pull {
        let default = Pull::default();
        let seconds =
            |given: Option<Duration>, default: f64| given.map_or(default, |given| given.as_secs_f64());
        let delay_max_s = seconds(self.delay_max, default.delay_max_s);
        Pull {
            retries: self.retries.unwrap_or(default.retries),
            delay_s: seconds(self.delay, Policy::usual_delay_s(delay_max_s)),
            factor: self.factor.unwrap_or(default.factor),
            delay_max_s,
            on_death: self.halt_on_death.into(),
            keep_s: self.keep.unwrap_or_default().into(),
        }
    }
}

impl UnpullHandler {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let handler = self.handler.handler;
        context.client().await?.send(at(Request::delete, &handler, &["pull"])).await?;
        self.json.print(&serde_json::json!({ "handler": handler.to_string() }), |_| {
            show::line(format_args!("events of {handler} go to workers and targets again"))
        })
    }
}

impl ListPulled {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let head = ["HANDLER", ">RETRIES", "CHANGED", "BY"];
        let request = Request::get(&["pulled-handlers"]);
        self.table.print(context, request, head, "no pulled handlers", pulled_row).await
    }
}

fn pulled_row(handler: &PulledHandlerJson) -> [String; 4] {
    let PulledHandlerJson { module, name, policy, updated_at, updated_by, .. } = handler;
    [format!("{module}/{name}"), policy.retries.to_string(), moment(*updated_at), updated_by.clone()]
}

impl LeaseEvents {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let worker = self.worker.as_ref().map(ToString::to_string);
        let request = LeaseEventsRequest { worker, ..self.leasing.request().into() };
        let lease = at(Request::post, &self.handler.handler, &["leases"]).silent().body(&request)?;
        let leased: LeasedEvents = context.client().await?.call(lease).await?;
        self.json.print(&leased, |leased| {
            let mut table = Table::new(["EVENT", "LEASE", "UNTIL", ">ATTEMPT", "MODIFIER", "VALUE"]);
            leased.events.iter().for_each(|event| table.row(leased_row(event)));
            table.print("no events to lease")
        })
    }
}

fn leased_row(event: &LeasedEventJson) -> [String; 6] {
    [
        event.id.to_string(),
        event.lease.clone(),
        moment(event.lease_until),
        event.attempt.to_string(),
        event.modifier.clone(),
        text::clean(event.value.get()),
    ]
}

impl ExtendEvent {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (lease, lease_s) = (self.event.lease_token.clone(), self.length.seconds());
        let request = self.event.request("extend").body(&ExtendRequest { lease, lease_s })?;
        let extended: ExtendedEvent = context.client().await?.call(request).await?;
        self.json.print(&extended, |extended| {
            let cancelled = if extended.cancelled { ", and cancelled" } else { "" };
            let until = moment(extended.lease_until);
            show::line(format_args!("event {} is leased until {until}{cancelled}", self.event.id))
        })
    }
}

impl CompleteEvent {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let lease = self.event.lease_token.clone();
        let result = self.result.clone().map(RawValue::from_string).transpose()?;
        let request = self.event.request("complete").body(&CompleteEventRequest { lease, result })?;
        context.client().await?.send(request).await?;
        show::line(format_args!("event {} is complete", self.event.id))
    }
}

impl ReleaseEvent {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = self.release.request(self.event.lease_token.clone());
        let released: Released =
            context.client().await?.call(self.event.request("release").body(&request)?).await?;
        self.release.print(&released, "event", self.event.id)
    }
}

impl LeaseArgs {
    /// A request about the leased event.
    fn request(&self, verb: &str) -> Request {
        at(Request::post, &self.handler.handler, &["leases", &self.id.to_string(), verb]).silent()
    }
}

/// A request about a pulled handler.
fn at(verb: fn(&[&str]) -> Request, handler: &HandlerName, part: &[&str]) -> Request {
    verb(&[&["handlers", handler.module.as_str(), handler.name.as_str()][..], part].concat())
}
