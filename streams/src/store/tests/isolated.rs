//! Isolated entities: per canvas, and written only by the owner of the type.

use super::Table;
use crate::event::{EntityId, EntityType, IsolatedStep};
use crate::store::positions::PositionMove;
use crate::store::{BatchEnd, EntityBatch};
use wakeq::log::EventSource;
use wakeq::{CanvasId, Name};

const OTHER: CanvasId = CanvasId(uuid::Uuid::from_u128(7));

/// The rows: canvas, how far they have come, suspect, and losses.
async fn rows(table: &Table) -> Vec<(uuid::Uuid, i64, Option<i64>, i32)> {
    let rows = "select canvas_id, after, suspect, losses from wakeq.entity_asides order by canvas_id";
    sqlx::query_as(rows).fetch_all(&table.pool).await.unwrap()
}

/// Nothing is written under another epoch than the owner's, or if the position is elsewhere; and
/// writes about an entity leave that of another canvas alone.
// Shows: ENT-X1
#[tokio::test]
async fn isolation_is_per_canvas_and_written_by_the_owner() {
    let table = Table::new().await;
    let entity_type: EntityType = "account".parse().unwrap();
    let (group, source): (Name, EventSource) = ("entities.account".parse().unwrap(), entity_type.source());
    let store = &table.store;
    assert_eq!(store.open_position(&group, &source, 3).await.unwrap(), Some(0));
    store.own_entities(&entity_type, 3).await.unwrap();
    let held = PositionMove { group: &group, source: &source, epoch: 3, from: 0, to: 0 };
    let [own, other] =
        [CanvasId::DEFAULT, OTHER].map(|canvas| EntityId::new(canvas, "account", "ada").unwrap());
    for foreign in [PositionMove { epoch: 2, ..held }, PositionMove { from: 1, to: 1, ..held }] {
        assert!(!store.isolate_entity(&foreign, &own, 9, (5, 1)).await.unwrap());
    }
    assert_eq!(rows(&table).await, []);
    assert!(store.isolate_entity(&held, &own, 9, (5, 1)).await.unwrap());
    assert!(store.isolate_entity(&held, &own, 99, (6, 2)).await.unwrap(), "it stays as it was");
    assert!(store.isolate_entity(&held, &other, 9, (5, 0)).await.unwrap());
    let isolated = store.isolated_entities(&entity_type).await.unwrap();
    let known: Vec<_> = isolated.iter().map(|one| (one.canvas, one.after, one.single_through)).collect();
    assert_eq!(known, [(CanvasId::DEFAULT, 0, 9), (OTHER, 0, 9)]);
    assert_eq!(store.isolated_entities(&"order".parse().unwrap()).await.unwrap(), []);
    assert_eq!(store.suspect_isolated(&own, 2, 5).await.unwrap(), None, "another epoch");
    assert_eq!(store.suspect_isolated(&own, 3, 5).await.unwrap(), Some(2));
    assert_eq!(store.suspect_isolated(&other, 3, 7).await.unwrap(), Some(1));
    assert_eq!(store.suspect_isolated(&own, 3, 5).await.unwrap(), Some(3));
    store.uncount_isolated_attempt(&own, 2).await.unwrap();
    store.uncount_isolated_attempt(&own, 3).await.unwrap();
    let (first, second) = (CanvasId::DEFAULT.0, OTHER.0);
    assert_eq!(rows(&table).await, [(first, 0, Some(5), 2), (second, 0, Some(7), 1)]);
    assert_eq!(store.suspect_isolated(&own, 3, 6).await.unwrap(), Some(1), "another event");
}

/// An entity is taken back once nothing that was sent to it is left, up to the position; what was
/// sent to the entity of the same name on another canvas does not count.
#[tokio::test]
async fn an_entity_is_taken_back_when_nothing_is_left() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload)
             select seq, 0, canvas::uuid, 'entities:account.inbox', 'ada', 0, 0, gen_random_uuid(), 'deposit', '1'
               from (values (5, '00000000-0000-0000-0000-000000000007'), (8, '00000000-0000-0000-0000-000000000000')) as l (seq, canvas)",
        )
        .await;
    let entity_type: EntityType = "account".parse().unwrap();
    let (group, source): (Name, EventSource) = ("entities.account".parse().unwrap(), entity_type.source());
    let store = &table.store;
    store.open_position(&group, &source, 3).await.unwrap();
    let mut held = PositionMove { group: &group, source: &source, epoch: 3, from: 0, to: 6 };
    let [own, other] =
        [CanvasId::DEFAULT, OTHER].map(|canvas| EntityId::new(canvas, "account", "ada").unwrap());
    for entity in [&own, &other] {
        assert!(store.isolate_entity(&held, entity, 9, (5, 1)).await.unwrap());
    }
    assert!(store.move_position(&held).await.unwrap());
    held.from = 6;
    assert!(!store.take_entity_back(&PositionMove { epoch: 2, ..held }, &own).await.unwrap());
    assert!(!store.take_entity_back(&PositionMove { from: 5, ..held }, &own).await.unwrap());
    assert!(!store.take_entity_back(&held, &other).await.unwrap(), "5 is left");
    assert!(store.take_entity_back(&held, &own).await.unwrap(), "8 is behind the position");
    assert_eq!(rows(&table).await, [(OTHER.0, 0, Some(5), 1)]);
}

/// A batch takes only its own canvas's entity further.
#[tokio::test]
async fn a_batch_advances_the_entity_of_its_canvas() {
    let table = Table::new().await;
    let entity_type: EntityType = "account".parse().unwrap();
    let (group, source): (Name, EventSource) = ("entities.account".parse().unwrap(), entity_type.source());
    let store = &table.store;
    store.open_position(&group, &source, 3).await.unwrap();
    let held = PositionMove { group: &group, source: &source, epoch: 3, from: 0, to: 0 };
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let entity = EntityId::new(canvas, "account", "ada").unwrap();
        assert!(store.isolate_entity(&held, &entity, 9, (5, 1)).await.unwrap());
    }
    let batch = EntityBatch {
        entity_type: &entity_type,
        shape: 1,
        position: held,
        stored: Vec::new(),
        entities: Vec::new(),
        decided: Vec::new(),
        passed: Vec::new(),
        isolated: Some(IsolatedStep { canvas: OTHER, id: "ada".parse().unwrap(), after: 5 }),
        events: Vec::new(),
    };
    assert!(matches!(store.commit_entities(&batch).await.unwrap(), BatchEnd::Committed(..)));
    assert_eq!(rows(&table).await, [(CanvasId::DEFAULT.0, 0, Some(5), 1), (OTHER.0, 5, None, 0)]);
}
