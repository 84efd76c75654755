//! The worker's loop. It holds a limited number of notifications, starts one when a slot is free,
//! urgent ones first and of the canvas with the fewest, answers it when its run has ended, and
//! keeps those that wait for their time or for room. A notification that is kept for longer than a
//! turn is acknowledged, so that the broker continues to send; those that exceed the limits are
//! left to other workers.

mod holding;
mod notification_runner;
mod routes;
mod stopping;
mod surplus;
#[cfg(test)]
mod tests;
mod urgent_stream;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{mpsc, watch};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::WorkerConfig;
use super::ahead::PrefetchStream;
use super::counters::{Counters, RunReport};
use super::finished::{FinishedRun, RunEnd};
use super::levels::{IN_A_ROW_MAX, Level, Levels};
use super::lot::ParkingLot;
use super::offers::Offers;
use super::pace::Pace;
use super::permits::{PermitQueues, Permits, Shortage};
use super::republisher::{self, Republisher};
use super::rotation::Rotation;
use crate::event::{CanvasId, EventId, Notification, spread};
use crate::machine::{Answer, Outcome, When};
use crate::notify::{Delivery, Notifier, Subscription};
use crate::telemetry::WorkerGauges;
use notification_runner::NotificationRunner;
use routes::RouteLooks;
use surplus::{ASIDE_MAX, Surplus};
use urgent_stream::UrgentStream;

/// How long a notification waits here if its run got no answer from Postgres.
const FAILED_WAIT: Duration = Duration::from_secs(1);
/// How long releasing claims and sending the last answers may take once the grace is over.
const CLOSE_WAIT: Duration = Duration::from_millis(1_500);
/// How long dropping the rest may take after that.
const ABORT_WAIT: Duration = Duration::from_millis(250);
/// How often a worker that is full looks whether it holds the events of one canvas only.
const ASK_PERIOD: Duration = Duration::from_millis(300);
/// How often the subscription is checked for trouble, and notifications that wait for room are
/// offered to other workers.
const TROUBLE_PERIOD: Duration = Duration::from_secs(1);

/// A task that ran a notification, and what came of it.
type EndedTask = Result<(task::Id, (Delivery, FinishedRun)), JoinError>;

/// A notification that waits for its start, with the permits that it already holds.
struct PendingRun {
    notification: Notification,
    delivery: Delivery,
    permits: Permits,
}

pub(super) struct Intake<R> {
    runner: Arc<R>,
    capacity: usize,
    /// Maximum number of notifications of a stream that run or wait for their start after arriving,
    /// not counting those that are taken ahead.
    held_max: usize,
    /// Whether urgent notifications come over a stream of their own.
    is_divided: bool,
    /// How many of them were received since the other stream was asked.
    urgent_in_a_row: u8,
    lot_max: usize,
    ahead: PrefetchStream,
    pace: Pace,
    shutdown_grace: Duration,
    lot: ParkingLot,
    offers: Offers,
    republisher: Republisher,
    surplus: Surplus,
    routes: RouteLooks,
    waiting: Levels<CanvasId, PendingRun, EventId>,
    running: JoinSet<(Delivery, FinishedRun)>,
    /// The level and the canvas of each run.
    owners: HashMap<task::Id, (Level, CanvasId)>,
    acquiring: JoinSet<(Notification, Permits)>,
    permit_queues: Arc<PermitQueues>,
    counters: Arc<Counters>,
    reports: Option<mpsc::Sender<RunReport>>,
    trouble: watch::Sender<Option<String>>,
    gauges: WorkerGauges,
    stopping: bool,
}

impl<R: NotificationRunner> Intake<R> {
    pub(super) fn new(
        runner: Arc<R>,
        notifier: Arc<dyn Notifier>,
        config: &WorkerConfig,
        counters: Arc<Counters>,
        reports: Option<mpsc::Sender<RunReport>>,
        trouble: watch::Sender<Option<String>>,
    ) -> Self {
        let held_max = config.held_max();
        let ahead = PrefetchStream::new(Arc::clone(&notifier), config.ahead_max());
        let republish_max = 2 * (2 * held_max + ahead.size() + config.lot_max) + ASIDE_MAX;
        let surplus = Surplus::new(&runner, config.capacity);
        let routes = RouteLooks::new(runner.has_urgent_routes());
        Self {
            runner,
            capacity: config.capacity,
            held_max,
            is_divided: false,
            urgent_in_a_row: 0,
            lot_max: config.lot_max,
            ahead,
            pace: Pace::new(config.capacity, Instant::now()),
            shutdown_grace: config.shutdown_grace,
            lot: ParkingLot::new(config.lot_max),
            offers: Offers::new(2..=config.capacity.max(2)),
            republisher: Republisher::start(notifier, republish_max),
            surplus,
            routes,
            waiting: Levels::new(config.capacity, config.urgent_slots),
            running: JoinSet::new(),
            owners: HashMap::new(),
            acquiring: JoinSet::new(),
            permit_queues: Arc::default(),
            counters,
            reports,
            trouble,
            gauges: WorkerGauges::new(),
            stopping: false,
        }
    }

    /// Returns whether it ended because it was told to stop, not because a subscription broke. The
    /// second one, if any, is to urgent notifications alone: it is received from however many
    /// others are held.
    pub(super) async fn run(
        mut self,
        (mut subscription, urgent): (Box<dyn Subscription>, Option<Box<dyn Subscription>>),
        stop: CancellationToken,
        kill: CancellationToken,
    ) -> bool {
        let mut urgent = UrgentStream::new(urgent);
        self.is_divided = urgent.is_open();
        let mut looks = tokio::time::interval(TROUBLE_PERIOD);
        let mut asks = tokio::time::interval(ASK_PERIOD);
        for ticks in [&mut looks, &mut asks] {
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            let starts = self.waiting.next().is_some();
            let holds_more = self.holds_more(Level::Normal);
            let more_urgent = self.is_divided && self.holds_more(Level::Urgent);
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Ready only once a second, so it delays no other branch; further down it would
                // starve under load.
                _ = looks.tick() => {
                    let second = urgent.trouble();
                    self.report(subscription.trouble().or(second));
                    self.offer();
                    self.offer_aside();
                    self.look_ahead();
                }
                _ = asks.tick() => self.ask_for_others(),
                answer = self.surplus.answer() => self.others_answered(answer),
                Some(ended) = self.running.join_next_with_id() => self.all_ended(ended),
                Some(acquired) = self.acquiring.join_next() => self.acquired(acquired),
                (id, delivery) = self.lot.due() => self.due(id, delivery),
                delivery = urgent.next(), if more_urgent => match delivery {
                    Some(delivery) => {
                        if !self.receive_urgent(delivery, subscription.as_mut()) {
                            break;
                        }
                    }
                    None => break,
                },
                () = std::future::ready(()), if starts => self.start_all(),
                delivery = subscription.next(), if holds_more => match delivery {
                    Some(delivery) => self.receive(delivery, Level::Normal),
                    None => break,
                },
                delivery = self.ahead.next(), if holds_more => self.receive(delivery, Level::Normal),
                urgent = self.routes.answer() => self.routes_answered(urgent),
                () = std::future::ready(()), if self.routes.may_ask() => self.ask_for_routes(),
            }
        }
        let was_stopped = stop.is_cancelled();
        // Batches that gather begin now.
        stop.cancel();
        self.report(Some("the worker is shutting down".into()));
        let urgent = urgent.into_subscription().await;
        self.stop((subscription, urgent), kill).await;
        was_stopped
    }

    fn report(&self, trouble: Option<String>) {
        self.gauges.record_receiving(trouble.is_none());
        let waiting = self.waiting.len() + self.waiting.aside();
        self.gauges.show(self.running.len(), self.lot.len() + waiting);
        self.trouble.send_if_modified(|known| {
            let changed = *known != trouble;
            *known = trouble;
            changed
        });
    }

    /// Takes more notifications ahead while runs are quick: canvases then take turns among
    /// everything held, and nothing waits for long. A client that acknowledges every 100 ms, as
    /// Google's does, needs it as well: the usual prefetch is used up after a few milliseconds.
    /// Once runs are slow, notifications beyond the limit are left to other workers.
    fn look_ahead(&mut self) {
        self.pace.ran(Instant::now(), self.running.len());
        let is_quick = self.pace.is_quick(self.ahead.size());
        self.ahead.keep_open(is_quick, self.republisher.sender());
        self.shed();
    }

    /// Of two streams each is of one level, whatever its messages say: with a filter that is not as
    /// it should be, both bring the same ones, and each time that they were left to other workers,
    /// there would be twice as many.
    fn receive(&mut self, delivery: Delivery, level: Level) {
        if let Some((mut notification, mut delivery)) = read(delivery, &self.counters) {
            if self.is_divided && notification.urgent != level.is_urgent() {
                notification.urgent = level.is_urgent();
                delivery.notification = Ok(notification);
            }
            self.wait(notification, delivery);
        }
    }

    /// Receives an urgent notification, and of four in a row one of the other stream if it has any.
    /// The first stream may go on without a pause, so what may start is started at once. Returns
    /// whether the other stream is open.
    fn receive_urgent(&mut self, delivery: Delivery, others: &mut dyn Subscription) -> bool {
        self.receive(delivery, Level::Urgent);
        self.urgent_in_a_row += 1;
        if self.urgent_in_a_row >= IN_A_ROW_MAX {
            self.urgent_in_a_row = 0;
            if self.holds_more(Level::Normal)
                && let Some(received) = others.next().now_or_never()
            {
                let Some(delivery) = received else { return false };
                self.receive(delivery, Level::Normal);
            }
        }
        self.start_all();
        true
    }

    fn republish(&self, pending: PendingRun) {
        self.republisher.republish(pending.notification, pending.delivery);
    }

    /// Puts back a notification for which this worker has done nothing. A worker that is stopping
    /// publishes it again instead, which avoids the retry delay: that is meant for notifications
    /// that come back here.
    fn put_back(&self, notification: Notification, delivery: Delivery) {
        if self.stopping {
            self.republisher.republish(notification, delivery);
        } else {
            delivery.put_back();
        }
    }

    fn acknowledge_duplicate(&self, delivery: Delivery) {
        self.counters.count_duplicate();
        delivery.acknowledge();
    }

    fn start(&mut self, PendingRun { notification, delivery, permits }: PendingRun) {
        let runner = Arc::clone(&self.runner);
        self.pace.ran(Instant::now(), self.running.len());
        let run = self.running.spawn(async move { (delivery, runner.run(notification, permits).await) });
        self.owners.insert(run.id(), (Level::of(notification.urgent), notification.canvas));
    }

    /// Starts as many as there are slots.
    fn start_all(&mut self) {
        while let Some(pending) = self.next_in_turn() {
            self.start_next(pending);
        }
    }

    fn start_next(&mut self, pending: PendingRun) {
        // If the event waits for its time, it is run all the same: it may have become due
        // (`run_now`).
        if self.lot.waits_for_permit(pending.notification.id) {
            let Notification { canvas, urgent, .. } = pending.notification;
            self.waiting.free_place(Level::of(urgent), canvas);
            self.acknowledge_duplicate(pending.delivery);
        } else {
            self.start(pending);
        }
    }

    fn due(&mut self, id: EventId, delivery: Delivery) {
        if let Ok(notification) = delivery.notification {
            debug_assert_eq!(notification.id, id);
            self.wait(notification, delivery);
        }
    }

    /// Starts first within its canvas, because it already holds a permit that others wait for, but
    /// not ahead of other canvases.
    fn acquired(&mut self, acquired: Result<(Notification, Permits), JoinError>) {
        let Ok((notification, permits)) = acquired else { return };
        if let Some(delivery) = self.lot.take(notification.id) {
            let waiting = self.waiting.at_mut(Level::of(notification.urgent));
            waiting.push_first(notification.canvas, PendingRun { notification, delivery, permits });
            self.shed();
        }
    }

    /// Ends this run, and the others that have ended by now.
    fn all_ended(&mut self, first: EndedTask) {
        let mut next = Some(first);
        while let Some(ended) = next {
            // The run that ended was running until now.
            self.pace.ran(Instant::now(), self.running.len() + 1);
            self.pace.ended();
            self.ended(ended);
            next = self.running.try_join_next_with_id();
        }
        if self.ahead.extra() == 0 && self.pace.has_seen_enough() {
            self.look_ahead();
        }
    }

    /// Answers the notification of a run. If the run panicked, which is a bug in wakeq, or was
    /// aborted, dropping its delivery puts it back.
    fn ended(&mut self, ended: EndedTask) {
        let task = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        if let Some((level, canvas)) = self.owners.remove(&task) {
            self.waiting.free_place(level, canvas);
        }
        let (delivery, finished) = match ended {
            Ok((_, ended)) => ended,
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                return tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a run panicked (bug in wakeq)"
                );
            }
        };
        let FinishedRun { end, permits, report, fault, next, again } = finished;
        let notification = report.notification;
        // If another event took the turn, that event gets a delivery of its own, and the
        // notification that asked runs again.
        let (delivery, asker) = match again {
            Some(asker) => (self.republisher.delivery(notification), Some((asker, delivery))),
            None => (delivery, None),
        };
        self.counters.count(&report, fault);
        let gone = matches!(report.ending(), Some(Outcome::Deleted | Outcome::EventMissing));
        match end {
            RunEnd::Answer(Answer::Acknowledge) => delivery.acknowledge(),
            RunEnd::Answer(Answer::PutBack) | RunEnd::Wait(When::Soon) => {
                self.put_back(notification, delivery)
            }
            RunEnd::Wait(When::In(wait)) => self.park(notification, delivery, wait),
            RunEnd::Failed(_) => self.try_again(notification, delivery),
            RunEnd::NeedsRoom(shortage) => self.wait_for_room(notification, delivery, permits, shortage),
        }
        if let Some(other) = gone.then(|| self.lot.take(notification.id)).flatten() {
            self.acknowledge_duplicate(other);
        }
        if let Some((asker, delivery)) = asker {
            self.enqueue_ready(asker, delivery, Rotation::push);
        }
        for next in next {
            let delivery = self.republisher.delivery(next);
            self.enqueue_ready(next, delivery, Rotation::push_link);
        }
        if let Some(reports) = &self.reports {
            // A slow reader misses reports; runs do not wait for it.
            let _ = reports.try_send(*report);
        }
    }

    /// Queues a notification that may run because another run ended. The next event of an object or
    /// a facet does not queue behind later arrivals: it has waited already, and no other process
    /// knows that it may run.
    fn enqueue_ready(
        &mut self,
        next: Notification,
        delivery: Delivery,
        push: fn(&mut Rotation<CanvasId, PendingRun, EventId>, CanvasId, PendingRun),
    ) {
        if self.stopping {
            delivery.put_back();
        } else if self.lot.waits_for_permit(next.id) {
            delivery.acknowledge();
        } else {
            let pending = PendingRun { notification: next, delivery, permits: Permits::default() };
            push(self.waiting.at_mut(Level::of(next.urgent)), next.canvas, pending);
            self.shed();
        }
    }

    /// Keeps a notification for its time, one per event. It is acknowledged: if this process ends
    /// or has no room for it, the row's promise wakes the event.
    fn park(&mut self, notification: Notification, delivery: Delivery, wait: Duration) {
        if self.stopping {
            return self.republisher.republish(notification, delivery);
        }
        if self.lot.contains(notification.id) {
            self.lot.hasten(notification.id, wait);
            return self.acknowledge_duplicate(delivery);
        }
        delivery.acknowledge();
        if self.lot.make_room(notification.canvas, Some(wait)) {
            self.lot.park(notification, self.republisher.delivery(notification), wait);
        }
    }

    /// Keeps a notification, unanswered, whose run got no answer from Postgres: a worker without a
    /// database must not receive more than it can hold.
    fn try_again(&mut self, notification: Notification, delivery: Delivery) {
        let wait = spread(FAILED_WAIT);
        if self.stopping {
            delivery.put_back();
        } else if self.lot.contains(notification.id) {
            self.lot.hasten(notification.id, wait);
            self.acknowledge_duplicate(delivery);
        } else if self.lot.make_room(notification.canvas, Some(wait)) {
            self.lot.park(notification, delivery, wait);
        } else {
            self.leave(notification, delivery);
        }
    }

    /// Keeps a notification until there is room, one per event. It is acknowledged like those that
    /// wait for their time.
    fn wait_for_room(
        &mut self,
        notification: Notification,
        delivery: Delivery,
        permits: Permits,
        shortage: Shortage,
    ) {
        if self.stopping {
            return self.republisher.republish(notification, delivery);
        }
        if self.lot.waits_for_permit(notification.id) {
            return self.acknowledge_duplicate(delivery);
        }
        if let Some(other) = self.lot.take(notification.id) {
            self.acknowledge_duplicate(other);
        } else if !self.lot.make_room(notification.canvas, None) {
            return self.leave(notification, delivery);
        }
        delivery.acknowledge();
        self.offers.waits_here(notification.id);
        let queues = Arc::clone(&self.permit_queues);
        let acquiring = self.acquiring.spawn(async move {
            // The semaphore that it waits for is never closed.
            let acquired = shortage.over(&queues, notification, permits).await;
            (notification, acquired.unwrap_or_default())
        });
        self.lot.park_for_permit(notification, self.republisher.delivery(notification), acquiring);
    }
}

/// The notification in a delivery. Other messages are acknowledged and counted.
pub(super) fn read(delivery: Delivery, counters: &Counters) -> Option<(Notification, Delivery)> {
    match &delivery.notification {
        Ok(notification) => Some((*notification, delivery)),
        Err(error) => {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "acknowledged a message that is not a notification"
            );
            counters.count_malformed();
            delivery.acknowledge();
            None
        }
    }
}
