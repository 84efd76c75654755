//! The last writes of a run: saving an event for another attempt or removing it, and finding the
//! events whose turn it is then.
//!
//! The answer to a fenced write decides what it did, not what a renewal finds in the meantime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::stage::{Attempt, AttemptReport, Ending, HandOver, LaneLook, Owner, Stage, UnexpectedEffect};
use super::{NextStage, Run, defect};
use crate::event::{Cause, Claim, EndedOutcome, Lane, Notification, Place};
use crate::machine::{Effect, Input, Removal};
use crate::store::{BatchKey, KeptEnd, LoadedEvent, NotedRetry, Retry, Standing, StoreError, WokenEvent};
use crate::worker::leases::HeldClaim;
use crate::worker::statements::{FreedLimits, Statements};

/// The error of a poison event.
const POISON: &str = "its workers died or stalled too often while it ran";
/// Longest reason for holding a target, in characters.
const REASON_MAX: usize = 1000;

impl Run<'_> {
    /// Holds the target of this run, which was removed; returns whether the database answered.
    pub(super) async fn pause(&self, attempt: &Attempt) -> bool {
        let Owner { subject, handler, held_claim: _ } = &attempt.owner;
        // The handlers that a queue's copies name still exist.
        if subject.copy.is_some() {
            return false;
        }
        let reason = attempt.report.error.as_deref().unwrap_or("its target was removed");
        let reason: String = reason.chars().take(REASON_MAX).collect();
        match self.runner.statements.hold_gone(&subject.address, handler.revision, &reason).await {
            Ok(true) => tracing::warn!(
                reason,
                "the target reports that it was removed (410 Gone): it is held until another URL is \
                 registered, or its handler is unpaused"
            ),
            Ok(false) => tracing::info!(
                reason,
                "the target reports that it was removed (410 Gone); it is held already, or was replaced"
            ),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    reason,
                    "the target reports that it was removed (410 Gone), but it could not be held; \
                     retrying"
                );
                return false;
            }
        }
        true
    }

    pub(super) async fn save(&self, attempt: &Attempt, claim: Claim, retries: u32, delay: Duration) -> bool {
        let Attempt { owner, report } = attempt;
        let retries = i32::try_from(retries).unwrap_or(i32::MAX);
        let error = report.error.clone().unwrap_or_default();
        let is_postponed = i64::from(retries) < i64::from(report.number);
        let has_room = self.runner.statements.has_room_for_attempt(owner.subject.address.scope.canvas);
        let noted = has_room.then_some(NotedRetry { took: report.took, is_postponed });
        let retry = Arc::new(Retry { claim, retries, delay, error, noted });
        let save = || self.runner.statements.retries.call(Arc::clone(&retry));
        let is_saved = |found: Option<LoadedEvent>| {
            found.is_some_and(|event| {
                event.schedule.locked_at.is_none() && (event.claims, event.retries) == (claim.claims, retries)
            })
        };
        self.until_settled(&owner.held_claim, claim, false, save, is_saved).await
    }

    pub(super) async fn release(&self, claim: Claim) {
        if let Err(error) = self.runner.statements.releases.call(claim).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the claim was not released; it ends when its lease expires"
            );
        }
    }

    /// Performs the removal that a stage can perform.
    pub(super) async fn remove(&self, stage: Stage, claim: Claim, removal: Removal) -> NextStage {
        match (stage, removal) {
            (Stage::Attempt(attempt), Removal::Completed) => {
                let removed = self.complete(claim, &attempt).await;
                self.drop_checkpoint(&attempt.owner, removed).await;
                self.after_removal(attempt.into_ending(), removed).await
            }
            (Stage::Attempt(attempt), Removal::Committed) => {
                self.drop_checkpoint(&attempt.owner, true).await;
                self.after_removal(attempt.into_ending(), true).await
            }
            (Stage::Attempt(attempt), Removal::Cancelled) => {
                let removed = Box::pin(self.cancel(claim, &attempt.owner, Some(&attempt.report))).await;
                self.drop_checkpoint(&attempt.owner, removed).await;
                self.after_removal(attempt.into_ending(), removed).await
            }
            (
                Stage::Attempt(attempt),
                Removal::Dead(cause @ (Cause::Retries | Cause::Rejected | Cause::Expired)),
            ) => {
                let removed = Box::pin(self.die(claim, cause, &attempt.owner, Some(&attempt.report))).await;
                self.after_removal(attempt.into_ending(), removed).await
            }
            (Stage::ReadyEvent(ready), Removal::Cancelled) => {
                let removed = Box::pin(self.cancel(claim, &ready.owner, None)).await;
                self.after_removal(ready.into_ending(), removed).await
            }
            (Stage::ReadyEvent(ready), Removal::Dead(Cause::Poison)) => {
                let removed = Box::pin(self.die(claim, Cause::Poison, &ready.owner, None)).await;
                self.after_removal(ready.into_ending(), removed).await
            }
            // The error of its last attempt stays.
            (Stage::ReadyEvent(ready), Removal::Dead(Cause::Expired)) => {
                let removed = Box::pin(self.die(claim, Cause::Expired, &ready.owner, None)).await;
                self.after_removal(ready.into_ending(), removed).await
            }
            (stage, removal) => {
                let effect = Effect::Remove(claim, removal);
                let end = defect(&UnexpectedEffect { stage: stage.name(), effect });
                (stage, Err(end))
            }
        }
    }

    /// Deletes an event that completed, and keeps it if that was asked for; returns whether the
    /// claim still stood.
    pub(super) async fn complete(&self, claim: Claim, attempt: &Attempt) -> bool {
        let Attempt { owner, report } = attempt;
        let Owner { subject, held_claim, handler } = owner;
        let statements = &self.runner.statements;
        // Its end frees only the worker's capacity, and no room that is short.
        let lingers = subject.copy.is_none() && handler.concurrency.is_none() && handler.revision.is_none();
        // A target may have called `wakeq.complete` before it answered.
        let maybe_done = handler.revision.is_some();
        let outcome = if report.error.is_some() { EndedOutcome::Failed } else { EndedOutcome::Completed };
        let end = owner.end(Some(report), outcome);
        if let Some(end) = Some(end).filter(|end| !end.keep.is_zero()) {
            let kept = KeptEnd { claim, end };
            return Box::pin(self.complete_kept(held_claim, kept, maybe_done)).await;
        }
        if subject.place.is_some() {
            crate::fault::point("link.processed");
            let complete = || statements.link_completions.call(claim);
            self.until_settled(held_claim, claim, maybe_done, complete, is_gone).await
        } else {
            let completions = match (lingers, self.woken) {
                (false, _) => &statements.completions,
                (true, true) => &statements.woken_completions,
                (true, false) => &statements.lingering_completions,
            };
            self.until_settled(held_claim, claim, maybe_done, || completions.call(claim), is_gone).await
        }
    }

    async fn complete_kept(&self, held_claim: &HeldClaim, kept: KeptEnd, maybe_done: bool) -> bool {
        let (claim, kept) = (kept.claim, Arc::new(kept));
        let complete = || self.runner.statements.complete_kept(Arc::clone(&kept));
        self.until_settled(held_claim, claim, maybe_done, complete, is_gone).await
    }

    /// What became of the transaction in which the handler was to complete the event; `None`
    /// without an answer within a lease. A commit may be on its way although the handler has ended.
    pub(super) async fn standing(&self, held: &HeldClaim) -> Option<Standing> {
        crate::fault::point("transaction.ended");
        let claim = held.claim();
        let look = || self.runner.statements.standing(claim);
        self.until_answered("whether its handler has completed the event", look, self.looks_end()).await
    }

    /// Deletes an event that was cancelled while it ran; returns whether the claim still stood.
    pub(super) async fn cancel(&self, claim: Claim, owner: &Owner, report: Option<&AttemptReport>) -> bool {
        let end = owner.end(report, EndedOutcome::Cancelled);
        let remove = || self.runner.statements.remove_cancelled(claim, &end);
        self.until_settled(&owner.held_claim, claim, false, remove, is_gone).await
    }

    /// Deletes the checkpoint of an event that has ended, if its handler had to do with one. The
    /// expiry deletes what is left, so an error is none.
    async fn drop_checkpoint(&self, owner: &Owner, ended: bool) {
        let Owner { subject, held_claim, handler: _ } = owner;
        if !ended || !held_claim.has_checkpoint() {
            return;
        }
        let (canvas, id) = (subject.address.scope.canvas, held_claim.claim().id);
        if let Err(error) = self.runner.statements.drop_checkpoint(canvas, id).await {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "a checkpoint waits for the expiry");
        }
    }

    /// Moves an event to the dead events, or deletes it if it was cancelled, which this process may
    /// not have known; returns whether the claim still stood.
    pub(super) async fn die(
        &self,
        claim: Claim,
        cause: Cause,
        owner: &Owner,
        report: Option<&AttemptReport>,
    ) -> bool {
        let Owner { subject, held_claim, handler } = owner;
        // Without a report, no attempt was made.
        let unattempted = (cause == Cause::Poison).then_some(POISON);
        let error = report.map_or(unattempted, |report| report.error.as_deref());
        let canvas = subject.address.scope.canvas;
        let took = report.map(|report| report.took);
        let took = took.filter(|_| self.runner.statements.has_room_for_attempt(canvas));
        let (halts, was_cancelled) = (handler.halts, AtomicBool::new(false));
        let end = owner.end(report, EndedOutcome::Cancelled);
        let die = async || -> Result<bool, StoreError> {
            let died = self.runner.statements.die(claim, cause, error, halts, took).await?;
            if died {
                return Ok(true);
            }
            let removed = self.runner.statements.remove_cancelled(claim, &end).await?;
            was_cancelled.store(removed, Ordering::Relaxed);
            Ok(removed)
        };
        let ended = self.until_settled(held_claim, claim, false, die, is_gone).await;
        if ended
            && !was_cancelled.load(Ordering::Relaxed)
            && halts
            && let Some(Place { object, link }) = &subject.place
        {
            tracing::error!(
                %object, link = link.id, error,
                "an object is halted: redrive its dead event, or skip it"
            );
        }
        ended
    }

    /// The step after a removal.
    pub(super) async fn after_removal(&self, ending: Ending, removed: bool) -> NextStage {
        // Whatever was answered: the removal may have happened all the same.
        if let Some(batch) = ending.batch() {
            Box::pin(self.leave_batch(batch)).await;
        }
        match (removed, ending.lane()) {
            (true, Some(lane)) => {
                (Stage::HandOver(Box::new(HandOver { lane, ending })), Ok(Input::LinkRemoved))
            }
            (false, Some(lane)) => {
                // The removal may have happened all the same, and then no one else would wake the
                // next event.
                (Stage::Ending(ending.after(self.next(lane).await)), Ok(Input::Removed(false)))
            }
            (removed, None) => (Stage::Ending(ending), Ok(Input::Removed(removed))),
        }
    }

    /// Looks whether the batch of an event that has ended is over, and ends it then. Without an
    /// answer it is left to the minute's pass.
    async fn leave_batch(&self, batch: BatchKey) {
        crate::fault::point("batch.left");
        match self.runner.statements.batch_looks.call(batch.clone()).await {
            Ok(false) => {}
            Ok(true) => self.runner.waker.end_batch_if_over(&batch).await,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, batch = %batch.1, "a batch that may be over is left to the minute's pass");
            }
        }
    }

    /// Looks for the event whose turn it is in the lane from which this run removed one.
    pub(super) async fn next(&self, lane: Lane) -> LaneLook {
        crate::fault::point("link.removed");
        let end = self.looks_end();
        let look = || self.runner.statements.firsts.call(lane.clone());
        let next = self.until_answered("the event whose turn it is now", look, end).await;
        if next.is_none() {
            tracing::warn!(object = %lane.object, "the object's next event waits for the probe");
        }
        LaneLook { next: next.flatten(), end }
    }

    /// The events that can run now in a facet with a limit. This run has to find them, because
    /// possibly no process holds their notifications any longer.
    pub(super) async fn room_in_facet(&self, stage: &Stage) -> Vec<Notification> {
        let end = stage.looks_end().unwrap_or_else(|| self.looks_end());
        let Some(copy) = stage.copy().filter(|copy| copy.is_limited) else { return Vec::new() };
        let look = || self.runner.statements.next_copies.call((copy.queue.clone(), copy.turn.canvas));
        let next = self.until_answered("the copies that have room now", look, end).await;
        if next.is_none() {
            tracing::warn!(queue = %copy.queue, "the next event of the canvas waits for the minute's pass");
        }
        next.unwrap_or_default()
    }

    /// The events that can run now in the places that this run may have freed, as far as this
    /// worker has their handlers. The others are published. Whatever became of the claim, the
    /// database says who has a place. What is not found now, the minute's pass finds.
    pub(super) async fn room_in_limits(&self, freed: FreedLimits, end: Option<Instant>) -> Vec<Notification> {
        crate::fault::point("limit.freed");
        let look = || self.runner.statements.limit_rooms.call(freed.clone());
        let end = end.unwrap_or_else(|| self.looks_end());
        let Some(room) = self.until_answered("the events that have room at limits now", look, end).await
        else {
            tracing::warn!("the next events at limits wait for the minute's pass");
            return Vec::new();
        };
        let registry = &self.runner.registry;
        let is_known = |woken: &WokenEvent| {
            woken.address.as_ref().is_some_and(|address| registry.find(address).is_some())
        };
        let (known, elsewhere): (Vec<_>, Vec<_>) = room.others.into_iter().partition(is_known);
        let elsewhere: Vec<_> = elsewhere.into_iter().map(|woken| woken.notification).collect();
        if let Err(error) = self.runner.waker.publish(&elsewhere).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the next events at limits wait for their promises");
        }
        room.here.into_iter().chain(known.into_iter().map(|woken| woken.notification)).collect()
    }

    /// One lease after the first look, which begins now: a run that keeps its slot longer holds up
    /// others.
    fn looks_end(&self) -> Instant {
        Instant::now() + self.runner.policy.lease
    }

    /// Repeats a look without an answer, until `end` or the cut-off: no other process looks.
    async fn until_answered<T, F>(
        &self,
        sought: &'static str,
        look: impl Fn() -> F,
        end: Instant,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match look().await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, sought, "a look got no answer; retrying for one lease");
                }
            }
            let pause = tokio::time::sleep(Statements::PAUSE);
            if Instant::now() >= end || self.runner.kill.run_until_cancelled(pause).await.is_none() {
                return None;
            }
        }
    }

    /// Releases a claim that was revived after being given up: a renewal that was on its way may
    /// have taken effect since, and no process would run the event for another lease.
    pub(super) async fn give_up(&self, held: &HeldClaim) {
        let waiting = tokio::time::timeout(self.runner.policy.lease, held.was_revived());
        let revived = self.runner.kill.run_until_cancelled(waiting).await;
        if let Some(Ok(true)) = revived
            && let Err(error) = self.runner.statements.releases.call(held.claim()).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "a claim that was given up remains for another lease");
        }
    }

    /// Repeats a last write until it is answered. If a repetition finds no claim, an earlier try
    /// without an answer may have taken effect, or others have done it if `maybe_done`; the row
    /// tells, since no other process can have written it while the lease stood.
    async fn until_settled<F>(
        &self,
        held: &HeldClaim,
        claim: Claim,
        maybe_done: bool,
        write: impl Fn() -> F,
        is_done: impl Fn(Option<LoadedEvent>) -> bool,
    ) -> bool
    where
        F: Future<Output = Result<bool, StoreError>>,
    {
        let maybe_done = AtomicBool::new(maybe_done);
        let settle = async || match write().await {
            Ok(false) if maybe_done.load(Ordering::Relaxed) => {
                self.runner.statements.loads.call(claim.id).await.map(&is_done)
            }
            Ok(happened) => Ok(happened),
            Err(error) => {
                maybe_done.store(true, Ordering::Relaxed);
                Err(error)
            }
        };
        self.until_lost(held, settle).await
    }

    /// Repeats a fenced write that gets no answer as long as the lease stands, and for one lease at
    /// most: a write that Postgres keeps refusing, while it renews the lease, must not keep its
    /// slot for ever.
    async fn until_lost<F>(&self, held: &HeldClaim, write: impl Fn() -> F) -> bool
    where
        F: Future<Output = Result<bool, StoreError>>,
    {
        held.begin_last_write();
        let repeated = async {
            loop {
                match write().await {
                    Ok(happened) => return happened,
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "a write got no answer; retrying until the lease ends"
                        );
                    }
                }
                tokio::time::sleep(Statements::PAUSE).await;
            }
        };
        tokio::select! {
            biased;
            happened = tokio::time::timeout(self.runner.policy.lease, repeated) => happened.unwrap_or(false),
            () = held.lost() => false,
        }
    }
}

fn is_gone(found: Option<LoadedEvent>) -> bool {
    found.is_none()
}
