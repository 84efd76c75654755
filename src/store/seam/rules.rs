//! Rules, and what operators do to waiting events.

use std::time::Duration;

use super::on_backing;
use crate::event::{Actor, CanvasId, Due, EventId, HandlerScope, Name, RuleKind, Timestamp};
use crate::store::events::{
    AddedRule, CommandOutcome, LeftPlaces, LiftedRule, MovedDue, PurgedPage, Rule, RulePosition,
    RunningCancel,
};
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Puts a rule on a handler, or on [all of a canvas](HandlerScope::of_canvas), or replaces its
    /// reason and end. When this returns, no claim that did not see the rule can still commit.
    pub(crate) async fn add_rule(
        &self,
        kind: RuleKind,
        scope: &HandlerScope,
        reason: Option<&str>,
        until: Option<Timestamp>,
        actor: &Actor,
    ) -> Result<AddedRule, StoreError> {
        on_backing!(self.add_rule(kind, scope, reason, until, actor))
    }

    /// Lifts a rule and, in the same transaction, creates the job that wakes the events that it
    /// held. Lifting a pause also lets events go to those targets of the handler again that have
    /// answered 410 Gone: that is a job of its own.
    pub(crate) async fn lift_rule(
        &self,
        kind: RuleKind,
        scope: &HandlerScope,
        actor: &Actor,
    ) -> Result<LiftedRule, StoreError> {
        on_backing!(self.lift_rule(kind, scope, actor))
    }

    /// The rules in force, of all canvases or one, of all handlers or one, after a position; by
    /// handler, a block before a pause. At most `limit`.
    pub(crate) async fn rules(
        &self,
        canvas: Option<CanvasId>,
        handler: Option<(&Name, &Name)>,
        after: Option<&RulePosition>,
        limit: i64,
    ) -> Result<Vec<Rule>, StoreError> {
        on_backing!(self.rules(canvas, handler, after, limit))
    }

    /// The rules in force that hold a handler: its own, its canvas's, and those on everything. A
    /// block before a pause, and of a kind the widest first.
    pub(crate) async fn rules_over(&self, scope: &HandlerScope) -> Result<Vec<Rule>, StoreError> {
        on_backing!(self.rules_over(scope))
    }

    /// Deletes an event of the canvas, unless it is running. The promise of the next event in its
    /// lane is renewed here, in case this process dies before; both that event and what waits at
    /// its limit have to be woken.
    pub(crate) async fn cancel(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<(CommandOutcome, LeftPlaces), StoreError> {
        on_backing!(self.cancel(canvas, id, actor))
    }

    /// Writes down that an event of the canvas is cancelled, if it is running: its handler has to
    /// stop, and is not started again. A copy that a service has leased is left alone.
    pub(crate) async fn cancel_running(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<RunningCancel, StoreError> {
        on_backing!(self.cancel_running(canvas, id, actor))
    }

    /// Who has cancelled an event of the canvas while it ran.
    pub(crate) async fn cancelled_by(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<String>, StoreError> {
        on_backing!(self.cancelled_by(canvas, id))
    }

    /// Makes an event of the canvas due at once, unless it is running.
    pub(crate) async fn run_now(
        &self,
        canvas: CanvasId,
        id: EventId,
        actor: &Actor,
    ) -> Result<CommandOutcome, StoreError> {
        on_backing!(self.run_now(canvas, id, actor))
    }

    /// Gives an event of the canvas another due time, earlier or later, unless it is running. A
    /// moment that has passed is now.
    pub(crate) async fn set_due(
        &self,
        canvas: CanvasId,
        id: EventId,
        due: Due,
        actor: &Actor,
    ) -> Result<(CommandOutcome, Option<MovedDue>), StoreError> {
        on_backing!(self.set_due(canvas, id, due, actor))
    }

    /// How many events of a handler, not running and emitted before a moment, [`Store::purge_page`]
    /// would delete; copies in queues are not counted. Counts up to `limit`.
    pub(crate) async fn purgeable(
        &self,
        scope: &HandlerScope,
        before: Timestamp,
        limit: u64,
    ) -> Result<u64, StoreError> {
        on_backing!(self.purgeable(scope, before, limit))
    }

    /// Deletes up to `BULK_PAGE` events of a handler that are not running and were emitted before a
    /// moment, but no copies in queues. The promises of the next events in their lanes are renewed
    /// here; both these and what waits at limits have to be woken.
    pub(crate) async fn purge_page(
        &self,
        scope: &HandlerScope,
        before: Timestamp,
        actor: &Actor,
    ) -> Result<PurgedPage, StoreError> {
        on_backing!(self.purge_page(scope, before, actor))
    }

    /// How many of a handler's events are running now: among its 1,000 that were due first, so that
    /// the cost has a bound.
    pub(crate) async fn running_of(&self, scope: &HandlerScope) -> Result<u32, StoreError> {
        on_backing!(self.running_of(scope))
    }

    /// Since when some worker has not known this handler with this modifier, if that happened
    /// within the last `recently`.
    pub(crate) async fn unknown_since(
        &self,
        scope: &HandlerScope,
        modifier: &Name,
        recently: Duration,
    ) -> Result<Option<Timestamp>, StoreError> {
        on_backing!(self.unknown_since(scope, modifier, recently))
    }
}
