//! The last writes of a run: an event saved for another attempt or removed, and what has its turn then.
//!
//! A fenced write is the judge of what it did: what a renewal finds meanwhile is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Run;
use crate::event::{Cause, Claim, Lane, Notification, Place};
use crate::machine::Removal;
use crate::store::{Retry, StoreError};
use crate::worker::statements::Statements;

impl Run<'_> {
    pub(super) async fn save(&self, claim: Claim, retries: u32, delay: Duration) -> bool {
        let retries = i32::try_from(retries).unwrap_or(i32::MAX);
        let error = self.facts.error.clone().unwrap_or_default();
        let retry = Arc::new(Retry { claim, retries, delay, error });
        self.until_lost(|| self.runner.statements.retries.call(Arc::clone(&retry))).await
    }

    pub(super) async fn remove(&self, claim: Claim, removal: Removal) -> bool {
        let statements = &self.runner.statements;
        match removal {
            Removal::Completed if self.facts.place.is_some() => {
                crate::fault::point("link.processed");
                self.until_removed(claim, || statements.link_completions.call(claim)).await
            }
            Removal::Completed => self.until_removed(claim, || statements.completions.call(claim)).await,
            Removal::Dead(cause) => {
                let poison = "its workers died or stalled while it ran, too often";
                let error = match cause {
                    Cause::Retries => self.facts.error.as_deref(),
                    Cause::Poison => Some(poison),
                };
                let halts = self.facts.handler.as_ref().is_some_and(|handler| handler.halts);
                let died = self.until_removed(claim, || statements.die(claim, cause, error, halts)).await;
                if died
                    && halts
                    && let Some(Place { object, link }) = &self.facts.place
                {
                    tracing::error!(%object, link = link.id, error, "an object stands still: redrive its dead event, or skip it");
                }
                died
            }
        }
    }

    /// The event whose turn it is in the lane of the one that this run removed.
    pub(super) async fn next(&self) -> Option<Notification> {
        crate::fault::point("link.removed");
        let (Some(address), Some(place)) = (&self.facts.address, &self.facts.place) else { return None };
        let queue = self.facts.copy_of.as_ref().map(|copy| copy.queue.clone());
        let lane = Lane { scope: address.scope.clone(), object: place.object.clone(), queue };
        match self.runner.statements.firsts.call(lane).await {
            Ok(next) => next,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, object = %place.object, "the object's next event waits for the probe");
                None
            }
        }
    }

    /// The events that have room now in a facet with a limit: nobody else may hold their notifications any more.
    pub(super) async fn room_in_facet(&self) -> Vec<Notification> {
        let (Some(copy), Some(turn)) = (&self.facts.copy_of, &self.facts.turn) else { return Vec::new() };
        if !self.facts.is_limited {
            return Vec::new();
        }
        match self.runner.statements.rooms.call((copy.queue.clone(), turn.canvas)).await {
            Ok(next) => next,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, queue = %copy.queue, "the next event of the canvas waits for the minute's pass");
                Vec::new()
            }
        }
    }

    /// Repeats a removal. One that finds no claim after a try without an answer may have been carried out by that try: then
    /// the row is gone, and nobody else can have removed it while the lease stood.
    async fn until_removed<F>(&self, claim: Claim, removal: impl Fn() -> F) -> bool
    where
        F: Future<Output = Result<bool, StoreError>>,
    {
        let unanswered = AtomicBool::new(false);
        let remove = async || match removal().await {
            Ok(false) if unanswered.load(Ordering::Relaxed) => {
                self.runner.statements.loads.call(claim.id).await.map(|event| event.is_none())
            }
            Ok(removed) => Ok(removed),
            Err(error) => {
                unanswered.store(true, Ordering::Relaxed);
                Err(error)
            }
        };
        self.until_lost(remove).await
    }

    /// Repeats a fenced write that gets no answer as long as the lease stands, and for one lease at most: a write that
    /// Postgres goes on refusing, while it renews the lease, must not keep its place for ever.
    async fn until_lost<F>(&self, write: impl Fn() -> F) -> bool
    where
        F: Future<Output = Result<bool, StoreError>>,
    {
        let Some(held) = &self.facts.held else { return false };
        held.ends();
        let repeated = async {
            loop {
                match write().await {
                    Ok(happened) => return happened,
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "repeated until the lease ends"
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
