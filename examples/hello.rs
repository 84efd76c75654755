//! Emits an event and runs it, on Postgres alone: `DATABASE_URL=… cargo run --example hello`.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::sync::Arc;

use wakeq::notify::LocalNotifier;
use wakeq::{Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig, WorkerConfig};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().init(); // shows failed attempts, among others
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "DATABASE_URL is not set: postgres://user@host/database")?;
    Store::migrate(&url, false).await?; // creates the schema `wakeq`, once
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new()); // several processes: PostgresNotifier, or PubSub
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    queue.emit(Event::new("greet", "Ada")?).await?; // a row: from here on it cannot be lost

    let (greeted, mut all_greeted) = tokio::sync::mpsc::channel(1);
    let handlers = Handlers::new().on("greet", move |event: Execution| {
        let greeted = greeted.clone();
        async move { Ok(greeted.send(event.value::<String>()?).await?) }
    });
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, running) = (worker.stop_token(), tokio::spawn(worker.run()));
    println!("Hello, {}!", all_greeted.recv().await.unwrap_or_default());
    stop.cancel(); // lets running handlers end, and deletes the event
    Ok(running.await??)
}
