//! The history in the kit, in memory and on Postgres: attempts, results, and what is kept for how
//! long.

use std::time::Duration;

use wakeq::control::Explanation;
use wakeq::events::{EndedFilter, EndedOutcome, Keep};
use wakeq::testing::TestKit;
use wakeq::workers::Completion;
use wakeq::{Actor, CanvasId, Event, Execution, HandlerError, HandlerResult, Handlers, Route};

use super::on_postgres;
use crate::support::OTHER;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Fails once, if its value says so, and then does what that says.
async fn work(event: Execution) -> HandlerResult<Completion> {
    match event.value::<String>()?.as_str() {
        "fails first" if event.attempt == 1 => Err(HandlerError::operational("no route")),
        "nothing to do" => Err(HandlerError::value("no address")),
        value => Completion::with_result(value),
    }
}

async fn keeps_what_was_asked_for(mut kit: TestKit) {
    let route = Route::new("work").keep(Keep { failed: 2 * DAY, ..Keep::all(DAY) });
    kit.handlers(Handlers::new().on(route, work).on("plain", work)).unwrap();
    let event = |name: &str, value: &str| Event::new(name, value).unwrap();
    let first = kit.emit(event("work", "fails first")).await.unwrap().id;
    let failed = kit.emit(event("work", "nothing to do")).await.unwrap().id;
    let unkept = kit.emit(event("work", "done").keep(Duration::ZERO).unwrap()).await.unwrap().id;
    let only_failed = Keep { failed: DAY, ..Keep::default() };
    let unasked = kit.emit(event("work", "done").keep(only_failed).unwrap()).await.unwrap().id;
    let asked = kit.emit(event("plain", "done").keep(3 * DAY).unwrap()).await.unwrap().id;
    let later = event("plain", "done").keep(DAY).unwrap().after(DAY).unwrap();
    let cancelled = kit.emit(later).await.unwrap().id;
    let admin = kit.admin().clone();
    admin.cancel(CanvasId::DEFAULT, cancelled, &Actor::user("ada")).await.unwrap();
    kit.drain_for(Duration::from_secs(3600)).await.unwrap();

    let all = EndedFilter::default();
    let list = async |filter: &EndedFilter| {
        let page = admin.ended(filter, None, 100).await.unwrap();
        page.items.into_iter().map(|event| (event.id, event.outcome)).collect::<Vec<_>>()
    };
    let found = list(&all).await;
    let kept = [
        (first, EndedOutcome::Completed),
        (failed, EndedOutcome::Failed),
        (asked, EndedOutcome::Completed),
        (cancelled, EndedOutcome::Cancelled),
    ];
    assert_eq!(found.len(), kept.len(), "{found:?}");
    assert!(kept.iter().all(|event| found.contains(event)), "{found:?}");
    let only = EndedFilter { outcome: Some(EndedOutcome::Cancelled), ..all.clone() };
    assert_eq!(list(&only).await, [(cancelled, EndedOutcome::Cancelled)]);

    let attempts = admin.attempts(CanvasId::DEFAULT, first).await.unwrap();
    assert_eq!((attempts.len(), attempts[0].number, attempts[0].outcome.as_str()), (1, 1, "retried"));
    assert_eq!(attempts[0].error.as_deref(), Some("no route"));
    let result = admin.result(CanvasId::DEFAULT, first).await.unwrap();
    assert_eq!(result.as_deref(), Some(r#""fails first""#));
    let value = admin.value(CanvasId::DEFAULT, failed).await.unwrap();
    assert_eq!(value.as_deref(), Some(r#""nothing to do""#));
    let Explanation::Ended(ended) = kit.explain(failed).await.unwrap() else { panic!("it is kept") };
    assert_eq!((ended.error.as_deref(), ended.claims), (Some("no address"), 1));
    for id in [unkept, unasked] {
        assert_eq!(kit.explain(id).await.unwrap(), Explanation::Unknown);
    }

    assert_eq!(list(&EndedFilter { canvas: OTHER, ..all.clone() }).await, []);
    assert_eq!(admin.attempts(OTHER, first).await.unwrap(), []);
    assert_eq!(admin.result(OTHER, first).await.unwrap(), None);
    assert_eq!(admin.explain(OTHER, first).await.unwrap(), Explanation::Unknown);

    kit.advance(DAY + Duration::from_secs(3600)).await.unwrap();
    let mut left = list(&all).await;
    left.retain(|(id, _)| *id == first || *id == cancelled);
    assert_eq!(left, [], "their time is over");
    assert_eq!(list(&all).await.len(), 2);
}

#[tokio::test]
async fn in_memory_events_are_kept_as_was_asked_for() {
    keeps_what_was_asked_for(TestKit::new()).await;
}

#[tokio::test]
async fn on_postgres_events_are_kept_as_was_asked_for() {
    let (_stage, kit) = on_postgres().await;
    keeps_what_was_asked_for(kit).await;
}

/// A result that is too long, which no retry would shorten.
#[tokio::test]
async fn an_event_with_too_long_a_result_dies_and_says_why() {
    let mut kit = TestKit::new();
    let long = |_event: Execution| async { Completion::with_result(&"x".repeat(70_000)) };
    kit.handlers(Handlers::new().on("work", long)).unwrap();
    let id = kit.emit(Event::new("work", &1).unwrap()).await.unwrap().id;
    kit.drain().await.unwrap();
    let Explanation::Dead(dead) = kit.explain(id).await.unwrap() else { panic!("it is dead") };
    assert_eq!(dead.cause, "rejected");
    let error = dead.last_error.unwrap();
    assert!(error.contains("the limit is 65536: store it elsewhere"), "{error}");
}
