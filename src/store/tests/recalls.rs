//! Facets with a limit, in which copies wait without a notification: none of them is forgotten, whatever happens to it.

use std::collections::HashSet;
use std::time::Duration;

use uuid::Uuid;

use super::queues::{EMAILS, canvas, emails, emit_emails, event, events, queue, take};
use super::{Table, is_skipped, tester};
use crate::event::{CanvasId, Cause, EventId, Lane, Notification, RuleKind, Turn};
use crate::store::claims::ClaimedEvent;
use crate::store::{DeadFilter, FacetSettings, Inserted, NewEvent, Retry, TakenTurn};

const OPENED: &str = "opened";
const CLOSED: &str = "closed";
/// From so many losses on an event is taken alone.
const SUSPECT: i32 = 2;

/// A worker with a broker, in steps: what it holds notifications of, and what it runs.
struct Desk {
    table: Table,
    bag: Vec<Notification>,
    /// And whether the broker has its notification, too.
    running: Vec<(ClaimedEvent, bool)>,
    /// Copies that were emitted, and that ended.
    emitted: usize,
    done: usize,
}

impl Desk {
    async fn new(in_flight_max: u32) -> Self {
        let table = emails(FacetSettings { weight: None, in_flight_max: Some(in_flight_max) }).await;
        table.run("update wakeq.queues set tenant_visible = true").await;
        Self { table, bag: Vec::new(), running: Vec::new(), emitted: 0, done: 0 }
    }

    /// Emits copies whose promises are far away, as those of copies that have waited for long.
    async fn emit(&mut self, emitted: Vec<NewEvent>) -> Vec<EventId> {
        let inserted = self.table.store.insert_all(&emitted, &vec![false; emitted.len()]).await.unwrap();
        let mut copies = Vec::new();
        for (event, inserted) in emitted.iter().zip(&inserted) {
            let canvas = event.address.scope.canvas;
            for id in Inserted::copies(inserted) {
                copies.push(*id);
                self.bag.push(Notification { id: *id, canvas });
            }
        }
        self.emitted += copies.len();
        self.table.store.announce(&copies).await.unwrap();
        let far =
            "update wakeq.events_v2 set notify_at = now() + interval '1 h', probes = 6 where id = any ($1)";
        let ids: Vec<Uuid> = copies.iter().map(|id| id.0).collect();
        sqlx::query(far).bind(ids).execute(&self.table.pool).await.unwrap();
        copies
    }

    async fn pause(&self, of: u128, name: &str) {
        let scope = event(canvas(of), "email_event", name).address.scope;
        self.table.store.add_rule(RuleKind::Pause, &scope, None, None, &tester()).await.unwrap();
    }

    async fn lift(&mut self, of: u128, name: &str) {
        let scope = event(canvas(of), "email_event", name).address.scope;
        let lifted = self.table.store.lift_rule(RuleKind::Pause, &scope, &tester()).await.unwrap();
        let Some(job) = lifted.job else { return };
        loop {
            let page = self.table.store.resume_page(job).await.unwrap();
            self.bag.extend(page.notifications);
            if !page.more {
                return;
            }
        }
    }

    /// What a run does with a notification until it runs an event.
    async fn deliver(&mut self, told: Notification) {
        let store = &self.table.store;
        let Some(loaded) = store.load(&[told.id]).await.unwrap().pop().flatten() else { return };
        let schedule = loaded.schedule;
        match schedule.turn {
            Turn::Behind | Turn::Halted | Turn::Held => return,
            Turn::Passed => {
                store.recall_held(&[told.id]).await.unwrap();
                return self.bag.push(told);
            }
            Turn::First => {}
        }
        let lease = store.timing().lease;
        let is_locked = schedule.locked_at.is_some_and(|locked_at| locked_at + lease >= schedule.now);
        if schedule.delay_until > schedule.now || is_locked {
            return self.bag.push(told);
        }
        if schedule.rule.is_some() {
            if !store.park(&[told.id]).await.unwrap()[0] {
                self.bag.push(told);
            }
            return;
        }
        let is_suspect = loaded.losses + i32::from(schedule.locked_at.is_some()) >= SUSPECT;
        let taken = if is_suspect {
            store.take_alone(&queue(EMAILS), told.id, i32::MAX, i32::MAX).await.unwrap()
        } else {
            let turn = TakenTurn { queue: queue(EMAILS), asks: told.id };
            events(store.take_turns(&[turn], SUSPECT, i32::MAX).await).pop()
        };
        match taken {
            Some(taken) if taken.claim.id == told.id => self.running.push((taken, true)),
            Some(taken) => {
                self.running.push((taken, false));
                self.bag.push(told);
            }
            None => self.bag.push(told),
        }
    }

    /// The run of an event is over, and others go on.
    async fn ended(&mut self, event: &ClaimedEvent, keeps: bool) {
        let canvas = event.address.scope.canvas;
        if let Some(place) = &event.place {
            let (scope, object) = (event.address.scope.clone(), place.object.clone());
            let lane = Lane { scope, object, queue: Some(queue(EMAILS)) };
            let next = self.table.store.firsts(&[lane]).await.unwrap().pop().flatten();
            self.bag.extend(next.filter(|_| keeps));
        }
        let room = self.table.store.room_in_facets_of(&[(queue(EMAILS), canvas)]).await.unwrap().concat();
        self.bag.extend(room.into_iter().filter(|_| keeps));
    }

    async fn complete(&mut self, at: usize, keeps: bool) {
        let (event, _) = self.running.remove(at);
        let store = &self.table.store;
        let completed = match &event.place {
            Some(_) => store.complete_links(&[event.claim]).await.unwrap(),
            None => store.complete(&[event.claim]).await.unwrap(),
        };
        assert_eq!(completed, [true]);
        self.done += 1;
        self.ended(&event, keeps).await;
    }

    /// The minute's pass.
    async fn minute(&mut self) {
        let overdue: Vec<(Uuid, Uuid)> = sqlx::query_as(
            "update wakeq.events_v2 set notify_at = now() + interval '1 h', probes = 6
              where notify_at <= now() + interval '1 min' and (locked_at is null or locked_at < now() - interval '1 min')
          returning id, canvas_id",
        )
        .fetch_all(&self.table.pool)
        .await
        .unwrap();
        let overdue = overdue.into_iter();
        self.bag
            .extend(overdue.map(|(id, canvas)| Notification { id: EventId(id), canvas: CanvasId(canvas) }));
        self.bag.extend(self.table.store.room_in_facets(None).await.unwrap().0);
    }

    /// Every copy that may run is in somebody's hands, or is found by whoever makes room in its facet, or is promised for the
    /// next minute.
    async fn check(&self, after: &str) {
        let forgotten: Vec<Uuid> = sqlx::query_scalar(
            "select e.id from wakeq.events_v2 e
              where e.queue is not null and e.delay_until <= now() and e.notify_at > now() + interval '1 min'
                and (e.locked_at is null or e.locked_at < now() - interval '1 min')
                and not exists (select from wakeq.scheduling_rules r
                                 where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name)
                and (e.object is null
                     or e.id = wakeq.first_of_lane(e.canvas_id, e.object, e.queue, e.module, e.name)
                        and not wakeq.lane_halts(e.canvas_id, e.object, e.queue, e.module, e.name))
                and not exists (select from wakeq.facets f
                                 where f.queue = e.queue and f.canvas_id = e.canvas_id and (f.running <> '{}' or f.was_full)
                                   and (e.id = any (f.recalled || f.running) or (e.delay_until, e.id) > (f.head_at, f.head_id)))",
        )
        .fetch_all(&self.table.pool)
        .await
        .unwrap();
        let known: HashSet<Uuid> = self.bag.iter().map(|told| told.id.0).collect();
        let forgotten: Vec<Uuid> = forgotten.into_iter().filter(|id| !known.contains(id)).collect();
        assert!(forgotten.is_empty(), "after {after}: {forgotten:?}");
    }
}

/// A copy that was paused while turns went past it finds its facet full when it is let go on: its notification is answered,
/// and whoever makes room finds the copy.
#[tokio::test]
async fn what_met_a_full_facet_is_recalled() {
    let mut desk = Desk::new(1).await;
    let [paused, other] = [OPENED, CLOSED].map(|name| event(canvas(1), "email_event", name));
    let more = event(canvas(1), "email_event", CLOSED);
    let copies = desk.emit(vec![paused, other, more]).await;
    let stranger = desk.emit(vec![event(canvas(2), "email_event", OPENED)]).await;
    desk.pause(1, OPENED).await;
    assert_eq!(desk.table.store.park(&copies[..1]).await.unwrap(), [true]);
    let told = |id| Notification { id, canvas: canvas(1) };
    desk.bag.clear();
    desk.deliver(told(copies[1])).await;
    assert_eq!(desk.running[0].0.claim.id, copies[1], "the head has passed the first");
    desk.lift(1, OPENED).await;
    assert_eq!(std::mem::take(&mut desk.bag), [told(copies[0])]);
    let turn = async |desk: &Desk, id| {
        desk.table.store.load(&[id]).await.unwrap().pop().flatten().unwrap().schedule.turn
    };
    assert_eq!((turn(&desk, copies[0]).await, turn(&desk, copies[2]).await), (Turn::Passed, Turn::Held));
    assert_eq!(turn(&desk, stranger[0]).await, Turn::First);
    assert_eq!(take(&desk.table.store, 1).await[0].claim.id, stranger[0]);
    desk.deliver(told(copies[0])).await;
    assert_eq!(std::mem::take(&mut desk.bag), [told(copies[0])], "it is looked at again");
    desk.deliver(told(copies[0])).await;
    assert_eq!(desk.bag, [], "held, and answered");
    desk.complete(0, true).await;
    let next = std::mem::take(&mut desk.bag);
    assert_eq!(next.len(), 1);
    desk.deliver(next[0]).await;
    assert_eq!(desk.running[0].0.claim.id, copies[0], "before what came later");
    desk.bag.clear();
    desk.complete(0, true).await;
    assert_eq!(std::mem::take(&mut desk.bag), [told(copies[2])]);
}

/// A copy whose owner died has no notification if it was taken by another one's. Whoever looks for room finds it, and a turn
/// recalls it.
#[tokio::test]
async fn what_lost_its_owner_is_found_again() {
    let mut desk = Desk::new(2).await;
    let copies = desk.emit((0..4).map(|_| event(canvas(1), "email_event", OPENED)).collect()).await;
    desk.bag.clear();
    let running = take(&desk.table.store, 2).await;
    assert_eq!(running[0].claim.id, copies[0]);
    let lost = "update wakeq.events_v2 set locked_at = locked_at - interval '1 h' where claims = 1 and id = (
                    select id from wakeq.events_v2 where claims = 1 order by delay_until, id limit 1)";
    assert_eq!(desk.table.run(lost).await, 1);
    let mut found = HashSet::new();
    for _ in 0..100 {
        desk.minute().await;
        found.extend(desk.bag.drain(..).map(|told| told.id));
    }
    assert_eq!(found, HashSet::from([copies[0], copies[2], copies[3]]));
    assert_eq!(take(&desk.table.store, 1).await[0].claim.id, copies[0], "first in, first out");
}

/// What stands first in a facet and can't go on may be much: the minute's pass looks past it.
#[tokio::test]
async fn the_minute_looks_past_what_can_not_go_on() {
    let mut desk = Desk::new(1).await;
    let on = |object: &str| NewEvent {
        object: Some(object.parse().unwrap()),
        ..event(canvas(1), "email_event", OPENED)
    };
    desk.emit((0..300).map(|_| on("mail:1")).collect()).await;
    let free = desk.emit(vec![event(canvas(1), "email_event", OPENED)]).await;
    desk.bag.clear();
    let first = take(&desk.table.store, 1).await.remove(0);
    assert!(desk.table.store.die(first.claim, Cause::Retries, Some("no"), true).await.unwrap());
    desk.ended(&first, true).await;
    assert_eq!(desk.bag, [], "the object stands still, and hides the rest");
    let (room, more) = desk.table.store.room_in_facets(None).await.unwrap();
    assert_eq!((room, more), (vec![Notification { id: free[0], canvas: canvas(1) }], None));
}

/// A row that somebody else has locked costs no other canvas a turn, and its own no more than itself.
#[tokio::test]
async fn a_locked_copy_costs_only_itself() {
    for in_flight_max in [None, Some(1)] {
        let table = emails(FacetSettings { weight: None, in_flight_max }).await;
        if is_skipped("two sessions at a time") {
            return;
        }
        let locked = emit_emails(&table.store, canvas(1), 2).await;
        let others =
            [emit_emails(&table.store, canvas(2), 1).await, emit_emails(&table.store, canvas(3), 1).await];
        let mut stranger = table.pool.begin().await.unwrap();
        let lock = sqlx::query("select from wakeq.events_v2 where id = $1 for update").bind(locked[0].0);
        lock.execute(&mut *stranger).await.unwrap();
        let ids =
            |taken: Vec<ClaimedEvent>| taken.into_iter().map(|event| event.claim.id).collect::<HashSet<_>>();
        let all = HashSet::from([locked[1], others[0][0], others[1][0]]);
        let taken = take(&table.store, 3).await;
        assert_eq!(ids(taken.clone()), all, "{in_flight_max:?}");
        assert_eq!(take(&table.store, 3).await.len(), 0);
        stranger.rollback().await.unwrap();
        let claims: Vec<_> = taken.iter().map(|event| event.claim).collect();
        assert_eq!(table.store.complete(&claims).await.unwrap(), [true; 3]);
        if in_flight_max.is_some() {
            let room = table.store.room_in_facets(None).await.unwrap().0;
            assert_eq!(room, [Notification { id: locked[0], canvas: canvas(1) }], "nobody else knows of it");
        }
        // Else its own notification, which nobody has answered, recalls it.
        table.store.announce(&locked[..1]).await.unwrap();
        assert_eq!(ids(take(&table.store, 3).await), HashSet::from([locked[0]]));
    }
}

/// DRV-24: copies of two canvases, some on objects, are taken, parked and let go on, completed, tried again, given back, lost by their
/// owners, dead and redriven, in any order; some of those who should wake others die before that.
#[tokio::test]
async fn no_copy_that_may_run_is_forgotten() {
    for seed in 1..=3_u64 {
        let mut desk = Desk::new(2).await;
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for step in 0..150 {
            let action = dice.roll(20);
            desk.act(action, &mut dice).await;
            desk.check(&format!("step {step} of seed {seed}, action {action}")).await;
        }
        for (of, name) in [(1, OPENED), (1, CLOSED), (2, OPENED), (2, CLOSED)] {
            desk.lift(of, name).await;
        }
        let mut minutes = 0;
        while table_has_some(&desk).await {
            minutes += 1;
            assert!(minutes < 60, "something is left");
            desk.redrive(1).await;
            desk.redrive(2).await;
            desk.minute().await;
            for told in std::mem::take(&mut desk.bag) {
                desk.deliver(told).await;
            }
            while !desk.running.is_empty() {
                desk.complete(0, true).await;
            }
            desk.check("the end").await;
        }
        assert_eq!(desk.done, desk.emitted);
    }
}

async fn table_has_some(desk: &Desk) -> bool {
    let left = "select exists (select from wakeq.events_v2) or exists (select from wakeq.dead_events)";
    desk.table.holds(left).await
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

impl Desk {
    async fn act(&mut self, action: usize, dice: &mut Dice) {
        let of = 1 + dice.roll(2) as u128;
        let name = [OPENED, CLOSED][dice.roll(2)];
        let at = dice.roll(self.running.len().max(1));
        match action {
            0..=1 => {
                let object = (dice.roll(3) == 0).then(|| "mail:1".parse().unwrap());
                let new = |_| NewEvent { object: object.clone(), ..event(canvas(of), "email_event", name) };
                self.emit((0..4).map(new).collect()).await;
            }
            2 => self.pause(of, name).await,
            3 => self.lift(of, name).await,
            4..=9 => {
                for _ in 0..3.min(self.bag.len()) {
                    let told = self.bag.swap_remove(dice.roll(self.bag.len()));
                    self.deliver(told).await;
                }
            }
            10 => self.redrive(of).await,
            11 => self.minute().await,
            12..=15 if !self.running.is_empty() => self.complete(at, dice.roll(4) > 0).await,
            16.. if !self.running.is_empty() => {
                let (event, own) = self.running.remove(at);
                self.fail(action, event, own).await;
            }
            _ => {}
        }
    }

    /// A run does not come to its end.
    async fn fail(&mut self, how: usize, event: ClaimedEvent, own: bool) {
        let (store, claim) = (&self.table.store, event.claim);
        let told = Notification { id: claim.id, canvas: event.address.scope.canvas };
        match how {
            16 => {
                let (retries, delay, error) = (event.retries + 1, Duration::ZERO, "no".into());
                let retry = Retry { claim, retries, delay, error };
                assert_eq!(store.retry(&[retry.into()]).await.unwrap(), [true]);
                self.bag.push(told);
            }
            17 => {
                store.release(&[claim]).await.unwrap();
                self.bag.push(told);
            }
            18 => assert!(store.die(claim, Cause::Retries, Some("no"), true).await.unwrap()),
            _ => {
                // Its owner dies. The broker has what it was given, and nothing else.
                let lost = "update wakeq.events_v2 set locked_at = locked_at - interval '1 h' where id = $1";
                sqlx::query(lost).bind(claim.id.0).execute(&self.table.pool).await.unwrap();
                return self.bag.extend(Some(told).filter(|_| own));
            }
        }
        self.ended(&event, true).await;
    }

    async fn redrive(&mut self, of: u128) {
        let filter = DeadFilter { canvas: canvas(of), scope: None, id: None, since: None, before: None };
        let back = self.table.store.redrive_page(&filter, true, (0, 100), &tester()).await.unwrap().back;
        self.table.store.announce(&back.iter().map(|told| told.id).collect::<Vec<_>>()).await.unwrap();
        self.bag.extend(back);
    }
}

/// DRV-24: copies that were paused and let go on in a facet that may have two in flight take as long as two at a time take, and not
/// as long as their promises.
#[tokio::test]
async fn a_facet_that_is_let_go_on_is_worked_at_its_limit() {
    const COUNT: usize = 60;
    const CAP: u32 = 2;
    let mut desk = Desk::new(CAP).await;
    desk.pause(1, OPENED).await;
    let held = desk.emit((0..COUNT).map(|_| event(canvas(1), "email_event", OPENED)).collect()).await;
    let free = desk.emit(vec![event(canvas(1), "email_event", CLOSED)]).await;
    assert_eq!(desk.table.store.park(&held).await.unwrap().len(), COUNT);
    desk.bag.retain(|told| told.id == free[0]);
    let told = desk.bag.remove(0);
    desk.deliver(told).await;
    desk.complete(0, true).await;
    desk.lift(1, OPENED).await;
    assert_eq!(desk.bag.len(), COUNT);
    let (second, mut seconds) = (Duration::from_secs(1), 0);
    while desk.done <= COUNT {
        // Each notification is looked at once or twice, and then answered or run.
        let mut looks = 0;
        while !desk.bag.is_empty() && looks < 10 * COUNT {
            looks += 1;
            let told = desk.bag.remove(0);
            desk.deliver(told).await;
        }
        desk.table.store.advance(second).await.unwrap();
        seconds += 1;
        assert!(
            seconds <= COUNT.div_ceil(CAP as usize) + 2,
            "{} of {COUNT} after {seconds} s",
            desk.done - 1
        );
        for _ in 0..desk.running.len() {
            desk.complete(0, true).await;
        }
    }
    println!("{COUNT} copies let go on in a facet of {CAP}, a second each: {seconds} s");
}
