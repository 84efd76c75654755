//! Handlers that receive a value of their own type, and the state that they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::Deserialize;
use serde_json::json;
use wakeq::machine::Outcome;
use wakeq::testing::TestKit;
use wakeq::{Event, Execution, HandlerResult, Handlers, QueueWorker, WorkerConfig};

use crate::queues::turns;
use crate::support::{OTHER, RunningWorker, Stage, once};

/// The state of a program.
#[derive(Clone, Default)]
struct App {
    sum: Arc<AtomicI64>,
}

impl App {
    fn add(&self, amount: i64) {
        self.sum.fetch_add(amount, Ordering::SeqCst);
    }

    fn sum(&self) -> i64 {
        self.sum.load(Ordering::SeqCst)
    }
}

#[derive(Deserialize)]
struct Payment {
    cents: i64,
}

async fn pay(app: App, payment: Payment, execution: Execution) -> HandlerResult {
    assert_eq!(execution.attempt, 1);
    app.add(payment.cents);
    Ok(())
}

fn kit(handlers: impl Into<Handlers>) -> TestKit {
    let mut kit = TestKit::new();
    kit.handlers(handlers).unwrap();
    kit
}

#[tokio::test]
async fn handlers_receive_the_state_that_was_set_before_them() {
    let (first, second) = (App::default(), App::default());
    let handlers = Handlers::new()
        .on_value("greet", async |name: String, _event: Execution| {
            assert_eq!(name, "Ada");
            Ok(())
        })
        .state(first.clone())
        .on_value("pay", pay)
        .on("count", async |app: App, _event: Execution| {
            app.add(1000);
            Ok(())
        })
        .state(second.clone())
        .on_value("pay-elsewhere", pay);
    let kit = kit(handlers);
    let payment = json!({ "cents": 7 });
    kit.emit(Event::new("greet", "Ada").unwrap()).await.unwrap();
    kit.emit(Event::new("pay", &payment).unwrap()).await.unwrap();
    kit.emit(Event::new("pay", &payment).unwrap().canvas(OTHER)).await.unwrap();
    kit.emit(Event::new("count", &payment).unwrap()).await.unwrap();
    kit.emit(Event::new("pay-elsewhere", &payment).unwrap()).await.unwrap();
    kit.drain().await.unwrap().assert_all_fine(5);
    assert_eq!((first.sum(), second.sum()), (1014, 7));
}

/// With or without a state, it ends among the dead events with the words of `Execution::value`.
#[tokio::test]
async fn a_value_that_does_not_fit_is_an_operational_error() {
    let app = App::default();
    let handlers = Handlers::new()
        .on_value(once("number"), async |_number: i64, _event: Execution| Ok(()))
        .state(app.clone())
        .on_value(once("pay"), pay);
    let kit = kit(handlers);
    for (name, words) in [("number", "invalid type: string"), ("pay", "missing field `cents`")] {
        let value = if name == "pay" { json!({ "dollars": 7 }) } else { json!("seven") };
        let report = kit.perform(Event::new(name, &value).unwrap()).await.unwrap();
        let error = report.error.unwrap();
        assert!(error.starts_with("the event's value does not fit the handler: "), "{error}");
        assert!(error.contains(words), "{error}");
        assert!(report.trail.contains(&Outcome::RetryTooMany), "{:?}", report.trail);
    }
    assert_eq!((app.sum(), kit.dead().await.unwrap().len()), (0, 2));
}

/// A worker takes the list as it is, with a handler for a queue that has the state, too.
#[tokio::test]
async fn a_worker_runs_handlers_with_state() {
    let (stage, _) = Stage::memory().await;
    turns::register(&stage, 1, None).await;
    let app = App::default();
    let handlers =
        Handlers::new().state(app.clone()).on_queue(turns::QUEUE, async |app: App, event: Execution| {
            app.add(event.value()?);
            Ok(())
        });
    let (store, notifier) = (stage.store.clone(), stage.notifier.clone());
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default()).unwrap();
    let mut worker = RunningWorker::of(worker);
    let copies = [wakeq::CanvasId::DEFAULT, OTHER].map(|canvas| turns::email(canvas, 3));
    stage.queue.emit_all(copies.to_vec()).await.unwrap();
    worker.until_count(2, Outcome::Deleted).await;
    assert_eq!(app.sum(), 6);
    worker.stop().await;
}
