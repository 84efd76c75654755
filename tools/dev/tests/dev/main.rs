//! `cargo dev` as a process, known by the lines that it prints.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, which says if it is skipped")]

mod demo;
mod running;

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;
use wakeq::{
    CanvasId, Event, EventId, Execution, HandlerResult, Handlers, Queue, QueueConfig, QueueWorker,
    WorkerConfig,
};

use running::{Home, PRINTED_WITHIN};

/// Far more than a share of the notifications would hide.
const EVENTS: usize = 20;

/// What is tried: a failed attempt, a dead event, a handler that nobody has, and quick events, for
/// which the worker opens another stream and is still alone. Then a worker of another program,
/// which needs no option of `cargo dev` to get every event, its other tenants' too.
#[tokio::test(flavor = "multi_thread")]
async fn it_says_what_failed_and_stands_back_for_another_worker() {
    let Some(home) = Home::new("worker") else { return };
    let dev = home.start(&["--no-trickle"]).await;
    let (store, pubsub) = dev.join().await;
    let queue = Queue::new(store.clone(), Arc::clone(&pubsub) as _, QueueConfig::default());
    let emit = async |name: &str, canvas: CanvasId| -> EventId {
        queue.emit(Event::new(name, "Ada").unwrap().canvas(canvas)).await.unwrap().id
    };

    let flaky = emit("flaky", CanvasId::DEFAULT).await;
    dev.prints(&format!(
        "{flaky}  flaky      attempt 1 failed (the peer closed the connection); retried in 2s"
    ))
    .await;
    dev.prints(&format!("{flaky}  flaky      done in")).await;
    let broken = emit("broken", CanvasId::DEFAULT).await;
    let dies = format!("{broken}  broken     attempt 3 failed (the service is down), the last one: dead");
    while !dev.has_printed(&dies) {
        let greet = emit("greet", CanvasId::DEFAULT).await;
        dev.prints(&format!("{greet}  greet      says: hello, Ada")).await;
    }
    let mine = emit("mine", CanvasId::DEFAULT).await;
    dev.prints(&format!("{mine}  mine       NO HANDLER `mine` HERE")).await;

    let (ran, mut runs) = mpsc::channel(EVENTS);
    let run = move |event: Execution| {
        let ran = ran.clone();
        async move {
            ran.send((event.id, event.address.scope.canvas)).await.expect("the test waits");
            HandlerResult::Ok(())
        }
    };
    let handlers = Handlers::new().on("greet", run.clone()).on("mine", run);
    assert!(!dev.has_printed("another worker has joined"), "nobody was there");
    let worker = QueueWorker::new(store, pubsub, handlers, WorkerConfig::default()).unwrap();
    let (stop, working) = (worker.stop_token(), tokio::spawn(worker.run()));
    dev.prints("another worker has joined").await;
    assert_eq!(next(&mut runs).await, (mine, CanvasId::DEFAULT));
    let other: CanvasId = "7d444840-9dc0-11d1-b245-5ffdce74fad2".parse().unwrap();
    for canvas in [CanvasId::DEFAULT, other] {
        let mut expected = Vec::new();
        for _ in 0..EVENTS {
            expected.push((emit("greet", canvas).await, canvas));
        }
        let mut seen = Vec::new();
        for _ in 0..EVENTS {
            seen.push(next(&mut runs).await);
        }
        seen.sort_unstable_by_key(|run| expected.iter().position(|event| event == run));
        assert_eq!(seen, expected);
    }

    stop.cancel();
    working.await.unwrap().unwrap();
    dev.prints("the other worker has left: the sample worker is back").await;
    let last = emit("greet", CanvasId::DEFAULT).await;
    dev.prints(&format!("{last}  greet      says: hello, Ada")).await;
    dev.stop().await;
}

async fn next<T>(runs: &mut mpsc::Receiver<T>) -> T {
    timeout(PRINTED_WITHIN, runs.recv()).await.expect("an event did not run in time").unwrap()
}
