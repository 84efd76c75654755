//! Retries and dead events: `DATABASE_URL=… cargo run --example retries`.
//!
//! One handler fails twice and then succeeds; another always fails, so its event ends among the
//! dead, with the error, and is redriven once the fault is mended.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakeq::control::DeadFilter;
use wakeq::notify::LocalNotifier;
use wakeq::{
    Actor, Admin, Event, Execution, HandlerError, Handlers, Queue, QueueConfig, QueueWorker, RetryPolicy,
    Route, Store, StoreConfig, WorkerConfig,
};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let admin = Admin::new(store.clone(), notifier.clone());

    let soon = RetryPolicy { retries: 2, delay: Duration::from_millis(100), ..RetryPolicy::default() };
    let (done, mut ended) = tokio::sync::mpsc::channel(2);
    let (mended, is_mended) = (Arc::new(AtomicBool::new(false)), done.clone());
    let broken = Arc::clone(&mended);
    let handlers = Handlers::new()
        .on(Route::new("flaky").retry(soon), move |event: Execution| {
            let done = done.clone();
            async move {
                println!("flaky, attempt {}", event.attempt);
                if event.attempt < 3 {
                    return Err(HandlerError::operational("the mail server is away"));
                }
                Ok(done.send("flaky").await?)
            }
        })
        .on(Route::new("broken").retry(soon), move |_event: Execution| {
            let (done, broken) = (is_mended.clone(), Arc::clone(&broken));
            async move {
                if !broken.load(Ordering::SeqCst) {
                    return Err(HandlerError::operational("no such column"));
                }
                Ok(done.send("broken").await?)
            }
        });
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, running) = (worker.stop_token(), tokio::spawn(worker.run()));

    queue.emit(Event::new("flaky", &1)?).await?;
    let id = queue.emit(Event::new("broken", &2)?).await?.id;
    println!("{:?} completed", ended.recv().await);
    let filter = DeadFilter { id: Some(id), ..DeadFilter::default() };
    let dead = loop {
        if let Some(dead) = admin.dead(&filter, None, 1).await?.items.pop() {
            break dead;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    println!("dead: {} {:?}", dead.id, dead.last_error);

    mended.store(true, Ordering::SeqCst); // as a new release would
    admin.redrive_one(filter.canvas, dead.id, &Actor::user("ada")).await?;
    println!("{:?} completed", ended.recv().await);
    stop.cancel();
    Ok(running.await??)
}
