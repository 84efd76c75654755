//! How many events each handler has, how many could run now, and the rules in force.

use std::collections::{BTreeMap, BTreeSet};

use super::{Admin, AdminError, LIST_MAX};
use crate::event::{CanvasId, HandlerScope, Timestamp};
use crate::store::RegisteredTarget;
use crate::store::{Depth, HandlerActivity, HandlerCounts, HandlerDepth, Rule};

/// The events of one handler, counted by what they wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerStats {
    /// The handler, with all its modifiers.
    pub scope: HandlerScope,
    /// Due, and free to run.
    pub waiting: i64,
    /// Not due yet.
    pub delayed: i64,
    /// Due, and held by a pause or a block.
    pub paused: i64,
    /// Claimed by a worker.
    pub running: i64,
    /// Dead events that are kept.
    pub dead: i64,
    /// Lanes that are halted because an event died.
    pub halted: i64,
    /// When the oldest due event became due.
    pub oldest_due: Option<Timestamp>,
    /// The rules in force, a block first.
    pub rules: Vec<Rule>,
    /// Since when workers have received events of it without having the handler.
    pub unknown_since: Option<Timestamp>,
    /// Its targets, by modifier.
    pub targets: Vec<RegisteredTarget>,
}

impl HandlerStats {
    fn of(counts: HandlerCounts, doing: HandlerActivity, rules: Vec<Rule>) -> Self {
        let HandlerCounts { scope, due, delayed, oldest_due, dead, halted } = counts;
        let running = doing.running.min(due);
        let held = due - running;
        let (waiting, paused) = if rules.is_empty() { (held, 0) } else { (0, held) };
        Self {
            scope,
            waiting,
            delayed,
            paused,
            running,
            dead,
            halted,
            oldest_due,
            rules,
            unknown_since: doing.unknown_since,
            targets: Vec::new(),
        }
    }
}

impl Admin {
    /// The handlers of a canvas that have events, rules or targets, with counts; only one handler,
    /// if it is given.
    pub async fn stats(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
    ) -> Result<Vec<HandlerStats>, AdminError> {
        let handler = scope.map(|scope| (&scope.module, &scope.name));
        let mut counts = self.store.counts(canvas, handler, i64::from(LIST_MAX)).await?;
        let mut rules = BTreeMap::<_, Vec<_>>::new();
        for rule in self.store.rules(Some(canvas), handler, 2 * i64::from(LIST_MAX)).await? {
            rules.entry(rule.scope.clone()).or_default().push(rule);
        }
        let counted: BTreeSet<_> = counts.iter().map(|counted| counted.scope.clone()).collect();
        let others = rules.keys().filter(|scope| !counted.contains(*scope)).cloned();
        counts.extend(others.map(HandlerCounts::none));
        let scopes: Vec<_> = counts.iter().map(|counted| counted.scope.clone()).collect();
        let recently = self.store.timing().unknown_noted_within();
        let doing = self.store.doing(canvas, &scopes, recently).await?;
        let stats = scopes.into_iter().zip(counts).zip(doing).map(|((scope, counted), doing)| {
            let rules = rules.remove(&scope).unwrap_or_default();
            (scope, HandlerStats::of(counted, doing, rules))
        });
        let stats: BTreeMap<_, _> = stats.collect();
        let stats = self.with_targets(canvas, scope, stats).await?;
        Ok(stats.into_values().collect())
    }

    /// Adds the targets, including handlers that have nothing but a target.
    async fn with_targets(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
        mut stats: BTreeMap<HandlerScope, HandlerStats>,
    ) -> Result<BTreeMap<HandlerScope, HandlerStats>, AdminError> {
        for target in self.targets(canvas, scope).await? {
            let scope = target.address.scope.clone();
            let nothing = || {
                HandlerStats::of(HandlerCounts::none(scope.clone()), HandlerActivity::default(), Vec::new())
            };
            stats.entry(scope.clone()).or_insert_with(nothing).targets.push(target);
        }
        Ok(stats)
    }

    /// How many events of a canvas, or of one handler, are due and free to run. Cheap however many
    /// wait, so it suits autoscalers that ask often. Counts up to 10,000, and examines up to this
    /// many due events of each handler.
    pub async fn depth(&self, canvas: CanvasId, scope: Option<&HandlerScope>) -> Result<Depth, AdminError> {
        if scope.is_some_and(|scope| scope.canvas != canvas) {
            return Err(AdminError::Invalid("the handler belongs to another canvas"));
        }
        Ok(self.store.depth(canvas, scope).await?)
    }

    /// How many events of all canvases are due and free to run, by handler. Reads about 20,000 due
    /// events, of at most 1,000 handlers of a canvas.
    pub async fn depths(&self) -> Result<Vec<HandlerDepth>, AdminError> {
        Ok(self.store.depths().await?)
    }
}
