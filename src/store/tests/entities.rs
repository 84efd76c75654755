//! What is kept about events that were sent to entities, and for how long; and what a list of entities reads.

use super::Table;
use super::cost::{buffers, plan};
use crate::event::CanvasId;
use crate::store::Retention;

/// What was decided upon is forgotten with its age; what nobody decided upon yet stays, however old it is,
/// and what was decided upon late is kept as long as anything else.
#[tokio::test]
async fn what_became_of_events_is_forgotten_with_its_age() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                              status, sent_at, ended_at)
             select gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'account', 'ada', 'deposit', n, 0,
                    case when n = 1 then 'accepted' else 'failed' end,
                    now() - interval '8 days',
                    case when n > 1 then now() - case when n = 2 then interval '6 days' else interval '8 days' end end
               from generate_series(1, 1202) as n",
        )
        .await;
    assert!(table.store.expire(false, Retention::default()).await.unwrap(), "1,000 of 1,200");
    assert!(!table.store.expire(true, Retention::default()).await.unwrap());
    assert_eq!(table.number("select sum(link_id)::bigint from wakeq.entity_events").await, 1 + 2);
}

/// What followed from an event may still be answered while it waits, runs or is among the dead: until then it is known that it was
/// asked. What another canvas has under the same id holds nothing.
#[tokio::test]
async fn what_may_still_be_answered_is_not_forgotten() {
    let table = Table::new().await;
    // 1 waits, 2 is dead, 3 and 4 are other canvases'; 5 has ended.
    table
        .run(
            "insert into wakeq.entity_events (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev,
                                              status, sent_at, ended_at, follow_ups)
             select '00000000-0000-0000-0000-000000000000', gen_random_uuid(), gen_random_uuid(), 'account', 'ada', 'top_up', n, 0, 'processed',
                    now() - interval '8 days', now() - interval '8 days',
                    array[gen_random_uuid(), ('00000000-0000-4000-8000-00000000000' || n)::uuid]
               from generate_series(1, 5) as n",
        )
        .await;
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
             select ('00000000-0000-4000-8000-00000000000' || n)::uuid,
                    ('00000000-0000-0000-0000-00000000000' || case n when 1 then 0 else 7 end)::uuid, 'WORKER', 'charge', 'm', '1'
               from unnest(array[1, 3]) as n",
        )
        .await;
    table
        .run(
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                            last_error, cause)
             select ('00000000-0000-4000-8000-00000000000' || n)::uuid,
                    ('00000000-0000-0000-0000-00000000000' || case n when 2 then 0 else 7 end)::uuid, 'WORKER', 'charge', 'm', '1',
                    2, now(), 3, 0, 'no', 'retries'
               from unnest(array[2, 4]) as n",
        )
        .await;
    let left = "select sum(link_id)::bigint from wakeq.entity_events";
    assert!(!table.store.expire(false, Retention::default()).await.unwrap());
    assert_eq!(table.number(left).await, 1 + 2);
    // They are not looked at again at each pass; when they are, what has ended meanwhile goes.
    table.run("delete from wakeq.events_v2").await;
    assert!(!table.store.expire(true, Retention::default()).await.unwrap());
    assert_eq!(table.number(left).await, 1 + 2);
    table.run("update wakeq.entity_events set held_at = held_at - interval '8 days'").await;
    assert!(!table.store.expire(true, Retention::default()).await.unwrap());
    assert_eq!(table.number(left).await, 2);
}

/// A page of a list reads its rows and no others, wherever it begins, and whatever other types and canvases have.
#[tokio::test]
async fn a_page_of_entities_reads_no_more_than_the_page() {
    let table = Table::of_one_connection().await;
    table
        .run(
            "insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
             select kind, ('00000000-0000-0000-0000-00000000000' || canvas)::uuid, 'e' || lpad(n::text, 6, '0'), 1, 1,
                    to_jsonb(repeat(md5(n::text), 200))::text, 1, 1
               from unnest(array['account', 'order']) as kind, generate_series(0, 1) as canvas, generate_series(1, 5000) as n",
        )
        .await;
    table.run("vacuum analyze wakeq.entities").await;
    let (canvas, account) = (CanvasId::DEFAULT, "account".parse().unwrap());
    assert_eq!(table.store.list_entities(canvas, &account, None, 11).await.unwrap().len(), 11);
    for after in ["", "e002500", "e004989"] {
        let arguments = format!("'account', '{canvas}', '{after}', 11");
        let plan = plan(&table.store, "octet_length(state)", &arguments).await;
        assert!(plan.contains("Index Scan using entities_pkey") && plan.contains("rows=11 "), "{plan}");
        assert!(!plan.contains("Sort") && buffers(&plan, "Limit") < 30, "{plan}");
    }
}
