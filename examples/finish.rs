//! A handler whose effects and whose event's end are one commit, so that they are there exactly
//! once: `DATABASE_URL=… cargo run --example finish`.
//!
//! An import stores each page in a transaction with a checkpoint, and the last one in a transaction
//! that completes the event. Its first attempt fails half-way, and the second goes on from there. A
//! unique key keeps the same import from being emitted again before it has ended.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::mpsc;
use wakeq::events::Unique;
use wakeq::notify::LocalNotifier;
use wakeq::{
    Event, Execution, HandlerError, HandlerResult, Handlers, Queue, QueueConfig, QueueWorker, RetryPolicy,
    Route, Store, StoreConfig, WorkerConfig,
};

/// The event's value.
const PAGES: i64 = 4;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let pool = PgPool::connect(&url).await?;
    let create = "create table if not exists pages (import uuid, number int8, primary key (import, number))";
    sqlx::query(create).execute(&pool).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());

    let event = Event::new("import", &PAGES)?.unique(Unique::key("import:june")?.until_ended())?;
    let (first, second) = (queue.emit(event.clone()).await?, queue.emit(event).await?);
    println!("{:?}, then {:?}: the import is {}", first.unique, second.unique, second.id);

    let (done, mut imported) = mpsc::channel(1);
    let soon = RetryPolicy { retries: 2, delay: Duration::from_millis(100), ..RetryPolicy::default() };
    let pages = pool.clone();
    let handlers = Handlers::new().on(Route::new("import").retry(soon), move |event: Execution| {
        import(event, pages.clone(), done.clone())
    });
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, running) = (worker.stop_token(), tokio::spawn(worker.run()));
    let attempt = imported.recv().await.unwrap_or_default();
    let stored = sqlx::query_scalar("select count(*) from pages where import = $1").bind(second.id.0);
    let stored: i64 = stored.fetch_one(&pool).await?;
    println!("{stored} pages after attempt {attempt}");
    stop.cancel();
    Ok(running.await??)
}

/// Stores the pages that are left. A process that is killed anywhere in here leaves nothing twice.
async fn import(event: Execution, pool: PgPool, done: mpsc::Sender<u32>) -> HandlerResult {
    let (pages, before): (i64, Option<i64>) = (event.value()?, event.last_checkpoint().await?);
    for number in before.unwrap_or(0) + 1..=pages {
        let mut transaction = pool.begin().await?;
        let page = sqlx::query("insert into pages (import, number) values ($1, $2)");
        page.bind(event.id.0).bind(number).execute(&mut *transaction).await?;
        if number < pages {
            event.checkpoint_in(&mut transaction, &number).await?;
        } else {
            event.complete_in(&mut transaction).await?; // the event is gone when this is committed
        }
        transaction.commit().await?;
        println!("attempt {}: page {number}", event.attempt);
        if number == 2 {
            return Err(HandlerError::operational("the file server is away"));
        }
    }
    Ok(done.send(event.attempt).await?)
}
