//! `wakeq handlers`: show, stop and wake handlers, and purge their events.

pub(crate) mod depth;
pub(crate) mod stats;

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerArg, HandlerName};
use crate::cli::bulk;
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg, field, moment};
use crate::resources::handlers::wire::{
    Handler, Lifted, PurgeRequest, Purged, RuleKind, StopRequest, Stopped,
};
use crate::resources::targets::command as targets;
use crate::resources::targets::command::{DeleteTarget, ListTargets, PutTargetArgs};
use stats::Stats;
use wakeq::Timestamp;

#[derive(Args)]
pub(crate) struct Handlers {
    #[command(subcommand)]
    verb: HandlerVerb,
}

#[derive(Subcommand)]
enum HandlerVerb {
    /// List the handlers that have events, rules or targets, with their counts
    List(Stats),
    /// Show one handler: its counts, rules and targets
    Show {
        #[command(flatten)]
        handler: HandlerArg,
        #[command(flatten)]
        json: JsonArg,
    },
    /// Register an HTTP target for a handler, and wake its waiting events
    Put(Box<PutTargetArgs>),
    /// List the targets of the canvas, or of one handler
    Targets(ListTargets),
    /// Delete a handler's target; its events then wait
    Delete(DeleteTarget),
    /// Pause a handler, as its user
    Pause(Stop),
    /// Lift a pause and wake the waiting events
    Unpause(Lift),
    /// Block a handler, as an admin
    Block(Stop),
    /// Lift a block and wake the waiting events
    Unblock(Lift),
    /// Delete all events of a handler that are not running
    Purge(Purge),
}

#[derive(Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    handler: HandlerArg,
    /// Reason to show to others
    #[arg(long)]
    reason: Option<String>,
    /// Lift it at this time (2030-01-31T08:00:00Z)
    #[arg(long, conflicts_with = "lasting", value_parser = arguments::timestamp)]
    until: Option<Timestamp>,
    /// Lift it after this long (30m, 2h)
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    lasting: Option<Duration>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct Lift {
    #[command(flatten)]
    handler: HandlerArg,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    handler: HandlerArg,
    /// Only events emitted before this time [default: now]
    #[arg(long, value_parser = arguments::timestamp)]
    before: Option<Timestamp>,
    /// Count the events that would be deleted (up to 1,000,000), without deleting them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonArg,
}

impl Handlers {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            HandlerVerb::List(command) => command.run(context).await,
            HandlerVerb::Show { handler, json } => {
                json.print(&context.client().await?.handler(&handler.handler).await?, print)
            }
            HandlerVerb::Put(command) => command.run(context).await,
            HandlerVerb::Targets(command) => command.run(context).await,
            HandlerVerb::Delete(command) => command.run(context).await,
            HandlerVerb::Pause(command) => command.run(context, RuleKind::Pause).await,
            HandlerVerb::Unpause(command) => command.run(context, RuleKind::Pause).await,
            HandlerVerb::Block(command) => command.run(context, RuleKind::Block).await,
            HandlerVerb::Unblock(command) => command.run(context, RuleKind::Block).await,
            HandlerVerb::Purge(command) => command.run(context).await,
        }
    }
}

fn print(handler: &Handler) -> anyhow::Result<()> {
    let Handler { module, name, waiting, delayed, paused, running, dead, .. } = handler;
    field("handler", format_args!("{module}/{name}"))?;
    let counts = [
        ("waiting", waiting),
        ("delayed", delayed),
        ("paused", paused),
        ("running", running),
        ("dead", dead),
    ];
    counts.into_iter().try_for_each(|(word, count)| field(word, count))?;
    if let Some(due) = handler.oldest_due {
        field("oldest", format_args!("due since {}", moment(due)))?;
    }
    if let Some(objects) = stats::halted(handler) {
        field("halted", objects)?;
    }
    handler.rules.iter().try_for_each(|standing| field("rule", show::rule(standing)))?;
    if let Some(since) = handler.unknown_since {
        field("unknown", stats::unknown(since))?;
    }
    handler.targets.iter().try_for_each(targets::print)
}

impl Stop {
    pub(crate) async fn run(self, context: &Context, kind: RuleKind) -> anyhow::Result<()> {
        let client = context.client().await?;
        let for_s = self.lasting.map(|lasting| lasting.as_secs_f64());
        let (handler, stop) =
            (&self.handler.handler, StopRequest { reason: self.reason, until: self.until, for_s });
        let stopped = client.call(rule(Request::put, kind, handler).silent().body(&stop)?).await?;
        self.json.print(&stopped, |stopped: &Stopped| print_stopped(handler, kind, stopped))?;
        note_if_empty(&client, handler).await;
        Ok(())
    }
}

fn print_stopped(handler: &HandlerName, kind: RuleKind, stopped: &Stopped) -> anyhow::Result<()> {
    let state = show::rule_state(kind);
    let words = if stopped.new { "" } else { "was " };
    let replaced = if stopped.new { "" } else { " already: reason and end replaced" };
    show::line(format_args!("{handler} {words}{state}{replaced}"))?;
    match stopped.also {
        Some(other) => show::line(format_args!("{handler} is {} as well", show::rule_state(other))),
        None => Ok(()),
    }
}

/// A mistyped name is stopped as well, which someone in a hurry should notice. The caller may lack
/// the right to read.
async fn note_if_empty(client: &Client, handler: &HandlerName) {
    let Ok(found) = client.handler(handler).await else { return };
    if [found.waiting, found.paused, found.delayed, found.running, found.dead] == [0; 5] {
        show::note("it has no events now; if that surprises you, look for the right name in `wakeq stats`");
    }
}

impl Lift {
    pub(crate) async fn run(self, context: &Context, kind: RuleKind) -> anyhow::Result<()> {
        let handler = &self.handler.handler;
        let lifted = context.call(rule(Request::delete, kind, handler).for_a_while()).await?;
        self.json.print(&lifted, |lifted: &Lifted| print_lifted(handler, kind, lifted))
    }
}

fn print_lifted(handler: &HandlerName, kind: RuleKind, lifted: &Lifted) -> anyhow::Result<()> {
    let rule = show::rule_word(kind);
    if lifted.lifted {
        let woken = show::count(lifted.woken as u64, "waiting event");
        let waking = if lifted.waking { " so far, and waking continues" } else { "" };
        show::line(format_args!("{handler}: {rule} lifted, {woken} woken{waking}"))?;
    } else {
        show::line(format_args!("{handler}: there was no {rule}"))?;
    }
    match lifted.still {
        Some(RuleKind::Block) => {
            show::line(format_args!("{handler} is still blocked: only `wakeq unblock` lifts that"))
        }
        Some(RuleKind::Pause) => {
            show::line(format_args!("{handler} is still paused: `wakeq unpause` lifts that"))
        }
        None => Ok(()),
    }
}

impl Purge {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (client, handler) = (context.client().await?, &self.handler.handler);
        let request = async |before: Option<Timestamp>, count_up_to| {
            let before = before.or(self.before);
            let which = PurgeRequest { before, all: false, dry_run: self.dry_run, count_up_to };
            let purge = at(Request::post, handler, &["purge"]).silent().body(&which)?;
            let Purged { purged: count, more, before } = client.call(purge).await?;
            Ok(bulk::Step { count, more, before })
        };
        let words = ("event", "deleted");
        let bulk::Step { count, more, before } = bulk::all_or_count(self.dry_run, words, request).await?;
        let all = Purged { purged: count, more, before };
        self.json.print(&all, |all| {
            if self.dry_run {
                let events = show::at_least(all.purged, all.more, "event");
                let counted = bulk::counted(all.before);
                show::line(format_args!("{handler}: {events} would be deleted{counted}"))
            } else {
                show::line(format_args!("{handler}: {} deleted", show::count(all.purged, "event")))
            }
        })?;
        bulk::ended(all.more && !self.dry_run, all.before)
    }
}

impl Client {
    /// One handler, which may have nothing.
    pub(crate) async fn handler(&self, handler: &HandlerName) -> anyhow::Result<Handler> {
        self.call(at(Request::get, handler, &[])).await
    }
}

/// The request about a handler's rule. Blocks are below the routes for admins.
fn rule(verb: fn(&[&str]) -> Request, kind: RuleKind, handler: &HandlerName) -> Request {
    match kind {
        RuleKind::Pause => at(verb, handler, &["pause"]),
        RuleKind::Block => at(verb, handler, &["block"]).admin(),
    }
}

/// The request about a handler.
fn at(verb: fn(&[&str]) -> Request, handler: &HandlerName, part: &[&str]) -> Request {
    verb(&[&["handlers", handler.module.as_str(), handler.name.as_str()][..], part].concat())
}
