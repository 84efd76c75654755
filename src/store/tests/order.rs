//! Order on Postgres: chains without forks, lanes of which only the first event runs, halting and
//! resuming.

use std::sync::Arc;
use std::time::Duration;

use super::{Table, limits, scope, tester, told};
use crate::event::{
    CanvasId, Cause, EventId, HandlerAddress, Lane, Link, NewEvent, Notification, ObjectKey, Turn,
};
use crate::store::{
    CommandOutcome, DeadFilter, InsertOutcome, LeftPlaces, NewState, Retry, Store, StoreConfig,
};

fn key(object: &str) -> ObjectKey {
    object.parse().unwrap()
}

fn event(object: &str) -> NewEvent {
    let address = HandlerAddress { scope: scope(), modifier: "_".parse().unwrap() };
    NewEvent { object: Some(key(object)), ..NewEvent::new(address, "1".into()) }
}

fn lane(object: &str) -> Lane {
    Lane { scope: scope(), object: key(object), queue: None }
}

/// Emits events on these objects in one transaction; returns their ids and links.
async fn emit(store: &Store, objects: &[&str]) -> Vec<(EventId, Link)> {
    let events: Vec<NewEvent> = objects.iter().map(|object| event(object)).collect();
    let inserted = loop {
        match store.insert_all(&events, &vec![false; events.len()]).await {
            Err(error) if error.is_contention() => {}
            inserted => break inserted.unwrap(),
        }
    };
    events.iter().zip(inserted).map(|(event, inserted)| (event.id, inserted.link().unwrap())).collect()
}

async fn may_claim(store: &Store, id: EventId) -> bool {
    let claimed = store.claim(&told(&[id]), &limits()).await.unwrap().pop().flatten();
    match claimed {
        Some(event) => {
            store.release(&[event.claim]).await.unwrap();
            true
        }
        None => false,
    }
}

async fn turn(store: &Store, id: EventId) -> Turn {
    store.load(&[id]).await.unwrap().pop().flatten().unwrap().schedule.turn
}

/// Runs an event and completes it.
async fn complete(store: &Store, id: EventId) {
    let claim = store.claim(&told(&[id]), &limits()).await.unwrap().pop().flatten().expect("its turn").claim;
    assert_eq!(store.complete_links(&[claim]).await.unwrap(), [true]);
}

async fn die(store: &Store, id: EventId, halts: bool) {
    let claim = store.claim(&told(&[id]), &limits()).await.unwrap().pop().flatten().expect("its turn").claim;
    assert!(store.die(claim, Cause::Retries, Some("no"), halts, None).await.unwrap());
}

/// With concurrent emits on several objects, each object has one chain without forks or gaps, whose
/// ids increase in commit order.
// Shows: ORD-01, ORD-07, ORD-08, ORD-10, ORD-11
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn many_emitters_make_one_chain_of_each_object() {
    let table = Table::new().await;
    let objects = ["a", "b", "c", "d", "e"];
    let mut emitters = tokio::task::JoinSet::new();
    for emitter in 0..16_usize {
        let store = table.other_store(StoreConfig { max_connections: 1, ..StoreConfig::default() }).await;
        emitters.spawn(async move {
            let mut last = [0; 5];
            for round in 0..40_usize {
                let count = 1 + (emitter + round) % 4;
                let chosen: Vec<usize> =
                    (0..count).map(|at| (emitter * 7 + round * 3 + at * 2) % 5).collect();
                let names: Vec<&str> = chosen.iter().map(|at| objects[*at]).collect();
                for (at, (_, link)) in chosen.iter().zip(emit(&store, &names).await) {
                    assert!(link.prev < link.id && link.prev >= last[*at], "{link:?} after {last:?}");
                    last[*at] = link.id;
                }
            }
        });
    }
    while let Some(ended) = emitters.join_next().await {
        ended.unwrap();
    }
    let chained = "select bool_and(prev = before) from (
        select prev, lag(seq, 1, 0::bigint) over (partition by object order by seq) as before from wakeq.events_v2) e";
    assert!(table.holds(chained).await);
    let last = "select bool_and(last_seq = (select max(seq) from wakeq.events_v2 e where e.object = o.object)) from wakeq.objects o";
    assert!(table.holds(last).await);
    assert_eq!(table.number("select count(distinct seq) - count(*) from wakeq.events_v2").await, 0);
}

/// The schema refuses what would not be a chain, whichever statement writes it.
// Shows: ORD-08
#[tokio::test]
async fn the_schema_rejects_broken_chains() {
    let table = Table::new().await;
    emit(&table.store, &["a"]).await;
    let fork = table.number("select prev from wakeq.events_v2").await;
    assert_eq!(fork, 0, "the first has none before it");
    for (columns, constraint) in [
        ("'a', 100, 0", "events_v2_successor"),
        ("'a', 100, 100", "events_v2_link"),
        ("'a', 100, 101", "events_v2_link"),
        ("'a', 100, -1", "events_v2_link"),
        ("'a', null, null", "events_v2_link"),
        ("'a', 100, null", "events_v2_link"),
        ("null, 100, 99", "events_v2_link"),
        ("'a b', 100, 99", "object_key_check"),
    ] {
        let insert = format!(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev)
             values (gen_random_uuid(), '{}', 'WORKER', 'known', '_', '1', {columns})",
            CanvasId::DEFAULT
        );
        let refused = sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&table.pool).await.unwrap_err();
        let named = refused.as_database_error().and_then(|error| error.constraint());
        assert_eq!(named, Some(constraint), "{columns}: {refused}");
    }
}

/// Main event, subevents and state are one transaction; if refused, none of them is stored.
// Shows: ORD-18, ORD-19
#[tokio::test]
async fn a_change_of_an_object_is_whole_or_nothing() {
    let table = Table::new().await;
    let object = key("work:1");
    let state = |state| Some(NewState { canvas: CanvasId::DEFAULT, object: &object, state });
    let events = [event("work:1"), event("work:1"), event("work:1")];
    let inserted = table.store.insert_on(&events, &[false; 3], state("1")).await.unwrap();
    let links: Vec<Link> = inserted.iter().map(|inserted| inserted.link().unwrap()).collect();
    assert!(links.windows(2).all(|pair| pair[1].prev == pair[0].id), "{links:?}");
    let before = table.store.object(CanvasId::DEFAULT, &object).await.unwrap().unwrap();
    assert_eq!((before.last_id, before.state.as_deref()), (links[2].id, Some("1")));
    let refused = [event("work:1"), NewEvent { value: "\0".into(), ..event("work:1") }];
    assert!(table.store.insert_on(&refused, &[false; 2], state("2")).await.is_err());
    assert_eq!(table.store.object(CanvasId::DEFAULT, &object).await.unwrap().unwrap(), before);
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 3);
    let never = NewEvent { value: "\0".into(), ..event("work:2") };
    assert!(table.store.insert_on(&[never], &[false], None).await.is_err());
    assert_eq!(table.store.object(CanvasId::DEFAULT, &key("work:2")).await.unwrap(), None);
}

/// Emitting again adds no event, takes no link, and leaves the current state.
// Shows: ORD-26
#[tokio::test]
async fn a_repeated_change_changes_nothing() {
    let table = Table::new().await;
    let object = key("work:1");
    let state = |state| Some(NewState { canvas: CanvasId::DEFAULT, object: &object, state });
    let chosen = event("work:1");
    let events = [chosen.clone(), chosen.clone()];
    let inserted = table.store.insert_on(&events, &[true; 2], state("1")).await.unwrap();
    assert!(matches!(inserted[..], [InsertOutcome::New { .. }, InsertOutcome::Known]), "{inserted:?}");
    let (_, link) = emit(&table.store, &["work:1"]).await[0];
    assert_eq!(link.prev, inserted[0].link().unwrap().id);
    let again = table.store.insert_on(&[chosen], &[true], state("2")).await.unwrap();
    assert_eq!(again, [InsertOutcome::Known]);
    let object = table.store.object(CanvasId::DEFAULT, &object).await.unwrap().unwrap();
    assert_eq!((object.last_id, object.state.as_deref()), (link.id, Some("1")));
    assert_eq!(emit(&table.store, &["work:1"]).await[0].1.prev, link.id);
}

/// Only the first event of a lane can be claimed; other objects, other handlers and events without
/// an object do not wait for it.
// Shows: ORD-04, ORD-05, ORD-12
#[tokio::test]
async fn only_the_first_of_a_lane_runs() {
    let table = Table::new().await;
    let ids: Vec<EventId> =
        emit(&table.store, &["a", "a", "a", "b"]).await.into_iter().map(|(id, _)| id).collect();
    table.run("update wakeq.events_v2 set name = 'other' where object = 'b'").await;
    let free = table.add(1).await[0];
    for (id, first) in [(ids[0], true), (ids[1], false), (ids[2], false), (free, true)] {
        assert_eq!(
            (may_claim(&table.store, id).await, turn(&table.store, id).await == Turn::First),
            (first, first)
        );
    }
    let running = table.claim(&ids[..1]).await[0];
    assert!(!may_claim(&table.store, ids[1]).await, "the first of them runs");
    let retry = Retry {
        claim: running,
        retries: 1,
        delay: Duration::from_secs(900),
        error: "no".into(),
        noted: None,
    };
    assert_eq!(table.store.retry(&[Arc::new(retry)]).await.unwrap(), [true]);
    assert!(!may_claim(&table.store, ids[1]).await, "the first of them is tried again later");
    table.run("update wakeq.events_v2 set delay_until = now()").await;
    complete(&table.store, ids[0]).await;
    assert!(!may_claim(&table.store, ids[2]).await);
    complete(&table.store, ids[1]).await;
    assert!(may_claim(&table.store, ids[2]).await);
}

/// A removal renews the promise of the next event, however far it had been moved; and the lookup
/// that follows finds what was committed since.
// Shows: ORD-21, ORD-22
#[tokio::test]
async fn a_removal_promises_and_the_look_after_it_finds_the_next() {
    let table = Table::new().await;
    let ids: Vec<EventId> = emit(&table.store, &["a", "a"]).await.into_iter().map(|(id, _)| id).collect();
    table.run("update wakeq.events_v2 set notify_at = now() + interval '1 h', probes = 5").await;
    complete(&table.store, ids[0]).await;
    let armed = "select bool_and(notify_at between now() + interval '20 s' and now() + interval '30 s' and probes = 0) from wakeq.events_v2";
    assert!(table.holds(armed).await);
    let first = |id| Some(Notification::new(id, CanvasId::DEFAULT));
    let lanes = [lane("b"), lane("a")];
    assert_eq!(table.store.firsts(&lanes).await.unwrap(), [None, first(ids[1])]);
    complete(&table.store, ids[1]).await;
    let (late, _) = emit(&table.store, &["a"]).await[0];
    assert_eq!(table.store.firsts(&lanes).await.unwrap(), [None, first(late)]);
    table.claim(&[late]).await;
    assert_eq!(table.store.firsts(&lanes).await.unwrap(), [None, None], "somebody runs it already");
}

/// Another session locks the row of an object's next event: completed events are deleted all the
/// same, and dead ones are dead.
#[tokio::test]
async fn a_locked_next_event_does_not_delay_completions_and_deaths() {
    let table = Table::new().await;
    let ids: Vec<EventId> =
        emit(&table.store, &["a", "a", "b", "b"]).await.into_iter().map(|(id, _)| id).collect();
    let claims = table.claim(&[ids[0], ids[2]]).await;
    let mut stranger = table.pool.begin().await.unwrap();
    let held = sqlx::query("select from wakeq.events_v2 where locked_at is null for update");
    assert_eq!(held.execute(&mut *stranger).await.unwrap().rows_affected(), 2);
    assert_eq!(table.store.complete_links(&claims[..1]).await.unwrap(), [true]);
    assert!(table.store.die(claims[1], Cause::Retries, None, false, None).await.unwrap());
    stranger.rollback().await.unwrap();
    assert!(may_claim(&table.store, ids[1]).await && may_claim(&table.store, ids[3]).await);
}

/// Emitters and owners race. An event whose turn had not come is found by the owner that removes
/// the one before it.
// Shows: ORD-22
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_event_is_missed_when_emits_and_removals_race() {
    let table = Table::new().await;
    for round in 0..150 {
        let object = format!("race:{round}");
        let (first, _) = emit(&table.store, &[&object]).await[0];
        let claim = table.claim(&[first]).await[0];
        let removing = async {
            assert_eq!(table.store.complete_links(&[claim]).await.unwrap(), [true]);
            table.store.firsts(&[lane(&object)]).await.unwrap().pop().flatten()
        };
        let emitting = async {
            let (id, _) = emit(&table.store, &[&object]).await[0];
            (id, turn(&table.store, id).await)
        };
        let (woken, (next, turn)) = tokio::join!(removing, emitting);
        let found = woken.is_some_and(|woken| woken.id == next);
        assert!(found || turn == Turn::First, "round {round}: turned away, and nobody woke it");
    }
}

/// An operator's removals name the lanes that have to be woken.
#[tokio::test]
async fn what_operators_remove_wakes_the_next() {
    let table = Table::new().await;
    let ids: Vec<EventId> =
        emit(&table.store, &["a", "a", "b"]).await.into_iter().map(|(id, _)| id).collect();
    let cancelled = table.store.cancel(CanvasId::DEFAULT, ids[0], &tester()).await.unwrap();
    assert_eq!(cancelled, (CommandOutcome::Done, LeftPlaces { lane: Some(lane("a")), limit: None }));
    table.run("update wakeq.events_v2 set notify_at = now() + interval '1 h', probes = 5").await;
    let woken = table.store.arm_firsts(&[lane("a"), lane("c")]).await.unwrap();
    assert_eq!(woken, [Notification::new(ids[1], CanvasId::DEFAULT)]);
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where probes = 0").await, 1);
    let mut page =
        table.store.purge_page(&scope(), table.store.clock().await.unwrap(), &tester()).await.unwrap();
    page.lanes.sort();
    assert_eq!((page.count, page.lanes), (2, vec![lane("a"), lane("b")]));
}

/// Removing an event, or resuming a lane, renews the promise of the next event in the same
/// statement: should the process die before it has woken that event, the probe does so after the
/// grace.
#[tokio::test]
async fn what_operators_remove_promises_the_next() {
    let table = Table::new().await;
    let far = "update wakeq.events_v2 set notify_at = now() + interval '1 h', probes = 5";
    let promised = async || -> Vec<EventId> {
        let promised = "select id from wakeq.events_v2
                         where notify_at between now() + interval '20 s' and now() + interval '30 s' and probes = 0";
        let promised = sqlx::query_scalar(promised).fetch_all(&table.pool).await.unwrap();
        promised.into_iter().map(EventId).collect()
    };
    let ids: Vec<EventId> =
        emit(&table.store, &["a", "a", "a", "b"]).await.into_iter().map(|(id, _)| id).collect();
    table.run(far).await;
    table.run("insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev, notify_at)
               select gen_random_uuid(), '00000000-0000-0000-0000-0000000000ff', module, name, modifier, value, object, seq, prev, notify_at
                 from wakeq.events_v2").await;
    table.store.cancel(CanvasId::DEFAULT, ids[0], &tester()).await.unwrap();
    assert_eq!(promised().await, [ids[1]], "the next, and that of no other canvas");
    table.run(far).await;
    die(&table.store, ids[1], true).await;
    table.run(far).await;
    assert_eq!(table.store.skip_lane(&lane("a"), true, &tester()).await.unwrap(), [lane("a")]);
    assert_eq!(promised().await, [ids[2]]);
    // More than a page: what is left is the last one.
    table.run("delete from wakeq.events_v2").await;
    table.run("insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev, notify_at, delay_until)
               select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1', 'long', n, n - 1,
                      now() + interval '1 h', now() + (n - 2000) * interval '1 ms' from generate_series(1, 1002) n").await;
    let now = table.store.clock().await.unwrap();
    let page = table.store.purge_page(&scope(), now, &tester()).await.unwrap();
    assert_eq!((page.count, page.lanes), (1000, vec![lane("long")]));
    assert_eq!(promised().await, [table.store.first(&lane("long")).await.unwrap().unwrap().0]);
}

/// An event is redriven while its lane is resumed without it: it has lost its place, so that never
/// two of the lane run.
#[tokio::test]
async fn an_event_redriven_during_a_skip_loses_its_place() {
    let table = Table::new().await;
    let emitted = emit(&table.store, &["a", "a"]).await;
    die(&table.store, emitted[0].0, true).await;
    table.run("insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
               select '00000000-0000-0000-0000-0000000000ff', object, module, name, event_id, seq, prev from wakeq.halted_lanes").await;
    let mut skip = table.pool.begin().await.unwrap();
    let lifted = sqlx::query("delete from wakeq.halted_lanes where canvas_id = $1").bind(CanvasId::DEFAULT.0);
    assert_eq!(lifted.execute(&mut *skip).await.unwrap().rows_affected(), 1);
    let store = table.store.clone();
    let redriving = tokio::spawn(async move {
        let filter = DeadFilter::default();
        store.redrive_page(&filter, true, (0, 10), &tester()).await.unwrap().back.len()
    });
    table.until_waiting(1).await;
    skip.commit().await.unwrap();
    table.claim(&[emitted[1].0]).await;
    assert_eq!(redriving.await.unwrap(), 1);
    assert!(!may_claim(&table.store, emitted[0].0).await, "the second runs");
    let back = table.store.load(&[emitted[0].0]).await.unwrap().pop().flatten().unwrap();
    assert_eq!((back.place.unwrap().link.prev, back.schedule.turn), (emitted[1].1.id, Turn::Behind));
    assert_eq!(table.number("select count(*) from wakeq.halted_lanes").await, 1, "the other canvas's");
}

/// A dead event keeps its link among the dead events; the others run, unless its handler wants them
/// to wait.
#[tokio::test]
async fn a_death_is_passed_over_or_halts_its_lane() {
    let table = Table::new().await;
    for halts in [false, true] {
        let object = if halts { "stands" } else { "goes" };
        let emitted = emit(&table.store, &[object, object, "other"]).await;
        die(&table.store, emitted[0].0, halts).await;
        let dead = table.store.dead_event(CanvasId::DEFAULT, emitted[0].0).await.unwrap().unwrap();
        assert_eq!((dead.place.unwrap().link, dead.halts), (emitted[0].1, halts));
        let expected = if halts { Turn::Halted } else { Turn::First };
        assert_eq!(turn(&table.store, emitted[1].0).await, expected);
        assert_eq!(may_claim(&table.store, emitted[1].0).await, !halts);
        let next = table.store.firsts(&[lane(object)]).await.unwrap()[0];
        assert_eq!(next.is_some(), !halts);
        assert!(may_claim(&table.store, emitted[2].0).await, "another object");
        let (late, _) = emit(&table.store, &[object]).await[0];
        assert_eq!(turn(&table.store, late).await == Turn::Halted, halts);
        complete(&table.store, emitted[2].0).await;
    }
    let halted = table.store.halted_lanes(CanvasId::DEFAULT, None, true, None, 10).await.unwrap();
    assert_eq!(halted.iter().map(|(halted, _)| halted.lane.clone()).collect::<Vec<_>>(), [lane("stands")]);
    let counts = table.store.counts(CanvasId::DEFAULT, &[lane("stands").scope]).await.unwrap();
    assert_eq!((counts[0].halted, counts[0].dead), (1, 2));
    let depth = table.store.depth(CanvasId::DEFAULT, None).await.unwrap();
    assert_eq!(depth.depth, 1, "the first of the lane that goes on");
    assert_eq!(table.store.skip_lane(&lane("stands"), true, &tester()).await.unwrap(), [lane("stands")]);
    assert_eq!(table.store.skip_lane(&lane("stands"), true, &tester()).await.unwrap(), []);
    assert_eq!(table.store.arm_firsts(&[lane("stands")]).await.unwrap().len(), 1);
    assert_eq!(table.number("select count(*) from wakeq.audit_log where action = 'skip'").await, 1);
}

/// A dead event whose lane has been halted takes its own place again, before those that waited; any
/// other becomes the last of the chain, with a new link.
#[tokio::test]
async fn a_redriven_event_takes_its_place_or_the_last() {
    let table = Table::new().await;
    for halts in [true, false] {
        let object = if halts { "stands" } else { "goes" };
        let emitted = emit(&table.store, &[object, object]).await;
        die(&table.store, emitted[0].0, halts).await;
        let filter = DeadFilter { id: Some(emitted[0].0), ..DeadFilter::default() };
        let redriven = table.store.redrive_page(&filter, true, (0, 10), &tester()).await.unwrap();
        assert_eq!(redriven.back.len(), 1);
        let back = table.store.load(&[emitted[0].0]).await.unwrap().pop().flatten().unwrap();
        let link = back.place.unwrap().link;
        if halts {
            assert_eq!((link, back.schedule.turn), (emitted[0].1, Turn::First));
            assert_eq!(turn(&table.store, emitted[1].0).await, Turn::Behind);
        } else {
            assert_eq!((link.prev, back.schedule.turn), (emitted[1].1.id, Turn::Behind));
            let object = table.store.object(CanvasId::DEFAULT, &key(object)).await.unwrap().unwrap();
            assert_eq!(object.last_id, link.id);
        }
    }
    assert_eq!(table.number("select count(*) from wakeq.halted_lanes").await, 0);
    let left: Vec<EventId> =
        emit(&table.store, &["x", "y", "x"]).await.into_iter().map(|(id, _)| id).collect();
    die(&table.store, left[0], false).await;
    die(&table.store, left[1], false).await;
    let alone = table.add(1).await;
    let claim = table.claim(&alone).await[0];
    assert!(table.store.die(claim, Cause::Retries, None, true, None).await.unwrap());
    let redriven = table.store.redrive_page(&DeadFilter::default(), true, (0, 10), &tester()).await.unwrap();
    assert_eq!((redriven.back.len(), redriven.looked), (3, 3), "with and without objects");
}

/// A dead event that halts an object is kept, however old it is.
#[tokio::test]
async fn the_reason_of_a_halt_does_not_expire() {
    let table = Table::new().await;
    for (object, halts) in [("stands", true), ("goes", false)] {
        let (id, _) = emit(&table.store, &[object]).await[0];
        die(&table.store, id, halts).await;
    }
    table.run("update wakeq.dead_events set died_at = now() - interval '1 year'").await;
    table.expire(crate::store::Retention::default()).await;
    assert!(table.holds("select array_agg(object::text) = array['stands'] from wakeq.dead_events").await);
}

/// The chain of an object never names a missing event: not that of an id which is already live when
/// a redrive locks the object's row.
#[tokio::test]
async fn a_redrive_assigns_no_link_to_a_live_event() {
    let table = Table::new().await;
    let emitted = emit(&table.store, &["a", "b"]).await;
    for (id, _) in &emitted {
        die(&table.store, *id, false).await;
    }
    let mut stranger = table.pool.begin().await.unwrap();
    let lock = "select from wakeq.objects where object = 'a' for update";
    sqlx::query(lock).execute(&mut *stranger).await.unwrap();
    let store = table.store.clone();
    let redriving = tokio::spawn(async move {
        store.redrive_page(&DeadFilter::default(), true, (0, 10), &tester()).await.unwrap()
    });
    table.until_waiting(1).await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
             select id, canvas_id, module, name, modifier, value from wakeq.dead_events where object = 'a'",
        )
        .await;
    stranger.rollback().await.unwrap();
    let back = redriving.await.unwrap().back;
    assert_eq!(back, [Notification::new(emitted[1].0, CanvasId::DEFAULT)]);
    for (name, (_, link), again) in [("a", emitted[0], false), ("b", emitted[1], true)] {
        let object = table.store.object(CanvasId::DEFAULT, &key(name)).await.unwrap().unwrap();
        assert_eq!(object.last_id > link.id, again, "{name}");
    }
    assert!(table.holds("select array_agg(object::text) = array['a'] from wakeq.dead_events").await);
}

/// An idle object may be forgotten after an emit in SQL has found it, and before it is locked.
#[tokio::test]
async fn an_emit_in_sql_makes_a_forgotten_object_anew() {
    let table = Table::new().await;
    let (id, _) = emit(&table.store, &["a"]).await[0];
    complete(&table.store, id).await;
    let mut forgetting = table.pool.begin().await.unwrap();
    let lock = "select from wakeq.objects where object = 'a' for update";
    assert_eq!(sqlx::query(lock).execute(&mut *forgetting).await.unwrap().rows_affected(), 1);
    let pool = table.pool.clone();
    let emitting = tokio::spawn(async move {
        let emit = "select is_new from wakeq.emit('known', '1', object => 'a')";
        sqlx::query_scalar::<_, bool>(emit).fetch_one(&pool).await.unwrap()
    });
    table.until_waiting(1).await;
    let forget = "delete from wakeq.objects where object = 'a'";
    sqlx::query(forget).execute(&mut *forgetting).await.unwrap();
    forgetting.commit().await.unwrap();
    assert!(emitting.await.unwrap());
    let begins = "select e.prev = 0 and e.seq = o.last_seq from wakeq.events_v2 e, wakeq.objects o";
    assert!(table.holds(begins).await);
}
