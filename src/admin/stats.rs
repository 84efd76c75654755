//! How many events each handler has, how many could run now, and the rules in force.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{Admin, AdminError, Cursor, LIST_MAX, Page};
use crate::event::{CanvasId, HandlerScope, Name, RuleReach, Timestamp};
use crate::store::RegisteredTarget;
use crate::store::{Depth, HandlerActivity, HandlerCounts, HandlerDepth, Rule};

/// Maximum number of targets of one handler in a list of handlers.
pub(super) const TARGETS_SHOWN: usize = 10;

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
    /// The rules in force on the handler, its canvas and everything: a block first.
    pub rules: Vec<Rule>,
    /// Since when workers have received events of it without having the handler.
    pub unknown_since: Option<Timestamp>,
    /// Its targets, by modifier.
    pub targets: Vec<RegisteredTarget>,
    /// Whether it has more targets than are shown.
    pub more_targets: bool,
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
            more_targets: false,
        }
    }

    /// Whether it has anything of its own.
    fn has_something(&self) -> bool {
        [self.waiting, self.delayed, self.paused, self.running, self.dead, self.halted] != [0; 6]
            || self.rules.iter().any(|rule| rule.reach() == RuleReach::Handler)
            || !self.targets.is_empty()
    }

    /// Adds a target, or notes that there are more than are shown.
    fn add(&mut self, target: RegisteredTarget, shown: usize) {
        if self.targets.len() < shown {
            self.targets.push(target);
        } else {
            self.more_targets = true;
        }
    }
}

impl Admin {
    /// The handlers of a canvas that have events, rules or targets, with counts, by module and
    /// name; up to `limit`, 1 to [`LIST_MAX`]. Of each, at most ten targets are shown:
    /// [`Admin::targets`] lists all.
    pub async fn handlers(
        &self,
        canvas: CanvasId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<HandlerStats>, AdminError> {
        let after = cursor.map(Cursor::handler).transpose()?;
        let after = after.as_ref().map_or(("", ""), |(module, name)| (module.as_str(), name.as_str()));
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let found = self.store.handlers(canvas, after, limit as i64 + 1).await?;
        self.page_of(canvas, found, limit).await
    }

    /// The same for some handlers alone: each a module, with a name unless it is all of the module.
    pub async fn handlers_among(
        &self,
        canvas: CanvasId,
        among: &[(Name, Option<Name>)],
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<HandlerStats>, AdminError> {
        let after = cursor.map(Cursor::handler).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let mut found = BTreeSet::new();
        for (module, name) in among {
            match (name, &after) {
                (Some(name), _) => {
                    found.insert(HandlerScope { canvas, module: module.clone(), name: name.clone() });
                }
                (None, Some((passed, _))) if module < passed => {}
                (None, after) => {
                    let inside = after.as_ref().filter(|(reached, _)| reached == module);
                    let start = (module.as_str(), inside.map_or("", |(_, name)| name.as_str()));
                    let next = self.store.handlers(canvas, start, limit as i64 + 1).await?;
                    found.extend(next.into_iter().take_while(|handler| handler.module == *module));
                }
            }
        }
        let is_ahead = |handler: &HandlerScope| {
            after.as_ref().is_none_or(|(module, name)| (&handler.module, &handler.name) > (module, name))
        };
        self.page_of(canvas, found.into_iter().filter(is_ahead).collect(), limit).await
    }

    async fn page_of(
        &self,
        canvas: CanvasId,
        found: Vec<HandlerScope>,
        limit: usize,
    ) -> Result<Page<HandlerStats>, AdminError> {
        let cursor = |last: &HandlerScope| Cursor::of_handler((last.module.clone(), last.name.clone()));
        let Page { items, next, looked_at } = Page::of(found, limit, cursor);
        Ok(Page { items: self.stats_of(canvas, &items, TARGETS_SHOWN).await?, next, looked_at })
    }

    /// A handler with its counts, rules and targets, of which it shows up to [`LIST_MAX`]; `None`
    /// if it has nothing of these.
    pub async fn stats(&self, handler: &HandlerScope) -> Result<Option<HandlerStats>, AdminError> {
        let handlers = std::slice::from_ref(handler);
        Ok(self.stats_of(handler.canvas, handlers, LIST_MAX as usize).await?.pop())
    }

    /// The stats of these handlers, in their order, without those that have nothing.
    async fn stats_of(
        &self,
        canvas: CanvasId,
        handlers: &[HandlerScope],
        targets_shown: usize,
    ) -> Result<Vec<HandlerStats>, AdminError> {
        if handlers.is_empty() {
            return Ok(Vec::new());
        }
        let counts = self.store.counts(canvas, handlers).await?;
        let recently = self.store.timing().unknown_noted_within();
        let doing = self.store.doing(canvas, handlers, recently).await?;
        let counted = counts.into_iter().zip(doing).collect();
        let mut stats = self.with_rules_and_targets(canvas, counted, targets_shown).await?;
        stats.retain(HandlerStats::has_something);
        Ok(stats)
    }

    /// The stats of handlers that were counted, in their order.
    pub(super) async fn with_rules_and_targets(
        &self,
        canvas: CanvasId,
        counted: Vec<(HandlerCounts, HandlerActivity)>,
        targets_shown: usize,
    ) -> Result<Vec<HandlerStats>, AdminError> {
        let handlers: Vec<HandlerScope> = counted.iter().map(|(counts, _)| counts.scope.clone()).collect();
        let mut rules = BTreeMap::<_, Vec<_>>::new();
        for rule in self.store.rules_of(canvas, &handlers).await? {
            rules.entry(rule.scope.clone()).or_default().push(rule);
        }
        let switches = self.store.rules_over(&HandlerScope::of_canvas(canvas)).await?;
        let mut targets = BTreeMap::<_, Vec<_>>::new();
        for target in self.store.targets_of(canvas, &handlers, targets_shown as i64 + 1).await? {
            targets.entry(target.address.scope.clone()).or_default().push(target);
        }
        let stats = counted.into_iter().map(|(counts, doing)| {
            let mut rules = rules.remove(&counts.scope).unwrap_or_default();
            let targets = targets.remove(&counts.scope).unwrap_or_default();
            rules.extend_from_slice(&switches);
            rules.sort_by_key(|rule| Reverse(rule.kind));
            let mut stats = HandlerStats::of(counts, doing, rules);
            targets.into_iter().for_each(|target| stats.add(target, targets_shown));
            stats
        });
        Ok(stats.collect())
    }

    /// How many events of a canvas, or of one handler, are due and free to run. Cheap however many
    /// wait, so it suits autoscalers that ask often. Counts up to 10,000, and examines up to this
    /// many due events of each handler. Those that wait for a limit are not free.
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
