//! Schedules of events with limits in which a place could stay free although an event waits for it,
//! or an event could start although it may not.

use sqlx::AssertSqlSafe;

use super::crowds::{FEW, MANY};
use super::limits::{of_key, places};
use super::unique::HOUR;
use super::{Table, tester};
use crate::event::{
    CanvasId, Due, Event, EventId, HandlerAddress, HandlerScope, NewEvent, NewLimit, Notification,
    OnConflict, OnFull, Rate, Unique, UniqueOutcome,
};
use crate::store::{CommandOutcome, InsertOutcome, LeftPlaces, LimitedClaim};

/// An event of the handler `known` that names a key.
fn named(key: &str) -> NewEvent {
    let scope = HandlerScope::worker(MANY, "known").unwrap();
    let address = HandlerAddress { scope, modifier: "_".parse().unwrap() };
    let options = Event::new("known", &1).unwrap().limit(key).unwrap().options;
    NewEvent { options, ..NewEvent::new(address, "1".into()) }
}

/// The same with a unique key, which is always the same.
fn unique(key: &str, on_conflict: OnConflict) -> NewEvent {
    let unique = Unique::key("invoice:42").unwrap().on_conflict(on_conflict);
    NewEvent { unique: Some(Box::new(unique)), ..named(key) }
}

fn of_many(id: EventId) -> Notification {
    Notification::new(id, MANY)
}

impl Table {
    async fn waits(&self, canvas: CanvasId, id: EventId) -> bool {
        self.store.waits_for(canvas, id).await.unwrap().is_some()
    }

    /// A table whose limits `a` and `b` have a place each, on two canvases, and an event that is to
    /// take that of `a` on one.
    async fn with_places() -> (Self, Notification) {
        let table = Self::new().await;
        for canvas in [MANY, FEW] {
            for key in ["a", "b"] {
                table.limit(canvas, key, places(1)).await;
            }
        }
        let taken = table.add_keyed(MANY, &["a"], 1).await[0];
        (table, taken)
    }

    /// Lets time pass for the events and the limits of a canvas.
    async fn minutes_pass(&self, canvas: CanvasId, minutes: u32) {
        for (table, moments) in [
            ("events_v2", &["delay_until", "starts_at", "locked_at"][..]),
            ("limit_states", &["next_at", "line_at"][..]),
            ("limit_waits", &["due", "woken_at"][..]),
        ] {
            let moved: Vec<String> =
                moments.iter().map(|at| format!("{at} = {at} - interval '{minutes} min'")).collect();
            let moved = format!("update wakeq.{table} set {} where canvas_id = '{canvas}'", moved.join(", "));
            sqlx::query(AssertSqlSafe(moved)).execute(&self.pool).await.unwrap();
        }
    }
}

/// An event that a rate has told to come, and that is gone then or due later, leaves its start to
/// whoever comes next. One that is still to come keeps it.
#[tokio::test]
async fn the_start_of_what_is_gone_is_the_next_one_s() {
    for is_postponed in [false, true] {
        let (table, mut told) = (Table::new().await, Vec::new());
        let hourly = NewLimit { rate: Some(Rate::new(1, HOUR)), ..NewLimit::default() };
        for canvas in [MANY, FEW] {
            table.limit(canvas, "a", hourly).await;
            let events = table.add_keyed(canvas, &["a"], 3).await;
            assert_eq!(table.claim_some(&events[..2]).await.len(), 1);
            table.minutes_pass(canvas, 59).await;
            assert_eq!(table.store.wake_waiting(&[of_key(canvas, "a")]).await.unwrap(), events[1..2]);
            told.push(events);
        }
        let gone = told[0][1].id;
        let outcome = if is_postponed {
            table.store.set_due(MANY, gone, Due::After(HOUR), &tester()).await.unwrap().0
        } else {
            table.store.cancel(MANY, gone, &tester()).await.unwrap().0
        };
        assert_eq!(outcome, CommandOutcome::Done);
        table.minutes_pass(MANY, 2).await;
        assert_eq!(table.claim_some(&told[0][2..]).await.len(), 1, "postponed: {is_postponed}");
        assert_eq!(table.claim_some(&told[1][2..]).await.len(), 0);
    }
}

/// The statement that makes a woken event due later says where others have its place.
#[tokio::test]
async fn an_event_made_due_later_says_which_place_it_leaves() {
    let table = Table::new().await;
    let mut told = Vec::new();
    for canvas in [MANY, FEW] {
        table.limit(canvas, "a", places(1)).await;
        let events = table.add_keyed(canvas, &["a"], 3).await;
        let running = table.claim_some(&events).await;
        assert_eq!(table.complete_and_wake(&running[0]).await, events[1..2]);
        told.push(events);
    }
    let left = async |event: Notification, due| {
        let set = table.store.set_due(event.canvas, event.id, due, &tester()).await.unwrap();
        set.1.expect("it waits").left
    };
    let later = Due::After(HOUR);
    assert_eq!(left(told[0][1], later).await, Some(of_key(MANY, "a")));
    assert_eq!(left(told[0][2], later).await, None, "nobody has told it to come");
    assert_eq!(left(told[1][1], Due::Now).await, None, "it may come at once");
}

/// An event was told to come later, its limit is removed, and it is made due before anybody has
/// looked who waits there: it starts, and so does what another tenant has in the same claim.
#[tokio::test]
async fn an_event_made_due_after_its_limit_is_gone_starts() {
    let table = Table::new().await;
    let slow = NewLimit { rate: Some(Rate::new(1, HOUR / 60)), ..NewLimit::default() };
    table.limit(MANY, "a", slow).await;
    let told = table.add_keyed(MANY, &["a"], 2).await;
    let others = table.add_keyed(FEW, &["a"], 1).await;
    assert!(matches!(table.ask(&told).await[..], [LimitedClaim::Claimed(_), LimitedClaim::Later(_)]));
    assert!(table.store.remove_limit(MANY, &"a".parse().unwrap(), &tester()).await.unwrap());
    table.store.set_due(MANY, told[1].id, Due::Now, &tester()).await.unwrap();
    assert_eq!(table.claim_some(&[told[1], others[0]]).await.len(), 2);
    assert!(!table.waits(MANY, told[1].id).await);
}

/// A claim lets an event wait while the statement that makes it due later waits for its row.
#[tokio::test]
async fn an_event_made_due_later_leaves_a_wait_that_has_just_begun() {
    let (table, taken) = Table::with_places().await;
    assert_eq!(table.claim_some(&[taken]).await.len(), 1);
    let waiting = table.add_keyed(MANY, &["a"], 1).await[0];
    let mut claimer = table.pool.begin().await.unwrap();
    let claim = format!(
        "select from wakeq.claim_limited('{{{}}}', '{{{MANY}}}', '{{WORKER/known/_}}', '{{}}',
                                         '1 minute', 5, 1000000, '10 minutes', '30 s', 'other')",
        waiting.id
    );
    sqlx::query(AssertSqlSafe(claim)).execute(&mut *claimer).await.unwrap();
    let later = async { table.store.set_due(MANY, waiting.id, Due::After(HOUR), &tester()).await.unwrap().0 };
    let ends = async {
        table.until_waiting(1).await;
        claimer.commit().await.unwrap();
    };
    let (outcome, ()) = tokio::join!(later, ends);
    assert_eq!(outcome, CommandOutcome::Done);
    assert!(!table.waits(MANY, waiting.id).await);
}

/// The statement that cancels a woken event says so as well, even if the event is woken while the
/// statement waits for its row.
#[tokio::test]
async fn a_cancelled_event_says_which_place_it_leaves() {
    let table = Table::new().await;
    let mut told = Vec::new();
    for canvas in [MANY, FEW] {
        table.limit(canvas, "a", places(2)).await;
        let events = table.add_keyed(canvas, &["a"], 5).await;
        let running = table.claim_some(&events).await;
        assert_eq!(table.complete_and_wake(&running[0]).await, events[2..3]);
        assert_eq!(table.store.complete(&[running[1].claim]).await.unwrap(), [true]);
        told.push(events);
    }
    let cancel = async |canvas, id| table.store.cancel(canvas, id, &tester()).await.unwrap();
    let left = |limit| (CommandOutcome::Done, LeftPlaces { lane: None, limit });
    assert_eq!(cancel(MANY, told[0][4].id).await, left(None), "nobody has told it to come");
    let strange = cancel(FEW, told[0][2].id).await;
    assert_eq!(strange, (CommandOutcome::Missing, LeftPlaces::default()));
    assert_eq!(cancel(MANY, told[0][2].id).await, left(Some(of_key(MANY, "a"))));
    let mut waker = table.pool.begin().await.unwrap();
    let wake = format!("select from wakeq.wake_waiting('{{{MANY}}}', '{{a}}', '1 minute', '30 s')");
    sqlx::query(AssertSqlSafe(wake)).execute(&mut *waker).await.unwrap();
    let ends = async {
        table.until_waiting(1).await;
        waker.commit().await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(cancel(MANY, told[0][3].id), ends);
    assert_eq!(cancelled, left(Some(of_key(MANY, "a"))));
    assert_eq!(table.told_to_come().await, [told[1][2].id]);
}

/// What has ended leaves its place at once, also if another place is kept for an event that was
/// woken and is on its way.
#[tokio::test]
async fn a_newcomer_gets_the_place_beside_one_that_is_kept() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", places(2)).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 5).await;
    let others = table.add_keyed(FEW, &["customer:7"], 1).await;
    let first = table.claim_some(&told[..4]).await;
    assert_eq!(first.len(), 2);
    assert_eq!(table.complete_and_wake(&first[0]).await, told[2..3]);
    assert_eq!(table.complete_and_wake(&first[1]).await, told[3..4]);
    let third = table.claim_some(&told[2..3]).await;
    assert_eq!(table.complete_and_wake(&third[0]).await, []);
    assert_eq!(table.claim_some(&told[4..]).await.len(), 1, "one of two places is free");
    assert_eq!(table.claim_some(&told[3..4]).await.len(), 1, "the other one was kept");
    assert_eq!((table.claim_some(&others).await.len(), table.live().await), (1, 3));
}

/// In the same schedule, a limit that drops events lets the newcomer start.
#[tokio::test]
async fn nothing_is_dropped_while_a_place_is_free() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", NewLimit { on_full: OnFull::Drop, ..places(2) }).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 4).await;
    let others = table.add_keyed(FEW, &["customer:7"], 1).await;
    let first = table.claim_some(&told[..2]).await;
    table.store.release(&[first[0].claim]).await.unwrap();
    let third = table.claim_some(&told[2..3]).await;
    assert!(matches!(table.ask(&told[..1]).await[..], [LimitedClaim::Full(_)]), "it has run before");
    assert_eq!(table.complete_and_wake(&first[1]).await, told[..1]);
    assert_eq!(table.complete_and_wake(&third[0]).await, []);
    for starts in [told[3], told[0], others[0]] {
        let claimed = table.claim_some(&[starts]).await;
        assert_eq!(claimed.iter().map(|event| event.is_cancelled).collect::<Vec<_>>(), [false]);
    }
}

/// A newcomer finds room that is another's, and is claimed with one that comes to its turn: the
/// other one is told all the same.
#[tokio::test]
async fn room_that_one_event_finds_is_not_forgotten_for_the_next() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", places(3)).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 6).await;
    let runs = table.claim_some(&told[3..]).await;
    assert_eq!(table.claim_some(&told[2..3]).await.len(), 0);
    assert_eq!(table.complete_and_wake(&runs[0]).await, told[2..3]);
    assert!(matches!(table.ask(&told[..1]).await[..], [LimitedClaim::Full(_)]));
    // Whoever completes it dies before it has woken anybody.
    assert_eq!(table.store.complete(&[runs[1].claim]).await.unwrap(), [true]);
    let answer = table.store.claim_limited(&told[1..3], &super::limits()).await.unwrap();
    assert!(matches!(answer.claims[..], [LimitedClaim::Full(_), LimitedClaim::Claimed(_)]));
    assert_eq!(answer.room, [of_key(MANY, "customer:7")]);
    assert_eq!(table.store.wake_waiting(&answer.room).await.unwrap(), told[..1]);
}

/// What was woken and can't start leaves its place to the next one. It comes back before those that
/// were due later, and is no newcomer that a limit drops. Others stay in the line.
#[tokio::test]
async fn a_woken_event_that_can_not_start_gives_its_place_to_the_next() {
    let (table, taken) = Table::with_places().await;
    let running = table.claim_some(&[taken]).await;
    let told = table.add_keyed(MANY, &["a"], 3).await;
    assert_eq!(table.claim_some(&told).await.len(), 0);
    assert_eq!(table.complete_and_wake(&running[0]).await, told[..1]);
    let left = table.store.step_aside(&[told[1].id, told[0].id]).await.unwrap();
    assert_eq!(left, [None, Some(of_key(MANY, "a"))]);
    assert_eq!(table.store.wake_waiting(&[of_key(FEW, "a")]).await.unwrap(), []);
    assert_eq!(table.store.wake_waiting(&[of_key(MANY, "a")]).await.unwrap(), told[1..2]);
    let second = table.claim_some(&told[1..2]).await;
    table.limit(MANY, "a", NewLimit { on_full: OnFull::Drop, ..places(1) }).await;
    assert!(matches!(table.ask(&told[..1]).await[..], [LimitedClaim::Full(_)]));
    assert_eq!(table.complete_and_wake(&second[0]).await, told[..1]);
    assert_eq!(table.claim_some(&told[..1]).await.len(), 1);
}

/// Who is said to have ended, and still runs, keeps its place.
#[tokio::test]
async fn a_place_is_free_once_its_claim_is_over_whatever_the_caller_says() {
    let (table, taken) = Table::with_places().await;
    let running = table.claim_some(&[taken]).await;
    let told = table.add_keyed(MANY, &["a"], 2).await;
    let others = table.add_keyed(FEW, &["a"], 2).await;
    assert_eq!(table.claim_some(&[&told[..], &others[..]].concat()).await.len(), 1, "the other canvas's");
    let wake = async |ended: EventId| table.store.wake_after(&[of_key(MANY, "a")], &[ended]).await.unwrap();
    assert_eq!(wake(taken.id).await, []);
    assert_eq!(table.store.complete(&[running[0].claim]).await.unwrap(), [true]);
    assert_eq!(wake(taken.id).await, told[..1]);
}

/// An event that waits is replaced: in the same line it keeps its place. It leaves the line if it
/// is to run later.
#[tokio::test]
async fn an_event_replaced_by_a_later_one_is_not_woken_before_its_time() {
    let (table, taken) = Table::with_places().await;
    let running = table.claim_some(&[taken]).await;
    let first = unique("a", OnConflict::Replace);
    table.store.insert_unique(&first).await.unwrap();
    assert!(matches!(table.ask(&[of_many(first.id)]).await[..], [LimitedClaim::Full(_)]));
    let replaced = table.store.insert_unique(&unique("a", OnConflict::Replace)).await.unwrap();
    assert!(matches!(
        replaced,
        InsertOutcome::Stands { outcome: UniqueOutcome::Replaced, due_soon: false, .. }
    ));
    assert!(table.waits(MANY, first.id).await && !table.waits(FEW, first.id).await);
    table.store.insert_unique(&unique("a", OnConflict::Postpone { by: HOUR, at_most: HOUR })).await.unwrap();
    assert!(!table.waits(MANY, first.id).await);
    assert_eq!(table.complete_and_wake(&running[0]).await, []);
    assert!(matches!(table.ask(&[of_many(first.id)]).await[..], [LimitedClaim::Not]), "it is not due");
}

/// The next in the line is woken instead of one that another program has postponed.
#[tokio::test]
async fn the_place_of_what_was_postponed_is_the_next_one_s() {
    let (table, taken) = Table::with_places().await;
    let running = table.claim_some(&[taken]).await;
    let told = table.add_keyed(MANY, &["a"], 2).await;
    assert_eq!(table.claim_some(&told).await.len(), 0);
    let postpone = "update wakeq.events_v2 set delay_until = now() + interval '1 day' where id = $1";
    sqlx::query(postpone).bind(told[0].id.0).execute(&table.pool).await.unwrap();
    assert_eq!(table.complete_and_wake(&running[0]).await, told[1..]);
    assert!(!table.waits(MANY, told[0].id).await);
}

/// Somebody's transaction has locked an event when a place is free: it is told all the same, and
/// gets the place once that is over. If it ends instead, the next one was told as well.
#[tokio::test]
async fn what_is_locked_when_a_place_is_free_is_told() {
    for ends in [false, true] {
        let (table, taken) = Table::with_places().await;
        let running = table.claim_some(&[taken]).await;
        let first = unique("a", OnConflict::Keep);
        table.store.insert_unique(&first).await.unwrap();
        let locked = of_many(first.id);
        let early = "update wakeq.events_v2 set delay_until = now() - interval '1 hour' where id = $1";
        sqlx::query(early).bind(first.id.0).execute(&table.pool).await.unwrap();
        let next = if ends { table.add_keyed(MANY, &["a"], 1).await } else { Vec::new() };
        let told = [vec![locked], next].concat();
        for waiting in &told {
            assert!(matches!(table.ask(&[*waiting]).await[..], [LimitedClaim::Full(_)]));
        }
        let mut other = table.pool.begin().await.unwrap();
        let keep = format!("select from wakeq.emit_unique('known', '1', 'invoice:42', canvas => '{MANY}')");
        sqlx::query(AssertSqlSafe(keep)).execute(&mut *other).await.unwrap();
        assert_eq!(table.complete_and_wake(&running[0]).await, told);
        assert!(matches!(table.ask(&[locked]).await[..], [LimitedClaim::Later(_)]));
        if ends {
            let delete = sqlx::query("delete from wakeq.events_v2 where id = $1").bind(first.id.0);
            delete.execute(&mut *other).await.unwrap();
        }
        other.commit().await.unwrap();
        assert_eq!(table.claim_some(&told).await.len(), 1);
    }
}

/// An event that was told to come is postponed, or replaced by one with other keys: the emit says
/// at which limit its place is the next one's.
#[tokio::test]
async fn the_place_of_what_an_emit_changes_is_the_next_one_s() {
    let postpone = OnConflict::Postpone { by: HOUR, at_most: HOUR };
    for (key, on_conflict) in [("b", OnConflict::Replace), ("a", postpone)] {
        let (table, taken) = Table::with_places().await;
        let running = table.claim_some(&[taken]).await;
        let first = unique("a", OnConflict::Replace);
        table.store.insert_unique(&first).await.unwrap();
        let early = "update wakeq.events_v2 set delay_until = now() - interval '1 hour' where id = $1";
        sqlx::query(early).bind(first.id.0).execute(&table.pool).await.unwrap();
        let next = table.add_keyed(MANY, &["a"], 1).await;
        let others = table.add_keyed(FEW, &["a"], 2).await;
        assert_eq!(table.claim_some(&others).await.len(), 1);
        assert_eq!(table.claim_some(&[of_many(first.id), next[0]]).await.len(), 0);
        assert_eq!(table.complete_and_wake(&running[0]).await, [of_many(first.id)]);
        let emitted = table.store.insert_unique(&unique(key, on_conflict)).await.unwrap();
        assert_eq!(emitted.left_limit(), Some(of_key(MANY, "a")), "{emitted:?}");
        assert_eq!(table.store.wake_waiting(&[of_key(MANY, "a")]).await.unwrap(), next);
        assert!(table.waits(FEW, others[1].id).await && !table.waits(MANY, first.id).await);
    }
}

/// It waits for nothing of what its value before had to wait for, and its caller is told to publish
/// it.
#[tokio::test]
async fn an_event_replaced_with_other_keys_asks_the_limits_of_these() {
    let (table, taken) = Table::with_places().await;
    table.claim_some(&[taken]).await;
    let first = unique("a", OnConflict::Replace);
    table.store.insert_unique(&first).await.unwrap();
    assert!(matches!(table.ask(&[of_many(first.id)]).await[..], [LimitedClaim::Full(_)]));
    let replaced = table.store.insert_unique(&unique("b", OnConflict::Replace)).await.unwrap();
    assert!(matches!(replaced, InsertOutcome::Stands { due_soon: true, .. }), "{replaced:?}");
    let claimed = table.claim_some(&[of_many(first.id)]).await;
    assert_eq!(claimed[0].held.as_deref(), Some(&[of_key(MANY, "b")][..]));
}

/// The lane stands while its first event waits, and then goes on.
#[tokio::test]
async fn the_next_event_on_an_object_comes_after_the_one_that_waited_at_a_limit() {
    let (table, taken) = Table::with_places().await;
    let running = table.claim_some(&[taken]).await;
    let object = || Some("order:1".parse().unwrap());
    let events = ["a", "b"].map(|key| NewEvent { object: object(), ..named(key) });
    table.store.insert_all(&events, &[false, false]).await.unwrap();
    let told = [of_many(events[0].id), of_many(events[1].id)];
    assert!(matches!(table.ask(&told).await[..], [LimitedClaim::Full(_), LimitedClaim::Not]));
    assert_eq!(table.complete_and_wake(&running[0]).await, told[..1]);
    let first = table.claim_some(&told).await;
    assert_eq!(first.iter().map(|event| event.claim.id).collect::<Vec<_>>(), [told[0].id]);
    assert_eq!(table.store.complete_links(&[first[0].claim]).await.unwrap(), [true]);
    assert_eq!(table.claim_some(&told[1..]).await.len(), 1);
}

/// Plain SQL is refused as the library is, for the key that is full on its canvas only.
#[tokio::test]
async fn plain_sql_is_refused_at_the_waiting_length() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", NewLimit { waiting_max: Some(1), ..places(1) }).await;
    }
    let told = table.add_keyed(MANY, &["customer:7"], 2).await;
    assert_eq!(table.claim_some(&told).await.len(), 1);
    let emit = async |call: &str, canvas: CanvasId, options: &str| {
        let sql = format!("select from wakeq.{call}, canvas => '{canvas}', options => '{options}')");
        sqlx::query(AssertSqlSafe(sql)).execute(&table.pool).await
    };
    for call in ["emit('known', '1'", "emit_unique('known', '1', gen_random_uuid()::text"] {
        let full = r#"{"limits": ["customer:8", "customer:7"]}"#;
        let refused = emit(call, MANY, full).await.unwrap_err().to_string();
        assert!(refused.contains("limit customer:7, which is its waiting_max"), "{refused}");
        emit(call, FEW, full).await.unwrap();
        emit(call, MANY, r#"{"limits": ["customer:8"]}"#).await.unwrap();
        emit(call, MANY, r#"{"tags": ["customer:7"]}"#).await.unwrap();
    }
}
