//! What a worker says of handlers that it lacks.

use wakeq::machine::Outcome;
use wakeq::{Event, Handlers};

use crate::support::thread_log::ThreadLog;
use crate::support::{OTHER, Stage};

/// Once, not per event or canvas.
#[tokio::test]
async fn a_worker_warns_of_each_handler_that_it_lacks() {
    let log = ThreadLog::begin();
    let (stage, _) = Stage::memory().await;
    let mut worker = stage.worker(Handlers::new().on("greet", |_| async { Ok(()) }));
    for name in ["gret", "gret", "mail", "greet"] {
        stage.emit(name).await;
        stage.queue.emit(Event::new(name, "x").unwrap().canvas(OTHER)).await.unwrap();
    }
    worker.until_count(6, Outcome::Deferred).await;
    worker.stop().await;
    let said = log.said();
    for (handler, count) in
        [("WORKER/gret/_", 1), ("WORKER/mail/_", 1), ("WORKER/greet/_", 0), ("no such handler", 2)]
    {
        assert_eq!(said.matches(handler).count(), count, "{handler}: {said}");
    }
}
