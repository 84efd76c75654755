//! `wakeq explain`.

use clap::Args;

use super::Context;
use super::show::{self, line, moment};
use crate::event::EventId;
use crate::explain::{Explanation, Live};
use crate::store::DeadEvent;

#[derive(Args)]
pub(crate) struct Explain {
    /// The event's id
    #[arg(value_parser = show::event_id)]
    id: EventId,
}

impl Explain {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match context.reader().await?.explain(context.canvas.canvas, self.id).await? {
            Explanation::Live(live) => show_live(self.id, &live),
            Explanation::Dead(dead) => show_dead(&dead),
            Explanation::Gone { emitted_at } => line(format_args!(
                "event     {}\nstate     gone: it completed, or was cancelled\nemitted   {}",
                self.id,
                moment(emitted_at)
            )),
            Explanation::Unknown => {
                line(format_args!("event     {}\nstate     unknown: it completed, or never was", self.id))
            }
        }
    }
}

fn show_live(id: EventId, live: &Live) -> anyhow::Result<()> {
    line(format_args!("event     {id}"))?;
    line(format_args!("handler   {}", live.address))?;
    line(format_args!("emitted   {}", moment(live.enqueued_at)))?;
    let (standing, outcome) = (live.standing.as_str(), live.standing.outcome());
    line(format_args!("state     {standing} since {}  ({outcome})", moment(live.since)))?;
    if let Some(until) = live.until {
        line(format_args!("until     {}", moment(until)))?;
    }
    if let Some(rule) = &live.rule {
        let reason = rule.reason.as_deref().unwrap_or("no reason given");
        line(format_args!("rule      {} by {}: {reason}", rule.kind, rule.created_by))?;
    }
    line(format_args!("attempts  {} failed, {} lost with their workers", live.retries, live.losses))?;
    if let Some(error) = &live.last_error {
        line(format_args!("error     {}", show::indented(error)))?;
    }
    if let Some(since) = live.unknown_since {
        line(format_args!("unknown   a worker had no handler for it, since {}", moment(since)))?;
    }
    let again = live.notify_at.map(|at| format!("; woken again at {}", moment(at))).unwrap_or_default();
    show::line(format_args!("next      {}{again}", live.next()))
}

fn show_dead(dead: &DeadEvent) -> anyhow::Result<()> {
    line(format_args!("event     {}", dead.id))?;
    line(format_args!("handler   {}", dead.address))?;
    line(format_args!("emitted   {}", moment(dead.enqueued_at)))?;
    line(format_args!("state     dead since {} ({})", moment(dead.died_at), dead.cause))?;
    line(format_args!("attempts  {} retries, {} lost with their workers", dead.retries, dead.losses))?;
    if let Some(error) = &dead.last_error {
        line(format_args!("error     {}", show::indented(error)))?;
    }
    line(format_args!("next      kept, then deleted; `wakeq dead redrive --id {}` brings it back", dead.id))
}
