//! Layers around handlers: what a run passes, and what decides about its event.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use uuid::Uuid;
use wakeq::machine::Outcome;
use wakeq::testing::TestKit;
use wakeq::workers::{BoxedHandler, Completion, Next, RemoteHandler, RemoteHandlers, Verdict};
use wakeq::{
    Event, Execution, HandlerAddress, HandlerError, HandlerResult, Handlers, QueueWorker, RetryPolicy, Route,
    StoreError, WorkerConfig,
};

use crate::queues::turns;
use crate::support::handlers::recording;
use crate::support::{OTHER, RunningWorker, Stage};

/// What layers and handlers did, in order.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<String>>>);

impl Steps {
    fn note(&self, step: impl Into<String>) {
        self.0.lock().unwrap().push(step.into());
    }

    /// The steps since the last call.
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// A layer that changes nothing.
    fn layer(
        &self,
        name: &'static str,
    ) -> impl Fn(Execution, Next) -> BoxFuture<'static, HandlerResult<Completion>> + Send + Sync + 'static + use<>
    {
        let steps = self.clone();
        move |execution: Execution, next: Next| -> BoxFuture<'static, HandlerResult<Completion>> {
            let steps = steps.clone();
            Box::pin(async move {
                steps.note(format!("into {name}"));
                let result = next.run(execution).await;
                steps.note(format!("out of {name}"));
                result
            })
        }
    }

    /// A handler that completes.
    fn handler(
        &self,
    ) -> impl Fn(Execution) -> BoxFuture<'static, HandlerResult> + Send + Sync + 'static + use<> {
        let steps = self.clone();
        move |_event: Execution| -> BoxFuture<'static, HandlerResult> {
            steps.note("handler");
            Box::pin(async { Ok(()) })
        }
    }
}

fn kit(handlers: Handlers) -> TestKit {
    let mut kit = TestKit::new();
    kit.handlers(handlers).unwrap();
    kit
}

fn greeting() -> Event {
    Event::new("greet", "Ada").unwrap()
}

#[tokio::test]
async fn a_run_passes_the_layers_in_their_order() {
    let steps = Steps::default();
    let handlers = Handlers::new()
        .layer(steps.layer("first"))
        .on("greet", steps.handler())
        .layer(steps.layer("second"))
        .tower_layer(ConcurrencyLimitLayer::new(1));
    let kit = kit(handlers);
    for event in [greeting(), greeting().canvas(OTHER)] {
        assert_eq!(kit.perform(event).await.unwrap().error, None);
        assert_eq!(steps.taken(), ["into first", "into second", "handler", "out of second", "out of first"]);
    }
}

/// One that does not call the rest ends the run by itself, and one that calls it twice runs the
/// handler twice.
#[tokio::test]
async fn what_a_layer_returns_decides_about_the_event() {
    let steps = Steps::default();
    let handlers = Handlers::new()
        .layer(async |execution: Execution, next: Next| {
            if execution.address.scope.canvas == OTHER {
                return Err(HandlerError::value("not on this canvas"));
            }
            next.clone().run(execution.clone()).await?;
            next.run(execution).await
        })
        .on("greet", steps.handler());
    let kit = kit(handlers);
    let refused = kit.perform(greeting().canvas(OTHER)).await.unwrap();
    assert_eq!(refused.error.as_deref(), Some("not on this canvas"));
    assert!(refused.trail.contains(&Outcome::ExecutesToCompletion), "{:?}", refused.trail);
    assert_eq!(steps.taken(), [""; 0]);
    assert_eq!(kit.perform(greeting()).await.unwrap().error, None);
    assert_eq!(steps.taken(), ["handler", "handler"]);
}

#[tokio::test]
async fn a_panic_in_a_layer_counts_as_the_handlers() {
    let handlers = Handlers::new()
        .layer(|_execution, _next| -> std::future::Ready<HandlerResult<Completion>> {
            panic!("in the layer")
        })
        .on("greet", async |_| Ok(()));
    let report = kit(handlers).perform(greeting()).await.unwrap();
    assert_eq!(report.error.as_deref(), Some("panicked: in the layer"));
    assert_eq!(report.trail.last(), Some(&Outcome::RetryAllowed));
}

#[tokio::test(start_paused = true)]
async fn a_routes_time_out_includes_its_layers() {
    let handlers = Handlers::new()
        .layer(async |execution: Execution, next: Next| {
            tokio::time::sleep(Duration::from_secs(4)).await;
            next.run(execution).await
        })
        .on(Route::new("greet").timeout(Duration::from_secs(5)), async |_| {
            tokio::time::sleep(Duration::from_secs(4)).await;
            Ok(())
        });
    let report = kit(handlers).perform(greeting()).await.unwrap();
    assert_eq!(report.error.as_deref(), Some("timed out after 5s"));
}

/// What the handler says comes through tower's layers, and their own errors are retried.
#[tokio::test(start_paused = true)]
async fn layers_of_tower_stand_between_ours() {
    let steps = Steps::default();
    let handlers = Handlers::new()
        .layer(steps.layer("first"))
        .tower_layer(TimeoutLayer::new(Duration::from_secs(5)))
        .layer(steps.layer("last"))
        .on("late", async |_| std::future::pending::<HandlerResult>().await)
        .on("refuses", async |_| HandlerResult::<()>::Err(HandlerError::value("no address")))
        .on("fails", async |_| {
            HandlerResult::<()>::Err(HandlerError::operational("busy").retry_after(Duration::from_secs(420)))
        });
    let kit = kit(handlers);
    let perform = async |name: &str| kit.perform(Event::new(name, &1).unwrap()).await.unwrap();
    let late = perform("late").await;
    assert_eq!(late.error.as_deref(), Some("request timed out"));
    assert_eq!(late.trail.last(), Some(&Outcome::RetryAllowed));
    assert_eq!(steps.taken(), ["into first", "into last", "out of first"]);
    let refused = perform("refuses").await;
    assert_eq!(refused.error.as_deref(), Some("no address"));
    assert_eq!(refused.trail.last(), Some(&Outcome::Deleted));
    let failed = perform("fails").await;
    let waits = Verdict::Waits(Duration::from_secs(420));
    assert_eq!((failed.error.as_deref(), failed.verdict), (Some("busy"), waits));
}

#[tokio::test]
async fn the_handlers_of_registered_queues_have_the_layers_too() {
    let (stage, _) = Stage::memory().await;
    turns::register(&stage, 1, None).await;
    let steps = Steps::default();
    let handlers = Handlers::new().layer(steps.layer("layer")).on_queue(turns::QUEUE, steps.handler());
    let mut worker = stage.worker(handlers);
    for canvas in [wakeq::CanvasId::DEFAULT, OTHER] {
        stage.queue.emit(turns::email(canvas, 1)).await.unwrap();
        worker.until_count(1, Outcome::Deleted).await;
        assert_eq!(steps.taken(), ["into layer", "handler", "out of layer"]);
    }
    worker.stop().await;
}

/// A handler that is not a function of the program.
struct Elsewhere(BoxedHandler);

impl RemoteHandlers for Elsewhere {
    fn find<'a>(
        &'a self,
        _address: &'a HandlerAddress,
    ) -> BoxFuture<'a, Result<Option<RemoteHandler>, StoreError>> {
        let handler = RemoteHandler {
            keep: wakeq::events::Keep::default(),
            run: Arc::clone(&self.0),
            retry: RetryPolicy::default(),
            timeout: Duration::from_secs(10),
            concurrency: None,
            halts: false,
            revision: Uuid::nil(),
        };
        Box::pin(async { Ok(Some(handler)) })
    }
}

/// A target gets what was emitted, whatever layers the program has.
#[tokio::test]
async fn handlers_elsewhere_have_no_layers() {
    let (stage, _) = Stage::memory().await;
    let steps = Steps::default();
    let (elsewhere, mut seen) = recording();
    let handlers = Handlers::new().layer(steps.layer("layer")).on("here", steps.handler());
    let (store, notifier) = (stage.store.clone(), stage.notifier.clone());
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default()).unwrap();
    let elsewhere: BoxedHandler = Arc::new(move |event| {
        let running = elsewhere(event);
        Box::pin(async move { running.await.map(|()| Completion::default()) })
    });
    let mut worker = RunningWorker::of(worker.remote_handlers(Elsewhere(elsewhere)));
    worker.until(stage.emit("there").await, Outcome::Deleted).await;
    assert_eq!((seen.rest().len(), steps.taken()), (1, Vec::new()));
    worker.until(stage.emit("here").await, Outcome::Deleted).await;
    assert_eq!((seen.rest().len(), steps.taken().len()), (0, 3));
    worker.stop().await;
}
