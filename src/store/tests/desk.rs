//! A worker with a broker and an operator, step by step, on a queue whose facets have a limit:
//! nothing happens between two steps, and any next step may be left out, as when a process ends.

use std::time::Duration;

use uuid::Uuid;

use super::queues::{EMAILS, canvas, emails, event, events, queue};
use super::{Table, tester};
use crate::event::{CanvasId, EventId, HandlerScope, Lane, NewEvent, Notification, RuleKind, Turn};
use crate::store::ClaimedEvent;
use crate::store::{DeadFilter, FacetSettings, InsertOutcome, LoadedEvent, TurnRequest};

pub(super) const OPENED: &str = "opened";
pub(super) const CLOSED: &str = "closed";
/// With this many losses or more, an event is taken alone.
const SUSPECT: i32 = 2;

/// Where a notification is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Unacknowledged at the broker.
    Broker,
    /// Only in the worker's memory.
    Worker,
}

/// A notification whose row was loaded.
pub(super) struct LoadedNotification {
    pub(super) told: Notification,
    kept: Holder,
    loaded: LoadedEvent,
}

/// A running copy, and where its own notification is, if anywhere.
pub(super) struct Run {
    pub(super) event: ClaimedEvent,
    pub(super) kept: Option<Holder>,
}

/// The work that is left after a run: wake the next of its lane, then fill the room in its facet.
pub(super) struct EndedRun {
    canvas: CanvasId,
    lane: Option<Lane>,
}

pub(super) struct Desk {
    pub(super) table: Table,
    /// The notifications at the broker.
    pub(super) bag: Vec<Notification>,
    /// The notifications that only the worker has.
    pub(super) memory: Vec<Notification>,
    pub(super) looks: Vec<LoadedNotification>,
    pub(super) running: Vec<Run>,
    pub(super) ended: Vec<EndedRun>,
    /// How many copies were emitted and not cancelled, and how many were completed.
    pub(super) emitted: usize,
    pub(super) done: usize,
}

impl Desk {
    pub(super) async fn new(in_flight_max: u32) -> Self {
        let table = emails(FacetSettings { weight: None, in_flight_max: Some(in_flight_max) }).await;
        table.run("update wakeq.queues set tenant_visible = true").await;
        Self {
            table,
            bag: Vec::new(),
            memory: Vec::new(),
            looks: Vec::new(),
            running: Vec::new(),
            ended: Vec::new(),
            emitted: 0,
            done: 0,
        }
    }

    /// Inserts events; returns their copies, which are not announced yet.
    pub(super) async fn insert(&mut self, emitted: &[NewEvent]) -> Vec<Notification> {
        let inserted = self.table.store.insert_all(emitted, &vec![false; emitted.len()]).await.unwrap();
        let mut copies = Vec::new();
        for (event, inserted) in emitted.iter().zip(&inserted) {
            let canvas = event.address.scope.canvas;
            copies.extend(InsertOutcome::copies(inserted).iter().map(|id| Notification::new(*id, canvas)));
        }
        self.emitted += copies.len();
        copies
    }

    /// Moves the promises of copies far into the future, like those of copies that have waited
    /// long.
    pub(super) async fn promise_late(&self, copies: &[Notification]) {
        let far = "update wakeq.events_v2 set notify_at = now() + interval '1 h', probes = 6
                    where id = any ($1) and delay_until <= now()";
        let ids: Vec<Uuid> = copies.iter().map(|told| told.id.0).collect();
        sqlx::query(far).bind(ids).execute(&self.table.pool).await.unwrap();
    }

    pub(super) async fn announce(&self, copies: &[Notification]) {
        let ids: Vec<EventId> = copies.iter().map(|told| told.id).collect();
        self.table.store.announce(&ids).await.unwrap();
    }

    /// Emits events; the promises of their copies are far away.
    pub(super) async fn emit(&mut self, emitted: Vec<NewEvent>) -> Vec<EventId> {
        let copies = self.insert(&emitted).await;
        self.announce(&copies).await;
        self.promise_late(&copies).await;
        self.bag.extend(&copies);
        copies.into_iter().map(|told| told.id).collect()
    }

    pub(super) async fn pause(&self, of: u128, name: &str) {
        let scope = scope(of, name);
        self.table.store.add_rule(RuleKind::Pause, &scope, None, None, &tester()).await.unwrap();
    }

    /// Lifts a pause and wakes what it held, unless that is left to the minute's pass.
    pub(super) async fn lift(&mut self, of: u128, name: &str, wakes: bool) {
        let lifted = self.table.store.lift_rule(RuleKind::Pause, &scope(of, name), &tester()).await.unwrap();
        for job in lifted.jobs.into_iter().filter(|_| wakes) {
            self.resume(job).await;
        }
    }

    async fn resume(&mut self, job: i64) {
        loop {
            let page = self.table.store.resume_page(job).await.unwrap();
            self.bag.extend(page.notifications);
            if !page.more {
                return;
            }
        }
    }

    /// Sets a canvas's weight; 0 pauses it.
    pub(super) async fn weigh(&mut self, of: u128, weight: u32, wakes: bool) {
        let settings = FacetSettings { weight: Some(weight), in_flight_max: None };
        let goes_on = weight > 0;
        let put = self
            .table
            .store
            .set_facet(&queue(EMAILS), canvas(of), settings, goes_on, &tester())
            .await
            .unwrap();
        assert!(put);
        if goes_on && wakes {
            self.wake_queues().await;
        }
    }

    async fn wake_queues(&mut self) {
        while let Some(woken) = self.table.store.wake_page(None).await.unwrap() {
            self.bag.extend(woken);
        }
    }

    fn keep(&mut self, told: Notification, kept: Holder) {
        match kept {
            Holder::Broker => self.bag.push(told),
            Holder::Worker => self.memory.push(told),
        }
    }

    /// Handles a notification as a run does, up to running an event.
    pub(super) async fn deliver(&mut self, told: Notification) {
        self.load(told, Holder::Broker).await;
        if let Some(look) = self.looks.pop() {
            self.go_on(look).await;
        }
    }

    /// The first step of a run.
    pub(super) async fn load(&mut self, told: Notification, kept: Holder) {
        if let Some(loaded) = self.table.store.load(&[told.id]).await.unwrap().pop().flatten() {
            self.looks.push(LoadedNotification { told, kept, loaded });
        }
    }

    /// The next step: the notification is acknowledged, kept for later, parked, recalled, or gets a
    /// turn.
    pub(super) async fn go_on(&mut self, LoadedNotification { told, kept, loaded }: LoadedNotification) {
        let store = &self.table.store;
        let schedule = loaded.schedule;
        match schedule.turn {
            Turn::Behind | Turn::Halted | Turn::Held => return,
            Turn::Passed => {
                store.recall_held(&[told.id]).await.unwrap();
                return self.keep(told, kept);
            }
            Turn::First => {}
        }
        let lease = store.timing().lease;
        let is_locked = schedule.locked_at.is_some_and(|locked_at| locked_at + lease >= schedule.now);
        if schedule.delay_until > schedule.now || is_locked {
            // Acknowledged, and kept until its time.
            return self.keep(told, Holder::Worker);
        }
        if schedule.rule.is_some() {
            if !store.park(&[told.id]).await.unwrap()[0] {
                self.keep(told, kept);
            }
            return;
        }
        let is_suspect = loaded.losses + i32::from(schedule.locked_at.is_some()) >= SUSPECT;
        let taken = if is_suspect {
            store.take_alone(&queue(EMAILS), told.id, i32::MAX, i32::MAX).await.unwrap()
        } else {
            let turn = TurnRequest { queue: queue(EMAILS), asks: told.id };
            events(store.take_turns(&[turn], SUSPECT, i32::MAX).await).pop()
        };
        match taken {
            Some(event) if event.claim.id == told.id => self.running.push(Run { event, kept: Some(kept) }),
            Some(event) => {
                self.running.push(Run { event, kept: None });
                self.keep(told, kept);
            }
            None => self.keep(told, kept),
        }
    }

    /// Completes a run; its next steps are left to [`Desk::after`].
    pub(super) async fn finish(&mut self, at: usize) {
        let Run { event, .. } = self.running.remove(at);
        let store = &self.table.store;
        let completed = match &event.place {
            Some(_) => store.complete_links(&[event.claim]).await.unwrap(),
            None => store.complete(&[event.claim]).await.unwrap(),
        };
        assert_eq!(completed, [true]);
        self.done += 1;
        self.ended_with(&event, true);
    }

    /// Ends a run, whose event was removed or not.
    pub(super) fn ended_with(&mut self, event: &ClaimedEvent, removed: bool) {
        let scope = event.address.scope.clone();
        let canvas = scope.canvas;
        let place = event.place.as_ref().filter(|_| removed);
        let lane =
            place.map(|place| Lane { scope, object: place.object.clone(), queue: Some(queue(EMAILS)) });
        self.ended.push(EndedRun { canvas, lane });
    }

    /// The next step after a run: it wakes the next of its lane, and then fills the room that it
    /// left.
    pub(super) async fn after(&mut self, at: usize) {
        let EndedRun { canvas, lane } = self.ended.remove(at);
        let store = &self.table.store;
        if let Some(lane) = lane {
            let next = store.firsts(&[lane]).await.unwrap().pop().flatten();
            self.memory.extend(next);
            self.ended.push(EndedRun { canvas, lane: None });
        } else {
            let room = store.room_in_facets_of(&[(queue(EMAILS), canvas)]).await.unwrap().concat();
            self.memory.extend(room);
        }
    }

    /// Completes a run with all steps; the resulting notifications go to the broker.
    pub(super) async fn complete(&mut self, at: usize) {
        self.finish(at).await;
        while !self.ended.is_empty() {
            self.after(0).await;
        }
        self.bag.append(&mut self.memory);
    }

    /// The minute's pass.
    pub(super) async fn minute(&mut self) {
        self.table.run("update wakeq.chores set next_at = now() where name = 'minute'").await;
        let minute = self.table.store.minute(false, None).await.unwrap();
        assert!(minute.open && !minute.more);
        self.bag.extend(minute.notifications);
        for (_, job) in minute.jobs {
            self.resume(job).await;
        }
        self.wake_queues().await;
        let (room, more) = self.table.store.room_in_facets(None).await.unwrap();
        assert_eq!(more, None);
        self.bag.extend(room);
    }

    pub(super) async fn redrive(&mut self, of: u128, told: bool) {
        let filter = DeadFilter { canvas: canvas(of), scope: None, id: None, since: None, before: None };
        let back = self.table.store.redrive_page(&filter, true, (0, 100), &tester()).await.unwrap().back;
        if told {
            self.bag.extend(back);
        }
    }

    /// Lets time pass, during which the worker renews its leases.
    pub(super) async fn advance(&mut self, by: Duration) {
        self.table.store.advance(by).await.unwrap();
        let renewed = "update wakeq.events_v2 set locked_at = now() where id = any ($1)";
        let ids: Vec<Uuid> = self.running.iter().map(|run| run.event.claim.id.0).collect();
        sqlx::query(renewed).bind(ids).execute(&self.table.pool).await.unwrap();
    }
}

pub(super) fn scope(of: u128, name: &str) -> HandlerScope {
    event(canvas(of), "email_event", name).address.scope
}
