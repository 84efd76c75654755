//! Rules, and what operators do to waiting events.

use std::collections::BTreeSet;

use super::Tables;
use super::batch_row::MemberEnd;
use super::lanes::lane_of;
use crate::event::{
    Actor, CanvasId, Due, EndedOutcome, EventId, HandlerScope, Lane, Name, RuleKind, Timestamp,
};
use crate::store::events::{
    AddedRule, AttemptEnd, BULK_PAGE, CommandOutcome, LeftPlaces, LiftedRule, MovedDue, PurgedPage, Rule,
    RulePosition, RunningCancel,
};
use crate::store::kernel::StoreError;

impl Tables {
    pub(in crate::store) fn add_rule(
        &mut self,
        kind: RuleKind,
        scope: &HandlerScope,
        reason: Option<&str>,
        until: Option<Timestamp>,
        actor: &Actor,
    ) -> Result<AddedRule, StoreError> {
        let key = (scope.clone(), kind);
        let earlier = self.rules.get(&key).map(|rule| rule.created_at);
        let rule = Rule {
            kind,
            scope: scope.clone(),
            reason: reason.map(Into::into),
            until,
            created_by: actor.name().into(),
            created_at: earlier.unwrap_or(self.now),
        };
        self.rules.insert(key, rule.clone());
        Ok(AddedRule { new: earlier.is_none(), rule, other_stands: self.other_stands(kind, scope) })
    }

    pub(in crate::store) fn lift_rule(
        &mut self,
        kind: RuleKind,
        scope: &HandlerScope,
        _actor: &Actor,
    ) -> Result<LiftedRule, StoreError> {
        let lifted = self.rules.remove(&(scope.clone(), kind)).is_some();
        let jobs = lifted.then(|| self.make_job(scope.clone(), true)).into_iter().collect();
        Ok(LiftedRule { jobs, other_stands: self.other_stands(kind, scope) })
    }

    fn other_stands(&self, kind: RuleKind, scope: &HandlerScope) -> bool {
        let other = match kind {
            RuleKind::Pause => RuleKind::Block,
            RuleKind::Block => RuleKind::Pause,
        };
        self.rules
            .get(&(scope.clone(), other))
            .is_some_and(|rule| rule.until.is_none_or(|until| until > self.now))
    }

    pub(in crate::store) fn rules(
        &self,
        canvas: Option<CanvasId>,
        handler: Option<(&Name, &Name)>,
        after: Option<&RulePosition>,
        limit: i64,
    ) -> Result<Vec<Rule>, StoreError> {
        let meant = |rule: &&Rule| {
            canvas.is_none_or(|canvas| rule.scope.canvas == canvas)
                && handler
                    .is_none_or(|(module, name)| rule.scope.module == *module && rule.scope.name == *name)
                && rule.until.is_none_or(|until| until > self.now)
        };
        let mut rules: Vec<Rule> = self.rules.values().filter(meant).cloned().collect();
        let place = |scope: &HandlerScope, kind: RuleKind| (scope.clone(), kind == RuleKind::Pause);
        if let Some(after) = after.map(|(scope, kind)| place(scope, *kind)) {
            rules.retain(|rule| place(&rule.scope, rule.kind) > after);
        }
        rules.sort_by_key(|rule| place(&rule.scope, rule.kind));
        rules.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(rules)
    }

    pub(in crate::store) fn rules_over(&self, scope: &HandlerScope) -> Result<Vec<Rule>, StoreError> {
        Ok(self.standing(scope).into_iter().cloned().collect())
    }

    /// The rule in force on a handler, its canvas or everything; a block outranks a pause.
    pub(super) fn rule_on(&self, scope: &HandlerScope) -> Option<RuleKind> {
        self.standing(scope).first().map(|rule| rule.kind)
    }

    fn standing(&self, scope: &HandlerScope) -> Vec<&Rule> {
        let mut keys = Vec::new();
        for kind in [RuleKind::Block, RuleKind::Pause] {
            let wider = [HandlerScope::of_everything(), HandlerScope::of_canvas(scope.canvas)];
            keys.extend(wider.map(|scope| (scope, kind)));
            keys.push((scope.clone(), kind));
        }
        keys.dedup();
        let rules = keys.iter().filter_map(|key| self.rules.get(key));
        rules.filter(|rule| rule.until.is_none_or(|until| until > self.now)).collect()
    }

    /// The outcome of a command, by whether the canvas has the event, and whether it is running.
    fn command_outcome(&self, canvas: CanvasId, id: EventId) -> CommandOutcome {
        match self.events.get(&id).filter(|row| row.address().scope.canvas == canvas) {
            Some(row) => CommandOutcome::of(self.is_free(row), true),
            None => CommandOutcome::Missing,
        }
    }

    pub(in crate::store) fn cancel(
        &mut self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<(CommandOutcome, LeftPlaces), StoreError> {
        let outcome = self.command_outcome(canvas, id);
        let gone = if outcome == CommandOutcome::Done { self.events.remove(&id) } else { None };
        if let Some(row) = &gone {
            self.add_tombstone(row, "cancelled");
            self.leave_batch(row, MemberEnd::Cancelled);
            self.keep_ended(row, EndedOutcome::Cancelled, &AttemptEnd::default(), Some(actor.name()));
        }
        let limit = self.places_kept(gone.as_slice()).pop();
        Ok((outcome, LeftPlaces { lane: gone.as_ref().and_then(lane_of), limit }))
    }

    /// There are no queues in memory.
    pub(in crate::store) fn cancel_running(
        &mut self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<RunningCancel, StoreError> {
        let outcome = self.command_outcome(canvas, id);
        Ok(match (outcome, self.events.get_mut(&id)) {
            (CommandOutcome::Missing, _) | (_, None) => RunningCancel::Missing,
            (CommandOutcome::Done, _) => RunningCancel::Free,
            (CommandOutcome::Runs, Some(row)) if row.cancelled_by.is_some() => RunningCancel::AskedBefore,
            (CommandOutcome::Runs, Some(row)) => {
                row.cancelled_by = Some(actor.name().to_owned());
                RunningCancel::Asked
            }
        })
    }

    pub(in crate::store) fn cancelled_by(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<String>, StoreError> {
        let row = self.events.get(&id).filter(|row| row.address().scope.canvas == canvas);
        Ok(row.and_then(|row| row.cancelled_by.clone()))
    }

    pub(in crate::store) fn run_now(
        &mut self,
        canvas: CanvasId,
        id: EventId,
        _actor: &Actor,
    ) -> Result<CommandOutcome, StoreError> {
        let outcome = self.command_outcome(canvas, id);
        let (now, notify_at) = (self.now, self.wake_at(self.now, self.timing.grace));
        if outcome == CommandOutcome::Done
            && let Some(row) = self.events.get_mut(&id)
        {
            row.delay_until = row.delay_until.min(now);
            row.notify_at = Some(notify_at);
            row.probes = 0;
        }
        Ok(outcome)
    }

    pub(in crate::store) fn set_due(
        &mut self,
        canvas: CanvasId,
        id: EventId,
        due: Due,
        _actor: &Actor,
    ) -> Result<(CommandOutcome, Option<MovedDue>), StoreError> {
        let outcome = self.command_outcome(canvas, id);
        let due = due.at(self.now).max(self.now);
        let notify_at = self.wake_at(due, self.timing.grace);
        let is_soon = due <= self.now + self.timing.horizon;
        let mut left = None;
        if outcome == CommandOutcome::Done
            && let Some(row) = self.events.get_mut(&id)
        {
            row.delay_until = due;
            row.notify_at = Some(notify_at);
            row.probes = 0;
            if due > self.now {
                let told = self.limits.waits.remove(&id).filter(|wait| wait.woken_at.is_some());
                left = told.map(|wait| wait.held);
                self.limits.put_off.remove(&id);
            }
            return Ok((outcome, Some(MovedDue { due, is_soon, left })));
        }
        Ok((outcome, None))
    }

    /// The clock does not move between two steps, so events emitted at this very moment count as
    /// before.
    fn free_of(&self, scope: &HandlerScope, before: Timestamp, limit: u64) -> Vec<EventId> {
        let meant =
            self.events.iter().filter(|(_, row)| row.address().scope == *scope && row.enqueued_at <= before);
        let free = meant.filter(|(_, row)| self.is_free(row));
        free.map(|(id, _)| *id).take(usize::try_from(limit).unwrap_or(usize::MAX)).collect()
    }

    pub(in crate::store) fn purgeable(
        &self,
        scope: &HandlerScope,
        before: Timestamp,
        limit: u64,
    ) -> Result<u64, StoreError> {
        Ok(self.free_of(scope, before, limit).len() as u64)
    }

    pub(in crate::store) fn purge_page(
        &mut self,
        scope: &HandlerScope,
        before: Timestamp,
        _actor: &Actor,
    ) -> Result<PurgedPage, StoreError> {
        let page = self.free_of(scope, before, BULK_PAGE);
        let gone: Vec<_> = page.iter().filter_map(|id| self.events.remove(id)).collect();
        gone.iter().for_each(|row| self.add_tombstone(row, "purged"));
        gone.iter().for_each(|row| self.leave_batch(row, MemberEnd::Cancelled));
        let lanes: BTreeSet<Lane> = gone.iter().filter_map(lane_of).collect();
        let limits = self.places_kept(&gone);
        Ok(PurgedPage { count: page.len() as u64, lanes: lanes.into_iter().collect(), limits })
    }

    pub(in crate::store) fn emitted_at(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<Timestamp>, StoreError> {
        let chosen = self.chosen.get(&id).filter(|chosen| chosen.scope.canvas == canvas);
        Ok(chosen.map(|chosen| chosen.emitted_at))
    }

    pub(in crate::store) fn running_of(&self, scope: &HandlerScope) -> Result<u32, StoreError> {
        let rows = self.events.values().filter(|row| row.address().scope == *scope && !self.is_free(row));
        Ok(u32::try_from(rows.count()).unwrap_or(u32::MAX))
    }

    pub(in crate::store) fn unknown_since(
        &self,
        scope: &HandlerScope,
        modifier: &Name,
        recently: std::time::Duration,
    ) -> Result<Option<Timestamp>, StoreError> {
        let meant = self.unknown.iter().filter(|(address, unknown)| {
            address.scope == *scope
                && address.modifier == *modifier
                && unknown.last_seen > self.now - recently
        });
        Ok(meant.map(|(_, unknown)| unknown.first_seen).min())
    }
}
