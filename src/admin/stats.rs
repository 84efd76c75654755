//! How many events each handler has, how many could run now, and the rules in force.

use super::{Admin, AdminError, LIST_MAX};
use crate::event::{CanvasId, HandlerScope, Timestamp};
use crate::store::{Depth, HandlerCounts, Rule};

/// The events of one handler, by what they wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerStats {
    /// The handler, with all its modifiers.
    pub scope: HandlerScope,
    /// Due and free to run.
    pub waiting: i64,
    /// Not due yet.
    pub delayed: i64,
    /// Due, and held by a pause or a block.
    pub paused: i64,
    /// On a worker now.
    pub running: i64,
    /// Given up, and kept.
    pub dead: i64,
    /// Since when the oldest due event has been due.
    pub oldest_due: Option<Timestamp>,
    /// The rules in force, a block first.
    pub rules: Vec<Rule>,
    /// Since when some worker has had events for it but no such handler.
    pub unknown_since: Option<Timestamp>,
}

impl Admin {
    /// The handlers of a canvas that have events, with counts and rules; one handler, if it is named.
    pub async fn stats(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
    ) -> Result<Vec<HandlerStats>, AdminError> {
        let handler = scope.map(|scope| (&scope.module, &scope.name));
        let mut counts = self.store.counts(canvas, handler, i64::from(LIST_MAX)).await?;
        let rules = self.store.rules(Some(canvas), handler, 2 * i64::from(LIST_MAX)).await?;
        for rule in &rules {
            if !counts.iter().any(|counted| counted.scope == rule.scope) {
                let (due, delayed, dead, oldest_due) = (0, 0, 0, None);
                counts.push(HandlerCounts { scope: rule.scope.clone(), due, delayed, dead, oldest_due });
            }
        }
        let mut stats = Vec::with_capacity(counts.len());
        for counted in counts {
            let rules = rules.iter().filter(|rule| rule.scope == counted.scope).cloned().collect();
            stats.push(self.handler_stats(counted, rules).await?);
        }
        stats.sort_by(|one, other| one.scope.cmp(&other.scope));
        Ok(stats)
    }

    async fn handler_stats(
        &self,
        counts: HandlerCounts,
        rules: Vec<Rule>,
    ) -> Result<HandlerStats, AdminError> {
        let HandlerCounts { scope, due, delayed, oldest_due, dead } = counts;
        let running = if due > 0 { self.store.running(&scope).await?.min(due) } else { 0 };
        let unknown_since =
            self.store.unknown_since(&scope, None, 2 * self.store.timing().unknown_handler_wait).await?;
        let held = due - running;
        let (waiting, paused) = if rules.is_empty() { (held, 0) } else { (0, held) };
        Ok(HandlerStats { scope, waiting, delayed, paused, running, dead, oldest_due, rules, unknown_since })
    }

    /// How many events of a canvas, or of one handler, are due and free to run: cheap however many wait, so made for
    /// scalers that ask often. Counts to 10,000; of each handler it looks at so many due events at most.
    pub async fn depth(&self, canvas: CanvasId, scope: Option<&HandlerScope>) -> Result<Depth, AdminError> {
        if scope.is_some_and(|scope| scope.canvas != canvas) {
            return Err(AdminError::Invalid("the handler belongs to another canvas"));
        }
        Ok(self.store.depth(canvas, scope).await?)
    }
}
