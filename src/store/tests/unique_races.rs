//! Unique keys on Postgres: racing emits and claims, transactions that go on, batches, copies, and
//! what an emit with a key costs.

use std::sync::Arc;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::cost::buffers;
use super::queues::{emails, register};
use super::unique::{HOUR, QUIET, emit, key, keyed};
use super::{Table, limits, scope, told};
use crate::event::{
    CanvasId, EventId, HandlerAddress, HandlerScope, NewEvent, OnConflict, Unique, UniqueOutcome,
};
use crate::store::{FacetSettings, InsertOutcome, StoreConfig, add_one};

/// Thirty-two emit at once, on connections of their own: one event, and no error, whatever becomes
/// of the event meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racing_emits_one_inserts() {
    let config =
        StoreConfig { max_connections: 8, lock_timeout: Duration::from_secs(20), ..StoreConfig::default() };
    let table = Table::with(config).await;
    for conflict in [OnConflict::Keep, OnConflict::Replace, QUIET] {
        for unique in [key(), key().until_ended(), key().remembered_for(HOUR)] {
            let mut callers = tokio::task::JoinSet::new();
            for _ in 0..32 {
                let (store, event) = (table.store.clone(), keyed(unique.clone().on_conflict(conflict)));
                callers.spawn(async move { emit(&store, event).await });
            }
            let answers = callers.join_all().await;
            let new: Vec<_> =
                answers.iter().filter(|(_, outcome)| *outcome == UniqueOutcome::Inserted).collect();
            assert_eq!(new.len(), 1, "{conflict:?}: {answers:?}");
            assert!(answers.iter().all(|(id, _)| *id == new[0].0), "{conflict:?}: {answers:?}");
            assert_eq!(table.left().await, 1);
            table.run("truncate wakeq.events_v2, wakeq.unique_keys").await;
        }
    }
}

/// While others claim and complete, each key has one event at a time, and a change that was emitted
/// is seen by an event that started after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_is_lost_while_events_come_and_go() {
    const EMITS: i32 = 150;
    let table = Table::new().await;
    table.run("create table public.changes (n serial)").await;
    let mut emitters = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (store, pool) = (table.store.clone(), table.pool.clone());
        emitters.spawn(async move {
            for _ in 0..EMITS {
                sqlx::query("insert into public.changes default values").execute(&pool).await.unwrap();
                emit(&store, keyed(key())).await;
            }
        });
    }
    let mut seen = 0;
    loop {
        let all_emitted = emitters.is_empty() || {
            while emitters.try_join_next().is_some() {}
            emitters.is_empty()
        };
        let ids = sqlx::query_scalar("select id from wakeq.events_v2 where locked_at is null");
        let ids: Vec<EventId> = ids.fetch_all(&table.pool).await.unwrap().into_iter().map(EventId).collect();
        assert!(table.holders().await <= 1);
        if ids.is_empty() {
            if all_emitted {
                break;
            }
            continue;
        }
        let claimed = table.store.claim(&told(&ids), &limits()).await.unwrap();
        let claims: Vec<_> = claimed.into_iter().flatten().map(|event| event.claim).collect();
        seen = table.number("select count(*) from public.changes").await;
        table.store.complete(&claims).await.unwrap();
    }
    assert_eq!(seen, i64::from(4 * EMITS));
}

/// In a caller's transaction a kept event does not start before the commit: what the caller has
/// written would be lost on it.
#[tokio::test]
async fn a_kept_event_starts_after_the_transaction_that_kept_it() {
    let table = Table::new().await;
    let (first, _) = table.emit_key(key()).await;
    let mut caller = table.pool.begin().await.unwrap();
    let event = Arc::new(keyed(key()));
    let kept = add_one(&mut caller, &event, false, table.store.emission()).await.unwrap();
    let expected =
        InsertOutcome::Stands { id: first, outcome: UniqueOutcome::Kept, due_soon: false, room: None };
    assert_eq!(kept, expected);
    let impatient = table.other_store(StoreConfig::default()).await;
    let error = impatient.claim(&told(&[first]), &limits()).await.unwrap_err();
    assert!(error.is_contention(), "{error}");
    caller.commit().await.unwrap();
    assert_eq!(table.claim(&[first]).await.len(), 1);

    // One that has its key until it has ended may run already: nobody waits for it.
    table.run("truncate wakeq.events_v2").await;
    let (first, _) = table.emit_key(key().until_ended()).await;
    let mut caller = table.pool.begin().await.unwrap();
    let event = Arc::new(keyed(key()));
    add_one(&mut caller, &event, false, table.store.emission()).await.unwrap();
    assert_eq!(table.claim(&[first]).await.len(), 1);
    caller.rollback().await.unwrap();
}

/// What is rolled back leaves the key as it was: free, or the other event's.
#[tokio::test]
async fn a_rolled_back_emit_leaves_the_key() {
    let table = Table::new().await;
    let replaces = || Arc::new(keyed(key().on_conflict(OnConflict::Replace).remembered_for(HOUR)));
    let mut caller = table.pool.begin().await.unwrap();
    add_one(&mut caller, &replaces(), false, table.store.emission()).await.unwrap();
    caller.rollback().await.unwrap();
    assert_eq!((table.left().await, table.number("select count(*) from wakeq.unique_keys").await), (0, 0));

    let (first, _) = table.emit_key(key()).await;
    let claims = table.claim(&[first]).await;
    let mut caller = table.pool.begin().await.unwrap();
    let new = add_one(&mut caller, &replaces(), false, table.store.emission()).await.unwrap();
    assert!(matches!(new, InsertOutcome::New { .. }), "{new:?}");
    caller.rollback().await.unwrap();
    table.store.release(&claims).await.unwrap();
    assert_eq!(table.emit_key(key()).await, (first, UniqueOutcome::Kept), "it has its key again");
}

/// Others that emit with the key wait for a transaction that has it, and no longer than for a lock;
/// those without the key do not wait.
#[tokio::test]
async fn an_open_transaction_with_a_key_blocks_nobody_else() {
    let table = Table::with(StoreConfig::default()).await;
    let mut stranger = table.pool.begin().await.unwrap();
    add_one(&mut stranger, &Arc::new(keyed(key())), false, table.store.emission()).await.unwrap();
    let error = table.store.insert_unique(&keyed(key())).await.unwrap_err();
    assert_eq!(error.code().as_deref(), Some("55P03"));
    assert_eq!(table.emit_key(Unique::key("other").unwrap()).await.1, UniqueOutcome::Inserted);
    stranger.rollback().await.unwrap();
    assert_eq!(table.emit_key(key()).await.1, UniqueOutcome::Inserted);
}

/// The events of one call are dealt with in their order; two calls with the same keys in another
/// order wait for each other, but do not deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_batches_with_the_same_keys_do_not_deadlock() {
    let table = Table::new().await;
    let with = |number: usize| {
        let unique = Unique::key(&format!("k{}", number % 20)).unwrap().on_conflict(OnConflict::Replace);
        NewEvent { value: number.to_string(), ..keyed(unique) }
    };
    let plain = || NewEvent { unique: None, ..keyed(key()) };
    let forth: Vec<_> = (0..40).map(with).chain([plain()]).collect();
    let back: Vec<_> = (0..40).rev().map(with).chain([plain()]).collect();
    let inserted = table.store.insert_all(&forth, &[false; 41]).await.unwrap();
    let is_new = |inserted: &&InsertOutcome| matches!(inserted, InsertOutcome::New { .. });
    assert_eq!(inserted.iter().filter(is_new).count(), 21);
    assert!(inserted[..20].iter().all(|inserted| matches!(inserted, InsertOutcome::New { .. })));
    for (first, second) in forth.iter().zip(&inserted[20..40]) {
        let expected = InsertOutcome::Stands {
            id: first.id,
            outcome: UniqueOutcome::Replaced,
            due_soon: false,
            room: None,
        };
        assert_eq!(*second, expected);
    }
    assert_eq!(
        table.number("select min(value::bigint) from wakeq.events_v2 where unique_key is not null").await,
        20
    );
    for _ in 0..10 {
        let mut callers = tokio::task::JoinSet::new();
        for events in [forth.clone(), back.clone()] {
            let fresh: Vec<_> =
                events.into_iter().map(|event| NewEvent { id: EventId::new(), ..event }).collect();
            let store = table.store.clone();
            callers.spawn(async move { store.insert_all(&fresh, &[false; 41]).await.unwrap() });
        }
        callers.join_all().await;
    }
    assert_eq!((table.left().await, table.holders().await), (41, 20));
}

/// Copies in queues come with the event, once: neither a kept nor a replaced one makes more. The
/// key is the event's own.
#[tokio::test]
async fn queues_get_copies_of_the_first_event() {
    let table = emails(FacetSettings::default()).await;
    register(&table.store, "audit", &["email"], FacetSettings::default()).await;
    let email = || {
        let scope = HandlerScope { module: "email_event".parse().unwrap(), ..scope() };
        let address = HandlerAddress { scope, modifier: "_".parse().unwrap() };
        NewEvent { address, ..keyed(key().on_conflict(OnConflict::Replace)) }
    };
    let first = table.store.insert_unique(&email()).await.unwrap();
    assert_eq!(first.copies().len(), 2);
    let again = NewEvent { value: "2".into(), ..email() };
    assert_eq!(table.store.insert_unique(&again).await.unwrap().copies(), []);
    assert_eq!(
        table.number("select count(*) from wakeq.events_v2 where queue is not null and value = '1'").await,
        2
    );
    assert_eq!((table.left().await, table.holders().await), (3, 1));
}

/// An emit with a key reads a few pages beside 100,000 events and as many remembered keys, also
/// with plans that were made while the tables were empty.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_key_is_found_by_its_index() {
    let table = Table::of_one_connection().await;
    let pages = async |key: &str, conflict: &str| {
        let explain = format!(
            "explain (analyze, buffers, timing off) select w.* from wakeq.write_unique(
                 row(gen_random_uuid(), '{}', 'WORKER', 'known', '_', '1', now(), null, '{key}', interval '1 hour',
                     '{conflict}', null, null, null)::wakeq.unique_event, '{{}}', '{{}}', true, '10 min', '30 s') as w",
            CanvasId::DEFAULT
        );
        let mut session = table.store.session().await.unwrap();
        let query = sqlx::query_scalar::<_, String>(AssertSqlSafe(explain)).persistent(false);
        let lines = session.limit(|connection| query.fetch_all(connection)).await;
        buffers(&session.answered("explain", lines).await.unwrap().join("\n"), "")
    };
    for _ in 0..10 {
        for conflict in ["keep", "replace"] {
            pages("early", conflict).await;
        }
    }
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, unique_key)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', '_', '1', 'live:' || n
               from generate_series(1, 100000) n",
        )
        .await;
    table
        .run(
            "insert into wakeq.unique_keys (canvas_id, module, name, key, event_id, until)
             select '00000000-0000-0000-0000-000000000000', 'WORKER', 'known', 'ended:' || n, gen_random_uuid(),
                    now() + interval '1 hour'
               from generate_series(1, 100000) n",
        )
        .await;
    for (key, conflict) in
        [("new", "keep"), ("live:50000", "keep"), ("live:50000", "replace"), ("ended:50000", "keep")]
    {
        let read = pages(key, conflict).await;
        println!("{key}, {conflict}: {read} pages");
        assert!(read < 400, "{read} pages for {key}, {conflict}");
    }
    assert!(table.number("select count(*) from wakeq.events_v2 where unique_key = 'new'").await == 1);
}

/// An event without a key is in no index of keys, and its emit is the statement that it was.
#[tokio::test]
async fn an_event_without_a_key_pays_nothing() {
    let table = Table::of_one_connection().await;
    let plain = || Arc::new(NewEvent { unique: None, ..keyed(key()) });
    table.store.insert(&[plain()]).await.unwrap();
    table.store.insert(&[plain(), plain()]).await.unwrap();
    let mut session = table.store.session().await.unwrap();
    let naming = sqlx::query_scalar::<_, i64>(
        "select count(*) from pg_prepared_statements where statement ~ 'unique' and statement !~ 'pg_prepared'",
    );
    let naming = session.limit(|connection| naming.fetch_one(connection)).await;
    assert_eq!(session.answered("list statements", naming).await.unwrap(), 0);
    assert_eq!(
        table.number("select pg_relation_size('wakeq.events_v2_unique') / 8192").await,
        1,
        "its first page"
    );
}
