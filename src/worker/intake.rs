//! The worker's loop: holds the notifications that it may, starts one when there is room, canvas by canvas in turns, answers
//! it when its run has ended, keeps what waits for its time or for a room. What is kept for longer than a turn is
//! acknowledged, so that the broker goes on sending; what there is no room for is left to other workers.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::WorkerConfig;
use super::ahead::Ahead;
use super::counters::{Counters, RunReport};
use super::finished::{Finished, Halt};
use super::lot::Lot;
use super::offers::Offers;
use super::onward::{self, Onward};
use super::pace::Pace;
use super::room::{Room, RoomKind, RoomQueues};
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
/// How often the subscription is asked whether anything is the matter, and what waits for room is offered to others.
const TROUBLE_PERIOD: Duration = Duration::from_secs(1);

/// What runs a notification to its end: the machine, or what a test puts in its place.
pub(super) trait Runs: Send + Sync + 'static {
    fn run(&self, notification: Notification, room: Room) -> impl Future<Output = Finished> + Send;
}

impl Runs for Runner {
    fn run(&self, notification: Notification, room: Room) -> impl Future<Output = Finished> + Send {
        self.run(notification, room)
    }
}

/// What waits for a start, with the rooms it is in already.
struct Waits {
    notification: Notification,
    delivery: Delivery,
    room: Room,
}

pub(super) struct Intake<R> {
    runner: Arc<R>,
    capacity: usize,
    /// Most that runs or came and waits for a start, besides what the second stream adds.
    held_max: usize,
    lot_max: usize,
    ahead: Ahead,
    pace: Pace,
    shutdown_grace: Duration,
    lot: Lot,
    offers: Offers,
    onward: Onward,
    waiting: Rotation<CanvasId, Waits>,
    running: JoinSet<(Delivery, Finished)>,
    entering: JoinSet<(Notification, Room)>,
    rooms: Arc<RoomQueues>,
    counters: Arc<Counters>,
    reports: Option<mpsc::Sender<RunReport>>,
    trouble: watch::Sender<Option<String>>,
    gauges: WorkerGauges,
    stopping: bool,
}

impl<R: Runs> Intake<R> {
    pub(super) fn new(
        runner: Arc<R>,
        notifier: Arc<dyn Notifier>,
        config: &WorkerConfig,
        counters: Arc<Counters>,
        reports: Option<mpsc::Sender<RunReport>>,
        trouble: watch::Sender<Option<String>>,
    ) -> Self {
        let held_max = config.held_max();
        let ahead = Ahead::new(Arc::clone(&notifier), config.ahead_max());
        let onward_max = 2 * (held_max + ahead.size() + config.lot_max);
        Self {
            runner,
            capacity: config.capacity,
            held_max,
            lot_max: config.lot_max,
            ahead,
            pace: Pace::new(config.capacity, Instant::now()),
            shutdown_grace: config.shutdown_grace,
            lot: Lot::new(config.lot_max),
            offers: Offers::new(config.capacity),
            onward: Onward::start(notifier, onward_max),
            waiting: Rotation::new(),
            running: JoinSet::new(),
            entering: JoinSet::new(),
            rooms: Arc::default(),
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
            let starts = self.running.len() < self.capacity && !self.waiting.is_empty();
            // What was handed over is not counted: chains must not keep what others emit at the broker.
            let holds_more = self.held() < self.room();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Ready once a second, so it keeps nothing else waiting; further down it would wait itself under load.
                _ = looks.tick() => {
                    self.tell(subscription.trouble());
                    self.offer();
                    self.look_ahead();
                }
                Some(ended) = self.running.join_next() => {
                    // It ran until now.
                    self.pace.ran(Instant::now(), self.running.len() + 1);
                    self.pace.ended();
                    self.ended(ended);
                }
                Some(entered) = self.entering.join_next() => self.entered(entered),
                (id, delivery) = self.lot.due() => self.due(id, delivery),
                () = std::future::ready(()), if starts => self.start_next(),
                delivery = subscription.next(), if holds_more => match delivery {
                    Some(delivery) => self.receive(delivery),
                    None => break,
                },
                delivery = self.ahead.next(), if holds_more => self.receive(delivery),
            }
        }
        let told_to = stop.is_cancelled();
        self.tell(Some("the worker shuts down".into()));
        self.stop(subscription, kill).await;
        told_to
    }

    fn tell(&self, trouble: Option<String>) {
        self.gauges.receives(trouble.is_none());
        self.gauges.show(self.running.len(), self.lot.len() + self.waiting.len());
        self.trouble.send_if_modified(|known| {
            let changed = *known != trouble;
            *known = trouble;
            changed
        });
    }

    /// What runs, or came and waits for a start.
    fn held(&self) -> usize {
        self.running.len() + self.waiting.len() - self.waiting.links()
    }

    /// The most of that now.
    fn room(&self) -> usize {
        self.held_max + self.ahead.room()
    }

    /// Most that was handed over and may wait here now: what would wait for long is left to other workers. Each has waited for its turn
    /// already, and at the broker it may come after all that anybody has emitted.
    fn links_max(&self) -> usize {
        self.held_max.max(self.lot_max.min(self.pace.done_in_time()))
    }

    /// Takes more ahead while what runs is quick: canvases take turns among what is held, and nobody waits for it long. What is
    /// held beyond the bound when it is slow is left to other workers.
    fn look_ahead(&mut self) {
        self.pace.ran(Instant::now(), self.running.len());
        let is_quick = self.pace.is_quick(self.ahead.size());
        self.ahead.keep_open(is_quick, self.onward.others());
        self.shed();
    }

    fn receive(&mut self, delivery: Delivery) {
        if let Some((notification, delivery)) = read(delivery, &self.counters) {
            self.wait(notification, delivery);
        }
    }

    /// Lets it wait for its turn.
    fn wait(&mut self, notification: Notification, delivery: Delivery) {
        let waits = Waits { notification, delivery, room: Room::default() };
        self.waiting.push(notification.canvas, waits);
        self.shed();
    }

    /// Leaves to other workers what is beyond the bounds: the last of the canvas with the most.
    fn shed(&mut self) {
        while self.held() > self.room()
            && let Some(waits) = self.waiting.shed()
        {
            self.leave(waits);
        }
        while self.waiting.links() > self.links_max()
            && let Some(waits) = self.waiting.shed_link()
        {
            self.leave(waits);
        }
    }

    fn leave(&self, waits: Waits) {
        self.onward.leave(waits.notification, waits.delivery);
    }

    /// Gives back what this worker has done nothing about. One that stops does not have it wait for the retry delay: that is there for
    /// what comes here again.
    fn put_back(&self, notification: Notification, delivery: Delivery) {
        if self.stopping {
            self.onward.leave(notification, delivery);
        } else {
            delivery.put_back();
        }
    }

    fn double(&self, delivery: Delivery) {
        self.counters.count_doubled();
        delivery.acknowledge();
    }

    fn start(&mut self, Waits { notification, delivery, room }: Waits) {
        let runner = Arc::clone(&self.runner);
        self.pace.ran(Instant::now(), self.running.len());
        self.running.spawn(async move { (delivery, runner.run(notification, room).await) });
    }

    fn start_next(&mut self) {
        let Some(waits) = self.waiting.pop() else { return };
        // One that waits for its time is looked at all the same: it may have become due (`run_now`).
        if self.lot.waits_openly(waits.notification.id) {
            self.double(waits.delivery);
        } else {
            self.start(waits);
        }
    }

    fn due(&mut self, id: EventId, delivery: Delivery) {
        if let Ok(notification) = delivery.notification {
            debug_assert_eq!(notification.id, id);
            self.wait(notification, delivery);
        }
    }

    /// The first of its canvas to start, because others wait for the room that it is in; but not before other canvases.
    fn entered(&mut self, entered: Result<(Notification, Room), tokio::task::JoinError>) {
        let Ok((notification, room)) = entered else { return };
        if let Some(delivery) = self.lot.take(notification.id) {
            self.waiting.push_first(notification.canvas, Waits { notification, delivery, room });
            self.shed();
        }
    }

    /// Answers the notification of a run. One that panicked, which only a defect of ours does, is put back by its drop.
    fn ended(&mut self, ended: Result<(Delivery, Finished), tokio::task::JoinError>) {
        let (delivery, finished) = match ended {
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
            Some(asker) => (self.onward.delivery(notification), Some((asker, delivery))),
            None => (delivery, None),
        };
        self.counters.count(&report, fault);
        let gone = matches!(report.ending(), Some(Outcome::Deleted | Outcome::EventMissing));
        match halt {
            Halt::Answer(Answer::Acknowledge) => delivery.acknowledge(),
            Halt::Answer(Answer::PutBack) | Halt::Wait(When::Soon) => self.put_back(notification, delivery),
            Halt::Wait(When::In(wait)) => self.park(notification, delivery, wait),
            Halt::Failed(_) => self.try_again(notification, delivery),
            Halt::Room(kind, semaphore, places) => {
                self.wait_for_room(notification, delivery, room, (kind, semaphore, places));
            }
        }
        if let Some(other) = gone.then(|| self.lot.take(notification.id)).flatten() {
            self.double(other);
        }
        if let Some((asker, delivery)) = asker {
            self.go_on(asker, delivery, Rotation::push);
        }
        for next in next {
            let delivery = self.onward.delivery(next);
            self.go_on(next, delivery, Rotation::push_link);
        }
        if let Some(reports) = &self.reports {
            // A slow reader misses reports; the queue does not wait for it.
            let _ = reports.try_send(report);
        }
    }

    /// What has its turn because of a run that ended waits for a place: the next event of an object or a facet before what comes later
    /// than that, since it has waited already and nobody else knows that it may run.
    fn go_on(
        &mut self,
        next: Notification,
        delivery: Delivery,
        push: fn(&mut Rotation<CanvasId, Waits>, CanvasId, Waits),
    ) {
        if self.stopping {
            delivery.put_back();
        } else if self.lot.waits_openly(next.id) {
            delivery.acknowledge();
        } else {
            let waits = Waits { notification: next, delivery, room: Room::default() };
            push(&mut self.waiting, next.canvas, waits);
            self.shed();
        }
    }

    /// Keeps a notification for its time, one per event. It is acknowledged: should this process end, or have no room for
    /// it, the promise on the row wakes the event.
    fn park(&mut self, notification: Notification, delivery: Delivery, wait: Duration) {
        if self.stopping {
            return self.onward.leave(notification, delivery);
        }
        if self.lot.contains(notification.id) {
            self.lot.hasten(notification.id, wait);
            return self.double(delivery);
        }
        delivery.acknowledge();
        if self.lot.has_room(notification.canvas, Some(wait)) {
            self.lot.park(notification, self.onward.delivery(notification), wait);
        }
    }

    /// Keeps one unanswered whose run got no answer from Postgres: a worker without a database takes no more than it holds.
    fn try_again(&mut self, notification: Notification, delivery: Delivery) {
        if self.stopping {
            delivery.put_back();
        } else if self.lot.contains(notification.id) {
            self.lot.hasten(notification.id, FAILED_WAIT);
            self.double(delivery);
        } else if self.lot.has_room(notification.canvas, Some(FAILED_WAIT)) {
            self.lot.park(notification, delivery, FAILED_WAIT);
        } else {
            delivery.put_back();
        }
    }

    /// Keeps a notification until there is room, one per event; acknowledged, as what waits for its time.
    fn wait_for_room(
        &mut self,
        notification: Notification,
        delivery: Delivery,
        mut room: Room,
        (kind, semaphore, places): (RoomKind, Arc<tokio::sync::Semaphore>, u32),
    ) {
        if self.stopping {
            return self.onward.leave(notification, delivery);
        }
        if self.lot.waits_openly(notification.id) {
            return self.double(delivery);
        }
        if let Some(other) = self.lot.take(notification.id) {
            self.double(other);
        } else if !self.lot.has_room(notification.canvas, None) {
            return delivery.put_back();
        }
        delivery.acknowledge();
        self.offers.waits_here(notification.id);
        let rooms = Arc::clone(&self.rooms);
        let entering = self.entering.spawn(async move {
            room.hold(kind, rooms.enter(notification.canvas, semaphore, places).await);
            (notification, room)
        });
        self.lot.park_open(notification, self.onward.delivery(notification), entering);
    }

    /// Offers to other workers what came last of what waits for room, of the canvas with the most, where more does than may wait
    /// for a place.
    fn offer(&mut self) {
        let kept = self.held_max - self.capacity;
        for _ in 0..self.offers.next() {
            if self.lot.open_len() <= kept {
                return;
            }
            let Some((id, delivery)) = self.lot.take_last_open() else { return };
            self.offers.offer(id);
            delivery.put_back();
        }
    }

    /// Takes nothing more, leaves to others what has not started, lets runs end within the grace, cuts off the rest.
    async fn stop(mut self, subscription: Box<dyn Subscription>, kill: CancellationToken) {
        self.stopping = true;
        let deadline = Instant::now() + self.shutdown_grace;
        tracing::info!(running = self.running.len(), grace = ?self.shutdown_grace, "shutting down");
        self.entering.shutdown().await;
        self.lot.clear();
        while let Some(waits) = self.waiting.pop() {
            self.leave(waits);
        }
        let grace = self.shutdown_grace + CLOSE_WAIT;
        let mut streams = self.ahead.close(self.onward.others());
        streams.spawn(onward::close(subscription, self.onward.others(), grace));
        let closing = tokio::spawn(tokio::time::timeout(grace, streams.join_all()));
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
        let Self { running, onward, .. } = self;
        drop(running);
        let last = deadline + CLOSE_WAIT;
        onward.close(last.saturating_duration_since(Instant::now()).max(ABORT_WAIT)).await;
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
