//! What a store in memory has, and what it refuses, as `docs/testing.md` says.

use wakeq::control::{DeadFilter, ErrorGroupFilter, EventFilter};
use wakeq::events::EndedFilter;
use wakeq::testing::TestKit;
use wakeq::{CanvasId, Event};

use crate::support::{OTHER, scope};

/// The error says so, and no server is contacted.
#[tokio::test]
async fn rejects_what_the_memory_store_does_not_support() {
    let (kit, canvas, handler) = (TestKit::new(), CanvasId::DEFAULT, scope("h"));
    let admin = kit.admin();
    for refused in [
        admin.handlers(canvas, None, 10).await.map(drop),
        admin.stats(&handler).await.map(drop),
        admin.depth(canvas, None).await.map(drop),
        admin.last_attempts(&handler, None, 10).await.map(drop),
        admin.error_groups(canvas, &ErrorGroupFilter::default(), None, 10).await.map(drop),
        admin.batches(canvas, None, 10).await.map(drop),
        admin.workers(None, 10).await.map(drop),
        admin.queues().await.map(drop),
        admin.pulled_handlers(canvas, None, 10).await.map(drop),
        admin.programs(canvas, None, 10).await.map(drop),
        admin.crons(canvas, None, 10).await.map(drop),
        admin.hooks(canvas, None, 10).await.map(drop),
        admin.quotas(canvas).await.map(drop),
        admin.audit(canvas, None, 10).await.map(drop),
    ] {
        let expected = "a store in memory does not support this: give the test kit a database";
        assert_eq!(refused.unwrap_err().to_string(), expected);
    }
}

/// Each canvas has its own.
#[tokio::test]
async fn the_memory_store_lists_and_counts_what_it_has() {
    let (kit, canvas) = (TestKit::new(), CanvasId::DEFAULT);
    for event in [Event::new("h", &1).unwrap(), Event::new("h", &2).unwrap().canvas(OTHER)] {
        kit.emit(event).await.unwrap();
    }
    let (admin, all) = (kit.admin(), EventFilter::default());
    assert_eq!(admin.events(canvas, &all, None, 10).await.unwrap().items.len(), 1);
    assert_eq!(admin.count_events(canvas, &all, None).await.unwrap().count, 1);
    assert!(admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items.is_empty());
    assert!(admin.search_dead(canvas, &all, None, 10).await.unwrap().items.is_empty());
    assert!(admin.ended(&EndedFilter::default(), None, 10).await.unwrap().items.is_empty());
    assert!(admin.operations(canvas, None, 10).await.unwrap().items.is_empty());
    assert!(admin.limits(canvas, None, 10).await.unwrap().items.is_empty());
    assert!(admin.rules(None, 10).await.unwrap().items.is_empty());
    assert!(admin.halted(canvas, None, 10).await.unwrap().items.is_empty());
}
