//! What the gauges of limits count: of a family all keys together, and each canvas by itself.

use wakeq::CanvasId;

use crate::support::{OTHER, Stage};

/// Definitions of a canvas and of the operator; of two holders one has lost its claim, and of three
/// events that wait one was told to come. Of one key, all were.
const IN_USE: &str = "
    insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
    values ('00000000-0000-0000-0000-000000000000', 'customer', 5, 't', 't'),
           ('00000000-0000-0000-0000-000000000000', 'customer:9', 5, 't', 't'),
           ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'customer', 5, 't', 't'),
           ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'handler:WORKER/greet', 5, 't', 't');
    update wakeq.events_v2 set locked_at = now(), claims = 1
     where id = (select id from wakeq.events_v2 order by id limit 1);
    insert into wakeq.limit_states (canvas_id, name, holders)
    select canvas::uuid, name, array(select id from wakeq.events_v2)
      from (values ('00000000-0000-0000-0000-000000000000', 'customer:7'),
                   ('ffffffff-ffff-ffff-ffff-ffffffffffff', 'handler:WORKER/greet')) as used (canvas, name);
    insert into wakeq.limit_states (canvas_id, name) values ('00000000-0000-0000-0000-000000000000', 'canvas');
    insert into wakeq.limit_waits (event_id, canvas_id, name, due, woken_at)
    select gen_random_uuid(), canvas::uuid, key, now(), case when number = 1 or key = 'customer:9' then now() end
      from (values ('00000000-0000-0000-0000-000000000000', 'customer:7'),
                   ('00000000-0000-0000-0000-000000000000', 'customer:8'),
                   ('00000000-0000-0000-0000-000000000000', 'customer:9'),
                   ('00000000-0000-0000-0000-000000000007', 'customer:7')) as waiting (canvas, key),
           generate_series(1, 3) as number";

#[tokio::test]
async fn limits_in_use_are_counted_by_their_names() {
    let (stage, _) = Stage::memory().await;
    assert!(stage.store.limit_depths().await.unwrap().is_empty());
    stage.emit_many("greet", 2).await;
    stage.execute(IN_USE).await;
    let depths = stage.store.limit_depths().await.unwrap();
    let mut found: Vec<_> =
        depths.iter().map(|of| (of.canvas, of.name.as_str(), of.running, of.waiting)).collect();
    found.sort_unstable();
    let expected = [
        (CanvasId::DEFAULT, "customer", 1, 6),
        (CanvasId::DEFAULT, "customer:9", 0, 3),
        (OTHER, "customer", 0, 3),
        (CanvasId::OF_QUEUES, "handler:WORKER/greet", 1, 0),
    ];
    assert_eq!(found, expected);
}
