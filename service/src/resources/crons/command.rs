//! `wakeq cron`: put, show, run now, pause and delete schedules that emit events.

use clap::{Args, Subcommand};
use serde_json::value::RawValue;

use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::Request;
use crate::cli::given::json;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::text;
use crate::resources::crons::wire::{CronEventJson, CronJson, CronRunJson, CronTickJson, PauseCron, PutCron};
use crate::resources::events::command::event::state_word;
use crate::resources::events::wire::EventState;
use wakeq::Name;
use wakeq::crons::MissedTicks;

#[derive(Args)]
pub(crate) struct Crons {
    #[command(subcommand)]
    verb: CronVerb,
}

#[derive(Subcommand)]
enum CronVerb {
    /// Create or replace a cron
    Put(PutCronArgs),
    /// List the crons with their last and next ticks
    List(TableArgs),
    /// Show one cron with its last and its next five ticks
    Show(ShowCron),
    /// Emit an event of a cron now, outside its rhythm
    ///
    /// Its ticks stay as they are, and a paused cron stays paused.
    RunNow(OneCron),
    /// Pause a cron
    Pause(Pause),
    /// Resume a cron
    Unpause(OneCron),
    /// Delete a cron
    Delete(OneCron),
}

#[derive(Args)]
struct PutCronArgs {
    /// The cron's name: its events are for the handler CRON/name
    name: Name,
    /// Minute, hour, day, month and weekday, such as '30 8 * * MON-FRI'; with six fields, the first
    /// is seconds
    expression: String,
    /// The value of its events, as JSON; @FILE takes it from a file, and - from standard input
    #[arg(default_value = "null", value_parser = json)]
    value: String,
    /// The time zone of the expression (Europe/Berlin)
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// How to handle missed ticks: skip, once (emit the last one) or all
    #[arg(long, default_value_t = MissedTicks::Skip)]
    missed: MissedTicks,
    /// The handler's modifier [default: _]
    #[arg(long)]
    modifier: Option<Name>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct ShowCron {
    /// The cron's name
    name: Name,
    /// Show the whole value
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Pause {
    /// The cron's name
    name: Name,
    /// Reason to show to others
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct OneCron {
    /// The cron's name
    name: Name,
    #[command(flatten)]
    json: JsonArg,
}

impl Crons {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            CronVerb::Put(command) => command.run(context).await,
            CronVerb::List(list) => {
                let head = ["NAME", "EXPRESSION", "ZONE", ">TICKS", "LAST", "EVENT", "STATE", "NEXT"];
                list.print(context, Request::get(&["cron"]), head, "no crons", row).await
            }
            CronVerb::Show(command) => command.run(context).await,
            CronVerb::RunNow(OneCron { name, json }) => {
                let request = Request::post(&["cron", name.as_str(), "run-now"]).repeatable();
                let ran: CronRunJson = context.call(request).await?;
                json.print(&ran, |ran| show::line(format_args!("cron {name}: event {} is emitted", ran.id)))
            }
            CronVerb::Pause(Pause { name, reason, json }) => {
                let request = Request::put(&["cron", name.as_str(), "pause"]).silent();
                json.print(&context.call(request.body(&PauseCron { reason })?).await?, state)
            }
            CronVerb::Unpause(OneCron { name, json }) => {
                json.print(&context.call(Request::delete(&["cron", name.as_str(), "pause"])).await?, state)
            }
            CronVerb::Delete(OneCron { name, json }) => {
                context.send(Request::delete(&["cron", name.as_str()]).silent()).await?;
                json.print(&serde_json::json!({ "name": name.as_str() }), |_| {
                    show::line(format_args!("cron {name} is deleted"))
                })
            }
        }
    }
}

impl PutCronArgs {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let new = PutCron {
            expression: self.expression,
            zone: self.zone,
            value: Some(RawValue::from_string(self.value.trim().to_owned())?),
            modifier: self.modifier.map(|modifier| modifier.to_string()),
            missed: self.missed.into(),
        };
        let request = Request::put(&["cron", self.name.as_str()]).body(&new)?;
        self.json.print(&context.call(request).await?, state)
    }
}

fn row(cron: &CronJson) -> [String; 8] {
    let (name, expression) = (cron.name.clone(), cron.expression.clone());
    let (id, state) = match &cron.last_event {
        Some(event) => (event.id.to_string(), outcome(event).to_owned()),
        None => ("-".to_owned(), "-".to_owned()),
    };
    [name, expression, cron.zone.clone(), cron.ticks.to_string(), last(cron), id, state, next(cron)]
}

impl ShowCron {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let cron: CronJson = context.call(Request::get(&["cron", self.name.as_str()])).await?;
        self.json.print(&cron, |cron| {
            field("cron", &cron.name)?;
            field("handler", format_args!("CRON/{}/{}", cron.name, cron.modifier))?;
            field("ticks", format_args!("{} in {}", cron.expression, cron.zone))?;
            field("missed", MissedTicks::from(cron.missed))?;
            match &cron.paused {
                Some(_) => field("paused", next(cron))?,
                None => cron.next.iter().try_for_each(|tick| field("next", local(tick)))?,
            }
            field("last", format_args!("{}; {} emitted", last(cron), show::count(cron.ticks, "event")))?;
            if let Some(event) = &cron.last_event {
                field("event", format_args!("{} {}", event.id, outcome(event)))?;
            }
            field("made", format_args!("{} by {}", moment(cron.created_at), cron.created_by))?;
            show::value_field("value", cron.value.as_deref(), cron.hidden.as_deref(), self.full)
        })
    }
}

/// A cron and its current state on one line.
fn state(cron: &CronJson) -> anyhow::Result<()> {
    let word = if cron.paused.is_some() { "" } else { "next " };
    let CronJson { name, expression, zone, .. } = cron;
    show::line(text::clean(&format!("cron {name}: {expression} in {zone}, {word}{}", next(cron))))
}

/// When a cron ticked last.
fn last(cron: &CronJson) -> String {
    cron.last.map_or_else(|| "never".to_owned(), moment)
}

/// What became of the event of the last tick.
fn outcome(event: &CronEventJson) -> &'static str {
    if event.is_retrying() {
        "retrying"
    } else if event.state == EventState::Gone {
        "completed or removed"
    } else {
        state_word(event.state)
    }
}

/// When a cron ticks next, or why it does not.
fn next(cron: &CronJson) -> String {
    match (&cron.paused, cron.next.first()) {
        (Some(pause), _) => {
            let reason = pause.reason.as_deref().unwrap_or("no reason given");
            format!("paused by {} since {}: {reason}", pause.by, moment(pause.since))
        }
        (None, Some(tick)) => local(tick),
        (None, None) => "never".to_owned(),
    }
}

/// A time, with the local time if its zone differs from UTC.
fn local(tick: &CronTickJson) -> String {
    let utc = moment(tick.at);
    if tick.local.naive_local() == tick.at.naive_utc() {
        return utc;
    }
    format!("{utc} ({} there)", tick.local.format("%a %H:%M:%S %:z"))
}
