//! Pulled handlers: registering, showing and deleting them, and leasing their events to programs in
//! any language.

use std::time::Duration;

use tokio::time::Instant;

use super::lease_turns::past_locks;
use super::leased::{
    BYTES_MAX, Release, ReleaseResult, Source, TRIES, check_count, check_lease, check_result, check_wait,
    until_leasable,
};
use super::retries::check_retries;
use super::rules::of_handler;
use super::{Admin, AdminError, Cursor, LIST_MAX, Page, checked};
use crate::event::{
    Actor, CanvasId, Checkpoint, CountedRun, EventId, EventOptions, HandlerAddress, HandlerScope, LeaseToken,
    Metadata, Name, Place, PullPolicy, RuleKind, Timestamp,
};
use crate::store::{LeasedEvents, LeasedRow, PulledDeletion, PulledHandler, PulledPut};

/// The result of registering a pulled handler.
#[derive(Clone, Debug)]
pub struct PutPulledResult {
    /// Whether it was not pulled before.
    pub new: bool,
    /// The handler as it is now.
    pub handler: PulledHandler,
    /// A rule that still holds the handler: registering lifts none.
    pub still: Option<RuleKind>,
}

/// A leased event: no one else gets it until its lease ends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeasedEvent {
    /// Its id, which can be a key for idempotent effects.
    pub id: EventId,
    /// The token that extends, completes and releases it.
    pub lease: LeaseToken,
    /// When the lease ends, on the database's clock.
    pub lease_until: Timestamp,
    /// The attempt, counted from 1. Leases that expired are not counted.
    pub attempt: u32,
    /// Canvas, module, name and modifier.
    pub address: HandlerAddress,
    /// The value as JSON.
    pub value: String,
    /// What its emit asked for in place of the policy, its batch and its tags. Its retries, delays
    /// and the moment after which none starts hold by themselves. The program sees to the timeout.
    pub options: Option<Box<EventOptions>>,
    /// What the attempts before have left. [`Admin::store_checkpoint`] replaces it.
    pub checkpoint: Option<Checkpoint>,
    /// Its object, and its link there, if any.
    pub place: Option<Place>,
    /// Its metadata, with the trace of the emit.
    pub metadata: Metadata,
    /// When it was emitted.
    pub emitted_at: Timestamp,
    /// When it was due.
    pub due_at: Timestamp,
}

/// The end of a lease that was extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExtendedLease {
    /// When it ends, on the database's clock.
    pub until: Timestamp,
    /// Whether somebody has cancelled the event: stop, and release or complete it. The lease ends
    /// in 10 s at the latest, and no further extension moves its end.
    pub cancelled: bool,
}

impl Admin {
    /// Registers a handler whose events programs lease over HTTP, or replaces its policy. From then
    /// on no worker claims an event of it, whatever its modifier, and no target gets one. What
    /// waited for the handler can be leased at once.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::queues::PullPolicy;
    /// use wakeq::{Actor, CanvasId, HandlerScope};
    ///
    /// let handler = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// let policy = PullPolicy { retries: 5, ..PullPolicy::default() };
    /// let registered = admin.put_pulled(&handler, &policy, &Actor::user("ada")).await?;
    /// assert_eq!(registered.handler.policy.retries, 5);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put_pulled(
        &self,
        scope: &HandlerScope,
        policy: &PullPolicy,
        actor: &Actor,
    ) -> Result<PutPulledResult, AdminError> {
        checked(actor)?;
        if scope.canvas.is_reserved() {
            return Err(AdminError::Invalid("no canvas has this id"));
        }
        of_handler(scope)?;
        check_retries(policy.retries, (policy.delay, policy.factor, policy.delay_max))
            .map_err(AdminError::Invalid)?;
        if !policy.keep.is_within_limits() {
            return Err(AdminError::Invalid("an event is kept for 90 days at most after it has ended"));
        }
        let put = self.store.put_pulled(scope, policy, actor).await?.ok_or(AdminError::TooManyPulled)?;
        let PulledPut { new, handler, rule } = put;
        Ok(PutPulledResult { new, handler, still: rule })
    }

    /// How a handler is pulled, if it is.
    pub async fn pulled_handler(&self, scope: &HandlerScope) -> Result<Option<PulledHandler>, AdminError> {
        let handler = Some((&scope.module, &scope.name));
        Ok(self.store.pulled_handlers(scope.canvas, handler, None, 1).await?.into_iter().next())
    }

    /// The pulled handlers of a canvas, by module and name; up to `limit`, 1 to [`LIST_MAX`].
    pub async fn pulled_handlers(
        &self,
        canvas: CanvasId,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<PulledHandler>, AdminError> {
        let after = cursor.map(Cursor::handler).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let found = self.store.pulled_handlers(canvas, None, after.as_ref(), limit as i64 + 1).await?;
        Ok(Page::of(found, limit, |last| {
            Cursor::of_handler((last.scope.module.clone(), last.scope.name.clone()))
        }))
    }

    /// Deletes the registration of a pulled handler, and wakes its events for workers and targets.
    /// Its leases can't be extended or completed from then on.
    pub async fn delete_pulled(&self, scope: &HandlerScope, actor: &Actor) -> Result<(), AdminError> {
        checked(actor)?;
        let PulledDeletion { deleted, job } = self.store.delete_pulled(scope, actor).await?;
        if !deleted {
            return Err(AdminError::NoPulledHandler(Box::new(scope.clone())));
        }
        self.resume(scope.canvas, job.into_iter().collect()).await?;
        Ok(())
    }

    /// Leases up to `max` events of a pulled handler, 1 to 100, in the order of their due times. A
    /// lease lasts 1 s to 1 h. Waits up to 20 s for events; after that the result may be empty. The
    /// values have up to 4 MiB together, or there is a single event.
    ///
    /// An event dies instead of being leased if its leases expired five times, or if it is too late
    /// to start. That is logged, and counted in metrics and statistics.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use wakeq::{CanvasId, HandlerScope};
    ///
    /// let handler = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// let (minute, wait) = (Duration::from_secs(60), Duration::from_secs(20));
    /// for event in admin.lease_events(&handler, 10, minute, wait).await? {
    ///     println!("{} (attempt {})", event.value, event.attempt);
    ///     admin.complete_event(&handler, event.id, &event.lease).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lease_events(
        &self,
        scope: &HandlerScope,
        max: u32,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<LeasedEvent>, AdminError> {
        check_wait(wait)?;
        self.lease_until(scope, None, max, lease, wait).await
    }

    /// The same under the name of the program, any that it likes to have. The name is shown with
    /// the events while they are leased and in their history, and [`Admin::programs`] lists it.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use wakeq::{CanvasId, HandlerScope, Name};
    ///
    /// let handler = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// let (mailer, minute): (Name, _) = ("mailer-7".parse()?, Duration::from_secs(60));
    /// let events = admin.lease_events_as(&mailer, &handler, 10, minute, Duration::ZERO).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lease_events_as(
        &self,
        worker: &Name,
        scope: &HandlerScope,
        max: u32,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<LeasedEvent>, AdminError> {
        check_wait(wait)?;
        self.lease_until(scope, Some(worker), max, lease, wait).await
    }

    async fn lease_until(
        &self,
        scope: &HandlerScope,
        worker: Option<&Name>,
        max: u32,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<LeasedEvent>, AdminError> {
        let end = Instant::now() + wait;
        loop {
            let events = self.lease_events_now(scope, worker, max, lease).await?;
            if !events.is_empty() || !self.await_events(scope, end).await? {
                return Ok(events);
            }
        }
    }

    /// Like [`Admin::lease_events`], or [`Admin::lease_events_as`], without waiting.
    #[doc(hidden)]
    pub async fn lease_events_now(
        &self,
        scope: &HandlerScope,
        worker: Option<&Name>,
        max: u32,
        lease: Duration,
    ) -> Result<Vec<LeasedEvent>, AdminError> {
        check_lease(lease)?;
        check_count(max)?;
        let Some(policy) = self.store.pulled_policy(scope).await? else {
            return Err(AdminError::NoPulledHandler(Box::new(scope.clone())));
        };
        if let Some(worker) = worker {
            self.note_program(scope, worker).await;
        }
        let (source, mut events) = (Source::Handler(scope), Vec::new());
        let (store, place) = (self.store_of(worker), self.event_looks.place_of(scope));
        for _ in 0..TRIES {
            let leased = past_locks(async || store.lease_events(scope, max, lease, BYTES_MAX, place).await);
            let LeasedEvents { rows, room, cancels } = leased.await?;
            if cancels {
                self.waker.tell_cancelled().await;
            }
            self.wake_at_limits(&room, &[]).await;
            let nothing = rows.is_empty();
            let (rows, _) = self.select_leased(source, rows, policy.halts).await;
            let rows = self.without_late(source, rows, policy.halts).await;
            let rows = self.with_checkpoints(source, rows).await;
            for (row, _) in &rows {
                let wait = (row.since - row.event.delay_until).to_std().unwrap_or_default();
                self.count_end(source, &CountedRun { wait: Some(wait), ..CountedRun::default() });
            }
            events = rows.into_iter().map(|(row, left)| LeasedEvent::of(row, left)).collect();
            if nothing || !events.is_empty() {
                break;
            }
        }
        Ok(events)
    }

    /// Waits until a pulled handler may have events to lease; returns whether it does before `end`.
    #[doc(hidden)]
    pub async fn await_events(&self, scope: &HandlerScope, end: Instant) -> Result<bool, AdminError> {
        let looks = self.event_looks.over(&self.store);
        until_leasable(end, || looks.call(scope.clone())).await
    }

    /// Extends a lease to 1 s to 1 h from now. An expired lease can't be extended, and that of an
    /// event which somebody has cancelled is not.
    pub async fn extend_event(
        &self,
        scope: &HandlerScope,
        id: EventId,
        token: &LeaseToken,
        lease: Duration,
    ) -> Result<ExtendedLease, AdminError> {
        let (until, cancelled) = self.extend_leased(Source::Handler(scope), id, token, lease).await?;
        Ok(ExtendedLease { until, cancelled })
    }

    /// Completes a leased event, which removes it. A repeated call fails with
    /// [`AdminError::NotFound`].
    pub async fn complete_event(
        &self,
        scope: &HandlerScope,
        id: EventId,
        token: &LeaseToken,
    ) -> Result<(), AdminError> {
        self.complete_leased(Source::Handler(scope), id, token, None).await
    }

    /// The same with a result, which is JSON of at most 65,536 bytes. It is kept with the event if
    /// its emit or its handler asks for the event to be kept, and otherwise dropped.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, event: wakeq::targets::LeasedEvent) -> Result<(), wakeq::AdminError> {
    /// let result = r#"{"receipt": 7}"#;
    /// admin.complete_event_with(&event.address.scope, event.id, &event.lease, result).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn complete_event_with(
        &self,
        scope: &HandlerScope,
        id: EventId,
        token: &LeaseToken,
        result: &str,
    ) -> Result<(), AdminError> {
        check_result(result)?;
        self.complete_leased(Source::Handler(scope), id, token, Some(result)).await
    }

    /// Releases an event before its lease ends: as if it had not been taken, or as a failed
    /// attempt. [`Release`](crate::queues::Release) has an example.
    pub async fn release_event(
        &self,
        scope: &HandlerScope,
        id: EventId,
        token: &LeaseToken,
        release: &Release,
    ) -> Result<ReleaseResult, AdminError> {
        self.give_back_leased(Source::Handler(scope), id, token, release).await
    }
}

impl LeasedEvent {
    fn of(row: LeasedRow, checkpoint: Option<Checkpoint>) -> Self {
        let LeasedRow { event, token, until, since: _ } = row;
        Self {
            id: event.claim.id,
            lease: token,
            lease_until: until,
            attempt: event.retries.unsigned_abs() + 1,
            address: event.address,
            value: event.value,
            options: event.options,
            checkpoint,
            place: event.place,
            metadata: event.metadata,
            emitted_at: event.enqueued_at,
            due_at: event.delay_until,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::broadcast::Signal;
    use crate::event::{Claim, HeldLimit, NewLimit, Notification, OnFull};
    use crate::notify::{LocalNotifier, Notifier};
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};

    const MINUTE: Duration = Duration::from_secs(60);

    impl Table {
        /// A pulled handler, and two limits of which a worker's events have the places. Of `a` wait
        /// an event of that handler, which needs both, and then an event of a worker. Returns the
        /// claim of `a`, and the two.
        async fn two_keys(&self, canvas: CanvasId) -> (Claim, [Notification; 2]) {
            let mail = HandlerScope::worker(canvas, "mail").unwrap();
            let put = self.store.put_pulled(&mail, &PullPolicy::default(), &Actor::user("ada")).await;
            assert!(put.unwrap().unwrap().new);
            let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
            let mut told = Vec::new();
            for keys in [&["a"][..], &["b"]] {
                self.limit(canvas, keys[0], one).await;
                told.extend(self.add_keyed(canvas, keys, 1).await);
            }
            let claimed = self.claim_some(&told).await;
            assert_eq!(claimed.len(), 2);
            let pulled = self.add_keyed(canvas, &["a", "b"], 1).await[0];
            self.make_mail(pulled.id).await;
            let next = self.add_keyed(canvas, &["a"], 1).await[0];
            (claimed[0].claim, [pulled, next])
        }
    }

    /// It finds room in one limit and none in the other, for which it waits from then on.
    #[tokio::test]
    async fn a_place_that_a_refused_event_leaves_goes_to_the_next() {
        let table = Table::new().await;
        let admin = Admin::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        let mail = HandlerScope::worker(MANY, "mail").unwrap();
        let (first, [pulled, next]) = table.two_keys(MANY).await;
        let (_, [_, theirs]) = table.two_keys(FEW).await;
        assert!(admin.lease_events_now(&mail, None, 10, MINUTE).await.unwrap().is_empty());
        assert!(table.claim_some(&[next, theirs]).await.is_empty());
        assert_eq!(table.store.complete(&[first]).await.unwrap(), [true]);
        let limit = HeldLimit { canvas: MANY, name: "a".to_owned() };
        assert_eq!(table.store.wake_waiting(&[limit]).await.unwrap(), [pulled]);
        assert!(admin.lease_events_now(&mail, None, 10, MINUTE).await.unwrap().is_empty());
        assert_eq!(table.told_to_come().await, [next.id]);
    }

    /// A program decides how often its attempts fail, and with which errors. Beyond what its canvas
    /// may keep of them, they fail as ever and leave no rows.
    #[tokio::test]
    async fn failures_beyond_the_bound_leave_no_rows() {
        let mut table = Table::new().await;
        table.store.bound_attempts(1_000);
        for canvas in [MANY, FEW] {
            let mail = HandlerScope::worker(canvas, "mail").unwrap();
            let put = table.store.put_pulled(&mail, &PullPolicy::default(), &Actor::user("ada")).await;
            assert!(put.unwrap().unwrap().new);
            for event in table.add_keyed(canvas, &[], 2).await {
                table.make_mail(event.id).await;
            }
        }
        table.add_attempts(MANY, 1_000).await;
        assert!((0..1_000).all(|_| table.store.has_room_for_attempt(MANY)), "before the first look");
        wakeq_testbed::wait_while!(table.store.has_room_for_attempt(MANY), "its attempts are counted");
        let admin = Admin::new(table.store.clone(), Arc::new(LocalNotifier::new()));
        for (canvas, rows) in [(MANY, 1_000), (FEW, 2)] {
            let mail = HandlerScope::worker(canvas, "mail").unwrap();
            let leased = admin.lease_events_now(&mail, None, 10, MINUTE).await.unwrap();
            assert_eq!(leased.len(), 2);
            for (event, dead) in leased.iter().zip([false, true]) {
                let release = Release { error: Some("oh".into()), dead, ..Release::default() };
                let result = admin.release_event(&mail, event.id, &event.lease, &release).await.unwrap();
                assert_eq!(result == ReleaseResult::Died, dead, "{result:?}");
            }
            assert_eq!(table.attempts_of(canvas).await, rows, "{canvas}");
        }
    }

    /// The worker of what runs is told when a lease has cancelled that for an event of its own.
    #[tokio::test]
    async fn a_lease_that_cancels_what_runs_says_so() {
        let (table, notifier) = (Table::new().await, Arc::new(LocalNotifier::new()));
        let signals = notifier.signals().watch_here(Signal::Cancellations);
        let admin = Admin::new(table.store.clone(), notifier);
        let mail = HandlerScope::worker(MANY, "mail").unwrap();
        let (first, _) = table.two_keys(MANY).await;
        table.two_keys(FEW).await;
        assert!(admin.lease_events_now(&mail, None, 10, MINUTE).await.unwrap().is_empty());
        assert!(!signals.has_changed().unwrap());
        let cancels = NewLimit { concurrency: Some(1), on_full: OnFull::Cancel, ..NewLimit::default() };
        table.limit(MANY, "a", cancels).await;
        let pulled = table.add_keyed(MANY, &["a"], 1).await[0];
        table.make_mail(pulled.id).await;
        assert!(admin.lease_events_now(&mail, None, 10, MINUTE).await.unwrap().is_empty());
        assert!(signals.has_changed().unwrap());
        assert_eq!(table.store.cancelled_claims().await.unwrap(), [first]);
    }
}
