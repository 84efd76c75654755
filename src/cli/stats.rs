//! `wakeq stats`.

use clap::Args;

use super::{Context, show};
use crate::admin::HandlerStats;

#[derive(Args)]
pub(crate) struct Stats {
    /// Only this handler: its name, or MODULE/name
    handler: Option<show::HandlerName>,
}

impl Stats {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let canvas = context.canvas.canvas;
        let scope = self.handler.map(|handler| handler.scope(canvas));
        let stats = context.reader().await?.stats(canvas, scope.as_ref()).await?;
        if stats.is_empty() {
            return show::line("no events, and no rules");
        }
        let head = "HANDLER                          WAITING  DELAYED   PAUSED  RUNNING     DEAD  RULES";
        show::line(head)?;
        stats.iter().try_for_each(|handler| show::line(row(handler)))
    }
}

fn row(stats: &HandlerStats) -> String {
    let HandlerStats { scope, waiting, delayed, paused, running, dead, .. } = stats;
    let mut rules: Vec<String> = Vec::new();
    for rule in &stats.rules {
        let until = rule.until.map(|until| format!(" until {}", show::moment(until))).unwrap_or_default();
        let reason = rule.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        rules.push(format!("{} by {}{until}{reason}", rule.kind, rule.created_by));
    }
    if let Some(since) = stats.unknown_since {
        rules.push(format!(
            "some worker lacks this handler, or one of its modifiers, since {}",
            show::moment(since)
        ));
    }
    format!("{scope:30} {waiting:>9} {delayed:>8} {paused:>8} {running:>8} {dead:>8}  {}", rules.join("; "))
}
