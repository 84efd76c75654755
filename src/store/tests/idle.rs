//! Unused data is deleted, and nothing else.

use std::time::Duration;

use super::Table;
use super::cost::{buffers, plan};
use crate::store::IdleRetention;

const DAY: Duration = Duration::from_secs(24 * 3600);
const KEPT: IdleRetention = IdleRetention { objects: DAY, entity_events: DAY, keys: DAY };

/// The same objects on two canvases; the second uses all of its own.
async fn objects(table: &Table) {
    table
        .run(
            "insert into wakeq.objects (canvas_id, object, last_seq, state, state_at)
             select ('00000000-0000-0000-0000-00000000000' || canvas)::uuid, object,
                    case when canvas = 2 or object = 'used' then 100 else 5 end,
                    case when object = 'state' then '1' end, case when object = 'state' then now() end
               from generate_series(1, 2) canvas, unnest(array['idle', 'used', 'state', 'waits', 'dead', 'halted']) object",
        )
        .await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev)
             values (gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 'm', 'n', '_', '1', 'waits', 5, 0)",
        )
        .await;
    table
        .run(
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause,
                                            object, seq, prev)
             values (gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 'm', 'n', '_', '1', 0, now(), 1, 0, 'poison',
                     'dead', 5, 0)",
        )
        .await;
    table
        .run(
            "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev)
             values ('00000000-0000-0000-0000-000000000001', 'halted', 'm', 'n', gen_random_uuid(), 5, 0)",
        )
        .await;
}

/// Tombstones are deleted by age, unless events on their object may still follow; and the oldest of
/// a canvas with too many, at no other canvas's expense.
#[tokio::test]
async fn tombstones_go_by_age_and_by_number() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.tombstones (canvas_id, object, seq, prev, cause, left_at)
             select ('00000000-0000-0000-0000-00000000000' || canvas)::uuid, object, 5, 0, 'dead', now() - left_for
               from generate_series(1, 2) canvas,
                    (values ('old', interval '2 days'), ('waits', interval '2 days'), ('copied', interval '2 days'),
                            ('new', interval '1 hour')) as x (object, left_for)",
        )
        .await;
    objects(&table).await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, object, seq, prev, queue, origin)
             values (gen_random_uuid(), '00000000-0000-0000-0000-000000000001', 'm', 'n', '_', '1', 'copied', 5, 0, 'q', gen_random_uuid())",
        )
        .await;
    table.store.expire_tombstones(DAY).await.unwrap();
    let left = "select count(*) from wakeq.tombstones where right(canvas_id::text, 1) || object in ('1waits', '1copied', '1new', '2new')";
    assert_eq!(
        (table.number(left).await, table.number("select count(*) from wakeq.tombstones").await),
        (4, 4)
    );

    table
        .run(
            "insert into wakeq.tombstones (canvas_id, object, seq, prev, cause, left_at)
             select '00000000-0000-0000-0000-000000000002', 'many', n, 0, 'dead', now() - interval '1 hour' + n * interval '1 ms'
               from generate_series(1, 100500) n",
        )
        .await;
    table.store.expire_tombstones(DAY).await.unwrap();
    let of_canvas =
        "select count(*) from wakeq.tombstones where canvas_id = '00000000-0000-0000-0000-000000000002'";
    assert_eq!(table.number(of_canvas).await, 100_000);
    assert_eq!(table.number("select min(seq) from wakeq.tombstones where object = 'many'").await, 501);
    assert_eq!(table.number(left).await, 3, "the other canvas has its own");
}

#[tokio::test]
async fn deletes_only_unused_objects() {
    let table = Table::new().await;
    objects(&table).await;
    table.store.expire_idle(false, KEPT).await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.objects").await, 12, "nobody knows how old they are");
    assert_eq!(table.number("select count(*) from wakeq.idle_marks").await, 1);
    table.run("insert into wakeq.idle_marks values (now() - interval '25 hours', 10)").await;
    table.store.expire_idle(false, KEPT).await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.objects").await, 12, "once an hour");
    table.store.expire_idle(true, KEPT).await.unwrap();
    let left = "select array_agg(object::text order by object::text collate \"C\")
                     = array['dead', 'halted', 'state', 'used', 'waits']
                  from wakeq.objects where canvas_id = '00000000-0000-0000-0000-000000000001'";
    assert!(table.holds(left).await);
    assert_eq!(
        table.number("select count(*) from wakeq.objects").await,
        11,
        "those of the other canvas stay"
    );
}

/// However many objects and halted lanes there are, a page of the search looks up its own objects.
#[tokio::test]
async fn the_search_for_unused_objects_reads_a_page_of_them() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.objects (canvas_id, object, last_seq)
             select '00000000-0000-0000-0000-000000000001'::uuid, 'o' || n, 5 from generate_series(1, 20000) n
              union all
             select '00000000-0000-0000-0000-000000000002', 'o' || n, 5 from generate_series(1, 20) n",
        )
        .await;
    table
        .run(
            "insert into wakeq.halted_lanes (canvas_id, object, module, name, event_id, seq, prev, queue)
             select canvas_id, object, 'm', 'n', gen_random_uuid(), 5, 0, case when right(object, 1) = '1' then 'q' end
               from wakeq.objects where canvas_id = '00000000-0000-0000-0000-000000000001'",
        )
        .await;
    table.run("insert into wakeq.idle_marks values (now() - interval '25 hours', 10)").await;
    table.run("vacuum analyze wakeq.objects").await;
    table.run("vacuum analyze wakeq.halted_lanes").await;
    while table.store.expire_idle(true, KEPT).await.unwrap() {}
    let left = "select count(*) from wakeq.objects where canvas_id = '00000000-0000-0000-0000-000000000001'";
    assert_eq!(table.number(left).await, 20_000);
    assert_eq!(table.number("select count(*) from wakeq.objects").await, 20_000, "the other canvas has none");
    let plan = plan(&table.store, "from looked l", "true, '1 day', 5000, '1 day', '1 day'").await;
    let pages = buffers(&plan, "Delete on objects");
    println!("pages for 5,000 objects: {pages}");
    assert!((5_000..100_000).contains(&pages), "{pages} pages: {plan}");
}

/// Events that the processor of a type has not reached yet stay. Those that no processor ever read
/// are deleted by age, on all canvases.
#[tokio::test]
async fn events_of_types_without_a_processor_are_forgotten() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev, sent_at)
             select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), type, 'ada', 'poke', 1, 0, now() - age * interval '1 hour'
               from unnest(array['account', 'nosuch', 'accounts']) type, unnest(array[23, 25]) age",
        )
        .await;
    table
        .run("insert into wakeq.consumer_positions (consumer_group, source) values ('account', 'category/entities:account.inbox')")
        .await;
    table.store.expire_idle(false, KEPT).await.unwrap();
    let left = "select array_agg(entity_type::text order by entity_type::text) = array['account', 'account', 'accounts', 'nosuch']
                  from wakeq.entity_events";
    assert!(table.holds(left).await);
}

#[tokio::test]
async fn revoked_and_expired_keys_are_deleted() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.access_keys (id, secret_sha256, canvas_id, holder, scopes, created_at, created_by, expires_at, revoked_at,
                                            revoked_by)
             select lpad(n::text, 12, '0'), sha256('x'), gen_random_uuid(), 'h', '{read}', now() - interval '1 year', 'test',
                    now() + case n when 1 then interval '1 day' when 2 then interval '-23 hours' when 3 then interval '-25 hours'
                            else interval '1 day' end,
                    case when n = 4 then now() - interval '25 hours' end, case when n = 4 then 'test' end
               from generate_series(1, 4) n",
        )
        .await;
    table.store.expire_idle(false, KEPT).await.unwrap();
    assert!(
        table
            .holds("select array_agg(right(id, 1) order by id) = array['1', '2'] from wakeq.access_keys")
            .await
    );
}
