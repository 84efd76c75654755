//! Pauses and blocks: who may set and lift them, their results, and waking what a lifted one held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Admin, AdminError, Cursor, LIST_MAX, Page, checked};
use crate::event::{Actor, CanvasId, HandlerScope, RuleKind, RuleReach, Timestamp, is_storable};
use crate::store::Rule;

/// A handler has at most one rule of each kind.
const KINDS: i64 = 2;

/// Why and for how long a handler, a canvas or everything is stopped.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Shown wherever the rule is shown; up to 1,000 characters.
    pub reason: Option<String>,
    /// When the rule ends by itself. Events that it held are woken within a minute after that.
    pub until: Option<Timestamp>,
}

/// The result of pausing or blocking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopResult {
    /// Whether there was no rule of this kind before.
    pub new: bool,
    /// The rule as it is now.
    pub rule: Rule,
    /// The other kind, if a rule of it stands as well.
    pub also: Option<RuleKind>,
}

/// The result of lifting a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeResult {
    /// Whether there was a rule to lift.
    pub lifted: bool,
    /// The other kind, if a rule of it still stops the same.
    pub still: Option<RuleKind>,
    /// A rule that stops more and holds the events all the same: one on the handler's canvas, or on
    /// everything.
    pub under: Option<Rule>,
    /// Events whose notifications this call published before it returned.
    pub woken: usize,
    /// Whether waking continues after the call, here (see [`Admin::patience`]) or in another
    /// process. If this process dies, a worker continues.
    pub waking: bool,
}

impl Admin {
    /// Pauses a handler: once this has returned, no worker can claim an event of it. One claimed
    /// just before may still be starting. Pausing again replaces reason and end.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, CanvasId, HandlerScope, Stop};
    ///
    /// let (handler, ada) = (HandlerScope::worker(CanvasId::DEFAULT, "send-email")?, Actor::user("ada"));
    /// admin.pause(&handler, &ada, &Stop::default()).await?;
    /// let resumed = admin.unpause(&handler, &ada).await?;
    /// println!("{} events woken", resumed.woken);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pause(
        &self,
        scope: &HandlerScope,
        actor: &Actor,
        stop: &Stop,
    ) -> Result<StopResult, AdminError> {
        self.stop(RuleKind::Pause, of_handler(scope)?, actor, stop).await
    }

    /// Lifts a pause and wakes the events that it held. A block stays, and so does what stops the
    /// whole canvas or everything, which the result says. If there was no pause, nothing is done or
    /// recorded.
    pub async fn unpause(&self, scope: &HandlerScope, actor: &Actor) -> Result<ResumeResult, AdminError> {
        self.lift(RuleKind::Pause, of_handler(scope)?, actor).await
    }

    /// Blocks a handler, whatever its users do. Only for admins.
    pub async fn block(
        &self,
        scope: &HandlerScope,
        actor: &Actor,
        stop: &Stop,
    ) -> Result<StopResult, AdminError> {
        self.stop(RuleKind::Block, of_handler(scope)?, actor, stop).await
    }

    /// Lifts a block and wakes the events that it held. Only for admins. A pause stays: see the
    /// result.
    pub async fn unblock(&self, scope: &HandlerScope, actor: &Actor) -> Result<ResumeResult, AdminError> {
        self.lift(RuleKind::Block, of_handler(scope)?, actor).await
    }

    /// Adds a rule, or replaces its reason and end.
    pub(super) async fn stop(
        &self,
        kind: RuleKind,
        scope: &HandlerScope,
        actor: &Actor,
        stop: &Stop,
    ) -> Result<StopResult, AdminError> {
        if kind == RuleKind::Block && !actor.is_admin() {
            return Err(AdminError::AdminOnly { verb: "block" });
        }
        checked(actor)?;
        if stop.reason.as_ref().is_some_and(|reason| reason.chars().count() > 1000 || reason.contains('\0')) {
            return Err(AdminError::Invalid(
                "the reason must have at most 1,000 characters, none of them NUL",
            ));
        }
        if stop.until.is_some_and(|until| !is_storable(until)) {
            return Err(AdminError::Invalid(
                "the rule would end after the year 9999: give an earlier moment, or none",
            ));
        }
        if let Some(until) = stop.until
            && until <= self.store.clock().await?
        {
            return Err(AdminError::Invalid("the rule would end in the past: give a later moment"));
        }
        let added = self.store.add_rule(kind, scope, stop.reason.as_deref(), stop.until, actor).await?;
        let also = added.other_stands.then_some(other(kind));
        Ok(StopResult { new: added.new, rule: added.rule, also })
    }

    /// Lifts a rule and wakes what no other rule holds.
    pub(super) async fn lift(
        &self,
        kind: RuleKind,
        scope: &HandlerScope,
        actor: &Actor,
    ) -> Result<ResumeResult, AdminError> {
        if kind == RuleKind::Block && !actor.is_admin() {
            return Err(AdminError::AdminOnly { verb: "unblock" });
        }
        checked(actor)?;
        let lifted = self.store.lift_rule(kind, scope, actor).await?;
        crate::fault::point("rule.lifted");
        let is_lifted = !lifted.jobs.is_empty();
        let (woken, waking) = self.resume(scope.canvas, lifted.jobs).await?;
        let still = lifted.other_stands.then_some(other(kind));
        let over = self.store.rules_over(scope).await?;
        let under = over.into_iter().find(|rule| rule.reach() > scope.reach());
        Ok(ResumeResult { lifted: is_lifted, still, under, woken, waking })
    }

    /// Processes resume jobs, if there are any. Returns how many events were woken before the
    /// patience ended, and whether that continues, here or in another process that has taken over a
    /// job.
    pub(super) async fn resume(&self, canvas: CanvasId, jobs: Vec<i64>) -> Result<(usize, bool), AdminError> {
        let Some(first) = jobs.first().copied() else { return Ok((0, false)) };
        let woken = Arc::new(AtomicUsize::new(0));
        let (waker, count) = (self.waker.clone(), Arc::clone(&woken));
        let resume = async move { waker.resume_all(canvas, &jobs, &count).await };
        let stopped = "waking events stopped; a worker carries on within a minute";
        let waking = self.in_background(Some(first), stopped, resume).await?;
        Ok((woken.load(Ordering::Relaxed), waking))
    }

    /// The rules in force on all handlers of all canvases, and on whole canvases and everything, by
    /// canvas, module and name, a block before a pause; up to `limit`, 1 to [`LIST_MAX`].
    pub async fn rules(&self, cursor: Option<&Cursor>, limit: u32) -> Result<Page<Rule>, AdminError> {
        let after = cursor.map(Cursor::rule).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let found = self.store.rules(None, None, after.as_ref(), limit as i64 + 1).await?;
        Ok(Page::of(found, limit, |last| Cursor::of_rule((last.scope.clone(), last.kind))))
    }

    /// The rules in force on a handler itself: at most one of each kind, the block first. It may be
    /// stopped by one on [its canvas](Admin::switches) as well.
    pub async fn rules_of(&self, scope: &HandlerScope) -> Result<Vec<Rule>, AdminError> {
        let handler = Some((&scope.module, &scope.name));
        Ok(self.store.rules(Some(scope.canvas), handler, None, KINDS).await?)
    }
}

/// The handler, unless its name stands for a whole canvas.
pub(super) fn of_handler(scope: &HandlerScope) -> Result<&HandlerScope, AdminError> {
    match scope.reach() {
        RuleReach::Handler => Ok(scope),
        RuleReach::Canvas | RuleReach::Everything => Err(AdminError::Invalid(
            "no event is of module CANVAS: to stop a whole canvas, pause or block the canvas itself",
        )),
    }
}

fn other(kind: RuleKind) -> RuleKind {
    match kind {
        RuleKind::Pause => RuleKind::Block,
        RuleKind::Block => RuleKind::Pause,
    }
}
