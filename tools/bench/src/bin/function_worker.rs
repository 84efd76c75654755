//! A worker with two functions for every canvas, of which `slow` takes three seconds and `quick`
//! none: `cargo xtask field function` starts it, since the stock binary has only HTTP targets.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use wakeq::notify::PostgresNotifier;
use wakeq::{Execution, HandlerResult, Handlers, QueueWorker, Store, StoreConfig, WorkerConfig};

const SLOW: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(PostgresNotifier::new(&store));
    let handlers = Handlers::new().on("slow", slow).on("quick", quick);
    QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?.run().await?;
    Ok(())
}

async fn slow(_event: Execution) -> HandlerResult {
    tokio::time::sleep(SLOW).await;
    Ok(())
}

async fn quick(_event: Execution) -> HandlerResult {
    Ok(())
}
