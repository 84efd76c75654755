//! `wakeq dead list` and `wakeq dead redrive`.

use clap::{Args, Subcommand};

use super::Context;
use super::show::{self, moment};
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
        /// Count what would be brought back (up to 1,000), and change nothing
        #[arg(long)]
        dry_run: bool,
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
            Verb::Redrive { filter, all, dry_run } => {
                anyhow::ensure!(
                    all || filter.handler.is_some() || filter.id.is_some(),
                    "say which: --id EVENT, --handler HANDLER, or --all of the canvas"
                );
                let filter = filter.filter(context);
                if dry_run {
                    let count = context.reader().await?.dead(&filter, crate::admin::LIST_MAX).await?.len();
                    let count = show::count(count as u64, "dead event");
                    return show::line(format_args!("{count} would be brought back"));
                }
                let count = context.admin().await?.redrive(&filter).await?;
                show::line(format_args!("{} brought back", show::count(count, "dead event")))
            }
        }
    }
}

async fn list(context: &Context, filter: &DeadFilter, limit: u32) -> anyhow::Result<()> {
    let events = context.reader().await?.dead(filter, limit).await?;
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
