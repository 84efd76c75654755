//! Quotas of what takes too long to count: a sample stands for it, a canvas that drains goes on,
//! and one that fills is stopped.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::Table;
use super::cost::{buffers, plan};
use crate::event::{CanvasId, Event, HandlerAddress, HandlerScope, NewEvent, NewLimit, Quota};
use crate::store::kernel::usage::{QuotaPair, Quotas};
use crate::store::{Additions, Store, StoreConfig, StoreError};

/// It can be counted, in all tests.
const OTHER: CanvasId = CanvasId(Uuid::from_u128(0xf0));

/// Tables in which the server stops each count of the default canvas, but no sample. It may keep
/// 4,000 events, and has none; the other one may keep 5,500, and has 5,000.
async fn uncountable() -> Table {
    let config = StoreConfig {
        statement_timeout: Duration::from_secs(60),
        lock_timeout: Duration::from_secs(4),
        ..StoreConfig::default()
    };
    let mut table = Table::with(config).await;
    table.store.quotas = Arc::new(Quotas::patient());
    table.run("create sequence public.counts").await;
    // A count asks for the limits at its beginning.
    table
        .run(
            "create or replace function wakeq.quota_of(canvas uuid, what text, usual bigint) returns bigint
             language plpgsql stable as $$
             begin
                 if canvas = '00000000-0000-0000-0000-000000000000' and current_query() like 'with %limits as %' then
                     perform nextval('public.counts');
                     raise query_canceled using message = 'canceling statement due to statement timeout';
                 end if;
                 return coalesce((select most from wakeq.canvas_quotas q where q.canvas_id = canvas and q.quota = what),
                                 usual);
             end $$",
        )
        .await;
    table
        .run(
            "insert into wakeq.canvas_quotas (canvas_id, quota, most, set_by)
             values ('00000000-0000-0000-0000-000000000000', 'events', 4000, 'test'),
                    ('00000000-0000-0000-0000-0000000000f0', 'events', 5500, 'test')",
        )
        .await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
             select gen_random_uuid(), '00000000-0000-0000-0000-0000000000f0', 'WORKER', 'known', '_', '1'
               from generate_series(1, 5000)",
        )
        .await;
    table
}

/// How often it was tried to count the default canvas.
async fn counts(table: &Table) -> i64 {
    table.number("select case when is_called then last_value else 0 end from public.counts").await
}

/// Asks whether a canvas has room for this many events.
async fn admit(store: &Store, canvas: CanvasId, count: usize) -> Result<(), StoreError> {
    let scope = HandlerScope::worker(canvas, "known").unwrap();
    let event = || {
        let address = HandlerAddress { scope: scope.clone(), modifier: "_".parse().unwrap() };
        NewEvent::new(address, "1".into())
    };
    let events: Vec<_> = std::iter::repeat_with(event).take(count).collect();
    store.admit(canvas, &Additions::by(&events)[&canvas]).await
}

/// Five times as many events as it may keep pass through the canvas. Only one caller has waited for
/// a count, even of two that ask at once.
#[tokio::test]
async fn a_canvas_that_drains_goes_on_while_it_cannot_be_counted() {
    let table = uncountable().await;
    admit(&table.store, CanvasId::DEFAULT, 1_000).await.unwrap();
    assert_eq!(counts(&table).await, 0);
    let both = tokio::join!(
        admit(&table.store, CanvasId::DEFAULT, 500),
        admit(&table.store, CanvasId::DEFAULT, 500)
    );
    assert!(matches!(both, (Ok(()), Ok(()))), "{both:?}");
    for passed in 2..20 {
        let admitted = admit(&table.store, CanvasId::DEFAULT, 1_000).await;
        assert!(admitted.is_ok(), "after {passed},000: {admitted:?}");
    }
    let quotas = table.store.quotas(CanvasId::DEFAULT).await.unwrap();
    assert!(quotas.iter().all(|quota| quota.used <= 4_000), "{quotas:?}");
    // Each of the six pairs of quotas was counted once, five of them for the list.
    assert_eq!(counts(&table).await, 6);
}

/// A sample sees the rows that are really there, of the canvas alone. Once they are gone, the
/// canvas goes on.
#[tokio::test]
async fn a_canvas_that_fills_is_stopped_while_it_cannot_be_counted() {
    let table = uncountable().await;
    let mut kept = 0;
    let refused = loop {
        match admit(&table.store, CanvasId::DEFAULT, 500).await {
            Ok(()) => kept += table.add(500).await.len(),
            Err(refused) => break refused,
        }
        assert!(kept <= 4_000, "{kept} events");
    };
    let StoreError::Quota(exceeded) = &refused else { panic!("{refused:?}") };
    assert_eq!((kept, exceeded.used, exceeded.limit), (4_000, 4_000, 4_000));
    // The other one is counted.
    admit(&table.store, OTHER, 1_000).await.unwrap();
    let refused = admit(&table.store, OTHER, 501).await.unwrap_err();
    let StoreError::Quota(exceeded) = &refused else { panic!("{refused:?}") };
    assert_eq!((exceeded.canvas, exceeded.used, exceeded.limit), (OTHER, 5_000, 5_500));
    table.run("delete from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'").await;
    wakeq_testbed::wait_while!(
        admit(&table.store, CanvasId::DEFAULT, 500).await.is_err(),
        "it drained, and is still refused"
    );
    assert_eq!(counts(&table).await, 1);
}

/// Of a table with few pages all are read: then a sample finds what a count does, for every quota
/// and on each of two canvases.
#[tokio::test]
async fn a_sample_of_everything_finds_what_a_count_does() {
    let table = Table::new().await;
    table
        .run(
            "create table public.rows as
             select n, case n % 4 when 0 then '00000000-0000-0000-0000-0000000000f0'::uuid
                                  else '00000000-0000-0000-0000-000000000000' end as c,
                    case n % 4 when 0 then '12345' else '1' end as v
               from generate_series(1, 400) n",
        )
        .await;
    for fill in [
        "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, last_error)
         select gen_random_uuid(), c, 'WORKER', 'h' || n % 5, '_', v, 'no' from public.rows",
        "insert into wakeq.dead_events (canvas_id, id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                        last_error, cause)
         select c, gen_random_uuid(), 'WORKER', 'h' || n % 5, '_', v, 0, now(), 1, 0, 'oh', 'poison' from public.rows",
        "insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome,
                                         error, enqueued_at, due_at, claims, retries, losses, attempts, options)
         select c, gen_random_uuid(), now() + (1 + n % 80) * interval '1 day', 'WORKER', 'h', '_', v, '1', 'failed',
                'oh', now(), now(), 1, 0, 0, '[]', '{}' from public.rows",
        "insert into wakeq.checkpoints (canvas_id, event_id, claims, value)
         select c, gen_random_uuid(), 1, v from public.rows",
        "insert into wakeq.objects (canvas_id, object, last_seq, state, state_at)
         select c, 'o' || n, n, v, now() from public.rows",
        "insert into wakeq.emitted_ids (canvas_id, id) select c, gen_random_uuid() from public.rows",
        "insert into wakeq.idempotency_keys (canvas_id, holder, key, fingerprint, answer)
         select c, 'ada', n::text, '1', '1' from public.rows",
        "insert into wakeq.unique_keys (canvas_id, module, name, key, event_id, until)
         select c, 'WORKER', 'h', n::text, gen_random_uuid(), now() from public.rows",
        "insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value)
         select c, 'b' || n, gen_random_uuid(), 'WORKER', 'h', '_', '1' from public.rows",
        "insert into wakeq.limit_states (canvas_id, name) select c, 'k:' || n from public.rows",
        "insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, started_at, took_us)
         select c, gen_random_uuid(), n, 1, 'retried', now(), 1 from public.rows",
        "insert into wakeq.log_streams (canvas_id, category, stream, position, last_seq)
         select c, 'work', 'o' || n, 0, n from public.rows",
        "insert into wakeq.entities (canvas_id, entity_type, id, version, last_link)
         select c, 'account', 'o' || n, 1, 1 from public.rows",
        "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                          status, ended_at)
         select c, gen_random_uuid(), gen_random_uuid(), 'account', 'o' || n, 'poke', n, n - 1,
                case when n % 3 = 0 then 'processed' else 'accepted' end, case when n % 3 = 0 then now() end
           from public.rows",
        "insert into wakeq.audit_log (canvas_id, actor, action, outcome)
         select c, case when n % 5 = 0 then 'unauthenticated' else 'ada' end, 'pause', 'done' from public.rows",
    ] {
        assert_eq!(table.run(fill).await, 400);
    }
    // Values and checkpoints of 1 or 5 bytes, waiting and dead events with two bytes more, and
    // ended ones with seven.
    let expected = [
        (QuotaPair::Waiting, [900, 4_500], [300, 3_100]),
        (QuotaPair::Objects, [300, 300], [100, 500]),
        (QuotaPair::Remembered, [300, 1_200], [100, 400]),
        (QuotaPair::Log, [300, 0], [100, 0]),
        (QuotaPair::Entities, [300, 200], [100, 67]),
        (QuotaPair::Record, [240, 0], [80, 0]),
    ];
    assert_eq!(expected.map(|(measured, ..)| measured), QuotaPair::ALL);
    let attempts = (QuotaPair::Attempts, [300, 0], [100, 0]);
    for (measured, own, others) in expected.into_iter().chain([attempts]) {
        for (canvas, used) in [(CanvasId::DEFAULT, own), (OTHER, others)] {
            let sampled = table.store.sample_usage(canvas, measured, 500).await.unwrap();
            assert_eq!(sampled.0, used, "{measured:?} of {canvas}");
            let counted = table.store.count_usage(canvas, measured).await.unwrap();
            assert_eq!(sampled, counted, "{measured:?} of {canvas}");
        }
    }
}

/// Its attempts are counted, once it has added some, and no more of them are recorded than the
/// bound says: of each canvas by itself, and again when some have expired.
#[tokio::test]
async fn a_canvas_has_room_for_so_many_attempts() {
    let mut table = Table::new().await;
    table.store.bound_attempts(1_500);
    let (store, free) = (&table.store, 1_000);
    table.add_attempts(CanvasId::DEFAULT, 1_500).await;
    table.add_attempts(OTHER, 400).await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        assert!((0..free).all(|_| store.has_room_for_attempt(canvas)), "before the first look");
    }
    wakeq_testbed::wait_while!(store.has_room_for_attempt(CanvasId::DEFAULT), "it has as many as it may");
    assert!(store.has_room_for_attempt(OTHER));
    table.run("delete from wakeq.attempts where number > 100").await;
    wakeq_testbed::wait_while!(!store.has_room_for_attempt(CanvasId::DEFAULT), "they are gone");
}

/// An event that names a key of a limit.
fn keyed(canvas: CanvasId, key: &str) -> NewEvent {
    let scope = HandlerScope::worker(canvas, "known").unwrap();
    let address = HandlerAddress { scope, modifier: "_".parse().unwrap() };
    let options = Event::new("known", &1).unwrap().limit(key).unwrap().options;
    NewEvent { options, ..NewEvent::new(address, "1".into()) }
}

/// A key of a limit takes room until its row of use is gone; one that has a row takes none. One
/// without a limit counts as well, as its limit may be set before it runs.
#[tokio::test]
async fn keys_of_limits_are_remembered_keys() {
    let mut table = Table::new().await;
    table.store.quotas = Arc::new(Quotas::patient());
    let set = "insert into wakeq.canvas_quotas (canvas_id, quota, most, set_by)
               select c, 'idempotency-keys', 1100, 'test'
                 from unnest(array['00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-0000000000f0']::uuid[]) c";
    table.run(set).await;
    let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
    for canvas in [CanvasId::DEFAULT, OTHER] {
        table.limit(canvas, "crew", one).await;
    }
    table
        .run(
            "insert into wakeq.limit_states (canvas_id, name)
             select '00000000-0000-0000-0000-000000000000', 'crew:' || n from generate_series(1, 1100) n",
        )
        .await;
    let admit = async |canvas, keys: std::ops::Range<u32>, family: &str| {
        let events: Vec<_> = keys.map(|key| keyed(canvas, &format!("{family}:{key}"))).collect();
        table.store.admit(canvas, &Additions::by(&events)[&canvas]).await
    };
    admit(CanvasId::DEFAULT, 0..1_000, "crew").await.unwrap();
    let refused = admit(CanvasId::DEFAULT, 2_000..2_001, "crew").await.unwrap_err();
    let StoreError::Quota(exceeded) = &refused else { panic!("{refused:?}") };
    assert_eq!((exceeded.quota, exceeded.used, exceeded.wanted), (Quota::IdempotencyKeys, 1_100, 1));
    admit(CanvasId::DEFAULT, 7..8, "crew").await.expect("it has a row");
    let refused = admit(CanvasId::DEFAULT, 2_000..2_100, "later").await.unwrap_err();
    assert!(matches!(&refused, StoreError::Quota(exceeded) if exceeded.wanted == 100), "{refused:?}");
    admit(OTHER, 0..1_000, "crew").await.unwrap();
    admit(OTHER, 2_000..2_001, "crew").await.expect("that of another canvas");
}

/// Under an old snapshot a sample reads as many pages as ever, and rows that are gone count for
/// nothing.
#[tokio::test]
async fn rows_that_an_old_snapshot_keeps_are_not_in_a_sample() {
    let table = Table::of_one_connection().await;
    let mut snapshot = table.pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select from wakeq.events_v2").execute(&mut *snapshot).await.unwrap();
    let add = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
               select gen_random_uuid(), case n % 4 when 0 then '00000000-0000-0000-0000-0000000000f0'::uuid
                                                    else '00000000-0000-0000-0000-000000000000' end,
                      'WORKER', 'known', '_', '1'
                 from generate_series(1, 20000) n";
    table.run(add).await;
    table.run(add).await;
    table.run("delete from wakeq.events_v2").await;
    table.run(add).await;
    let pages = table.number("select pg_relation_size('wakeq.events_v2') / 8192").await;
    assert!(pages > 2_000, "{pages} pages");
    for (canvas, live) in [(CanvasId::DEFAULT, 15_000), (OTHER, 5_000)] {
        let ([found, _], _) = table.store.sample_usage(canvas, QuotaPair::Waiting, 500).await.unwrap();
        // Some 86 in a hundred are expected, with a standard error of 7.
        assert!((live * 50 / 100..live * 130 / 100).contains(&found), "{found} of {live}");
    }
    let plan =
        plan(&table.store, "wakeq.events_v2 tablesample", &format!("'{}', 500", CanvasId::DEFAULT)).await;
    assert!(plan.contains("Sample Scan on events_v2"), "{plan}");
    assert!(buffers(&plan, "") < 800, "{plan}");
    snapshot.rollback().await.unwrap();
}
