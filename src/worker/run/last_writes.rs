//! The last writes of a run: saving an event for another attempt or removing it, and finding the
//! events whose turn it is then.
//!
//! The answer to a fenced write decides what it did, not what a renewal finds in the meantime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Run;
use crate::event::{Cause, Claim, Lane, Notification, Place};
use crate::machine::Removal;
use crate::store::{LoadedEvent, Retry, StoreError};
use crate::worker::leases::HeldClaim;
use crate::worker::statements::Statements;

impl Run<'_> {
    pub(super) async fn save(&self, claim: Claim, retries: u32, delay: Duration) -> bool {
        let retries = i32::try_from(retries).unwrap_or(i32::MAX);
        let error = self.facts.error.clone().unwrap_or_default();
        let retry = Arc::new(Retry { claim, retries, delay, error });
        let save = || self.runner.statements.retries.call(Arc::clone(&retry));
        let is_saved = |found: Option<LoadedEvent>| {
            found.is_some_and(|event| {
                event.schedule.locked_at.is_none() && (event.claims, event.retries) == (claim.claims, retries)
            })
        };
        self.until_settled(claim, save, is_saved).await
    }

    pub(super) async fn remove(&self, claim: Claim, removal: Removal) -> bool {
        let statements = &self.runner.statements;
        match removal {
            Removal::Completed if self.facts.place.is_some() => {
                crate::fault::point("link.processed");
                self.until_settled(claim, || statements.link_completions.call(claim), is_gone).await
            }
            Removal::Completed => {
                self.until_settled(claim, || statements.completions.call(claim), is_gone).await
            }
            Removal::Dead(cause) => {
                let poison = "its workers died or stalled too often while it ran";
                let error = match cause {
                    Cause::Retries => self.facts.error.as_deref(),
                    Cause::Poison => Some(poison),
                };
                let halts = self.facts.handler.as_ref().is_some_and(|handler| handler.halts);
                let die = || statements.die(claim, cause, error, halts);
                let died = self.until_settled(claim, die, is_gone).await;
                if died
                    && halts
                    && let Some(Place { object, link }) = &self.facts.place
                {
                    tracing::error!(
                        %object, link = link.id, error,
                        "an object is halted: redrive its dead event, or skip it"
                    );
                }
                died
            }
        }
    }

    /// The event whose turn it is in the lane from which this run removed one.
    pub(super) async fn next(&mut self) -> Option<Notification> {
        crate::fault::point("link.removed");
        let end = self.looks_end();
        let (Some(address), Some(place)) = (&self.facts.address, &self.facts.place) else { return None };
        let queue = self.facts.copy_of.as_ref().map(|copy| copy.queue.clone());
        let lane = Lane { scope: address.scope.clone(), object: place.object.clone(), queue };
        let look = || self.runner.statements.firsts.call(lane.clone());
        let next = self.until_answered(look, end).await;
        if next.is_none() {
            tracing::warn!(object = %place.object, "the object's next event waits for the probe");
        }
        next.flatten()
    }

    /// The events that can run now in a facet with a limit. This run has to find them, because
    /// possibly no process holds their notifications any longer.
    pub(super) async fn room_in_facet(&mut self) -> Vec<Notification> {
        let end = self.looks_end();
        let (Some(copy), Some(turn)) = (&self.facts.copy_of, &self.facts.turn) else { return Vec::new() };
        if !self.facts.is_limited {
            return Vec::new();
        }
        let look = || self.runner.statements.next_copies.call((copy.queue.clone(), turn.canvas));
        let next = self.until_answered(look, end).await;
        if next.is_none() {
            tracing::warn!(queue = %copy.queue, "the next event of the canvas waits for the minute's pass");
        }
        next.unwrap_or_default()
    }

    /// One lease after the first look: a run that keeps its slot longer holds up others.
    fn looks_end(&mut self) -> Instant {
        *self.facts.looks_end.get_or_insert_with(|| Instant::now() + self.runner.policy.lease)
    }

    /// Repeats a look without an answer, until `end` or the cut-off: no other process looks.
    async fn until_answered<T, F>(&self, look: impl Fn() -> F, end: Instant) -> Option<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        loop {
            match look().await {
                Ok(answer) => return Some(answer),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "could not find the event whose turn it is now; retrying \
                                           for one lease"
                    );
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
    /// without an answer may have taken effect; the row tells, since no other process can have
    /// written it while the lease stood.
    async fn until_settled<F>(
        &self,
        claim: Claim,
        write: impl Fn() -> F,
        is_done: impl Fn(Option<LoadedEvent>) -> bool,
    ) -> bool
    where
        F: Future<Output = Result<bool, StoreError>>,
    {
        let unanswered = AtomicBool::new(false);
        let settle = async || match write().await {
            Ok(false) if unanswered.load(Ordering::Relaxed) => {
                self.runner.statements.loads.call(claim.id).await.map(&is_done)
            }
            Ok(happened) => Ok(happened),
            Err(error) => {
                unanswered.store(true, Ordering::Relaxed);
                Err(error)
            }
        };
        self.until_lost(settle).await
    }

    /// Repeats a fenced write that gets no answer as long as the lease stands, and for one lease at
    /// most: a write that Postgres keeps refusing, while it renews the lease, must not keep its
    /// slot for ever.
    async fn until_lost<F>(&self, write: impl Fn() -> F) -> bool
    where
        F: Future<Output = Result<bool, StoreError>>,
    {
        let Some(held) = &self.facts.held else { return false };
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
