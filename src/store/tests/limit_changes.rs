//! Limits that are changed, and looks at them; and that whatever happens, what has room is woken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::crowds::{FEW, MANY};
use super::limits::{of_key, places};
use super::unique::HOUR;
use super::{Table, tester};
use crate::event::{
    CanvasId, EventFilter, EventId, EventState, HandlerAddress, HandlerScope, LimitName, NewEvent, NewLimit,
    Notification, Rate, Timing,
};
use crate::store::{ClaimedEvent, LimitedClaim, Renewal, Store};

fn customer() -> LimitName {
    "customer".parse().unwrap()
}

/// An event without keys.
fn known(canvas: CanvasId) -> Arc<NewEvent> {
    let scope = HandlerScope::worker(canvas, "known").unwrap();
    Arc::new(NewEvent::new(HandlerAddress { scope, modifier: "_".parse().unwrap() }, "1".into()))
}

/// What runs goes on when a limit is lowered, and nothing starts until there is room. Another
/// canvas's limit of the same name stays as it is.
#[tokio::test]
async fn a_limit_is_lowered_raised_and_removed_while_events_run() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", places(2)).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 9).await;
    let others = table.add_keyed(FEW, &["customer:7"], 3).await;
    let running = table.claim_some(&told).await;
    assert_eq!((running.len(), table.claim_some(&others).await.len()), (2, 2));

    table.limit(MANY, "customer", places(1)).await;
    let claims = [running[0].claim, running[1].claim];
    assert_eq!(table.store.renew(&claims).await.unwrap(), [Renewal::Renewed; 2]);
    assert_eq!(table.complete_and_wake(&running[0]).await, []);
    assert_eq!(table.complete_and_wake(&running[1]).await, told[2..3]);
    let running = table.claim_some(&told[2..3]).await;
    assert_eq!(running.len(), 1);

    table.limit(MANY, "customer", places(3)).await;
    let room = table.with_room(None).await;
    assert_eq!(room, [of_key(MANY, "customer:7")]);
    assert_eq!(table.with_room(Some(MANY)).await, room);
    assert_eq!(table.with_room(Some(FEW)).await, [], "it has none");
    assert_eq!(table.store.wake_waiting(&room).await.unwrap(), told[3..5]);
    assert_eq!(table.claim_some(&told[3..5]).await.len(), 2);

    assert!(table.store.remove_limit(MANY, &customer(), &tester()).await.unwrap());
    assert!(!table.store.remove_limit(MANY, &customer(), &tester()).await.unwrap());
    let room = table.with_room(None).await;
    assert_eq!(room, [of_key(MANY, "customer:7")]);
    assert_eq!(table.store.wake_waiting(&room).await.unwrap(), told[5..]);
    assert_eq!(table.with_room(None).await, []);
    assert_eq!(table.claim_some(&told[5..]).await.len(), 4);
    assert_eq!(table.store.limits(FEW, None, 10).await.unwrap().len(), 1);
    assert_eq!(table.claim_some(&others).await.len(), 0, "its limit is as it was");
}

/// A call wakes what it can in two seconds, and the next ones the rest, however long it takes to
/// wake what waits at one limit. That of another tenant is none of them.
#[tokio::test]
async fn a_call_leaves_what_takes_long_to_the_next() {
    let table = Table::new().await;
    let (mut limits, mut waiting) = (Vec::new(), Vec::new());
    for canvas in [MANY, FEW] {
        for key in ["a", "b", "c", "d"] {
            table.limit(canvas, key, places(1)).await;
            let told = table.add_keyed(canvas, &[key], 2).await;
            let running = table.claim_some(&told).await;
            assert_eq!(table.store.complete(&[running[0].claim]).await.unwrap(), [true]);
            if canvas == MANY {
                limits.push(of_key(canvas, key));
                waiting.push(told[1]);
            }
        }
    }
    for slow in [
        "create function public.slow() returns trigger language plpgsql as
             'begin perform pg_sleep(0.9); return new; end'",
        "create trigger slow before update on wakeq.limit_states for each row execute function public.slow()",
    ] {
        table.run(slow).await;
    }
    let mut woken = table.store.wake_waiting(&limits).await.unwrap();
    assert!((1..4).contains(&woken.len()), "{woken:?}");
    for _ in 0..4 {
        woken.extend(table.store.wake_waiting(&limits).await.unwrap());
    }
    assert_eq!(woken, waiting);
}

/// Three at a time, and one start in a period.
fn one_in(period: Duration) -> NewLimit {
    NewLimit { rate: Some(Rate::new(1, period)), ..places(3) }
}

/// Events that a rate has given times to come back start by the rate that is in force, and at once
/// without one. Those of the other canvas come when they were told to.
#[tokio::test]
async fn what_was_told_to_come_later_obeys_the_rate_that_is_in_force() {
    for is_removed in [false, true] {
        let table = Table::new().await;
        for canvas in [MANY, FEW] {
            table.limit(canvas, "customer", one_in(Duration::from_secs(60))).await;
        }
        let told = table.add_keyed(MANY, &["customer:7"], 3).await;
        let others = table.add_keyed(FEW, &["customer:7"], 2).await;
        assert_eq!((table.claim_some(&told).await.len(), table.claim_some(&others).await.len()), (1, 1));
        assert_eq!((table.told_to_come().await.len(), table.with_room(None).await), (3, vec![]));
        if is_removed {
            assert!(table.store.remove_limit(MANY, &customer(), &tester()).await.unwrap());
        } else {
            let fast = NewLimit { rate: Some(Rate::new(1000, Duration::from_millis(1))), ..places(3) };
            table.limit(MANY, "customer", fast).await;
        }
        assert_eq!(table.with_room(Some(FEW)).await, []);
        let room = table.with_room(None).await;
        assert_eq!(room, [of_key(MANY, "customer:7")], "removed: {is_removed}");
        assert_eq!(table.store.wake_waiting(&room).await.unwrap(), told[1..]);
        assert_eq!(table.claim_some(&told[1..]).await.len(), 2);
        assert_eq!(table.claim_some(&others[1..]).await.len(), 0);
        assert_eq!(table.told_to_come().await, [others[1].id]);
    }
}

/// A limit is removed, and a repeated notification starts what waited there before anybody has
/// looked who waits: its promise is not that of an event that waits any longer, in case the worker
/// dies. On the other canvas the limit stands.
#[tokio::test]
async fn a_run_that_was_not_woken_at_a_removed_limit_is_promised_soon() {
    let (table, canvas_limit) = (Table::new().await, LimitName::of_canvas());
    let memory = Store::in_memory(Timing::default()).unwrap();
    for store in [&table.store, &memory] {
        let mut waiting = Vec::new();
        for canvas in [MANY, FEW] {
            store.put_limit(canvas, &canvas_limit, &places(1), &tester()).await.unwrap();
            let events = [known(canvas), known(canvas)];
            store.insert(&events).await.unwrap();
            let told = events.map(|event| Notification::new(event.id, canvas));
            let claims = store.claim_limited(&told, &super::limits()).await.unwrap().claims;
            let full = claims.iter().position(|claim| matches!(claim, LimitedClaim::Full(_)));
            waiting.push(told[full.expect("there is one place")]);
        }
        assert!(store.remove_limit(MANY, &canvas_limit, &tester()).await.unwrap());
        let claimed = store.claim(&waiting, &super::limits()).await.unwrap();
        assert!(matches!(claimed[..], [Some(_), None]), "{claimed:?}");
        let limits = [MANY, FEW].map(|canvas| of_key(canvas, "canvas"));
        assert_eq!(store.wake_waiting(&limits).await.unwrap(), []);
        let ids: Vec<EventId> = waiting.iter().map(|event| event.id).collect();
        let loaded = store.load(&ids).await.unwrap().into_iter().flatten();
        let soon = loaded.map(|event| event.notify_at.is_some_and(|at| at < event.enqueued_at + HOUR / 2));
        assert_eq!(soon.collect::<Vec<_>>(), [true, false]);
    }
}

/// The first claim that meets another rate says that those are to be woken which have times of the
/// rate before.
#[tokio::test]
async fn a_claim_under_another_rate_says_who_is_to_be_woken() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", one_in(Duration::from_secs(60))).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 4).await;
    let others = table.add_keyed(FEW, &["customer:7"], 2).await;
    assert_eq!((table.claim_some(&told[..3]).await.len(), table.claim_some(&others).await.len()), (1, 1));
    table.limit(MANY, "customer", one_in(Duration::from_millis(1))).await;
    let answer = table.store.claim_limited(&told[3..], &super::limits()).await.unwrap();
    assert!(matches!(answer.claims[..], [LimitedClaim::Full(_)]), "{:?}", answer.claims);
    assert_eq!(answer.room, [of_key(MANY, "customer:7")]);
    assert_eq!(table.store.wake_waiting(&answer.room).await.unwrap(), told[1..3]);
    assert_eq!(table.store.claim_limited(&others[1..], &super::limits()).await.unwrap().room, []);
}

/// Page by page, of one canvas. A change is in the audit log of the canvas; the operator's are in
/// that of the platform.
#[tokio::test]
async fn limits_are_listed_and_their_changes_recorded() {
    let table = Table::new().await;
    for name in ["b", "a", "canvas", "handler:WORKER/known"] {
        table.limit(MANY, name, places(2)).await;
    }
    table.limit(FEW, "a", places(1)).await;
    table.limit(CanvasId::OF_QUEUES, "a", places(9)).await;
    let names = async |after: Option<LimitName>, most| -> Vec<String> {
        let found = table.store.limits(MANY, after.as_ref(), most).await.unwrap();
        found.into_iter().map(|limit| limit.name.to_string()).collect()
    };
    assert_eq!(names(None, 3).await, ["a", "b", "canvas"]);
    assert_eq!(names(Some("canvas".parse().unwrap()), 3).await, ["handler:WORKER/known"]);
    let a: LimitName = "a".parse().unwrap();
    let found = async |canvas| table.store.limit(canvas, &a).await.unwrap();
    assert_eq!(found(FEW).await.unwrap().definition, places(1));
    assert!(table.store.remove_limit(MANY, &a, &tester()).await.unwrap());
    assert!(found(MANY).await.is_none() && found(FEW).await.is_some());
    let lines =
        "select coalesce(canvas_id::text, 'all') || ' ' || action || ' ' || count(*) from wakeq.audit_log
                  group by canvas_id, action order by 1";
    let lines: Vec<String> = sqlx::query_scalar(lines).fetch_all(&table.pool).await.unwrap();
    let expected =
        [format!("{MANY} delete-limit 1"), format!("{MANY} put-limit 4"), format!("{FEW} put-limit 1")];
    let mut expected = [&expected[..], &["all put-limit 1".to_owned()]].concat();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

/// A canvas sees its own events only.
#[tokio::test]
async fn a_limit_shows_who_runs_and_an_event_what_it_waits_for() {
    let table = Table::new().await;
    table.limit(CanvasId::OF_QUEUES, "handler:WORKER/known", places(2)).await;
    table.limit(MANY, "customer", places(9)).await;
    let told = table.add_keyed(MANY, &["customer:7"], 3).await;
    let others = table.add_keyed(FEW, &["customer:7"], 1).await;
    assert_eq!(table.claim_some(&[&told[..1], &others[..]].concat()).await.len(), 2);
    assert_eq!(table.claim_some(&told[1..]).await.len(), 0);
    let uses = table.store.limit_uses(MANY, &customer(), None, 10).await.unwrap();
    assert_eq!((uses.len(), uses[0].name.as_str(), uses[0].running), (1, "customer:7", 1));
    assert_eq!(uses[0].holders, [told[0].id]);
    assert_eq!(table.store.limit_uses(MANY, &customer(), Some("customer:7"), 10).await.unwrap(), []);
    assert_eq!(table.store.limit_uses(FEW, &customer(), None, 10).await.unwrap(), []);
    let known: LimitName = "handler:WORKER/known".parse().unwrap();
    let uses = table.store.limit_uses(CanvasId::OF_QUEUES, &known, None, 10).await.unwrap();
    assert_eq!((uses[0].running, uses[0].waiting), (2, 2));
    let wait = table.store.waits_for(MANY, told[1].id).await.unwrap().expect("it waits");
    assert_eq!((wait.name, wait.holders), (known, vec![told[0].id]));
    assert_eq!(table.store.waits_for(FEW, told[1].id).await.unwrap(), None);
    assert_eq!(table.store.waits_for(MANY, told[0].id).await.unwrap(), None);

    let loaded = table.store.load(&[told[1].id]).await.unwrap().pop().flatten().unwrap();
    assert!(loaded.is_limited && loaded.waits);
    for (canvas, count) in [(MANY, 2), (FEW, 0)] {
        let filter = EventFilter { states: vec![EventState::Limited], ..EventFilter::default() };
        let listed = table.store.events(canvas, &filter, true, None, (100, 100)).await.unwrap();
        let meant = listed.iter().filter(|event| event.is_meant);
        assert_eq!((meant.clone().count(), meant.filter(|event| event.waits).count()), (count, count));
    }
}

/// However many of another canvas have places before: of its own holders a canvas sees the first
/// 20.
#[tokio::test]
async fn an_event_that_waits_sees_its_canvas_s_holders_behind_many_others() {
    let table = Table::new().await;
    table.limit(CanvasId::OF_QUEUES, "handler:WORKER/known", places(47)).await;
    let others = table.add_keyed(FEW, &[], 25).await;
    let told = table.add_keyed(MANY, &[], 23).await;
    assert_eq!(table.claim_some(&others).await.len(), 25);
    for running in &told[..22] {
        assert_eq!(table.claim_some(&[*running]).await.len(), 1);
    }
    assert_eq!(table.claim_some(&told[22..]).await.len(), 0);
    let wait = table.store.waits_for(MANY, told[22].id).await.unwrap().expect("it waits");
    assert_eq!(wait.holders, told[..20].iter().map(|holder| holder.id).collect::<Vec<_>>());
    let behind = table.add_keyed(FEW, &[], 1).await;
    assert_eq!(table.claim_some(&behind).await.len(), 0);
    let wait = table.store.waits_for(FEW, behind[0].id).await.unwrap().expect("it waits");
    assert_eq!(wait.holders.len(), 20);
    assert!(wait.holders.iter().all(|holder| others.iter().any(|other| other.id == *holder)));
}

/// A wait goes with its event, and the next one is woken.
#[tokio::test]
async fn cancelled_and_parked_events_are_not_woken_for_a_free_place() {
    let table = Table::new().await;
    table.limit(MANY, "customer", places(1)).await;
    let told = table.add_keyed(MANY, &["customer:7"], 4).await;
    let running = table.claim_some(&told).await;
    let (cancelled, _) = table.store.cancel(MANY, told[1].id, &tester()).await.unwrap();
    assert_eq!(cancelled, crate::store::CommandOutcome::Done);
    sqlx::query("update wakeq.events_v2 set notify_at = null where id = $1")
        .bind(told[2].id.0)
        .execute(&table.pool)
        .await
        .unwrap();
    assert_eq!(table.complete_and_wake(&running[0]).await, told[3..]);
}

/// Only where events had been told to come were places kept for them. The other canvas's stay.
#[tokio::test]
async fn a_purge_names_the_limits_where_it_makes_room() {
    let table = Table::new().await;
    let mut woken = Vec::new();
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", places(1)).await;
        let told = table.add_keyed(canvas, &["customer:7"], 3).await;
        let running = table.claim_some(&told).await;
        assert_eq!(table.complete_and_wake(&running[0]).await, told[1..2]);
        let others = table.add_keyed(canvas, &["customer:8"], 2).await;
        assert_eq!(table.claim_some(&others).await.len(), 1);
        woken.push(told[1].id);
    }
    let known = HandlerScope::worker(MANY, "known").unwrap();
    let now = table.store.clock().await.unwrap();
    let page = table.store.purge_page(&known, now, &tester()).await.unwrap();
    assert_eq!((page.count, page.limits), (3, vec![of_key(MANY, "customer:7")]), "what runs stays");
    assert_eq!(table.told_to_come().await, woken[1..]);
    assert_eq!(table.number("select count(*) from wakeq.limit_waits").await, 3);
    let page = table.store.purge_page(&known, now, &tester()).await.unwrap();
    assert_eq!((page.count, page.limits), (0, vec![]));
}

/// One of the things that happen to events with limits.
#[derive(Clone, Copy, Debug)]
enum Step {
    Emit,
    Ask,
    Complete,
    Release,
    LoseOne,
    Forget,
    Set,
}

const STEPS: [Step; 9] = [
    Step::Emit,
    Step::Emit,
    Step::Ask,
    Step::Ask,
    Step::Complete,
    Step::Release,
    Step::LoseOne,
    Step::Forget,
    Step::Set,
];

/// A table with a limit of one key, and what happens to its events, told by a seed.
struct Course {
    table: Table,
    random: u64,
    places: u32,
    told: Vec<Notification>,
    running: HashMap<Notification, ClaimedEvent>,
}

impl Course {
    fn draw(&mut self, below: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).unwrap() % below
    }

    fn some_running(&mut self) -> Option<ClaimedEvent> {
        let mut all: Vec<Notification> = self.running.keys().copied().collect();
        all.sort_unstable_by_key(|notification| notification.id);
        let count = all.len();
        let drawn = (count > 0).then(|| all[self.draw(count)])?;
        self.running.remove(&drawn)
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Emit => self.told.extend(self.table.add_keyed(MANY, &["customer:7"], 2).await),
            Step::Ask => {
                let asked = self.told.clone();
                for (claim, notification) in self.table.ask(&asked).await.into_iter().zip(asked) {
                    if let LimitedClaim::Claimed(event) = claim {
                        self.running.insert(notification, *event);
                    }
                }
            }
            Step::Complete => {
                if let Some(event) = self.some_running() {
                    self.table.store.complete(&[event.claim]).await.unwrap();
                    self.told.retain(|notification| notification.id != event.claim.id);
                }
            }
            Step::Release => {
                if let Some(event) = self.some_running() {
                    self.table.store.release(&[event.claim]).await.unwrap();
                }
            }
            Step::LoseOne => {
                if let Some(event) = self.some_running() {
                    let lose =
                        "update wakeq.events_v2 set locked_at = locked_at - interval '1 day' where id = $1";
                    sqlx::query(lose).bind(event.claim.id.0).execute(&self.table.pool).await.unwrap();
                }
            }
            // Whoever was woken does not come within its ten seconds.
            Step::Forget => {
                self.table.run("update wakeq.limit_waits set woken_at = woken_at - interval '1 min'").await;
            }
            Step::Set => {
                self.places = 1 + u32::try_from(self.draw(4)).unwrap();
                self.table.limit(MANY, "customer", places(self.places)).await;
            }
        }
    }

    /// If a place is free and an event waits that nobody has woken, it is woken.
    async fn wakes_what_has_room(&self, trace: &[Step]) {
        let running = self.table.live().await;
        let woken =
            "select count(*) from wakeq.limit_waits where woken_at > clock_timestamp() - interval '11 s'";
        let woken = self.table.number(woken).await;
        let waiting =
            self.table.number("select count(*) from wakeq.limit_waits where woken_at is null").await;
        assert!(running <= 4, "{trace:?}");
        let room = (i64::from(self.places) - running - woken).clamp(0, waiting);
        let told = self.table.store.wake_waiting(&[of_key(MANY, "customer:7")]).await.unwrap();
        assert!(told.len() as i64 >= room, "{} of {room} after {trace:?}", told.len());
        assert!(told.iter().all(|notification| notification.canvas == MANY));
    }
}

/// Whatever happens, and in whatever order.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_free_place_goes_to_an_event_that_waits() {
    for seed in 0..4 {
        let table = Table::new().await;
        table.limit(MANY, "customer", places(2)).await;
        let (told, running) = (Vec::new(), HashMap::new());
        let mut course = Course { table, random: seed, places: 2, told, running };
        let mut trace = Vec::new();
        for _ in 0..60 {
            let step = STEPS[course.draw(STEPS.len())];
            trace.push(step);
            course.step(step).await;
            course.wakes_what_has_room(&trace).await;
        }
    }
}
