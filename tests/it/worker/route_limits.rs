//! Limits that routes ask for: a worker sets them when it starts, where they are not set already.

use wakeq::limits::{Limit, LimitName, NewLimit};
use wakeq::machine::Outcome;
use wakeq::{Actor, CanvasId, Event, Handlers, Route};

use crate::support::{OTHER, RunningWorker, Stage, scope};

fn at_a_time(concurrency: u32) -> NewLimit {
    NewLimit { concurrency: Some(concurrency), ..NewLimit::default() }
}

fn greet() -> LimitName {
    LimitName::of_handler(&scope("greet"))
}

async fn set(stage: &Stage, canvas: CanvasId) -> Option<Limit> {
    stage.admin.limit(canvas, &greet()).await.unwrap()
}

/// A worker with this route, once it has started: it has run an event.
async fn started(stage: &Stage, route: Route) -> RunningWorker {
    let mut worker = stage.worker(Handlers::new().on(route, |_| async { Ok(()) }));
    let id = stage.emit("greet").await;
    worker.until(id, Outcome::Deleted).await;
    worker
}

#[tokio::test]
async fn a_worker_sets_the_limit_of_a_route_unless_it_is_set() {
    let (stage, _) = Stage::memory().await;
    let route = || Route::new("greet").limit(at_a_time(5));
    started(&stage, route()).await.stop().await;
    let first = set(&stage, CanvasId::OF_QUEUES).await.unwrap();
    assert_eq!(first.definition, at_a_time(5));
    assert!(first.created_by.starts_with("worker:"), "{first:?}");
    for canvas in [CanvasId::DEFAULT, OTHER] {
        assert_eq!(set(&stage, canvas).await, None, "it is the operator's");
    }

    started(&stage, route()).await.stop().await;
    started(&stage, Route::new("greet")).await.stop().await;
    assert_eq!(set(&stage, CanvasId::OF_QUEUES).await, Some(first), "it stays as it was");
    let lines = "select count(*) from wakeq.audit_log where action = 'put-limit' and canvas_id is null";
    assert_eq!(stage.count(lines).await, 1);

    let (three, ada) = (at_a_time(3), Actor::user("ada"));
    stage.admin.put_limit(CanvasId::OF_QUEUES, &greet(), &three, &ada).await.unwrap();
    started(&stage, Route::new("greet")).await.stop().await;
    assert_eq!(set(&stage, CanvasId::OF_QUEUES).await.unwrap().definition, three);
    started(&stage, route()).await.stop().await;
    let again = set(&stage, CanvasId::OF_QUEUES).await.unwrap();
    assert_eq!((again.definition, again.created_by), (at_a_time(5), first_worker(&stage).await));
}

/// Who set the operator's limit first.
async fn first_worker(stage: &Stage) -> String {
    let first = "select actor from wakeq.audit_log where action = 'put-limit' order by id limit 1";
    sqlx::query_scalar(first).fetch_one(&stage.pool).await.unwrap()
}

/// A canvas can't keep a worker from starting, whatever limits it has set.
#[tokio::test]
async fn a_canvas_with_all_its_limits_stops_no_worker() {
    let (stage, _) = Stage::memory().await;
    let fill = "insert into wakeq.limits (canvas_id, name, concurrency, created_by, updated_by)
                select $1, 'full-' || number, 5, 'tests', 'tests' from generate_series(1, 1000) as number";
    sqlx::query(fill).bind(OTHER.0).execute(&stage.pool).await.unwrap();
    let theirs = Route::new("greet").canvas(OTHER).limit(at_a_time(1));
    let handlers = Handlers::new().on(theirs, |_| async { Ok(()) }).on("greet", |_| async { Ok(()) });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("greet").await;
    worker.until(id, Outcome::Deleted).await;
    assert_eq!((set(&stage, OTHER).await, set(&stage, CanvasId::DEFAULT).await), (None, None));
    worker.stop().await;
}

/// The limit of a route for one canvas is that canvas's, and holds no other up.
#[tokio::test]
async fn the_limit_of_a_route_for_a_canvas_is_the_canvass() {
    let (stage, _) = Stage::memory().await;
    let mut worker = started(&stage, Route::new("greet").canvas(CanvasId::DEFAULT).limit(at_a_time(1))).await;
    assert_eq!(set(&stage, CanvasId::DEFAULT).await.unwrap().definition, at_a_time(1));
    for canvas in [OTHER, CanvasId::OF_QUEUES] {
        assert_eq!(set(&stage, canvas).await, None);
    }
    let theirs = stage.queue.emit(Event::new("greet", &1).unwrap().canvas(OTHER)).await.unwrap();
    let left = worker.until(theirs.id, Outcome::Deferred).await;
    assert!(left.trail.contains(&Outcome::HandlerUnknown), "{left:?}");
    worker.stop().await;
}
