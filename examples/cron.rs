//! A cron: every second an event for the handler `CRON/tick`, here three times.
//! `DATABASE_URL=… cargo run --example cron`.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::sync::Arc;

use wakeq::crons::{CronSchedule, NewCron};
use wakeq::notify::LocalNotifier;
use wakeq::{
    Actor, Admin, CanvasId, Execution, Handlers, QueueWorker, Route, Store, StoreConfig, WorkerConfig,
};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let admin = Admin::new(store.clone(), notifier.clone());

    let (ticked, mut ticks) = tokio::sync::mpsc::channel(10);
    let handlers = Handlers::new().on(Route::new("tick").module("CRON"), move |event: Execution| {
        let ticked = ticked.clone();
        async move { Ok(ticked.send(event.due_at).await?) }
    });
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, running) = (worker.stop_token(), tokio::spawn(worker.run()));

    let every_second = CronSchedule::new("* * * * * *", "UTC")?; // seconds first; five fields have none
    let tick = NewCron::new("tick", every_second, &())?;
    let cron = admin.put_cron(CanvasId::DEFAULT, &tick, &Actor::user("ada")).await?.cron;
    for _ in 0..3 {
        println!("tick at {:?}", ticks.recv().await);
    }
    admin.delete_cron(cron.canvas, &cron.name, &Actor::user("ada")).await?;
    stop.cancel();
    Ok(running.await??)
}
