//! What waits for a limit, selected by a filter, in the kit's tables and on Postgres: by key, by
//! the limit of a handler and by that of the canvas, page by page; and another tenant's under the
//! same names.

use wakeq::control::{Cursor, EventFilter, EventState, NewOperation, OperationKind};
use wakeq::limits::{NewLimit, Rate};
use wakeq::testing::TestKit;
use wakeq::{Actor, CanvasId, Event, EventId, Handlers};

use super::limits::{KILO, event};
use super::on_postgres;
use crate::support::{OTHER, until};

/// Events of `sync` that wait for a key, and one of another handler that waits for the same.
const WAITING: usize = 5;

async fn put(kit: &TestKit, canvas: CanvasId, name: &str, limit: NewLimit) {
    let ada = Actor::user("ada");
    kit.admin().put_limit(canvas, &name.parse().unwrap(), &limit, &ada).await.unwrap();
}

fn waits_for(limit: &str) -> EventFilter {
    EventFilter { waits_for: Some(limit.parse().unwrap()), ..EventFilter::default() }
}

/// The ids that a filter selects, in pages of two, sorted. Nothing else is looked at if an index
/// finds them.
async fn found(kit: &TestKit, canvas: CanvasId, filter: &EventFilter, by_index: bool) -> Vec<EventId> {
    let (mut found, mut looked_at, mut cursor) = (Vec::new(), 0, None::<Cursor>);
    loop {
        let page = kit.admin().events(canvas, filter, cursor.as_ref(), 2).await.unwrap();
        looked_at += page.looked_at;
        found.extend(page.items.iter().map(|event| event.id));
        // As a caller sends it back.
        cursor = page.next.map(|next| next.to_string().parse().unwrap());
        if cursor.is_none() {
            break;
        }
    }
    let counted = kit.admin().count_events(canvas, filter, None).await.unwrap();
    assert_eq!((counted.count, counted.next), (found.len() as u64, None), "{filter:?}");
    if by_index {
        assert_eq!(looked_at, found.len() as u64, "{filter:?}");
    }
    found.sort_unstable();
    found
}

/// Emits events in their order of due times, and returns the ids sorted.
async fn emit(kit: &TestKit, canvas: CanvasId, count: usize, event: impl Fn() -> Event) -> Vec<EventId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(kit.emit(event().canvas(canvas)).await.unwrap().id);
    }
    ids.sort_unstable();
    ids
}

/// One event of a tenant has each place, and others wait: for a key, for the handler, for a rate.
struct Waiting {
    of_key: Vec<EventId>,
    of_handler: Vec<EventId>,
    of_rate: Vec<EventId>,
}

async fn fill(kit: &TestKit, canvas: CanvasId) -> Waiting {
    let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
    let slowly = NewLimit { rate: Some(Rate::new(1, KILO / 20)), ..NewLimit::default() };
    for (name, limit) in [("customer", one), ("handler:WORKER/report", one), ("api", slowly)] {
        put(kit, canvas, name, limit).await;
    }
    let report = || Event::new("report", "ok").unwrap();
    for first in [event(&["customer:7"]), report()] {
        // It keeps its place: nobody completes it.
        drop(kit.start_elsewhere(first.canvas(canvas)).await.unwrap());
    }
    let mail = || Event::new("mail", "ok").unwrap().limit("customer:7").unwrap();
    let mut of_key = emit(kit, canvas, WAITING, || event(&["customer:7"])).await;
    of_key.extend(emit(kit, canvas, 1, mail).await);
    of_key.sort_unstable();
    let of_handler = emit(kit, canvas, 3, report).await;
    // The first one starts, and the next two are told when to come.
    let of_rate = emit(kit, canvas, 4, || event(&["api"])).await;
    emit(kit, canvas, 2, || event(&["customer:8"])).await;
    Waiting { of_key, of_handler, of_rate }
}

async fn are_found_by_their_limit(mut kit: TestKit) {
    let mut handlers = Handlers::new();
    for name in ["sync", "mail", "report"] {
        handlers = handlers.on(name, |_| async { Ok(()) });
    }
    kit.handlers(handlers).unwrap();
    let mut all = Vec::new();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        all.push((canvas, fill(&kit, canvas).await));
    }
    kit.drain().await.unwrap();
    for (canvas, Waiting { of_key, of_handler, of_rate }) in &all {
        let found = async |filter: &EventFilter, by_index| found(&kit, *canvas, filter, by_index).await;
        assert_eq!(found(&waits_for("customer:7"), true).await, *of_key);
        assert_eq!(found(&waits_for("handler:WORKER/report"), false).await, *of_handler);
        let rated = found(&waits_for("api"), true).await;
        assert!(rated.len() == 3 && rated.iter().all(|id| of_rate.contains(id)), "{rated:?}");
        for none in ["customer", "customer:8", "canvas", "handler:WORKER/sync", "handler:WORKER/none"] {
            assert_eq!(found(&waits_for(none), false).await, [], "{none}");
        }
        let of_mail = EventFilter { name: Some("mail".parse().unwrap()), ..waits_for("customer:7") };
        assert_eq!(found(&of_mail, false).await.len(), 1);
        let delayed = EventFilter { states: vec![EventState::Delayed], ..waits_for("customer:7") };
        assert_eq!(found(&delayed, false).await, []);
        let dead = EventFilter { states: vec![EventState::Dead], ..waits_for("customer:7") };
        assert_eq!(kit.admin().count_events(*canvas, &dead, None).await.unwrap().count, 0);
    }
    cancels_what_waits(&kit, &all).await;
}

/// An operation on what waits for a key leaves the other tenant's, and all that waits for others.
async fn cancels_what_waits(kit: &TestKit, all: &[(CanvasId, Waiting)]) {
    let ada = Actor::user("ada");
    for (limit, count) in [("customer:7", WAITING + 1), ("handler:WORKER/report", 3)] {
        let cancel = NewOperation::new(OperationKind::Cancel, waits_for(limit));
        let preview = kit.admin().preview_operation(CanvasId::DEFAULT, &cancel, 1_000).await.unwrap();
        assert_eq!((preview.count, preview.more), (count as u64, false), "{limit}");
    }
    let cancel = NewOperation::new(OperationKind::Cancel, waits_for("customer:7"));
    let begun = kit.admin().begin_operation(CanvasId::DEFAULT, &cancel, &ada).await.unwrap();
    let has_ended = async || {
        let operation = kit.admin().operation(CanvasId::DEFAULT, begun.id).await.unwrap();
        operation.ended_at.map(|_| operation.changed)
    };
    assert_eq!(until("the operation ends", has_ended).await, WAITING as u64 + 1);
    assert_eq!(found(kit, CanvasId::DEFAULT, &waits_for("customer:7"), true).await, []);
    let (theirs, waiting) = &all[1];
    assert_eq!(found(kit, *theirs, &waits_for("customer:7"), true).await, waiting.of_key);
    let reports = found(kit, CanvasId::DEFAULT, &waits_for("handler:WORKER/report"), false).await;
    assert_eq!(reports, all[0].1.of_handler);
}

#[tokio::test]
async fn events_that_wait_for_a_limit_are_found_on_both() {
    are_found_by_their_limit(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    are_found_by_their_limit(kit).await;
}
