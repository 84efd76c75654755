//! `wakeq dead list` and `wakeq dead redrive`.

use clap::{Args, Subcommand};

use super::Context;
use super::show::{self, ActorArg, moment};
use crate::event::{EventId, Timestamp};
use crate::store::DeadFilter;

#[derive(Args)]
pub(crate) struct Dead {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The latest ones first
    List {
        #[command(flatten)]
        filter: FilterArgs,
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
    },
    /// Bring them back, without their retries
    Redrive {
        #[command(flatten)]
        filter: FilterArgs,
        /// All of the canvas
        #[arg(long, conflicts_with_all = ["handler", "id"])]
        all: bool,
        /// Count what would be brought back (up to 10,000), and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        actor: ActorArg,
    },
}

#[derive(Args)]
struct FilterArgs {
    /// Of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<show::HandlerName>,
    /// This event
    #[arg(long, value_parser = show::event_id)]
    id: Option<EventId>,
    /// That died at or after this moment
    #[arg(long, value_parser = show::timestamp)]
    since: Option<Timestamp>,
    /// That died before this moment
    #[arg(long, value_parser = show::timestamp)]
    before: Option<Timestamp>,
}

impl FilterArgs {
    fn filter(&self, context: &Context) -> DeadFilter {
        let canvas = context.canvas.canvas;
        let scope = self.handler.as_ref().map(|handler| handler.scope(canvas));
        DeadFilter { canvas, scope, id: self.id, since: self.since, before: self.before }
    }
}

impl Dead {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            Verb::List { filter, limit } => list(context, &filter.filter(context), limit).await,
            Verb::Redrive { filter, all, dry_run, actor } => {
                anyhow::ensure!(
                    all || filter.handler.is_some() || filter.id.is_some(),
                    "say which: --id EVENT, --handler HANDLER, or --all of the canvas"
                );
                let filter = filter.filter(context);
                if dry_run {
                    let bulk = context.reader().await?.redrive(&filter, &actor.user(), true).await?;
                    return show::line(format_args!(
                        "{} would be brought back",
                        show::bulk(bulk, "dead event")
                    ));
                }
                redrive(context, filter, &actor).await
            }
        }
    }
}

/// All of them, in calls of a limited number; what dies again meanwhile is left.
async fn redrive(context: &Context, filter: DeadFilter, actor: &ActorArg) -> anyhow::Result<()> {
    let admin = context.admin().await?;
    let now = admin.clock().await?;
    let before = filter.before.map_or(now, |before| before.min(now));
    let filter = DeadFilter { before: Some(before), ..filter };
    let mut count = 0;
    loop {
        let bulk = admin.redrive(&filter, &actor.user(), false).await?;
        count += bulk.count;
        if !bulk.more {
            return show::line(format_args!("{} brought back", show::count(count, "dead event")));
        }
    }
}

async fn list(context: &Context, filter: &DeadFilter, limit: u32) -> anyhow::Result<()> {
    let events = context.reader().await?.dead(filter, None, limit).await?.items;
    if events.is_empty() {
        return show::line("no dead events");
    }
    show::line(format_args!("{:20}  {:36}  {:30}  {:7}  ERROR", "DIED", "EVENT", "HANDLER", "CAUSE"))?;
    for event in events {
        let error = event.last_error.unwrap_or_default();
        let error = error.lines().next().unwrap_or_default();
        let died = moment(event.died_at);
        show::line(format_args!(
            "{died:20}  {}  {:30}  {:7}  {error}",
            event.id, event.address, event.cause
        ))?;
    }
    Ok(())
}
