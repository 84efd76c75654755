//! A shop with a queue in it: `DATABASE_URL=… cargo run -p wakeq-service --example embedded`, then
//! `curl http://127.0.0.1:3000/orders -H 'content-type: application/json' -d '{"item": "tea"}'`.
//!
//! One pool, one listener and one process: the shop's own routes, wakeq's API below `/queue`, and a
//! worker whose handlers share the shop's state. A key for the API is `wakeq keys create`.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use wakeq::notify::LocalNotifier;
use wakeq::workers::{Batch, Completion, Next};
use wakeq::{
    Event, Execution, HandlerResult, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig,
    WorkerConfig,
};
use wakeq_service::server::{HttpApi, HttpConfig};

#[derive(Clone)]
struct Shop {
    pool: PgPool,
    queue: Queue,
}

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    item: String,
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let config = StoreConfig::default();
    let pool = config.pool_options().max_connections(10).connect(&url).await?;
    sqlx::query("create table if not exists shop_orders (item text)").execute(&pool).await?;
    let store = Store::from_pool(pool.clone(), config).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());
    let shop = Shop { pool, queue };

    let batch = Batch { max: 50, wait: Duration::from_millis(20), ..Batch::default() };
    let handlers = Handlers::new()
        .layer(timed)
        .state(shop.clone())
        .on_value("confirm-order", confirm)
        .on_batch("count-orders", batch, count);
    let worker = QueueWorker::new(store.clone(), notifier.clone(), handlers, WorkerConfig::default())?;
    let api = HttpApi::new(store.clone(), notifier, HttpConfig::default()).await?.mount();

    let routes = Router::new().route("/orders", post(place_order)).with_state(shop);
    let routes = routes.nest("/queue", api.router());
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);

    let (stop_worker, stop_api, signal) = (worker.stop_token(), api.stop_token(), wakeq::shutdown_signal()?);
    let running = tokio::spawn(worker.run());
    axum::serve(listener, routes.into_make_service_with_connect_info::<SocketAddr>())
        .with_graceful_shutdown(async move {
            signal.await;
            stop_api.cancel();
        })
        .await?;
    stop_worker.cancel();
    running.await??;
    api.finish().await;
    store.close().await;
    Ok(())
}

async fn place_order(State(shop): State<Shop>, Json(order): Json<Order>) -> Result<String, StatusCode> {
    placed(&shop, &order).await.map_err(|error| {
        println!("{error}");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    Ok(format!("ordered {}\n", order.item))
}

/// The order and its events are committed together.
async fn placed(shop: &Shop, order: &Order) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut transaction = shop.pool.begin().await?;
    sqlx::query("insert into shop_orders (item) values ($1)")
        .bind(&order.item)
        .execute(&mut *transaction)
        .await?;
    let mut receipts = Vec::new();
    for name in ["confirm-order", "count-orders"] {
        receipts.push(shop.queue.emit_in(&mut transaction, Event::new(name, order)?).await?);
    }
    transaction.commit().await?;
    for receipt in receipts {
        receipt.notify().await;
    }
    Ok(())
}

/// Around every run.
async fn timed(execution: Execution, next: Next) -> HandlerResult<Completion> {
    let (address, begun) = (execution.address.clone(), std::time::Instant::now());
    let result = next.run(execution).await;
    println!("{address} took {:?}", begun.elapsed());
    result
}

async fn confirm(_shop: Shop, order: Order, execution: Execution) -> HandlerResult {
    println!("a mail about {}, attempt {}", order.item, execution.attempt);
    Ok(())
}

async fn count(shop: Shop, events: Vec<Execution>) -> HandlerResult {
    let orders: i64 = sqlx::query_scalar("select count(*) from shop_orders").fetch_one(&shop.pool).await?;
    println!("{orders} orders, {} of them new", events.len());
    Ok(())
}
