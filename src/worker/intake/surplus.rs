//! Notifications that a worker has received and can't start soon. They are left to other workers
//! or, while canvases share this worker, set aside so that they delay no others in the
//! subscription. Nothing is lost if the process ends: those that were set aside have been
//! acknowledged, and their promises wake their events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::worker::others::OtherCanvases;

/// Maximum number of notifications that are set aside, in some 25 MiB; beyond that, those of the
/// canvas with the most are left to their promises.
pub(super) const ASIDE_MAX: usize = 500_000;
/// Maximum number of events whose promises one statement moves.
const BATCH_MAX: usize = 1_000;
/// Maximum number of notifications set aside that are offered to other workers per second. At least
/// as many as there are slots: another worker of this size is then never idle for long.
const OFFERS_MAX: usize = 1_000;
/// Shortest time by which a promise is put off.
const PUT_OFF_MIN: Duration = Duration::from_secs(1);
/// When the promise of an offered event comes: its notification may be lost.
const OFFERED: Duration = Duration::from_secs(20);
/// Events set aside are expected to run at a rate of at least two thousand per second, so that they
/// do not wait for long if this process is killed.
const PUT_OFF_EACH: Duration = Duration::from_micros(500);

/// An answer whether another canvas has events, and how long it took.
type OtherAnswer = (Option<CanvasId>, Duration);

/// The state of the surplus.
pub(super) struct Surplus {
    pub(super) others: OtherCanvases,
    asking: JoinSet<OtherAnswer>,
    /// The notifications set aside, by event.
    ids: HashSet<EventId>,
    offers: Offers,
    later: mpsc::Sender<(EventId, Duration)>,
    pub(super) aside_max: usize,
    _putting_off: AbortOnDropHandle<()>,
}

impl Surplus {
    pub(super) fn new<R: NotificationRunner>(runner: &Arc<R>, capacity: usize) -> Self {
        // Besides what is offered at once.
        let (later, receiver) = mpsc::channel(BATCH_MAX + OFFERS_MAX.max(capacity));
        let putting_off = tokio::spawn(put_off(Arc::clone(runner), receiver));
        Self {
            others: OtherCanvases::new(Instant::now()),
            asking: JoinSet::new(),
            ids: HashSet::new(),
            offers: Offers::new(capacity..=OFFERS_MAX.max(capacity)),
            later,
            aside_max: ASIDE_MAX,
            _putting_off: AbortOnDropHandle::new(putting_off),
        }
    }

    /// Keeps only the id of a notification that is set aside, and answers it: from now on, leaving
    /// it to another worker means publishing it.
    pub(super) fn set_aside(&mut self, PendingRun { notification, delivery, .. }: PendingRun) -> EventId {
        self.ids.insert(notification.id);
        self.offers.waits_here(notification.id);
        delivery.acknowledge();
        notification.id
    }

    /// Whether promises are put off as fast as notifications come.
    pub(super) fn has_time(&self) -> bool {
        self.later.capacity() >= BATCH_MAX
    }

    /// The answer to the question that was asked. Cancel safe; pending if none was.
    pub(super) async fn answer(&mut self) -> OtherAnswer {
        loop {
            match self.asking.join_next().await {
                Some(Ok(answer)) => return answer,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

/// Puts off promises in batches. A failure is harmless: the promise stays as it was. Of
/// several times of an event the last one counts: it may have been offered meanwhile.
async fn put_off<R: NotificationRunner>(runner: Arc<R>, mut receiver: mpsc::Receiver<(EventId, Duration)>) {
    let mut batch = Vec::new();
    while receiver.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let latest: HashMap<EventId, Duration> = batch.drain(..).collect();
        runner.put_off(latest.into_iter().collect()).await;
    }
}

impl<R: NotificationRunner> Intake<R> {
    /// Takes the next notification that may start; one that was set aside takes its place.
    pub(super) fn next_in_turn(&mut self) -> Option<PendingRun> {
        let level = self.waiting.next()?;
        self.take_at(level)
    }

    /// Takes a notification that waits for its start, whether or not there is a place for it.
    pub(super) fn next_left(&mut self) -> Option<PendingRun> {
        let level = self.waiting.any()?;
        self.take_at(level)
    }

    fn take_at(&mut self, level: Level) -> Option<PendingRun> {
        let (surplus, republisher) = (&mut self.surplus, &self.republisher);
        self.waiting.pop(level, |canvas, id| {
            surplus.ids.remove(&id);
            let notification = Notification::new(id, canvas).urgent_if(level.is_urgent());
            let delivery = republisher.delivery(notification);
            PendingRun { notification, delivery, permits: Permits::default() }
        })
    }

    /// Asks whether another canvas has events, if all that is held of a level is of one.
    pub(super) fn ask_for_others(&mut self) {
        let lone = |level| self.waiting.at(level).only_owner().filter(|_| !self.holds_more(level));
        let Some(canvas) = Level::ALL.into_iter().find_map(lone) else {
            return;
        };
        let now = Instant::now();
        if self.surplus.others.may_ask(now) {
            let runner = Arc::clone(&self.runner);
            self.surplus.asking.spawn(async move {
                let other = runner.other_canvas(canvas).await;
                (other, now.elapsed())
            });
        }
    }

    pub(super) fn others_answered(&mut self, (other, took): OtherAnswer) {
        self.surplus.others.answered(other, took, Instant::now());
        self.shed();
    }

    /// Queues a notification for its turn, behind those of its canvas that were set aside.
    pub(super) fn wait(&mut self, notification: Notification, delivery: Delivery) {
        let Notification { id, canvas, .. } = notification;
        self.surplus.others.saw(canvas, Instant::now());
        if self.surplus.ids.contains(&id) {
            // Its promise has come: another is made, so that the back-off does not count this.
            self.put_off(id);
            return self.acknowledge_duplicate(delivery);
        }
        self.routes.waits(notification);
        let pending = PendingRun { notification, delivery, permits: Permits::default() };
        let waiting = self.waiting.at_mut(Level::of(notification.urgent));
        if waiting.has_aside(canvas) {
            let id = self.surplus.set_aside(pending);
            waiting.push_aside(canvas, id);
        } else {
            waiting.push(canvas, pending);
        }
        self.shed();
    }

    /// Leaves what is set aside beyond the limit to its promises, urgent ones last.
    pub(super) fn shed_aside(&mut self) {
        while self.waiting.aside() > self.surplus.aside_max
            && let Some((_, _, id)) = self.waiting.shed_aside()
        {
            self.surplus.ids.remove(&id);
            self.put_off(id);
        }
    }

    /// Asks which notifications are of urgent routes, if any have to wait.
    pub(super) fn ask_for_routes(&mut self) {
        if self.waiting.at(Level::Normal).is_empty() {
            return self.routes.forget();
        }
        let runner = Arc::clone(&self.runner);
        self.routes.ask(|asked| async move { runner.of_urgent_routes(asked).await });
    }

    /// Moves those that still wait to the other level, as far as it has room.
    pub(super) fn routes_answered(&mut self, urgent: Vec<Notification>) {
        let mut canvases = BTreeMap::<CanvasId, HashSet<EventId>>::new();
        for Notification { id, canvas, .. } in urgent {
            canvases.entry(canvas).or_default().insert(id);
        }
        let mut room = self.room_for_others(Level::Urgent);
        for (canvas, ids) in canvases {
            let others = self.waiting.at_mut(Level::Normal);
            let arrived = others.remove_all(canvas, |pending| {
                let moves = room > 0 && ids.contains(&pending.notification.id);
                room -= usize::from(moves);
                moves
            });
            let aside = others.remove_all_aside(canvas, |id| ids.contains(id));
            let waiting = self.waiting.at_mut(Level::Urgent);
            for mut pending in arrived {
                pending.notification.urgent = true;
                waiting.push(canvas, pending);
            }
            aside.into_iter().for_each(|id| waiting.push_aside(canvas, id));
        }
        self.shed();
    }

    /// Leaves an event to its promise if the broker does not hold it: it would come again at once.
    pub(super) fn leave(&mut self, notification: Notification, delivery: Delivery) {
        if delivery.returns_at_once() {
            delivery.acknowledge();
            self.put_off(notification.id);
        } else {
            delivery.put_back();
        }
    }

    /// Puts the promise of an event off until all events set aside may have run, so that each
    /// promise is moved about once. If too many are set aside, the promise stays as it was.
    fn put_off(&self, id: EventId) {
        let aside = self.waiting.aside();
        let longest = PUT_OFF_EACH.saturating_mul(u32::try_from(aside).unwrap_or(u32::MAX)) + OFFERED;
        let wait = self.pace.time_of(aside).clamp(PUT_OFF_MIN, longest);
        let _ = self.surplus.later.try_send((id, wait));
    }

    /// Offers notifications that were set aside to other workers: the last of the canvas with the
    /// most, and fewer while all of them come back.
    pub(super) fn offer_aside(&mut self) {
        if self.waiting.aside() == 0 || !self.republisher.works() {
            return;
        }
        for _ in 0..self.surplus.offers.next() {
            let Ok(later) = self.surplus.later.try_reserve() else { return };
            let Some((level, canvas, id)) = self.waiting.shed_aside() else { return };
            self.surplus.ids.remove(&id);
            self.surplus.offers.offer(id);
            later.send((id, OFFERED));
            let notification = Notification::new(id, canvas).urgent_if(level.is_urgent());
            self.republisher.delivery(notification).put_back();
        }
    }

    /// Offers notifications that wait for room to other workers: the latest of the canvas with the
    /// most, as long as more of them wait than may wait for a slot.
    pub(super) fn offer(&mut self) {
        let kept = self.held_max - self.capacity;
        for _ in 0..self.offers.next() {
            if self.lot.permit_waiters() <= kept {
                return;
            }
            let Some((id, delivery)) = self.lot.take_last_permit_waiter() else { return };
            self.offers.offer(id);
            delivery.put_back();
        }
    }
}
