//! How many events each handler has, how many could run now, and the rules in force.

use super::{Admin, AdminError, LIST_MAX};
use crate::event::{CanvasId, HandlerScope, Timestamp};
#[cfg(feature = "http")]
use crate::store::RegisteredTarget;
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
    /// Objects that stand still for it, because an event of theirs died.
    pub halted: i64,
    /// Since when the oldest due event has been due.
    pub oldest_due: Option<Timestamp>,
    /// The rules in force, a block first.
    pub rules: Vec<Rule>,
    /// Since when some worker has had events for it but no such handler.
    pub unknown_since: Option<Timestamp>,
    /// Where its events are sent, by modifier.
    #[cfg(feature = "http")]
    pub targets: Vec<RegisteredTarget>,
}

impl Admin {
    /// The handlers of a canvas that have events, rules or targets, with counts; one handler, if it is named.
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
                let (due, delayed, dead, halted, oldest_due) = (0, 0, 0, 0, None);
                let scope = rule.scope.clone();
                counts.push(HandlerCounts { scope, due, delayed, oldest_due, dead, halted });
            }
        }
        let mut stats = Vec::with_capacity(counts.len());
        for counted in counts {
            let rules = rules.iter().filter(|rule| rule.scope == counted.scope).cloned().collect();
            stats.push(self.handler_stats(counted, rules).await?);
        }
        #[cfg(feature = "http")]
        self.add_targets(canvas, scope, &mut stats).await?;
        stats.sort_by(|one, other| one.scope.cmp(&other.scope));
        Ok(stats)
    }

    /// Says where events are sent; a handler that has a target and nothing else is one all the same.
    #[cfg(feature = "http")]
    async fn add_targets(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
        stats: &mut Vec<HandlerStats>,
    ) -> Result<(), AdminError> {
        for target in self.targets(canvas, scope).await? {
            let scope = &target.address.scope;
            match stats.iter_mut().find(|known| known.scope == *scope) {
                Some(known) => known.targets.push(target),
                None => {
                    let (waiting, delayed, paused, running, dead, halted) = (0, 0, 0, 0, 0, 0);
                    let (oldest_due, rules, unknown_since) = (None, Vec::new(), None);
                    let (scope, targets) = (scope.clone(), vec![target]);
                    stats.push(HandlerStats {
                        scope,
                        waiting,
                        delayed,
                        paused,
                        running,
                        dead,
                        halted,
                        oldest_due,
                        rules,
                        unknown_since,
                        targets,
                    });
                }
            }
        }
        Ok(())
    }

    async fn handler_stats(
        &self,
        counts: HandlerCounts,
        rules: Vec<Rule>,
    ) -> Result<HandlerStats, AdminError> {
        let HandlerCounts { scope, due, delayed, oldest_due, dead, halted } = counts;
        let running = if due > 0 { self.store.running(&scope).await?.min(due) } else { 0 };
        let unknown_since =
            self.store.unknown_since(&scope, None, self.store.timing().unknown_noted_within()).await?;
        let held = due - running;
        let (waiting, paused) = if rules.is_empty() { (held, 0) } else { (0, held) };
        Ok(HandlerStats {
            scope,
            waiting,
            delayed,
            paused,
            running,
            dead,
            halted,
            oldest_due,
            rules,
            unknown_since,
            #[cfg(feature = "http")]
            targets: Vec::new(),
        })
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
