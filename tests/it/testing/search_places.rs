//! Events found by their object and by their batch, and operations on those that are named by their
//! ids, in the kit's tables against Postgres. Another tenant has the same.

use std::time::Duration;

use wakeq::control::{Cursor, EventFilter, EventState, NewOperation, OperationKind};
use wakeq::testing::TestKit;
use wakeq::{AdminError, CanvasId, Event, EventId, HandlerError, Handlers, RetryPolicy, Route};

use super::on_postgres;
use crate::support::OTHER;

/// Six events of each tenant, of which the last is on another object. They are due in the opposite
/// order, and those with an even number are members of a batch. The third dies.
async fn fill(kit: &mut TestKit) -> Vec<EventId> {
    let once = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let fails = Route::new("mail").modifier("m2").retry(once);
    kit.handlers(Handlers::new().on(fails, |_event| async { Err::<(), _>(HandlerError::operational("no")) }))
        .unwrap();
    let mut ids = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let batch = kit.queue().batch("import:42").unwrap().canvas(canvas);
        batch.open(Event::new("imported", &1).unwrap().canvas(canvas)).await.unwrap();
        for number in 0..6_u32 {
            let object = if number == 5 { "work:2" } else { "work:1" };
            let name = if number % 2 == 0 { "mail" } else { "ship" };
            let event = Event::new(name, &number).unwrap().canvas(canvas);
            let event = event.modifier(&format!("m{number}")).unwrap();
            let event = match number {
                2 => event.batch("import:42").unwrap(),
                0 | 4 => event.on(object).unwrap().batch("import:42").unwrap(),
                _ => event.on(object).unwrap(),
            };
            let wait = Duration::from_secs(if number == 2 { 0 } else { 86_400 * u64::from(7 - number) });
            ids.push(kit.emit(event.after(wait).unwrap()).await.unwrap().id);
        }
    }
    kit.drain().await.unwrap();
    ids
}

/// The modifiers of what a filter selects, in pages of two.
async fn selected(kit: &TestKit, canvas: CanvasId, filter: &EventFilter) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), None::<Cursor>);
    loop {
        let page = kit.admin().events(canvas, filter, cursor.as_ref(), 2).await.unwrap();
        found.extend(page.items.iter().map(|event| event.address.modifier.to_string()));
        // As a caller sends it back.
        cursor = page.next.map(|next| next.to_string().parse().unwrap());
        if cursor.is_none() {
            return found;
        }
    }
}

fn filter(json: &str) -> EventFilter {
    serde_json::from_str(json).unwrap()
}

#[tokio::test]
async fn events_are_found_by_object_and_batch_on_both() {
    let (_stage, mut real) = on_postgres().await;
    let mut memory = TestKit::new();
    for kit in [&mut real, &mut memory] {
        fill(kit).await;
        for canvas in [CanvasId::DEFAULT, OTHER] {
            for (json, expected) in [
                (r#"{"object":"work:1"}"#, vec!["m0", "m1", "m3", "m4"]),
                (r#"{"object":"work:1/post:7","name":"ship"}"#, vec!["m1", "m3"]),
                (r#"{"object":"work:2"}"#, vec!["m5"]),
                (r#"{"object":"work:3"}"#, vec![]),
                (r#"{"batch":"import:42"}"#, vec!["m0", "m4"]),
                (r#"{"batch":"import:4"}"#, vec![]),
                (r#"{"batch":"import:42","object":"work:2"}"#, vec![]),
            ] {
                let filter = filter(json);
                assert_eq!(selected(kit, canvas, &filter).await, expected, "{json}");
                let counted = kit.admin().count_events(canvas, &filter, None).await.unwrap();
                assert_eq!((counted.count, counted.next), (expected.len() as u64, None), "{json}");
            }
            let died = filter(r#"{"batch":"import:42"}"#);
            let dead = kit.admin().search_dead(canvas, &died, None, 10).await.unwrap().items;
            assert_eq!((dead.len(), dead[0].address.modifier.as_str()), (1, "m2"));
            let counted = EventFilter { states: vec![EventState::Dead], ..died };
            assert_eq!(kit.admin().count_events(canvas, &counted, None).await.unwrap().count, 1);
            let none = filter(r#"{"object":"work:1"}"#);
            assert!(kit.admin().search_dead(canvas, &none, None, 10).await.unwrap().items.is_empty());
        }
        let elsewhere = CanvasId(uuid::Uuid::from_u128(0x5ea));
        assert!(selected(kit, elsewhere, &filter(r#"{"object":"work:1"}"#)).await.is_empty());
        assert!(selected(kit, elsewhere, &filter(r#"{"batch":"import:42"}"#)).await.is_empty());
        // A cursor of a list that has no object leads nowhere here.
        let of_batch = filter(r#"{"batch":"import:42"}"#);
        let admin = kit.admin();
        let next = admin.events(CanvasId::DEFAULT, &of_batch, None, 1).await.unwrap().next.unwrap();
        let text = next.to_string();
        let without: Cursor = text[..text.rfind('~').unwrap()].parse().unwrap();
        let on_object = filter(r#"{"object":"work:1"}"#);
        let refused = admin.events(CanvasId::DEFAULT, &on_object, Some(&without), 1).await;
        assert!(matches!(refused, Err(AdminError::Cursor)), "{refused:?}");
    }
}

#[tokio::test]
async fn named_events_are_counted_on_both() {
    let (_stage, mut real) = on_postgres().await;
    let mut memory = TestKit::new();
    for kit in [&mut real, &mut memory] {
        let ids = fill(kit).await;
        // One that waits, the dead one, one of another tenant, and one that is nowhere.
        let named = [ids[0], ids[2], ids[6], EventId::new()];
        for (kind, count) in
            [(OperationKind::Cancel, 1), (OperationKind::Redrive, 1), (OperationKind::RunNow, 1)]
        {
            let new = NewOperation::of_ids(kind, named);
            let preview = kit.admin().preview_operation(CanvasId::DEFAULT, &new, 100).await.unwrap();
            assert_eq!((preview.count, preview.looked_at, preview.more), (count, 4, false), "{new:?}");
        }
    }
}
