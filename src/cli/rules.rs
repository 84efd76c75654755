//! `wakeq pause`, `unpause`, `block`, `unblock`.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::show::{ActorArg, HandlerArg};
use super::{Context, show};
use crate::admin::{self, HandlerStats, Resumed};
use crate::event::{HandlerScope, RuleKind, Timestamp};

#[derive(Args)]
pub(crate) struct Stop {
    #[command(flatten)]
    handler: HandlerArg,
    /// Why, for those who wonder
    #[arg(long)]
    reason: Option<String>,
    /// Lift it at this moment (2030-01-31T08:00:00Z)
    #[arg(long, conflicts_with = "lasting", value_parser = show::timestamp)]
    until: Option<Timestamp>,
    /// Lift it after this long (30m, 2h)
    #[arg(long = "for", value_parser = humantime::parse_duration)]
    lasting: Option<Duration>,
    #[command(flatten)]
    actor: ActorArg,
}

#[derive(Args)]
pub(crate) struct Lift {
    #[command(flatten)]
    handler: HandlerArg,
    #[command(flatten)]
    actor: ActorArg,
}

impl Stop {
    pub(super) async fn pause(self, context: &Context) -> anyhow::Result<()> {
        let scope = self.handler.scope(context.canvas.canvas);
        let admin = context.reader().await?;
        let stop = self.stop(&admin).await?;
        let new = admin.pause(&scope, &self.actor.user(), &stop).await?.new;
        show_stopped(
            &admin,
            &scope,
            if new { "paused" } else { "was paused already: reason and end replaced" },
        )
        .await
    }

    pub(super) async fn block(self, context: &Context) -> anyhow::Result<()> {
        let scope = self.handler.scope(context.canvas.canvas);
        let admin = context.reader().await?;
        let stop = self.stop(&admin).await?;
        let new = admin.block(&scope, &self.actor.admin(), &stop).await?.new;
        show_stopped(
            &admin,
            &scope,
            if new { "blocked" } else { "was blocked already: reason and end replaced" },
        )
        .await
    }

    async fn stop(&self, admin: &admin::Admin) -> anyhow::Result<admin::Stop> {
        let until = match (self.until, self.lasting) {
            (None, Some(lasting)) => {
                let end = chrono::TimeDelta::from_std(lasting).ok();
                let end = admin.clock().await?.checked_add_signed(end.context("--for is too long")?);
                Some(end.context("--for is too long")?)
            }
            (until, _) => until,
        };
        Ok(admin::Stop { reason: self.reason.clone(), until })
    }
}

impl Lift {
    pub(super) async fn unpause(self, context: &Context) -> anyhow::Result<()> {
        let scope = self.handler.scope(context.canvas.canvas);
        let resumed = context.admin().await?.unpause(&scope, &self.actor.user()).await?;
        show_resumed(&scope.to_string(), RuleKind::Pause, resumed)
    }

    pub(super) async fn unblock(self, context: &Context) -> anyhow::Result<()> {
        let scope = self.handler.scope(context.canvas.canvas);
        let resumed = context.admin().await?.unblock(&scope, &self.actor.admin()).await?;
        show_resumed(&scope.to_string(), RuleKind::Block, resumed)
    }
}

/// A mistyped name is stopped as well; who stops a handler in a hurry should see it.
async fn show_stopped(admin: &admin::Admin, scope: &HandlerScope, what: &str) -> anyhow::Result<()> {
    show::line(format_args!("{scope} {what}"))?;
    let stats = admin.stats(scope.canvas, Some(scope)).await?;
    let events = |stats: &HandlerStats| stats.paused + stats.delayed + stats.running + stats.dead;
    if stats.iter().map(events).sum::<i64>() == 0 {
        show::line("it has no events now; if that surprises you, look for the right name in `wakeq stats`")?;
    }
    Ok(())
}

fn show_resumed(handler: &str, kind: RuleKind, resumed: Resumed) -> anyhow::Result<()> {
    if resumed.lifted {
        let woken = show::count(resumed.woken as u64, "waiting event");
        show::line(format_args!("{handler}: {kind} lifted, {woken} woken"))?;
    } else {
        show::line(format_args!("{handler}: there was no {kind}"))?;
    }
    match resumed.still {
        Some(RuleKind::Block) => {
            show::line(format_args!("{handler} is still blocked: only `wakeq unblock` lifts that"))
        }
        Some(RuleKind::Pause) => {
            show::line(format_args!("{handler} is still paused: `wakeq unpause` lifts that"))
        }
        None => Ok(()),
    }
}
