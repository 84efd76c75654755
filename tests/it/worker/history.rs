//! Events that are kept when a worker ends them, also in a transaction of their handlers.

use std::time::Duration;

use wakeq::events::{EndedFilter, EndedOutcome, Keep};
use wakeq::machine::Outcome;
use wakeq::workers::Completion;
use wakeq::{CanvasId, Event, Execution, HandlerError, Handlers, Route};

use crate::support::{OTHER, Stage};

fn kept() -> Route {
    Route::new("book").keep(Keep::all(Duration::from_secs(3600)))
}

#[tokio::test]
async fn an_event_that_ends_in_its_handlers_transaction_is_kept_by_that() {
    let (stage, _) = Stage::memory().await;
    stage
        .execute("create table bookings (id bigint generated always as identity, event uuid not null)")
        .await;
    let pool = stage.pool.clone();
    let book = move |event: Execution| {
        let pool = pool.clone();
        async move {
            let mut transaction = pool.begin().await?;
            let insert = "insert into bookings (event) values ($1) returning id";
            let booking: i64 =
                sqlx::query_scalar(insert).bind(event.id.0).fetch_one(&mut *transaction).await?;
            let completion = Completion::with_result(&booking)?;
            event.complete_as_in(&mut transaction, &completion).await?;
            transaction.commit().await?;
            Ok::<_, HandlerError>(completion)
        }
    };
    let mut worker = stage.worker(Handlers::new().on(kept(), book));
    let id = stage.emit("book").await;
    worker.until(id, Outcome::Deleted).await;
    let result = stage.admin.result(CanvasId::DEFAULT, id).await.unwrap();
    assert_eq!((result.as_deref(), stage.rows().await), (Some("1"), 0));
    assert_eq!(stage.admin.result(OTHER, id).await.unwrap(), None);
    worker.stop().await;
}

/// The next event of an object has its turn after one that is kept.
#[tokio::test]
async fn kept_events_on_an_object_run_one_after_the_other() {
    let (stage, _) = Stage::memory().await;
    let number = |event: Execution| async move { Completion::with_result(&event.value::<u32>()?) };
    let handlers = Handlers::new().on(kept(), number);
    let mut worker = stage.worker(handlers);
    let event = |number: u32| Event::new("book", &number).unwrap().on("work:1").unwrap();
    let emitted = stage.queue.emit_all(vec![event(1), event(2)]).await.unwrap();
    assert_eq!(emitted.len(), 2);
    worker.until_count(2, Outcome::HandedOver).await;
    let page = stage.admin.ended(&EndedFilter::default(), None, 100).await.unwrap();
    assert_eq!(page.items.len(), 2);
    assert!(page.items.iter().all(|event| event.outcome == EndedOutcome::Completed && event.place.is_some()));
    assert!(page.items.iter().all(|event| event.worker.is_some() && event.ran.is_some()));
    worker.stop().await;
}
