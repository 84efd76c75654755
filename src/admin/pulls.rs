//! Pulled queues: leasing, extending, completing and releasing their copies.
//!
//! A lease is a claim like a worker's, and each change of it is fenced by its token. The copies are
//! of events of all canvases: callers check the authorization.

mod selection;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::settled::is_gone;
use super::{Admin, AdminError};
use crate::event::{
    CanvasId, Cause, Checkpoint, Claim, EventId, HandlerAddress, HandlerScope, Lane, LeaseToken, Metadata,
    Name, Notification, ObjectKey, Place, PullPolicy, Timestamp,
};
use crate::machine::RetryPolicy;
use crate::store::{Fence, LeasedRow, LoadedEvent, Retry, StoreError};

/// Maximum number of copies per call.
const COPIES_MAX: u32 = 100;
/// Maximum bytes of values per call, unless a single copy has more.
const BYTES_MAX: i64 = 4 * 1024 * 1024;
/// Shortest and longest lease.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(3600);
/// Longest wait of a call for copies.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Longest delay of a release.
const RETRY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest error that is stored, in characters.
const ERROR_MAX: usize = 4000;

/// A waiting call looks after this time, then at intervals that double up to `LOOK_LAST`.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LAST: Duration = Duration::from_secs(1);
/// How often a process looks for events that became due in a queue that has enough copies to lease.
const LOOK_BUSY: Duration = Duration::from_secs(1);

/// How often a call continues if it found only copies that died.
const TRIES: usize = 10;

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
    /// The handlers named by copies that died instead, because their leases had expired too often.
    pub died: Vec<HandlerScope>,
}

/// Why a copy is released, and for how long. By default it can be leased again immediately, as if
/// it had not been taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The error of a failed attempt, which is counted. Without one nothing is counted.
    pub error: Option<String>,
    /// Least delay until it can be leased again, up to the longest delay of the queue's policy.
    /// After an error the policy's delay applies if that is longer, and jitter makes either up to
    /// 20 % longer. Default: none.
    pub retry: Option<Duration>,
    /// No retry can help: the copy dies now, with `error` as its error. Default: no.
    pub dead: bool,
}

/// What happened to a released copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseResult {
    /// It can be leased again after this delay.
    Again(Duration),
    /// It had no retries left, or none could help: it is among the dead events of its canvas.
    Died,
}

impl Admin {
    /// Leases up to `max` copies of a pulled queue, 1 to 100, in rotation over the canvases. A
    /// lease lasts 1 s to 1 h. Waits up to 20 s for copies; after that the result may be empty. The
    /// values have up to 4 MiB together, or there is a single copy.
    ///
    /// Copies that die here, because their leases expired five times, are logged but not counted in
    /// metrics; those of the HTTP API are.
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
            let LeaseBatch { copies, died } = self.lease_now(queue, max, lease).await?;
            if !died.is_empty() {
                tracing::warn!(%queue, copies = died.len(), "copies died because their leases ran out too often");
            }
            if !copies.is_empty() || !self.await_copies(queue, end).await? {
                return Ok(copies);
            }
        }
    }

    /// Like [`Admin::lease_copies`] without waiting; also returns what died.
    #[doc(hidden)]
    pub async fn lease_now(&self, queue: &Name, max: u32, lease: Duration) -> Result<LeaseBatch, AdminError> {
        check_lease(lease)?;
        if !(1..=COPIES_MAX).contains(&max) {
            return Err(AdminError::Invalid("`max` is 1 to 100 copies"));
        }
        let policy = self.store.pull_policy(queue).await?;
        let halts = match policy.ok_or_else(|| AdminError::NoQueue(queue.clone()))? {
            Some(policy) => policy.halts,
            None => return Err(AdminError::NotPulled(queue.clone())),
        };
        let mut now = LeaseBatch::default();
        for _ in 0..TRIES {
            let rows = self.next_turns(queue, max, lease).await?;
            let nothing = rows.is_empty();
            self.select_leased(queue, rows, halts, &mut now).await;
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
        let looked = self.due_checks.is_due(queue, false);
        if looked {
            self.enter_due(queue).await?;
        }
        let mut rows = self.store.lease_copies(queue, max, lease, BYTES_MAX).await?;
        if rows.is_empty() && !looked && self.due_checks.is_due(queue, true) && self.enter_due(queue).await? {
            rows = self.store.lease_copies(queue, max, lease, BYTES_MAX).await?;
        }
        let is_busy = u32::try_from(rows.len()).is_ok_and(|count| count >= max);
        self.due_checks.next(queue, if is_busy { LOOK_BUSY } else { Duration::ZERO });
        Ok(rows)
    }

    /// Waits until a pulled queue may have copies to lease; returns whether it does before `end`.
    #[doc(hidden)]
    pub async fn await_copies(&self, queue: &Name, end: Instant) -> Result<bool, AdminError> {
        let mut pause = LOOK_FIRST;
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(false);
            }
            tokio::time::sleep_until(end.min(now + pause)).await;
            pause = (2 * pause).min(LOOK_LAST);
            match self.has_turns(queue).await? {
                // Taking a turn reports why there is none.
                None | Some(true) => return Ok(true),
                Some(false) => {}
            }
        }
    }

    /// Extends a lease to 1 s to 1 h from now; returns its end. An expired lease can't be extended.
    pub async fn extend_copy(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
        lease: Duration,
    ) -> Result<Timestamp, AdminError> {
        check_lease(lease)?;
        let held = self.held_copy(queue, id, token).await?;
        let until = self.store.extend_lease((held.scope.canvas, held.claim), lease).await?;
        until.ok_or(AdminError::LeaseOver(id))
    }

    /// Completes a copy, which removes it. A repeated call fails with [`AdminError::NoCopy`].
    pub async fn complete_copy(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
    ) -> Result<(), AdminError> {
        let held = self.held_copy(queue, id, token).await?;
        let claims = [held.claim];
        let complete = async || {
            let completed = match &held.object {
                Some(_) => self.store.complete_links(&claims).await?,
                None => self.store.complete(&claims).await?,
            };
            Ok(completed.contains(&true))
        };
        if !self.settled(id, complete, |done| *done, is_gone).await? {
            return Err(AdminError::LeaseOver(id));
        }
        self.wake_leasable(queue, &held, true).await;
        Ok(())
    }

    /// Releases a copy before its lease ends. If it dies, that is not counted in metrics; deaths
    /// over the HTTP API are.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, copy: wakeq::queues::LeasedCopy) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::queues::{Release, ReleaseResult};
    ///
    /// let failed = Release { error: Some("no route to the mail server".into()), ..Default::default() };
    /// match admin.release_copy(&"email_events".parse()?, copy.id, &copy.lease, &failed).await? {
    ///     ReleaseResult::Again(delay) => println!("again in {delay:?}"),
    ///     ReleaseResult::Died => println!("it was tried often enough"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release_copy(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
        release: &Release,
    ) -> Result<ReleaseResult, AdminError> {
        Ok(self.give_back(queue, id, token, release).await?.0)
    }

    /// Like [`Admin::release_copy`]; also returns the handler named by the copy's event.
    #[doc(hidden)]
    pub async fn give_back(
        &self,
        queue: &Name,
        id: EventId,
        token: &LeaseToken,
        release: &Release,
    ) -> Result<(ReleaseResult, HandlerScope), AdminError> {
        if release.retry.is_some_and(|retry| retry > RETRY_MAX) {
            return Err(AdminError::Invalid("a copy can be delayed for at most 30 days"));
        }
        if release.dead && (release.error.is_none() || release.retry.is_some()) {
            return Err(AdminError::Invalid("a copy that dies needs an `error`, and is not delayed"));
        }
        let held = self.held_copy(queue, id, token).await?;
        // The default policy, if the queue is no longer pulled.
        let policy = self.store.pull_policy(queue).await?.flatten().unwrap_or_default();
        let (done, released) = match (&release.error, release.retry) {
            (Some(error), _) if release.dead => {
                let error = storable(error);
                let died = self.move_to_dead(held.claim, Cause::Rejected, &error, policy.halts).await?;
                (died, ReleaseResult::Died)
            }
            (Some(error), retry) => self.end_failed_attempt(&held, &policy, &storable(error), retry).await?,
            (None, Some(retry)) => {
                let delay = retry.min(policy.delay_max);
                (self.save_retry(&held, held.retries, delay, "not yet").await?, ReleaseResult::Again(delay))
            }
            (None, None) => {
                let claims = [held.claim];
                self.settled(id, || self.store.release(&claims), |()| true, |_| None).await?;
                (true, ReleaseResult::Again(Duration::ZERO))
            }
        };
        if !done {
            return Err(AdminError::LeaseOver(id));
        }
        self.wake_leasable(queue, &held, released == ReleaseResult::Died).await;
        if released == ReleaseResult::Again(Duration::ZERO) {
            self.publish(&[Notification { id, canvas: held.scope.canvas }]).await;
        }
        Ok((released, held.scope))
    }

    /// Handles a failed attempt: the copy is retried or dies. Returns whether the lease stood, and
    /// which of the two happened.
    async fn end_failed_attempt(
        &self,
        held: &HeldCopy,
        policy: &PullPolicy,
        error: &str,
        retry: Option<Duration>,
    ) -> Result<(bool, ReleaseResult), StoreError> {
        if held.retries >= policy.retries {
            let died = self.move_to_dead(held.claim, Cause::Retries, error, policy.halts).await?;
            return Ok((died, ReleaseResult::Died));
        }
        let PullPolicy { retries, delay, factor, delay_max, halts: _ } = *policy;
        let delays = RetryPolicy { retries, delay, factor, delay_max, ..RetryPolicy::default() };
        // As with a target's `Retry-After`, a service that repeats a failure at once must not use
        // up the copy's retries within a moment.
        let asked = retry.unwrap_or_default().min(delay_max);
        let delay = delays.spread(delays.delay_after(held.retries).max(asked), held.claim);
        Ok((self.save_retry(held, held.retries + 1, delay, error).await?, ReleaseResult::Again(delay)))
    }

    async fn save_retry(
        &self,
        held: &HeldCopy,
        retries: u32,
        delay: Duration,
        error: &str,
    ) -> Result<bool, StoreError> {
        let retries = i32::try_from(retries).unwrap_or(i32::MAX);
        let claim = held.claim;
        let retry = [Arc::new(Retry { claim, retries, delay, error: error.to_owned(), noted: None })];
        let save = async || Ok(self.store.retry(&retry).await?.contains(&true));
        let is_saved = |found: Option<LoadedEvent>| {
            let event = found?;
            Some(
                event.schedule.locked_at.is_none()
                    && (event.claims, event.retries) == (claim.claims, retries),
            )
        };
        self.settled(claim.id, save, |saved| *saved, is_saved).await
    }

    async fn move_to_dead(
        &self,
        claim: Claim,
        cause: Cause,
        error: &str,
        halts: bool,
    ) -> Result<bool, StoreError> {
        let die = || self.store.die(claim, cause, Some(error), halts, None);
        self.settled(claim.id, die, |died| *died, is_gone).await
    }

    /// The content of a token, or an error.
    async fn held_copy(&self, queue: &Name, id: EventId, token: &LeaseToken) -> Result<HeldCopy, AdminError> {
        match self.store.fence(queue, id, token).await? {
            Fence::NoQueue => Err(AdminError::NoQueue(queue.clone())),
            Fence::Gone => Err(AdminError::NoCopy(id)),
            Fence::Wrong => Err(AdminError::NotLeased(id)),
            Fence::Over => Err(AdminError::LeaseOver(id)),
            Fence::Stands { claim, scope, retries, object } => Ok(HeldCopy { claim, scope, retries, object }),
        }
    }

    /// Wakes copies that may be leased now that one was released or removed. That is committed, so
    /// errors are only logged: the minute's pass makes up for them.
    async fn wake_leasable(&self, queue: &Name, held: &HeldCopy, removed: bool) {
        if removed && let Some(object) = held.object.clone() {
            self.resume_lanes(&[Lane { scope: held.scope.clone(), object, queue: Some(queue.clone()) }])
                .await;
        }
        self.wake_facet(queue, held.scope.canvas).await;
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

/// The content of a token.
struct HeldCopy {
    claim: Claim,
    scope: HandlerScope,
    retries: u32,
    object: Option<ObjectKey>,
}

impl HeldCopy {
    fn of(LeasedRow { event, .. }: LeasedRow) -> Self {
        let (claim, retries) = (event.claim, event.retries.unsigned_abs());
        Self { claim, scope: event.address.scope, retries, object: event.place.map(|place| place.object) }
    }
}

impl LeasedCopy {
    fn of(row: LeasedRow, checkpoint: Option<Checkpoint>) -> Option<Self> {
        let LeasedRow { event, token, until } = row;
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

fn check_lease(lease: Duration) -> Result<(), AdminError> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        Ok(())
    } else {
        Err(AdminError::Invalid("a lease lasts 1 s to 3,600 s"))
    }
}

/// Errors: [`AdminError::Invalid`] if a request would wait for too long.
pub fn check_wait(wait: Duration) -> Result<(), AdminError> {
    if wait <= WAIT_MAX {
        Ok(())
    } else {
        Err(AdminError::Invalid("a request waits for copies for at most 20 s"))
    }
}

/// The error as it is stored.
fn storable(error: &str) -> String {
    error.chars().filter(|character| *character != '\0').take(ERROR_MAX).collect()
}
