//! Ends batches: emits the event of each that is closed and has no member left, for workers after
//! the end of a member, and in the minute's pass for those that no process has looked at.

use std::time::Duration;

use tokio::time::Instant;

use super::{Trouble, WakeError, Waker};
use crate::event::{Broadcast, Notification};
use crate::store::{BatchKey, EndedBatch, LookedBatches};

/// Maximum number of pages of batches that one pass looks at; the next continues.
const LOOK_PAGES: usize = 20;
/// How long a pass goes on ending batches: meanwhile this process wakes nothing. Those that it did
/// not reach come after all others.
const LOOK_TIME: Duration = Duration::from_secs(10);
/// Maximum number of pages of ends that one pass sums; the next continues.
const SUM_PAGES: usize = 20;
/// Maximum number of pages of ends that are deleted after a batch. Its expiry deletes the rest.
const FORGET_PAGES: usize = 100;

impl Waker {
    /// A batch that can't be ended is left to a later pass, and stops nothing else.
    pub(super) async fn look_at_batches(&self, trouble: &mut Trouble) {
        let until = Instant::now() + LOOK_TIME;
        let is_over = || until <= Instant::now() || self.is_over();
        let mut summed = 0;
        for _ in 0..LOOK_PAGES {
            let looked = self.store.look_at_batches().await;
            let Some(LookedBatches { over, long, more }) = trouble.look("batches", looked) else { return };
            for batch in &over {
                trouble.look("the end of a batch", self.end_batch(batch).await);
                if is_over() {
                    return;
                }
            }
            for batch in &long {
                self.sum_ends(batch, &mut summed, trouble).await;
            }
            if !more || is_over() {
                return;
            }
        }
    }

    /// Sums the ends of a batch, as long as the pass may sum more pages.
    async fn sum_ends(&self, batch: &BatchKey, pages: &mut usize, trouble: &mut Trouble) {
        while *pages < SUM_PAGES && !self.is_over() {
            *pages += 1;
            let summed = self.store.sum_batch_ends(batch).await;
            if trouble.look("the ends of a batch", summed) != Some(true) {
                return;
            }
        }
    }

    /// Ends a batch if it is over, for use after the end of a member was committed. Where that
    /// fails, the minute's pass ends it.
    pub(crate) async fn end_batch_if_over(&self, batch: &BatchKey) {
        let ended = async {
            if self.store.are_over(std::slice::from_ref(batch)).await?.contains(&true) {
                self.end_batch(batch).await?;
            }
            Ok::<_, WakeError>(())
        };
        if let Err(error) = ended.await {
            let (error, name) = (&error as &dyn std::error::Error, &batch.1);
            tracing::warn!(error, batch = %name, "a batch that may be over is left to the minute's pass");
        }
    }

    /// Emits the event of a batch that is over; returns whether it did. The event's promise makes
    /// up for a notification that is not published.
    pub(crate) async fn end_batch(&self, batch: &BatchKey) -> Result<bool, WakeError> {
        let Some(EndedBatch { event, inserted }) = self.store.end_batch(batch).await? else {
            return Ok(false);
        };
        crate::fault::point("batch.ended");
        tracing::debug!(batch = %batch.1, event = %event.id, "a batch has ended");
        self.store.count_emitted(&event.address.scope);
        if let Some(broadcasts) = self.notifier.broadcasts() {
            broadcasts.send(Broadcast::of(&event, None));
        }
        #[cfg(feature = "testing")]
        self.store.remember(&event);
        let copies: Vec<_> = inserted.due_copies().to_vec();
        if let Err(error) = self.store.announce(&copies).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "could not announce queue copies; they start when their notifications arrive"
            );
        }
        let canvas = event.address.scope.canvas;
        let ids = std::iter::once(&event.id).chain(inserted.notified_copies());
        let notifications: Vec<_> = ids.map(|id| Notification::new(*id, canvas)).collect();
        let published = self.publish(&notifications).await;
        for _ in 0..FORGET_PAGES {
            if !self.store.forget_batch_ends(batch).await? {
                break;
            }
        }
        published.map(|()| true)
    }
}
