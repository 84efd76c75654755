//! `wakeq handlers`: show, stop and wake handlers, and purge their events.

mod calls;
pub(crate) mod depth;
mod rules;
pub(crate) mod stats;

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerArg};
use crate::cli::show::{self, JsonArg, exact, field, moment};
use crate::resources::attempts::command::LastAttempts;
use crate::resources::handlers::wire::{Handler, Purged};
use crate::resources::operations::wire::{NewOperationJson, OperationFilter, OperationKindJson};
use crate::resources::pulled::command::{
    CompleteEvent, ExtendEvent, LeaseEvents, ListPulled, PullHandler, ReleaseEvent, UnpullHandler,
};
use crate::resources::targets::command as targets;
use crate::resources::targets::command::{DeleteTarget, ListTargets, PutTargetArgs};
pub(crate) use rules::{Block, Pause, Unblock, Unpause};
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
    /// Show the last attempts at a handler's events: the last answers of its target
    Attempts(LastAttempts),
    /// Delete a handler's target; its events then wait
    Delete(DeleteTarget),
    /// Let programs lease a handler's events, instead of workers and targets
    Pull(PullHandler),
    /// Give a pulled handler's events to workers and targets again
    Unpull(UnpullHandler),
    /// List the pulled handlers of the canvas
    Pulled(ListPulled),
    /// Lease events of a pulled handler
    Lease(LeaseEvents),
    /// Change when the lease of an event ends
    Extend(ExtendEvent),
    /// Complete a leased event, which deletes it
    Complete(CompleteEvent),
    /// Release a leased event, as failed if there is an error
    Release(ReleaseEvent),
    /// Pause a handler or a whole canvas, as its user
    Pause(Pause),
    /// Lift a pause and wake the waiting events
    Unpause(Unpause),
    /// Block a handler, a whole canvas or everything, as an admin
    Block(Block),
    /// Lift a block and wake the waiting events
    Unblock(Unblock),
    /// Delete all events of a handler that are not running
    Purge(Purge),
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
            HandlerVerb::Attempts(command) => command.run(context).await,
            HandlerVerb::Delete(command) => command.run(context).await,
            HandlerVerb::Pull(command) => command.run(context).await,
            HandlerVerb::Unpull(command) => command.run(context).await,
            HandlerVerb::Pulled(command) => command.run(context).await,
            HandlerVerb::Lease(command) => command.run(context).await,
            HandlerVerb::Extend(command) => command.run(context).await,
            HandlerVerb::Complete(command) => command.run(context).await,
            HandlerVerb::Release(command) => command.run(context).await,
            HandlerVerb::Pause(command) => command.run(context).await,
            HandlerVerb::Unpause(command) => command.run(context).await,
            HandlerVerb::Block(command) => command.run(context).await,
            HandlerVerb::Unblock(command) => command.run(context).await,
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

impl Purge {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (client, handler) = (context.client().await?, &self.handler.handler);
        let filter = OperationFilter {
            module: Some(handler.module.to_string()),
            name: Some(handler.name.to_string()),
            ..OperationFilter::default()
        };
        let delete = NewOperationJson {
            before: self.before,
            ..NewOperationJson::new(OperationKindJson::Delete, filter)
        };
        let ended = client.operate(&delete, self.dry_run).await?;
        let all = Purged { purged: ended.count, more: ended.more, before: Some(ended.before) };
        self.json.print(&all, |all| {
            if self.dry_run {
                let events = show::at_least(all.purged, all.more, "event");
                let before = exact(ended.before);
                show::line(format_args!("{handler}: {events} would be deleted (--before {before})"))
            } else {
                show::line(format_args!("{handler}: {} deleted", show::count(all.purged, "event")))
            }
        })?;
        ended.outcome(self.dry_run)
    }
}
