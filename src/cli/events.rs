//! `wakeq cancel`, `run-now`, `purge`.

use clap::Args;

use super::show::HandlerArg;
use super::{Context, show};
use crate::event::EventId;

#[derive(Args)]
pub(crate) struct One {
    /// The event's id
    #[arg(value_parser = show::event_id)]
    id: EventId,
}

#[derive(Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    handler: HandlerArg,
    /// Count what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

impl One {
    pub(super) async fn cancel(self, context: &Context) -> anyhow::Result<()> {
        context.reader().await?.cancel(self.id).await?;
        show::line(format_args!("{} cancelled", self.id))
    }

    pub(super) async fn run_now(self, context: &Context) -> anyhow::Result<()> {
        context.admin().await?.run_now(self.id).await?;
        show::line(format_args!("{} is due now", self.id))
    }
}

impl Purge {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let scope = self.handler.scope(context.canvas.canvas);
        let count = context.reader().await?.purge(&scope, self.dry_run).await?;
        let verb = if self.dry_run { "would be deleted" } else { "deleted" };
        show::line(format_args!("{scope}: {} {verb}", show::count(count, "event")))
    }
}
