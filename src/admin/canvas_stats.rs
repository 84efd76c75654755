//! How many events the handlers of a canvas have together, and the handlers to look at first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::stats::TARGETS_SHOWN;
use super::{Admin, AdminError, HandlerStats};
use crate::event::{CanvasId, HandlerScope, Timestamp};
use crate::store::{BusyHandler, CanvasCounts, CanvasTotals, CountBounds, HandlerActivity, HandlerCounts};

/// Maximum number of handlers in each list.
const LISTED: usize = 50;

/// The events of all handlers of a canvas, counted by what they wait for, and some of the handlers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CanvasStats {
    /// Handlers that have events, dead events, halted objects or rules of their own.
    pub handlers: i64,
    /// Those of them that are paused or blocked.
    pub stopped_handlers: i64,
    /// Those whose events workers have received without having the handler.
    pub unknown_handlers: i64,
    /// Due, and free to run.
    pub waiting: i64,
    /// Not due yet.
    pub delayed: i64,
    /// Due, and held by a pause or a block.
    pub paused: i64,
    /// Claimed by a worker. While many are due, a lower bound: the others count as waiting or
    /// paused.
    pub running: i64,
    /// Dead events that are kept.
    pub dead: i64,
    /// Lanes that are halted because an event died.
    pub halted: i64,
    /// When the oldest due event became due.
    pub oldest_due: Option<Timestamp>,
    /// Whether there may be more: 2,000,000 events and as many dead ones are counted, and 100,000
    /// halted lanes.
    pub capped: bool,
    /// The handlers with the most events that wait, run or are dead: up to 50, the first has most.
    pub busiest: Vec<HandlerStats>,
    /// Up to 50 of the handlers that are paused or blocked, by module and name.
    pub stopped: Vec<HandlerStats>,
    /// Up to 50 of the handlers that some worker does not have, by module and name.
    pub unknown: Vec<HandlerStats>,
}

/// Handlers that were counted, and what they are doing.
type Known = BTreeMap<HandlerScope, (HandlerCounts, HandlerActivity)>;

/// How busy handlers are.
struct Load<'l> {
    known: &'l Known,
    /// Whether the whole canvas is stopped.
    is_off: bool,
}

impl Load<'_> {
    fn running(&self, handler: &BusyHandler) -> i64 {
        let known = self.known.get(&handler.counts.scope);
        known.map_or(0, |(counts, doing)| doing.running.min(counts.due))
    }

    /// How many events of a handler wait, run or are dead.
    fn of(&self, handler: &BusyHandler) -> i64 {
        let is_held = self.is_off || handler.is_stopped;
        handler.counts.dead + if is_held { self.running(handler) } else { handler.counts.due }
    }

    /// Those with the most, in this order.
    fn busiest(&self, busy: &[BusyHandler]) -> Vec<HandlerScope> {
        let key = |handler: &BusyHandler| (Reverse(self.of(handler)), Reverse(handler.counts.delayed));
        let mut busiest: Vec<_> = busy.iter().map(|one| (key(one), one.counts.scope.clone())).collect();
        busiest.sort();
        busiest.into_iter().take(LISTED).map(|(_, scope)| scope).collect()
    }

    /// The counts of the canvas, without the lists. Running events are known of busy handlers.
    fn all(&self, totals: &CanvasTotals, busy: &[BusyHandler]) -> CanvasStats {
        let running: i64 = busy.iter().map(|handler| self.running(handler)).sum();
        let stopped = busy.iter().filter(|handler| handler.is_stopped);
        let running_though_stopped: i64 = stopped.map(|handler| self.running(handler)).sum();
        let held = totals.due - running;
        let paused = if self.is_off { held } else { totals.stopped_due - running_though_stopped };
        CanvasStats {
            handlers: totals.handlers,
            stopped_handlers: totals.stopped,
            unknown_handlers: totals.unknown,
            waiting: held - paused,
            delayed: totals.delayed,
            paused,
            running,
            dead: totals.dead,
            halted: totals.halted,
            oldest_due: totals.oldest_due,
            capped: totals.is_capped,
            ..CanvasStats::default()
        }
    }
}

impl Admin {
    /// How many events the handlers of a canvas have together, however many handlers there are, and
    /// which of these have the most, are stopped, or are unknown. It takes as long as reading all
    /// events in their index: about 0.3 s for a million.
    pub async fn canvas_stats(&self, canvas: CanvasId) -> Result<CanvasStats, AdminError> {
        let recently = self.store.timing().unknown_noted_within();
        let bounds = CountBounds { listed: LISTED as i64, ..CountBounds::default() };
        let counts = self.store.canvas_counts(canvas, recently, bounds).await?;
        let known = self.known(canvas, &counts, recently).await?;
        let switches = self.store.rules_over(&HandlerScope::of_canvas(canvas)).await?;
        let load = Load { known: &known, is_off: !switches.is_empty() };
        let lists = [load.busiest(&counts.busy), scopes(&counts.stopped), scopes(&counts.unknown)];
        // A handler may be in several.
        let listed: BTreeSet<&HandlerScope> = lists.iter().flatten().collect();
        let listed = listed.into_iter().filter_map(|scope| known.get(scope).cloned()).collect();
        let stats = self.with_rules_and_targets(canvas, listed, TARGETS_SHOWN).await?;
        let stats: BTreeMap<_, _> = stats.into_iter().map(|one| (one.scope.clone(), one)).collect();
        let [busiest, stopped, unknown] =
            lists.map(|list| list.iter().filter_map(|scope| stats.get(scope).cloned()).collect());
        Ok(CanvasStats { busiest, stopped, unknown, ..load.all(&counts.totals, &counts.busy) })
    }

    /// What the handlers that were counted are doing.
    async fn known(
        &self,
        canvas: CanvasId,
        counts: &CanvasCounts,
        recently: Duration,
    ) -> Result<Known, AdminError> {
        let busy = counts.busy.iter().map(|busy| &busy.counts);
        let all = busy.chain(&counts.stopped).chain(&counts.unknown);
        let all: BTreeMap<_, _> = all.map(|counts| (counts.scope.clone(), counts.clone())).collect();
        let asked: Vec<HandlerScope> = all.keys().cloned().collect();
        let doing = self.store.doing(canvas, &asked, recently).await?;
        Ok(all.into_iter().zip(doing).map(|((scope, counts), doing)| (scope, (counts, doing))).collect())
    }
}

fn scopes(counts: &[HandlerCounts]) -> Vec<HandlerScope> {
    counts.iter().map(|counts| counts.scope.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(name: &str, due: i64, dead: i64) -> HandlerCounts {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, name).unwrap();
        HandlerCounts { scope, due, delayed: 0, oldest_due: None, dead, halted: 0 }
    }

    /// Handlers of which each runs two events, and the second is stopped.
    fn counted() -> (CanvasCounts, Known) {
        let counted = [handler("a", 5, 0), handler("b", 9, 1), handler("c", 1, 4)];
        let doing = HandlerActivity { running: 2, unknown_since: None };
        let known = counted.iter().map(|one| (one.scope.clone(), (one.clone(), doing))).collect();
        let busy = counted.map(|counts| {
            let is_stopped = counts.scope.name.as_str() == "b";
            BusyHandler { counts, is_stopped }
        });
        let totals =
            CanvasTotals { handlers: 7, due: 100, stopped_due: 30, dead: 5, ..CanvasTotals::default() };
        (CanvasCounts { totals, busy: busy.into(), ..CanvasCounts::default() }, known)
    }

    #[test]
    fn held_events_are_not_waiting() {
        let (counts, known) = counted();
        let all = Load { known: &known, is_off: false }.all(&counts.totals, &counts.busy);
        // Only one event of `c` is due, so it runs one.
        assert_eq!((all.running, all.paused, all.waiting, all.handlers), (5, 28, 67, 7));
        let all = Load { known: &known, is_off: true }.all(&counts.totals, &counts.busy);
        assert_eq!((all.running, all.paused, all.waiting), (5, 95, 0));
    }

    #[test]
    fn the_busiest_handler_is_the_first() {
        let (counts, known) = counted();
        let names = |is_off| {
            let busiest = Load { known: &known, is_off }.busiest(&counts.busy);
            busiest.into_iter().map(|scope| scope.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["a", "c", "b"], "5, then 1 + 4, then 2 + 1");
        assert_eq!(names(true), ["c", "b", "a"], "1 + 4, then 2 + 1, then 2");
    }
}
