//! `wakeq cancel`, `run-now`, `purge`.

use clap::Args;

use super::show::{ActorArg, HandlerArg};
use super::{Context, show};
use crate::event::EventId;

#[derive(Args)]
pub(crate) struct One {
    /// The event's id
    #[arg(value_parser = show::event_id)]
    id: EventId,
    #[command(flatten)]
    actor: ActorArg,
}

#[derive(Args)]
pub(crate) struct Purge {
    #[command(flatten)]
    handler: HandlerArg,
    /// Count what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    actor: ActorArg,
}

impl One {
    pub(super) async fn cancel(self, context: &Context) -> anyhow::Result<()> {
        context.reader().await?.cancel(context.canvas.canvas, self.id, &self.actor.user()).await?;
        show::line(format_args!("{} cancelled", self.id))
    }

    pub(super) async fn run_now(self, context: &Context) -> anyhow::Result<()> {
        context.admin().await?.run_now(context.canvas.canvas, self.id, &self.actor.user()).await?;
        show::line(format_args!("{} is due now", self.id))
    }
}

impl Purge {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let scope = self.handler.scope(context.canvas.canvas);
        let (admin, actor) = (context.reader().await?, self.actor.user());
        if self.dry_run {
            let bulk = admin.purge(&scope, &actor, true).await?;
            return show::line(format_args!("{scope}: {} would be deleted", show::bulk(bulk, "event")));
        }
        let mut count = 0;
        loop {
            let bulk = admin.purge(&scope, &actor, false).await?;
            count += bulk.count;
            if !bulk.more {
                return show::line(format_args!("{scope}: {} deleted", show::count(count, "event")));
            }
        }
    }
}
