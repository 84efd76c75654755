//! Events that were told to come for a place and are removed, replaced or due later: in the kit's
//! tables and on Postgres, the place is the next one's.

use std::time::Duration;

use wakeq::control::{EventFilter, Explanation, NewOperation, OperationKind};
use wakeq::events::{Due, OnConflict, Unique};
use wakeq::limits::NewLimit;
use wakeq::machine::CheckResult;
use wakeq::testing::TestKit;
use wakeq::{Actor, CanvasId, Event, EventId, Execution, HandlerResult, Handlers};

use super::on_postgres;
use crate::support::{OTHER, scope, wait_while};

/// What takes the event of `sync` away.
#[derive(Clone, Copy, Debug)]
enum Removal {
    Purge,
    Operation,
    LaterDue,
    Replacement,
}

async fn ends(_: Execution) -> HandlerResult {
    Ok(())
}

fn event(name: &str, canvas: CanvasId) -> Event {
    Event::new(name, &1).unwrap().limit("customer:7").unwrap().canvas(canvas)
}

/// The event that is to be taken away.
fn taken_away(canvas: CanvasId) -> Event {
    let unique = Unique::key("next").unwrap().on_conflict(OnConflict::Replace);
    event("sync", canvas).unique(unique).unwrap()
}

async fn remove(kit: &TestKit, removal: Removal, id: EventId, ada: &Actor) {
    match removal {
        Removal::LaterDue => {
            let later = Due::After(Duration::from_secs(3600));
            kit.admin().set_due(CanvasId::DEFAULT, id, later, ada).await.unwrap();
        }
        Removal::Replacement => {
            let later = taken_away(CanvasId::DEFAULT).after(Duration::from_secs(3600)).unwrap();
            assert_eq!(kit.emit(later).await.unwrap().id, id);
        }
        Removal::Purge => assert_eq!(kit.admin().purge(&scope("sync"), ada, false).await.unwrap().count, 1),
        Removal::Operation => {
            let filter = EventFilter { name: Some("sync".parse().unwrap()), ..EventFilter::default() };
            let delete = NewOperation::new(OperationKind::Delete, filter);
            let begun = kit.admin().begin_operation(CanvasId::DEFAULT, &delete, ada).await.unwrap();
            let read = async || kit.admin().operation(CanvasId::DEFAULT, begun.id).await.unwrap();
            wait_while!(read().await.ended_at.is_none(), "it does not end");
            assert_eq!(read().await.changed, 1);
        }
    }
}

/// Whether an event waits and was not told to come.
async fn waits(kit: &TestKit, canvas: CanvasId, id: EventId) -> bool {
    match kit.admin().explain(canvas, id).await.unwrap() {
        Explanation::Live(live) => live.state == CheckResult::Limited,
        Explanation::Dead(_) | Explanation::Ended(_) | Explanation::Gone { .. } | Explanation::Unknown => {
            panic!("{id} is gone")
        }
    }
}

async fn leaves_its_place(mut kit: TestKit, removal: Removal) {
    kit.handlers(Handlers::new().on("sync", ends).on("print", ends)).unwrap();
    let (ada, one) = (Actor::user("ada"), NewLimit { concurrency: Some(1), ..NewLimit::default() });
    let (mut running, mut next, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    for canvas in [CanvasId::DEFAULT, OTHER] {
        kit.admin().put_limit(canvas, &"customer".parse().unwrap(), &one, &ada).await.unwrap();
        running.push(kit.start_elsewhere(event("sync", canvas)).await.unwrap());
        next.push(kit.emit(taken_away(canvas)).await.unwrap().id);
    }
    kit.advance(Duration::from_secs(10)).await.unwrap();
    for canvas in [CanvasId::DEFAULT, OTHER] {
        behind.push((canvas, kit.emit(event("print", canvas)).await.unwrap().id));
    }
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.attempts(), drained.waiting), (0, 6), "two run elsewhere, and four wait");
    for running in running {
        running.complete().await.unwrap();
    }
    let waiting = async || {
        let mut waiting = Vec::new();
        for (canvas, id) in &behind {
            waiting.push(waits(&kit, *canvas, *id).await);
        }
        waiting
    };
    assert_eq!(waiting().await, [true, true], "{removal:?}: the places are kept for those before");
    remove(&kit, removal, next[0], &ada).await;
    assert_eq!(waiting().await, [false, true], "{removal:?}: on its canvas alone");
}

#[tokio::test]
async fn a_removed_event_leaves_its_place_to_the_next() {
    for removal in [Removal::Purge, Removal::Operation, Removal::LaterDue, Removal::Replacement] {
        leaves_its_place(TestKit::new(), removal).await;
        let (_stage, kit) = on_postgres().await;
        leaves_its_place(kit, removal).await;
    }
}
