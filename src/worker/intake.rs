//! The worker's loop: holds the notifications that it may, starts one when there is room, canvas by canvas in turns, answers
//! it when its run has ended, keeps what waits for its time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::WorkerConfig;
use super::counters::{Counters, RunReport};
use super::finished::{Finished, Halt};
use super::lot::Lot;
use super::onward::onward;
use super::room::{Room, RoomKind};
use super::rotation::Rotation;
use super::run::Runner;
use crate::event::{CanvasId, EventId, Notification};
use crate::machine::{Answer, Outcome, When};
use crate::notify::{Delivery, Notifier, Subscription};
use crate::telemetry::WorkerGauges;

/// How long a notification waits here whose run got no answer from Postgres.
const FAILED_WAIT: Duration = Duration::from_secs(1);
/// How long released claims and last answers may take once the grace is over.
const CLOSE_WAIT: Duration = Duration::from_millis(1_500);
/// How long what is left after that may take to be dropped.
const ABORT_WAIT: Duration = Duration::from_millis(250);
/// How many events of an object or a queue run here in a row before the next one is published instead: others wait for
/// the place.
const LINKS_MAX: u32 = 50;
/// How often the subscription is asked whether anything is the matter.
const TROUBLE_PERIOD: Duration = Duration::from_secs(1);

pub(super) struct Intake {
    runner: Arc<Runner>,
    capacity: usize,
    /// Most that waits for a start. The subscription holds as many unanswered ones at most, here and elsewhere.
    held_max: usize,
    shutdown_grace: Duration,
    lot: Lot,
    notifier: Arc<dyn Notifier>,
    /// What waits for a start.
    waiting: Rotation<CanvasId, (Notification, Delivery)>,
    /// What holds room that others wait for, and so goes first.
    ready: VecDeque<(Notification, Delivery, Room)>,
    /// Each with how many events of its object, or its queue, ran here in a row before it.
    running: JoinSet<(Delivery, Finished, u32)>,
    entering: JoinSet<(Notification, Room)>,
    counters: Arc<Counters>,
    reports: Option<mpsc::Sender<RunReport>>,
    trouble: watch::Sender<Option<String>>,
    gauges: WorkerGauges,
    stopping: bool,
}

impl Intake {
    pub(super) fn new(
        runner: Arc<Runner>,
        notifier: Arc<dyn Notifier>,
        config: &WorkerConfig,
        counters: Arc<Counters>,
        reports: Option<mpsc::Sender<RunReport>>,
        trouble: watch::Sender<Option<String>>,
    ) -> Self {
        Self {
            runner,
            capacity: config.capacity,
            held_max: config.capacity + config.lot_max,
            shutdown_grace: config.shutdown_grace,
            lot: Lot::new(config.lot_max),
            notifier,
            waiting: Rotation::new(),
            ready: VecDeque::new(),
            running: JoinSet::new(),
            entering: JoinSet::new(),
            counters,
            reports,
            trouble,
            gauges: WorkerGauges::new(),
            stopping: false,
        }
    }

    /// Whether it ended because it was told to; the other way is that the subscription broke for good.
    pub(super) async fn run(
        mut self,
        mut subscription: Box<dyn Subscription>,
        stop: CancellationToken,
        kill: CancellationToken,
    ) -> bool {
        let mut looks = tokio::time::interval(TROUBLE_PERIOD);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let starts =
                self.running.len() < self.capacity && !(self.ready.is_empty() && self.waiting.is_empty());
            let holds_more = self.waiting.len() < self.held_max;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Ready once a second, so it keeps nothing else waiting; further down it would wait itself under load.
                _ = looks.tick() => self.tell(subscription.trouble()),
                Some(ended) = self.running.join_next() => self.ended(ended),
                Some(entered) = self.entering.join_next() => self.entered(entered),
                (id, delivery) = self.lot.due() => self.due(id, delivery),
                () = std::future::ready(()), if starts => self.start_next(),
                delivery = subscription.next(), if holds_more => match delivery {
                    Some(delivery) => self.receive(delivery),
                    None => break,
                },
            }
        }
        let told_to = stop.is_cancelled();
        self.tell(Some("the worker shuts down".into()));
        self.stop(subscription, kill).await;
        told_to
    }

    fn tell(&self, trouble: Option<String>) {
        self.gauges.receives(trouble.is_none());
        self.gauges.show(self.running.len(), self.lot.len() + self.ready.len() + self.waiting.len());
        self.trouble.send_if_modified(|known| {
            let changed = *known != trouble;
            *known = trouble;
            changed
        });
    }

    fn receive(&mut self, delivery: Delivery) {
        if let Some((notification, delivery)) = read(delivery, &self.counters) {
            self.waiting.push(notification.canvas, (notification, delivery));
        }
    }

    fn double(&self, delivery: Delivery) {
        self.counters.count_doubled();
        delivery.acknowledge();
    }

    fn start(&mut self, notification: Notification, delivery: Delivery, room: Room, links: u32) {
        let runner = Arc::clone(&self.runner);
        self.running.spawn(async move { (delivery, runner.run(notification, room).await, links) });
    }

    fn start_next(&mut self) {
        if let Some((notification, delivery, room)) = self.ready.pop_front() {
            return self.start(notification, delivery, room, 0);
        }
        let Some((notification, delivery)) = self.waiting.pop() else { return };
        // One that waits for its time is looked at all the same: it may have become due (`run_now`).
        if self.lot.waits_openly(notification.id) {
            self.double(delivery);
        } else {
            self.start(notification, delivery, Room::default(), 0);
        }
    }

    fn due(&mut self, id: EventId, delivery: Delivery) {
        if let Ok(notification) = delivery.notification {
            debug_assert_eq!(notification.id, id);
            self.waiting.push(notification.canvas, (notification, delivery));
        }
    }

    fn entered(&mut self, entered: Result<(Notification, Room), tokio::task::JoinError>) {
        let Ok((notification, room)) = entered else { return };
        if let Some(delivery) = self.lot.take(notification.id) {
            self.ready.push_back((notification, delivery, room));
        }
    }

    /// Answers the notification of a run. One that panicked, which only a defect of ours does, is put back by its drop.
    fn ended(&mut self, ended: Result<(Delivery, Finished, u32), tokio::task::JoinError>) {
        let (delivery, finished, links) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a run ended by a defect of the worker"
                );
                return;
            }
        };
        let Finished { halt, room, report, fault, next, again } = finished;
        let notification = report.notification;
        // What asked is asked again when another event has had its turn; that one has a delivery of its own.
        let (delivery, asker) = match again {
            Some(asker) => (onward(&self.notifier, notification), Some((asker, delivery))),
            None => (delivery, None),
        };
        self.counters.count(&report, fault);
        let gone = matches!(report.ending(), Some(Outcome::Deleted | Outcome::EventMissing));
        match halt {
            Halt::Answer(Answer::Acknowledge) => delivery.acknowledge(),
            Halt::Answer(Answer::PutBack) | Halt::Wait(When::Soon) => delivery.put_back(),
            Halt::Wait(When::In(wait)) => self.park(notification.id, delivery, wait),
            Halt::Failed(_) if self.stopping || self.lot.is_full() => delivery.put_back(),
            Halt::Failed(_) => self.park(notification.id, delivery, FAILED_WAIT),
            Halt::Room(kind, semaphore, places) => {
                self.wait_for_room(notification, delivery, room, (kind, semaphore, places));
            }
        }
        if let Some(other) = gone.then(|| self.lot.take(notification.id)).flatten() {
            self.double(other);
        }
        if let Some((asker, delivery)) = asker {
            self.go_on(asker, delivery, links + 1);
        }
        for next in next {
            let delivery = onward(&self.notifier, next);
            self.go_on(next, delivery, links + 1);
        }
        if let Some(reports) = &self.reports {
            // A slow reader misses reports; the queue does not wait for it.
            let _ = reports.try_send(report);
        }
    }

    /// The next event of an object or a queue has its turn: here, where there is room for it; else at whoever is sent its
    /// notification.
    fn go_on(&mut self, next: Notification, delivery: Delivery, links: u32) {
        if self.stopping || links >= LINKS_MAX || self.running.len() >= self.capacity {
            delivery.put_back();
        } else if self.lot.waits_openly(next.id) {
            delivery.acknowledge();
        } else {
            self.start(next, delivery, Room::default(), links);
        }
    }

    /// Keeps a notification for its time, one per event. Without room for it the promise on the row wakes the event.
    fn park(&mut self, id: EventId, delivery: Delivery, wait: Duration) {
        if self.stopping {
            delivery.put_back();
        } else if self.lot.contains(id) {
            self.lot.hasten(id, wait);
            self.double(delivery);
        } else if self.lot.is_full() {
            delivery.acknowledge();
        } else {
            self.lot.park(id, delivery, wait);
        }
    }

    fn wait_for_room(
        &mut self,
        notification: Notification,
        delivery: Delivery,
        mut room: Room,
        (kind, semaphore, places): (RoomKind, Arc<tokio::sync::Semaphore>, u32),
    ) {
        if self.stopping {
            return delivery.put_back();
        }
        if self.lot.waits_openly(notification.id) {
            return self.double(delivery);
        }
        if let Some(other) = self.lot.take(notification.id) {
            self.double(other);
        } else if self.lot.is_full() {
            return delivery.put_back();
        }
        self.lot.park_open(notification.id, delivery);
        self.entering.spawn(async move {
            let permit: Option<OwnedSemaphorePermit> = semaphore.acquire_many_owned(places).await.ok();
            room.hold(kind, permit);
            (notification, room)
        });
    }

    /// Takes nothing more, gives back what has not started, lets runs end within the grace, cuts off the rest.
    async fn stop(mut self, subscription: Box<dyn Subscription>, kill: CancellationToken) {
        self.stopping = true;
        let deadline = Instant::now() + self.shutdown_grace;
        tracing::info!(running = self.running.len(), grace = ?self.shutdown_grace, "shutting down");
        self.entering.shutdown().await;
        self.lot.clear();
        self.ready.clear();
        self.waiting.clear();
        let closing = tokio::spawn(subscription.close(self.shutdown_grace + CLOSE_WAIT));
        self.drain(deadline).await;
        if !self.running.is_empty() {
            tracing::warn!(
                running = self.running.len(),
                "the grace is over: handlers are cut off, their claims released"
            );
            kill.cancel();
            self.drain(Instant::now() + CLOSE_WAIT).await;
        }
        // Not awaited: a handler that blocks its thread can't be cut off.
        self.running.abort_all();
        self.drain(Instant::now() + ABORT_WAIT).await;
        if closing.await.is_err() {
            tracing::error!("closing the subscription failed");
        }
    }

    async fn drain(&mut self, deadline: Instant) {
        while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, self.running.join_next()).await {
            self.ended(ended);
        }
    }
}

/// What a delivery says; a message that is no notification is acknowledged and counted.
pub(super) fn read(delivery: Delivery, counters: &Counters) -> Option<(Notification, Delivery)> {
    match &delivery.notification {
        Ok(notification) => Some((*notification, delivery)),
        Err(error) => {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "acknowledged a message that says nothing"
            );
            counters.count_malformed();
            delivery.acknowledge();
            None
        }
    }
}
