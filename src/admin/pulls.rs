//! Pulled queues: leasing, extending, completing and releasing their copies. They are of events of
//! all canvases: callers check the authorization.

use std::time::Duration;

use tokio::time::Instant;

use super::lease_turns::past_locks;
use super::leased::{
    BYTES_MAX, Release, ReleaseResult, Source, TRIES, check_count, check_lease, check_wait, until_leasable,
};
use super::{Admin, AdminError};
use crate::event::{
    CanvasId, Checkpoint, EventId, HandlerAddress, LeaseToken, Metadata, Name, Place, Timestamp,
};
use crate::store::{LeasedRow, StoreError};

/// How often a process looks for events that became due in a queue that has enough copies to lease.
const LOOK_BUSY: Duration = Duration::from_secs(1);

/// A leased copy: no one else gets it until its lease ends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeasedCopy {
    /// The copy's own id, which can be a key for idempotent effects.
    pub id: EventId,
    /// The token that extends, completes and releases it.
    pub lease: LeaseToken,
    /// When the lease ends, on the database's clock.
    pub lease_until: Timestamp,
    /// The attempt, counted from 1. Leases that expired are not counted.
    pub attempt: u32,
    /// Canvas, module, name and modifier of the event.
    pub address: HandlerAddress,
    /// The value as JSON.
    pub value: String,
    /// What the attempts before have left. [`Admin::store_checkpoint`] replaces it.
    pub checkpoint: Option<Checkpoint>,
    /// The event that was copied.
    pub origin: EventId,
    /// Its object, and its link there, if any.
    pub place: Option<Place>,
    /// Its metadata, with the trace of the emit.
    pub metadata: Metadata,
    /// When it was emitted.
    pub emitted_at: Timestamp,
    /// When it was due.
    pub due_at: Timestamp,
}

/// The result of a call that leases copies.
#[derive(Debug, Default)]
pub struct LeaseBatch {
    /// The leased copies.
    pub copies: Vec<LeasedCopy>,
    /// How many copies died instead, because their leases had expired too often.
    pub died: usize,
}

impl Admin {
    /// Leases up to `max` copies of a pulled queue, 1 to 100, in rotation over the canvases. A
    /// lease lasts 1 s to 1 h. Waits up to 20 s for copies; after that the result may be empty. The
    /// values have up to 4 MiB together, or there is a single copy.
    ///
    /// A copy dies instead of being leased if its leases expired five times. That is logged, and
    /// counted in metrics.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let (queue, minute) = ("email_events".parse()?, Duration::from_secs(60));
    /// for copy in admin.lease_copies(&queue, 10, minute, Duration::from_secs(20)).await? {
    ///     println!("{} on canvas {}", copy.value, copy.address.scope.canvas);
    ///     admin.complete_copy(&queue, copy.id, &copy.lease).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lease_copies(
        &self,
        queue: &Name,
        max: u32,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<LeasedCopy>, AdminError> {
        check_wait(wait)?;
        let end = Instant::now() + wait;
        loop {
            let LeaseBatch { copies, died: _ } = self.lease_now(queue, max, lease).await?;
            if !copies.is_empty() || !self.await_copies(queue, end).await? {
                return Ok(copies);
            }
        }
    }

    /// Like [`Admin::lease_copies`] without waiting; also returns how many died.
    #[doc(hidden)]
    pub async fn lease_now(&self, queue: &Name, max: u32, lease: Duration) -> Result<LeaseBatch, AdminError> {
        check_lease(lease)?;
        check_count(max)?;
        let policy = self.store.pull_policy(queue).await?;
        let halts = match policy.ok_or_else(|| AdminError::NoQueue(queue.clone()))? {
            Some(policy) => policy.halts,
            None => return Err(AdminError::NotPulled(queue.clone())),
        };
        let mut now = LeaseBatch::default();
        for _ in 0..TRIES {
            let rows = self.next_turns(queue, max, lease).await?;
            let nothing = rows.is_empty();
            let (rows, died) = self.select_leased(Source::Queue(queue), rows, halts).await;
            now.died += died;
            let rows = self.with_checkpoints(Source::Queue(queue), rows).await;
            now.copies = rows.into_iter().filter_map(|(row, left)| LeasedCopy::of(row, left)).collect();
            if nothing || !now.copies.is_empty() {
                break;
            }
        }
        Ok(now)
    }

    /// The copies whose turn it is, after a look for those that became due, unless there were more
    /// than enough a moment ago.
    async fn next_turns(
        &self,
        queue: &Name,
        max: u32,
        lease: Duration,
    ) -> Result<Vec<LeasedRow>, StoreError> {
        let _turn = self.lease_turns.wait(queue).await?;
        let take = async || self.store.lease_copies(queue, max, lease, BYTES_MAX).await;
        let looked = self.due_checks.is_due(queue, false);
        if looked {
            self.enter_due(queue).await?;
        }
        let mut rows = past_locks(&take).await?;
        if rows.is_empty() && !looked && self.due_checks.is_due(queue, true) && self.enter_due(queue).await? {
            rows = past_locks(&take).await?;
        }
        let is_busy = u32::try_from(rows.len()).is_ok_and(|count| count >= max);
        self.due_checks.next(queue, if is_busy { LOOK_BUSY } else { Duration::ZERO });
        Ok(rows)
    }

    /// Waits until a pulled queue may have copies to lease; returns whether it does before `end`.
    #[doc(hidden)]
    pub async fn await_copies(&self, queue: &Name, end: Instant) -> Result<bool, AdminError> {
        // Taking a turn reports why there is none.
        until_leasable(end, async || Ok::<_, StoreError>(self.has_turns(queue).await?.unwrap_or(true))).await
    }

    /// Extends a lease to 1 s to 1 h from now; returns its end. An expired lease can't be extended.
    pub async fn extend_copy(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
        lease: Duration,
    ) -> Result<Timestamp, AdminError> {
        Ok(self.extend_leased(Source::Queue(queue), id, token, lease).await?.0)
    }

    /// Completes a copy, which removes it. A repeated call fails with [`AdminError::NoCopy`].
    pub async fn complete_copy(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
    ) -> Result<(), AdminError> {
        self.complete_leased(Source::Queue(queue), id, token, None).await
    }

    /// Releases a copy before its lease ends: as if it had not been taken, or as a failed attempt.
    /// [`Release`](crate::queues::Release) has an example.
    pub async fn release_copy(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
        release: &Release,
    ) -> Result<ReleaseResult, AdminError> {
        self.give_back_leased(Source::Queue(queue), id, token, release).await
    }

    /// Wakes the copies for which a facet has room now, unless another process does.
    pub(super) async fn wake_facet(&self, queue: &Name, canvas: CanvasId) {
        match self.store.room_in_facets_of(&[(queue.clone(), canvas)]).await {
            Ok(rooms) => {
                let rooms = rooms.concat();
                if !rooms.is_empty() {
                    self.publish(&rooms).await;
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, %queue, "the next copy of the canvas waits for the minute's pass");
            }
        }
    }
}

impl LeasedCopy {
    fn of(row: LeasedRow, checkpoint: Option<Checkpoint>) -> Option<Self> {
        let LeasedRow { event, token, until, since: _ } = row;
        Some(Self {
            id: event.claim.id,
            lease: token,
            lease_until: until,
            attempt: event.retries.unsigned_abs() + 1,
            address: event.address,
            value: event.value,
            checkpoint,
            origin: event.copy_of?.origin,
            place: event.place,
            metadata: event.metadata,
            emitted_at: event.enqueued_at,
            due_at: event.delay_until,
        })
    }
}
