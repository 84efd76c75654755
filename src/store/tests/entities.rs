//! What is kept about events that were sent to entities, and for how long.

use super::Table;
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
