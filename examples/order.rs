//! Order: events on one object run one by one, in the order of their commits; those on another
//! object don't wait. `DATABASE_URL=… cargo run --example order`.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::sync::Arc;
use std::time::Duration;

use wakeq::notify::LocalNotifier;
use wakeq::{Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig, WorkerConfig};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());

    let (done, mut ended) = tokio::sync::mpsc::channel(10);
    let handlers = Handlers::new().on("index", move |event: Execution| {
        let done = done.clone();
        async move {
            let object = event.place.as_ref().map(|place| place.object.as_str().to_owned());
            tokio::time::sleep(Duration::from_millis(50)).await; // the next one on the object waits
            Ok(done.send(format!("{} {}", object.unwrap_or_default(), event.json)).await?)
        }
    });
    for step in ["created", "renamed", "deleted"] {
        for work in ["work:1", "work:2"] {
            queue.emit(Event::new("index", step)?.on(work)?).await?;
        }
    }
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, running) = (worker.stop_token(), tokio::spawn(worker.run()));
    for _ in 0..6 {
        println!("{}", ended.recv().await.unwrap_or_default());
    }
    stop.cancel();
    Ok(running.await??)
}
