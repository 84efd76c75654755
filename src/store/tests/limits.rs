//! Claims through limits: who gets a place, who waits, and that no wait is lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::crowds::{FEW, MANY};
use super::{Table, limits, shuffled};
use crate::event::{Actor, CanvasId, Claim, EventId, HeldLimit, NewLimit, Notification, OnFull, Rate};
use crate::store::{ClaimedEvent, LimitedClaim, LimitsWithRoom};

/// How long a test may take that goes on until all is done.
const TEST_LIMIT: Duration = Duration::from_secs(120);

/// So many at a time.
pub(super) fn places(concurrency: u32) -> NewLimit {
    NewLimit { concurrency: Some(concurrency), ..NewLimit::default() }
}

impl Table {
    pub(crate) async fn limit(&self, canvas: CanvasId, name: &str, limit: NewLimit) {
        let name = name.parse().unwrap();
        let put = self.store.put_limit(canvas, &name, &limit, &Actor::user("ada")).await.unwrap();
        assert_eq!(put.expect("there is room").limit.definition, limit);
    }

    /// Adds events of the handler `known` that name these keys, and were due one after the other.
    pub(crate) async fn add_keyed(&self, canvas: CanvasId, keys: &[&str], count: usize) -> Vec<Notification> {
        let options = (!keys.is_empty()).then(|| serde_json::json!({ "limits": keys }).to_string());
        let ids: Vec<EventId> = (0..count).map(|_| EventId::new()).collect();
        sqlx::query(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, options, delay_until)
             select id, $1, 'WORKER', 'known', '_', '1', $2::text::jsonb, now() - interval '1 min' + at * interval '1 ms'
               from unnest($3::uuid[]) with ordinality as new (id, at)",
        )
        .bind(canvas.0)
        .bind(options)
        .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>())
        .execute(&self.pool)
        .await
        .unwrap();
        ids.into_iter().map(|id| Notification::new(id, canvas)).collect()
    }

    pub(super) async fn ask(&self, notifications: &[Notification]) -> Vec<LimitedClaim> {
        self.store.claim_limited(notifications, &limits()).await.unwrap().claims
    }

    /// The claims that were made of these events.
    pub(crate) async fn claim_some(&self, notifications: &[Notification]) -> Vec<ClaimedEvent> {
        let claims = self.ask(notifications).await.into_iter();
        let made = claims.filter_map(|claim| match claim {
            LimitedClaim::Claimed(event) => Some(*event),
            LimitedClaim::Full(_) | LimitedClaim::Later(_) | LimitedClaim::Not => None,
        });
        made.collect()
    }

    /// Ends a run as a worker does.
    pub(super) async fn complete_and_wake(&self, event: &ClaimedEvent) -> Vec<Notification> {
        assert_eq!(self.store.complete(&[event.claim]).await.unwrap(), [true]);
        self.store.wake_waiting(event.held.as_deref().expect("it came through limits")).await.unwrap()
    }

    /// The limits with room for which events wait, at all or of a canvas; they fit on a page.
    pub(super) async fn with_room(&self, only: Option<CanvasId>) -> Vec<HeldLimit> {
        let LimitsWithRoom { limits, next } = self.store.limits_with_room(only, None).await.unwrap();
        assert_eq!(next, None);
        limits
    }

    pub(super) async fn live(&self) -> i64 {
        self.number(
            "select count(*) from wakeq.events_v2 where locked_at >= clock_timestamp() - interval '1 min'",
        )
        .await
    }

    /// Works on these events, as eight workers at once, until all are completed; looks each time
    /// that something runs whether no more do than may.
    async fn work_off(&self, told: Vec<Notification>, most: &[(&str, i64)]) {
        let (count, work) = (told.len(), Arc::new(Mutex::new((VecDeque::from(told), 0))));
        let worker = async || {
            loop {
                let asked: Vec<_> = {
                    let mut work = work.lock().await;
                    if work.1 == count {
                        return;
                    }
                    let some = work.0.len().min(3);
                    work.0.drain(..some).collect()
                };
                if asked.is_empty() {
                    tokio::task::yield_now().await;
                    continue;
                }
                let answer = self.store.claim_limited(&asked, &limits()).await.unwrap();
                let mut again = self.store.wake_waiting(&answer.room).await.unwrap();
                for (claim, notification) in answer.claims.into_iter().zip(asked) {
                    match claim {
                        LimitedClaim::Claimed(event) => {
                            for (key, most) in most {
                                assert!(self.running_with(key).await <= *most, "{key}");
                            }
                            again.extend(self.complete_and_wake(&event).await);
                            work.lock().await.1 += 1;
                        }
                        LimitedClaim::Full(_) => {}
                        LimitedClaim::Later(_) | LimitedClaim::Not => again.push(notification),
                    }
                }
                work.lock().await.0.extend(again);
            }
        };
        let all = async {
            tokio::join!(worker(), worker(), worker(), worker(), worker(), worker(), worker(), worker())
        };
        tokio::time::timeout(TEST_LIMIT, all).await.expect("a wait was lost");
    }

    /// How many events run that name a key, in one snapshot.
    async fn running_with(&self, key: &str) -> i64 {
        let count =
            "select count(*) from wakeq.events_v2 where locked_at is not null and options->'limits' ? $1";
        sqlx::query_scalar(count).bind(key).fetch_one(&self.pool).await.unwrap()
    }
}

pub(super) fn of_key(canvas: CanvasId, name: &str) -> HeldLimit {
    HeldLimit { canvas, name: name.to_owned() }
}

/// However many claim at once, and all that wait come to their turn.
#[tokio::test]
async fn no_more_run_at_a_time_than_a_limit_has_places() {
    let table = Table::new().await;
    table.limit(MANY, "customer", places(3)).await;
    let mut told = table.add_keyed(MANY, &["customer:7"], 40).await;
    told.extend(table.add_keyed(MANY, &["customer:8"], 10).await);
    table.work_off(shuffled(&told, 3), &[("customer:7", 3), ("customer:8", 3)]).await;
    assert_eq!(table.number("select count(*) from wakeq.limit_waits").await, 0);
}

/// Nothing asks again for what waits for a place: its promise is only a safety net.
#[tokio::test]
async fn an_event_that_waits_for_a_place_is_promised_in_an_hour() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", places(1)).await;
        let told = table.add_keyed(canvas, &["customer:7"], 3).await;
        assert_eq!(table.claim_some(&told).await.len(), 1);
    }
    let promised = "select count(*) from wakeq.events_v2 e join wakeq.limit_waits w on w.event_id = e.id
                     where e.notify_at between w.since + interval '59 min' and w.since + interval '61 min'";
    assert_eq!(table.number(promised).await, 4);
}

/// A notification is repeated, and nobody has woken the event: if its worker dies, the promise has
/// it found again as any other.
#[tokio::test]
async fn an_event_that_starts_without_having_been_woken_is_promised_soon() {
    let table = Table::new().await;
    let mut waiting = Vec::new();
    for canvas in [MANY, FEW] {
        table.limit(canvas, "a", places(1)).await;
        let told = table.add_keyed(canvas, &["a"], 2).await;
        let running = table.claim_some(&told).await;
        assert_eq!(table.store.complete(&[running[0].claim]).await.unwrap(), [true]);
        waiting.push(told[1]);
    }
    assert_eq!(table.claim_some(&waiting[..1]).await.len(), 1);
    let ahead = "select extract(epoch from notify_at - now())::int8 from wakeq.events_v2 where id = $1";
    let ahead_s = async |event: Notification| -> i64 {
        sqlx::query_scalar(ahead).bind(event.id.0).fetch_one(&table.pool).await.unwrap()
    };
    assert!(ahead_s(waiting[0]).await <= 60, "it runs");
    assert!(ahead_s(waiting[1]).await > 3_500, "it waits");
}

/// They are locked in one order, whatever the order in which emits name them, and an event takes
/// all of its places or none.
#[tokio::test]
async fn limits_in_opposite_orders_block_nobody() {
    let table = Table::new().await;
    for key in ["a", "b"] {
        table.limit(MANY, key, places(1)).await;
    }
    let mut told = table.add_keyed(MANY, &["a", "b"], 10).await;
    for keys in [&["b", "a"][..], &["a"], &["b"]] {
        told.extend(table.add_keyed(MANY, keys, 10).await);
    }
    table.work_off(shuffled(&told, 5), &[("a", 1), ("b", 1)]).await;
}

/// The ordinary claim leaves them out, also if no key of theirs has a limit. The load says so.
#[tokio::test]
async fn events_with_limits_are_claimed_through_them_only() {
    let table = Table::new().await;
    let plain = table.add_keyed(MANY, &[], 1).await;
    let keyed = table.add_keyed(MANY, &["nobody"], 1).await;
    let others = table.add_keyed(FEW, &[], 1).await;
    let ids: Vec<EventId> = [&plain, &keyed, &others].map(|told| told[0].id).into();
    let is_limited = async || -> Vec<bool> {
        let loaded = table.store.load(&ids).await.unwrap().into_iter();
        loaded.map(|event| event.unwrap().is_limited).collect()
    };
    assert_eq!(is_limited().await, [false, true, false]);
    table.limit(FEW, "canvas", places(1)).await;
    assert_eq!(is_limited().await, [false, true, true]);
    let told = [plain, keyed, others].concat();
    let ordinary = table.store.claim(&told, &limits()).await.unwrap();
    assert_eq!(ordinary.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false]);
    assert!(ordinary[0].as_ref().unwrap().held.is_none());
    let held: Vec<_> = table.claim_some(&told).await.into_iter().map(|event| event.held.unwrap()).collect();
    let expected: [Box<[HeldLimit]>; 2] = [Box::from([]), Box::from([of_key(FEW, "canvas")])];
    assert_eq!(held, expected);
    // Of another canvas, nothing is claimed.
    let forged = Notification::new(ids[1], FEW);
    assert!(matches!(table.ask(&[forged]).await[..], [LimitedClaim::Not]));
}

/// Its place is free when its lease has ended, and the minute's pass finds that.
#[tokio::test]
async fn a_holder_that_was_killed_frees_its_place_after_its_lease() {
    let table = Table::new().await;
    table.limit(MANY, "customer", places(1)).await;
    let told = table.add_keyed(MANY, &["customer:7"], 2).await;
    let killed = table.claim_some(&told[..1]).await;
    assert!(matches!(&table.ask(&told[1..]).await[..], [LimitedClaim::Full(name)] if name == "customer:7"));
    assert_eq!(table.with_room(None).await, []);
    assert_eq!(table.store.wake_waiting(&[of_key(MANY, "customer:7")]).await.unwrap(), []);
    table.end_leases().await;
    let room = table.with_room(None).await;
    assert_eq!(room, [of_key(MANY, "customer:7")]);
    assert_eq!(table.store.limits_with_room(None, room.last()).await.unwrap(), LimitsWithRoom::default());
    assert_eq!(table.store.wake_waiting(&room).await.unwrap(), told[1..]);
    let next = table.claim_some(&told[1..]).await;
    assert_eq!(next.len(), 1);
    // The one that was lost waits, and its owner frees nothing.
    assert_eq!(
        table.store.complete(&[killed[0].claim]).await.unwrap(),
        [true],
        "nobody has claimed it again"
    );
    assert_eq!(table.store.wake_waiting(&room).await.unwrap(), []);
    assert_eq!(table.live().await, 1);
}

/// What waits for a full limit is not free to run, until it is told that there is room. A limit of
/// the same name on another canvas, and events without one, are not concerned.
#[tokio::test]
async fn what_waits_for_a_limit_is_not_in_the_depth() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", places(1)).await;
    }
    let many = table.add_keyed(MANY, &["customer:7"], 5).await;
    let few = table.add_keyed(FEW, &["customer:7"], 3).await;
    table.add_keyed(FEW, &[], 2).await;
    let depths = async || {
        let of = async |canvas: CanvasId| table.store.depth(canvas, None).await.unwrap().depth;
        let all = table.store.depths().await.unwrap();
        (of(MANY).await, of(FEW).await, all.iter().map(|found| found.depth.depth).sum::<u64>())
    };
    assert_eq!(depths().await, (5, 5, 10), "nobody has looked for room yet");
    let running = table.claim_some(&many).await;
    assert_eq!((running.len(), depths().await), (1, (0, 5, 5)));
    assert_eq!(table.store.depth(MANY, None).await.unwrap().oldest_due, None);
    assert_eq!(table.claim_some(&few).await.len(), 1);
    assert_eq!(depths().await, (0, 2, 2));
    assert_eq!(table.complete_and_wake(&running[0]).await.len(), 1);
    assert_eq!(depths().await, (1, 2, 3), "the one that was told to come");
    table.run("update wakeq.limit_waits set woken_at = woken_at - interval '1 min'").await;
    assert_eq!(depths().await, (1, 2, 3), "nobody has taken it");
}

/// Each start counts, also that of an attempt which is given up. Another canvas has its own.
#[tokio::test]
async fn a_rate_spreads_starts() {
    let table = Table::new().await;
    let minute = Duration::from_secs(60);
    let limit = NewLimit { rate: Some(Rate { burst: 2, ..Rate::new(1, minute) }), ..NewLimit::default() };
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", limit).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 2).await;
    let first = table.claim_some(&told[..1]).await;
    let claims: Vec<Claim> = first.iter().map(|event| event.claim).collect();
    table.store.release(&claims).await.unwrap();
    assert_eq!(table.claim_some(&told[..1]).await.len(), 1, "the second start");
    let Some(LimitedClaim::Later(left)) = table.ask(&told[1..]).await.pop() else { panic!("it has to wait") };
    assert!(left <= minute, "{left:?}");
    let loaded = table.store.load(&[told[1].id]).await.unwrap().pop().flatten().unwrap();
    assert!(!loaded.waits && loaded.schedule.delay_until > loaded.enqueued_at);
    let others = table.add_keyed(FEW, &["customer:7"], 2).await;
    assert_eq!(table.claim_some(&others).await.len(), 2);
}

/// An operator's limit of a handler is for all canvases together, and holds beside their own ones.
/// Its other limits are defaults for each canvas.
#[tokio::test]
async fn an_operator_s_limits_are_over_canvases_or_for_each() {
    let table = Table::new().await;
    table.limit(CanvasId::OF_QUEUES, "handler:WORKER/known", places(3)).await;
    table.limit(CanvasId::OF_QUEUES, "customer", places(2)).await;
    table.limit(FEW, "customer", places(1)).await;
    let told =
        [table.add_keyed(MANY, &["customer:7"], 4).await, table.add_keyed(FEW, &["customer:7"], 4).await];
    let claimed = table.claim_some(&told[1]).await;
    assert_eq!(claimed.len(), 1, "its own definition");
    let held = claimed[0].held.as_deref().unwrap();
    assert!(held.contains(&of_key(FEW, "customer:7")), "{held:?}");
    assert!(held.contains(&of_key(CanvasId::OF_QUEUES, "handler:WORKER/known")), "{held:?}");
    assert_eq!(table.claim_some(&told[0]).await.len(), 2, "the default, and the third of all");
    assert_eq!(table.live().await, 3);
    // Its end makes room for the canvas's own next one.
    assert_eq!(table.complete_and_wake(&claimed[0]).await.len(), 1);
}

/// A full limit drops what comes: it is claimed to be removed, and takes no place.
#[tokio::test]
async fn a_full_limit_may_drop_what_comes() {
    let table = Table::new().await;
    table.limit(MANY, "customer", NewLimit { on_full: OnFull::Drop, ..places(1) }).await;
    let told = table.add_keyed(MANY, &["customer:7"], 2).await;
    let claimed = table.claim_some(&told).await;
    let dropped: Vec<bool> = claimed.iter().map(|event| event.is_cancelled).collect();
    assert_eq!(dropped, [false, true]);
    assert_eq!(claimed[1].held.as_deref(), Some(&[][..]));
    assert_eq!(table.cancelled_by(claimed[1].claim).await.as_deref(), Some("limit:customer:7"));
    assert!(table.store.remove_cancelled(claimed[1].claim, &Default::default()).await.unwrap());
}

/// A full limit keeps the latest of those that wait.
#[tokio::test]
async fn a_full_limit_may_replace_what_waits() {
    let table = Table::new().await;
    table.limit(MANY, "customer", NewLimit { on_full: OnFull::Replace, ..places(1) }).await;
    let told = table.add_keyed(MANY, &["customer:7"], 4).await;
    let others = table.add_keyed(FEW, &["customer:7"], 1).await;
    let running = table.claim_some(&told[..1]).await;
    for waiting in &told[1..] {
        assert!(matches!(table.ask(&[*waiting]).await[..], [LimitedClaim::Full(_)]));
    }
    while table.store.remove_unclaimed_cancelled().await.unwrap().0 > 0 {}
    let left = table.store.load(&[told[1].id, told[2].id, told[3].id, others[0].id]).await.unwrap();
    assert_eq!(left.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true, true]);
    assert_eq!(table.complete_and_wake(&running[0]).await, told[3..]);
}

/// A full limit cancels what has run for longest, and lets the newcomer wait for its place.
#[tokio::test]
async fn a_full_limit_may_cancel_what_runs() {
    let table = Table::new().await;
    table.limit(MANY, "customer", NewLimit { on_full: OnFull::Cancel, ..places(1) }).await;
    let told = table.add_keyed(MANY, &["customer:7"], 2).await;
    let running = table.claim_some(&told[..1]).await;
    assert!(matches!(table.ask(&told[1..]).await[..], [LimitedClaim::Full(_)]));
    assert_eq!(table.cancelled_by(running[0].claim).await.as_deref(), Some("limit:customer:7"));
    assert_eq!(table.store.cancelled_claims().await.unwrap(), [running[0].claim]);
    assert!(table.store.remove_cancelled(running[0].claim, &Default::default()).await.unwrap());
    let held = running[0].held.as_deref().unwrap();
    assert_eq!(table.store.wake_waiting(held).await.unwrap(), told[1..]);
    assert_eq!(table.claim_some(&told[1..]).await.len(), 1);
}

/// While somebody has the row of what runs, nothing is cancelled in its stead: the newcomer asks
/// again, and still is one then.
#[tokio::test]
async fn what_waits_is_not_cancelled_for_what_runs_and_is_locked() {
    let table = Table::new().await;
    let cancels = NewLimit { on_full: OnFull::Cancel, ..places(1) };
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", NewLimit { on_full: OnFull::Wait, ..cancels }).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 3).await;
    let others = table.add_keyed(FEW, &["customer:7"], 2).await;
    let running = table.claim_some(&[told[0], others[0]]).await;
    assert_eq!(table.claim_some(&[told[1], others[1]]).await.len(), 0);
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", cancels).await;
    }
    let mut other = table.pool.begin().await.unwrap();
    let lock = "select from wakeq.events_v2 where id = $1 for no key update";
    sqlx::query(lock).bind(told[0].id.0).execute(&mut *other).await.unwrap();
    let cancelled = "select count(*) from wakeq.events_v2 where cancelled_by is not null";
    for _ in 0..2 {
        let asked = table.ask(&told[2..]).await;
        assert!(matches!(asked[..], [LimitedClaim::Later(_)]), "{asked:?}");
        assert_eq!(table.number(cancelled).await, 0);
    }
    other.commit().await.unwrap();
    assert!(matches!(table.ask(&told[2..]).await[..], [LimitedClaim::Full(_)]));
    assert_eq!(table.cancelled_by(running[0].claim).await.as_deref(), Some("limit:customer:7"));
    assert_eq!(table.number(cancelled).await, 1);
}

impl Table {
    async fn cancelled_by(&self, claim: Claim) -> Option<String> {
        let by =
            sqlx::query_scalar("select cancelled_by from wakeq.events_v2 where id = $1").bind(claim.id.0);
        by.fetch_one(&self.pool).await.unwrap()
    }
}
