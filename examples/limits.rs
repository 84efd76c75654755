//! Limits: each customer's events run two at a time, and ten of them start in a second, whatever
//! the others have. `DATABASE_URL=… cargo run --example limits`.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wakeq::limits::{NewLimit, Rate};
use wakeq::notify::LocalNotifier;
use wakeq::{
    Actor, Admin, CanvasId, Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig,
    WorkerConfig,
};

const EACH: usize = 6;

/// How many run now, and the most that ever did, by customer.
type Counts = Arc<Mutex<BTreeMap<String, (u32, u32)>>>;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let admin = Admin::new(store.clone(), notifier.clone());

    // Of each customer, since the keys of events begin with `customer:`.
    let rate = Rate { burst: 2, ..Rate::new(10, Duration::from_secs(1)) };
    let limit = NewLimit { concurrency: Some(2), rate: Some(rate), ..NewLimit::default() };
    admin.put_limit(CanvasId::DEFAULT, &"customer".parse()?, &limit, &Actor::user("example")).await?;

    for _ in 0..EACH {
        for customer in ["customer:7", "customer:8"] {
            queue.emit(Event::new("sync", customer)?.limit(customer)?).await?;
        }
    }
    let (counts, (done, mut ended)) = (Counts::default(), tokio::sync::mpsc::channel(2 * EACH));
    let counted = Arc::clone(&counts);
    let handlers = Handlers::new().on("sync", move |event: Execution| {
        let (counts, done) = (Arc::clone(&counted), done.clone());
        async move {
            let customer: String = event.value()?;
            count(&counts, &customer, 1);
            tokio::time::sleep(Duration::from_millis(150)).await; // simulates the work
            count(&counts, &customer, -1);
            Ok(done.send(()).await?)
        }
    });
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, running) = (worker.stop_token(), tokio::spawn(worker.run()));
    for _ in 0..2 * EACH {
        ended.recv().await;
    }
    for (customer, (_, most)) in counts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{customer}: {EACH} events, at most {most} at a time");
    }
    stop.cancel();
    Ok(running.await??)
}

fn count(counts: &Counts, customer: &str, change: i32) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let (now, most) = counts.entry(customer.to_owned()).or_default();
    *now = now.saturating_add_signed(change);
    *most = (*most).max(*now);
}
