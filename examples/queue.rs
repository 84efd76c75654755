//! A queue that a service registers: copies of what matches its pattern, one canvas after the other
//! (each is a facet of the queue). `DATABASE_URL=… cargo run --example queue`.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::sync::Arc;

use uuid::Uuid;
use wakeq::notify::LocalNotifier;
use wakeq::queues::NewQueue;
use wakeq::{
    Actor, Admin, CanvasId, Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Route, Store,
    StoreConfig, WorkerConfig,
};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let admin = Admin::new(store.clone(), notifier.clone());

    let mails = NewQueue { patterns: vec![".*:MAIL:.*".parse()?], ..NewQueue::default() };
    admin.put_queue(&"mails".parse()?, &mails, &Actor::user("mailer")).await?;
    let (large, small) = (CanvasId(Uuid::from_u128(1)), CanvasId(Uuid::from_u128(2)));
    let mail = |canvas| Ok::<_, wakeq::EventError>(Event::new("opened", &())?.module("MAIL")?.canvas(canvas));
    for _ in 0..20 {
        queue.emit(mail(large)?.only_to_queues()).await?;
    }
    queue.emit(mail(small)?.only_to_queues()).await?; // the last to come, and among the first to run

    let (done, mut ended) = tokio::sync::mpsc::channel(30);
    let one_by_one = Route::new("mails").concurrency(1);
    let handlers = Handlers::new().on_queue(one_by_one, move |event: Execution| {
        let done = done.clone();
        async move { Ok(done.send(event.address.scope.canvas).await?) }
    });
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, running) = (worker.stop_token(), tokio::spawn(worker.run()));
    let mut canvases = Vec::new();
    while canvases.len() < 21 {
        canvases.extend(ended.recv().await);
    }
    println!(
        "the small canvas was number {:?} of 21",
        canvases.iter().position(|canvas| *canvas == small).map(|at| at + 1)
    );
    stop.cancel();
    Ok(running.await??)
}
