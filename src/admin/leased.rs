//! Leases, of copies in pulled queues and of events of pulled handlers: extending, completing and
//! releasing what is leased.
//!
//! A lease is a claim like a worker's, and each change of it is fenced by its token. Callers check
//! the authorization.

mod release;
mod selection;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::IgnoredAny;
use tokio::time::Instant;

use release::GivenBack;
pub use release::{Release, ReleaseResult};

use super::lease_turns::past_locks;
use super::settled::is_gone;
use super::{Admin, AdminError};
use crate::event::{
    Cause, Claim, CountedRun, EventId, EventOptions, HandlerScope, HeldLimit, Keep, Lane, LeaseToken, Name,
    Notification, ObjectKey, PullPolicy, Timestamp,
};
use crate::machine::{EventPolicy, RetryPolicy};
use crate::store::{
    AttemptEnd, BatchKey, Fence, KeptEnd, LeasedRow, LoadedEvent, NotedRetry, Retry, StoreError,
};

/// Maximum number of copies or events per call.
const LEASED_MAX: u32 = 100;
/// Maximum bytes of values per call, unless a single one has more.
pub(super) const BYTES_MAX: i64 = 4 * 1024 * 1024;
/// Shortest and longest lease.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(3600);
/// Longest result of an event, in bytes.
const RESULT_BYTES_MAX: usize = 65_536;
/// Longest wait of a call.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Longest delay of a release.
const RETRY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest error that is stored, in characters.
const ERROR_MAX: usize = 4000;

/// A waiting call looks after this time, then at intervals that double up to `LOOK_LAST`.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LAST: Duration = Duration::from_secs(1);

/// How often a call continues if all that it found has died.
pub(super) const TRIES: usize = 10;

/// Where something is leased from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// A pulled queue: copies of events of every canvas.
    Queue(&'a Name),
    /// A pulled handler of a canvas: its events.
    Handler(&'a HandlerScope),
}

impl Admin {
    /// Moves the end of a lease; returns it, and whether somebody has cancelled the event.
    pub(super) async fn extend_leased(
        &self,
        source: Source<'_>,
        id: EventId,
        token: &LeaseToken,
        lease: Duration,
    ) -> Result<(Timestamp, bool), AdminError> {
        check_lease(lease)?;
        let held = self.held(source, id, token).await?;
        let claim = (held.scope.canvas, held.claim);
        let extended = past_locks(async || self.store.extend_lease(claim, lease).await).await?;
        extended.ok_or_else(|| source.over(id))
    }

    /// A result, as JSON, is kept with the event if that is kept.
    pub(super) async fn complete_leased(
        &self,
        source: Source<'_>,
        id: EventId,
        token: &LeaseToken,
        result: Option<&str>,
    ) -> Result<(), AdminError> {
        let held = self.held(source, id, token).await?;
        let claims = [held.claim];
        let result = result.map(ToOwned::to_owned);
        let keep = held.kept();
        let end = AttemptEnd { took: held.took, keep, result, ..AttemptEnd::default() };
        let kept = [Arc::new(KeptEnd { claim: held.claim, end })];
        let complete = async || {
            let completed = if !keep.is_zero() {
                self.store.complete_kept(&kept).await?
            } else if held.object.is_some() {
                self.store.complete_links(&claims).await?
            } else {
                self.store.complete(&claims).await?
            };
            Ok(completed.contains(&true))
        };
        if !self.settled(id, complete, |done| *done, is_gone).await? {
            return Err(source.over(id));
        }
        self.count_end(source, &CountedRun { completed: true, run: held.took, ..CountedRun::default() });
        self.after_end(source, &held, true).await;
        Ok(())
    }

    /// Releases what is leased.
    pub(super) async fn give_back_leased(
        &self,
        source: Source<'_>,
        id: EventId,
        token: &LeaseToken,
        release: &Release,
    ) -> Result<ReleaseResult, AdminError> {
        if release.retry.is_some_and(|retry| retry > RETRY_MAX) {
            return Err(AdminError::Invalid("a copy or event can be delayed for at most 30 days"));
        }
        if release.dead && (release.error.is_none() || release.retry.is_some()) {
            return Err(AdminError::Invalid(
                "a copy or event that dies needs an `error`, and is not delayed",
            ));
        }
        let held = self.held(source, id, token).await?;
        // The default policy, if it was unregistered meanwhile.
        let policy = self.policy_of(source).await?.unwrap_or_default();
        let (done, given_back) = match (&release.error, release.retry) {
            (Some(error), _) if release.dead => {
                let error = storable(error);
                self.let_die(&held, Cause::Rejected, Some(&error), policy.halts).await?
            }
            (Some(error), retry) => self.end_failed_attempt(&held, &policy, &storable(error), retry).await?,
            (None, Some(retry)) => self.postpone(&held, &policy, retry).await?,
            (None, None) => (self.give_up(held.claim).await?, GivenBack::Again(Duration::ZERO)),
        };
        if !done {
            return Err(source.over(id));
        }
        if let GivenBack::Died(cause) = given_back {
            self.note_death(source, &held, cause);
        }
        let (failed, dead) = (release.error.is_some(), matches!(given_back, GivenBack::Died(_)));
        self.count_end(
            source,
            &CountedRun { failed, retried: failed && !dead, dead, run: held.took, ..CountedRun::default() },
        );
        self.after_end(source, &held, dead).await;
        if given_back == GivenBack::Again(Duration::ZERO) {
            self.publish_leasable(source, &[Notification::new(id, held.scope.canvas)]).await;
        }
        Ok(given_back.into())
    }

    /// Gives something back as if it had not been taken; returns whether the lease still stood.
    async fn give_up(&self, claim: Claim) -> Result<bool, StoreError> {
        let claims = [claim];
        let release = async || Ok(self.store.release(&claims).await? > 0);
        let is_released = |found: Option<LoadedEvent>| {
            let event = found?;
            Some(event.schedule.locked_at.is_none() && event.claims == claim.claims)
        };
        self.settled(claim.id, release, |released| *released, is_released).await
    }

    /// The retry policy of what is leased, if it is pulled.
    async fn policy_of(&self, source: Source<'_>) -> Result<Option<PullPolicy>, StoreError> {
        match source {
            Source::Queue(queue) => Ok(self.store.pull_policy(queue).await?.flatten()),
            Source::Handler(scope) => self.store.pulled_policy(scope).await,
        }
    }

    /// Handles a failed attempt: it is retried or dies. Returns whether the lease stood, and which
    /// of the two happened. What the event's emit asked for goes before the policy.
    async fn end_failed_attempt(
        &self,
        held: &HeldEvent,
        policy: &PullPolicy,
        error: &str,
        retry: Option<Duration>,
    ) -> Result<(bool, GivenBack), StoreError> {
        let PullPolicy { retries, delay, factor, delay_max, halts, keep: _ } = *policy;
        let delays = RetryPolicy { retries, delay, factor, delay_max, ..RetryPolicy::default() };
        let delays = delays.for_event(held.asked);
        if held.retries >= delays.retries {
            return self.let_die(held, Cause::Retries, Some(error), halts).await;
        }
        // As with a target's `Retry-After`, a service that repeats a failure at once must not use
        // up the retries within a moment.
        let asked = retry.unwrap_or_default().min(delays.delay_max);
        let delay = delays.spread(delays.delay_after(held.retries).max(asked), held.claim);
        if !held.may_wait(delay) {
            return self.let_die(held, Cause::Expired, Some(error), halts).await;
        }
        Ok((self.save_retry(held, held.retries + 1, delay, error).await?, GivenBack::Again(delay)))
    }

    /// Gives something back that could not be worked on yet, which counts as no failure.
    async fn postpone(
        &self,
        held: &HeldEvent,
        policy: &PullPolicy,
        retry: Duration,
    ) -> Result<(bool, GivenBack), StoreError> {
        let delay = retry.min(policy.delay_max);
        if !held.may_wait(delay) {
            return self.let_die(held, Cause::Expired, None, policy.halts).await;
        }
        Ok((self.save_retry(held, held.retries, delay, "not yet").await?, GivenBack::Again(delay)))
    }

    async fn let_die(
        &self,
        held: &HeldEvent,
        cause: Cause,
        error: Option<&str>,
        halts: bool,
    ) -> Result<(bool, GivenBack), StoreError> {
        let died = self.move_to_dead(held, cause, error, halts).await?;
        Ok((died, GivenBack::Died(cause)))
    }

    async fn save_retry(
        &self,
        held: &HeldEvent,
        retries: u32,
        delay: Duration,
        error: &str,
    ) -> Result<bool, StoreError> {
        let is_postponed = retries == held.retries;
        let noted = self.noted(held).map(|took| NotedRetry { took, is_postponed });
        let retries = i32::try_from(retries).unwrap_or(i32::MAX);
        let claim = held.claim;
        let retry = [Arc::new(Retry { claim, retries, delay, error: error.to_owned(), noted })];
        let store = self.store_of(held.worker.as_ref());
        let save = async || Ok(store.retry(&retry).await?.contains(&true));
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
        held: &HeldEvent,
        cause: Cause,
        error: Option<&str>,
        halts: bool,
    ) -> Result<bool, StoreError> {
        let took = self.noted(held);
        let die = || self.store.die(held.claim, cause, error, halts, took);
        self.settled(held.claim.id, die, |died| *died, is_gone).await
    }

    /// How long an attempt took that the history notes, if it has room.
    fn noted(&self, held: &HeldEvent) -> Option<Duration> {
        held.took.filter(|_| self.store.has_room_for_attempt(held.scope.canvas))
    }

    /// The content of a token, or an error.
    async fn held(
        &self,
        source: Source<'_>,
        id: EventId,
        token: &LeaseToken,
    ) -> Result<HeldEvent, AdminError> {
        let fence = match source {
            Source::Queue(queue) => self.store.fence(queue, id, token).await?,
            Source::Handler(scope) => self.store.fence_event(scope, id, token).await?,
        };
        match fence {
            Fence::Unregistered => Err(source.unregistered()),
            Fence::Gone => Err(source.gone(id)),
            Fence::Wrong => Err(source.not_leased(id)),
            Fence::Over => Err(source.over(id)),
            Fence::Stands { claim, scope, retries, object, options, held, took, keep, worker, now } => {
                if let Some(worker) = &worker {
                    self.note_program(&scope, worker).await;
                }
                let asked = EventPolicy::of(options.as_deref(), retries, now);
                Ok(HeldEvent { claim, scope, retries, object, options, held, took, keep, worker, asked })
            }
        }
    }

    /// Does what follows from a release or removal: ends the batch of an event that was removed, if
    /// the batch is over, and wakes what may be leased now. The release is committed, so errors are
    /// only logged: the minute's pass makes up for them. What a handler has next is found by the
    /// next lease without being woken.
    async fn after_end(&self, source: Source<'_>, held: &HeldEvent, removed: bool) {
        if removed && let Some(batch) = held.batch() {
            self.waker.end_batch_if_over(&batch).await;
        }
        self.wake_at_limits(&held.held, &[held.claim.id]).await;
        let Source::Queue(queue) = source else { return };
        if removed && let Some(object) = held.object.clone() {
            self.resume_lanes(&[Lane { scope: held.scope.clone(), object, queue: Some(queue.clone()) }])
                .await;
        }
        self.wake_facet(queue, held.scope.canvas).await;
    }

    /// Wakes what has room at these limits, after these events have ended.
    pub(super) async fn wake_at_limits(&self, limits: &[HeldLimit], ended: &[EventId]) {
        if limits.is_empty() {
            return;
        }
        match self.store.wake_after(limits, ended).await {
            Ok(woken) => drop(self.publish(&woken).await),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the next events at limits wait for the minute's pass");
            }
        }
    }

    /// Announces copies that can be leased again.
    async fn publish_leasable(&self, source: Source<'_>, notifications: &[Notification]) {
        match source {
            Source::Queue(_) => drop(self.publish(notifications).await),
            Source::Handler(_) => {}
        }
    }

    /// Says of something leased that it has died, as workers do of what they run.
    fn note_death(&self, source: Source<'_>, held: &HeldEvent, cause: Cause) {
        self.deaths.died(&held.scope, cause);
        let event = held.claim.id;
        let (canvas, handler) = (held.scope.canvas, &held.scope);
        // Who has said so need not be warned.
        if cause == Cause::Rejected {
            tracing::info!(%event, %canvas, %handler, from = %source, cause = cause.as_str(), "what was leased has died");
        } else {
            tracing::warn!(%event, %canvas, %handler, from = %source, cause = cause.as_str(), "what was leased has died");
        }
    }

    /// Counts how an attempt at an event ended, for the statistics, which leave out copies.
    pub(super) fn count_end(&self, source: Source<'_>, run: &CountedRun) {
        if let Source::Handler(scope) = source
            && *run != CountedRun::default()
        {
            self.store.count_run(scope, run);
        }
    }
}

impl Source<'_> {
    fn unregistered(self) -> AdminError {
        match self {
            Self::Queue(queue) => AdminError::NoQueue(queue.clone()),
            Self::Handler(scope) => AdminError::NoPulledHandler(Box::new(scope.clone())),
        }
    }

    fn gone(self, id: EventId) -> AdminError {
        match self {
            Self::Queue(_) => AdminError::NoCopy(id),
            Self::Handler(_) => AdminError::NotFound(id),
        }
    }

    fn not_leased(self, id: EventId) -> AdminError {
        match self {
            Self::Queue(_) => AdminError::NotLeased(id),
            Self::Handler(_) => AdminError::EventNotLeased(id),
        }
    }

    fn over(self, id: EventId) -> AdminError {
        match self {
            Self::Queue(_) => AdminError::LeaseOver(id),
            Self::Handler(_) => AdminError::EventLeaseOver(id),
        }
    }
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => write!(formatter, "queue {queue}"),
            Self::Handler(scope) => write!(formatter, "handler {scope}"),
        }
    }
}

/// The content of a token.
struct HeldEvent {
    claim: Claim,
    scope: HandlerScope,
    retries: u32,
    object: Option<ObjectKey>,
    options: Option<Box<EventOptions>>,
    /// The limits whose places it has.
    held: Vec<HeldLimit>,
    /// How long its attempt took; `None` if the history notes nothing of it.
    took: Option<Duration>,
    /// For how long it is kept if its emit asks for nothing else.
    keep: Keep,
    /// The name of the program that leased it, if it has said one.
    worker: Option<Name>,
    asked: EventPolicy,
}

impl HeldEvent {
    /// Of what is not handed out, so that nothing was attempted.
    fn of(LeasedRow { event, since, .. }: LeasedRow) -> Self {
        let (claim, retries) = (event.claim, event.retries.unsigned_abs());
        let asked = EventPolicy::of(event.options.as_deref(), retries, since);
        let object = event.place.map(|place| place.object);
        let (scope, options) = (event.address.scope, event.options);
        let (held, took, keep, worker) = (Vec::new(), None, Keep::default(), None);
        Self { claim, scope, retries, object, options, held, took, keep, worker, asked }
    }

    /// Whether another attempt may start after such a wait.
    fn may_wait(&self, wait: Duration) -> bool {
        self.asked.left.is_none_or(|left| wait < left)
    }

    /// For how long it is kept if it completes now.
    fn kept(&self) -> Duration {
        self.options.as_deref().and_then(EventOptions::keep).unwrap_or(self.keep).completed
    }

    /// The batch that it is a member of.
    fn batch(&self) -> Option<BatchKey> {
        let name = self.options.as_deref()?.batch()?;
        Some((self.scope.canvas, name.clone()))
    }
}

/// Looks in growing intervals whether there may be something to lease; `false` if there is not
/// before `end`.
pub(super) async fn until_leasable<F>(end: Instant, look: impl Fn() -> F) -> Result<bool, AdminError>
where
    F: Future<Output = Result<bool, StoreError>>,
{
    let mut pause = LOOK_FIRST;
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(false);
        }
        tokio::time::sleep_until(end.min(now + pause)).await;
        pause = (2 * pause).min(LOOK_LAST);
        if look().await? {
            return Ok(true);
        }
    }
}

pub(super) fn check_lease(lease: Duration) -> Result<(), AdminError> {
    if (LEASE_MIN..=LEASE_MAX).contains(&lease) {
        Ok(())
    } else {
        Err(AdminError::Invalid("a lease lasts 1 s to 3,600 s"))
    }
}

pub(super) fn check_count(max: u32) -> Result<(), AdminError> {
    if (1..=LEASED_MAX).contains(&max) { Ok(()) } else { Err(AdminError::Invalid("`max` is 1 to 100")) }
}

/// Refuses what can't be the result of an event.
pub(super) fn check_result(json: &str) -> Result<(), AdminError> {
    if json.len() > RESULT_BYTES_MAX {
        return Err(AdminError::Invalid(
            "a result has at most 65,536 bytes of JSON, and nothing was done: store what is large elsewhere, \
             and record where it is",
        ));
    }
    match serde_json::from_str::<IgnoredAny>(json) {
        Ok(_) => Ok(()),
        Err(_) => {
            Err(AdminError::Invalid("a result is JSON, and nothing was done: send valid JSON, or none"))
        }
    }
}

/// Errors: [`AdminError::Invalid`] if a request would wait for too long.
pub fn check_wait(wait: Duration) -> Result<(), AdminError> {
    if wait <= WAIT_MAX { Ok(()) } else { Err(AdminError::Invalid("a request waits for at most 20 s")) }
}

/// The error as it is stored.
fn storable(error: &str) -> String {
    error.chars().filter(|character| *character != '\0').take(ERROR_MAX).collect()
}
