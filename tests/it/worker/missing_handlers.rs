//! What a worker says of handlers that it lacks.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Level;
use wakeq::machine::Outcome;
use wakeq::{Event, Handlers};

use crate::support::{OTHER, Stage};

/// The log of this thread, on which all tasks of a test run.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Once, not per event or canvas.
#[tokio::test]
async fn a_worker_warns_of_each_handler_that_it_lacks() {
    // While there is only one dispatcher, a thread of another test that is the first to reach the
    // warning would turn it off for all.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let lines = Lines::default();
    let writer = lines.clone();
    let log = tracing_subscriber::fmt().with_max_level(Level::WARN).with_ansi(false);
    let _logging = tracing::subscriber::set_default(log.with_writer(move || writer.clone()).finish());
    let (stage, _) = Stage::memory().await;
    let mut worker = stage.worker(Handlers::new().on("greet", |_| async { Ok(()) }));
    for name in ["gret", "gret", "mail", "greet"] {
        stage.emit(name).await;
        stage.queue.emit(Event::new(name, "x").unwrap().canvas(OTHER)).await.unwrap();
    }
    worker.until_count(6, Outcome::Deferred).await;
    worker.stop().await;
    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for (handler, count) in
        [("WORKER/gret/_", 1), ("WORKER/mail/_", 1), ("WORKER/greet/_", 0), ("no such handler", 2)]
    {
        assert_eq!(said.matches(handler).count(), count, "{handler}: {said}");
    }
}
