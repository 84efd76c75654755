//! Emits in the transaction of an axum handler: `DATABASE_URL=… cargo run --example axum`, then
//! `curl http://127.0.0.1:3000/orders -H 'content-type: application/json' -d '{"item": "tea"}'`.
//!
//! The order and its event are committed together, or neither is.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use wakeq::notify::LocalNotifier;
use wakeq::{Event, Execution, Handlers, Queue, QueueConfig, QueueWorker, Store, StoreConfig, WorkerConfig};

#[derive(Clone)]
struct App {
    pool: PgPool,
    queue: Queue,
}

#[derive(Deserialize)]
struct NewOrder {
    item: String,
}

/// The event's value.
#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
    item: String,
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let pool = PgPool::connect(&url).await?;
    let create = "create table if not exists orders (id bigint generated always as identity, item text)";
    sqlx::query(create).execute(&pool).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let notifier = Arc::new(LocalNotifier::new());
    let queue = Queue::new(store.clone(), notifier.clone(), QueueConfig::default());

    let handlers = Handlers::new().on("confirm-order", |event: Execution| async move {
        let order: Order = event.value()?;
        println!("order {}: a mail about {}", order.id, order.item);
        Ok(())
    });
    let worker = QueueWorker::new(store, notifier, handlers, WorkerConfig::default())?;
    let (stop, signal) = (worker.stop_token(), wakeq::shutdown_signal()?);
    let running = tokio::spawn(worker.run());

    let routes = Router::new().route("/orders", post(place_order)).with_state(App { pool, queue });
    let port = std::env::var("PORT").unwrap_or_else(|_| "3000".to_owned());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, routes).with_graceful_shutdown(signal).await?;
    stop.cancel();
    Ok(running.await??)
}

async fn place_order(State(app): State<App>, Json(order): Json<NewOrder>) -> Result<String, Refusal> {
    let mut transaction = app.pool.begin().await?;
    let id = sqlx::query_scalar("insert into orders (item) values ($1) returning id")
        .bind(&order.item)
        .fetch_one(&mut *transaction)
        .await?;
    let event = Event::new("confirm-order", &Order { id, item: order.item.clone() })?;
    let receipt = app.queue.emit_in(&mut transaction, event).await?;
    if order.item == "poison" {
        return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY)); // rolls back both
    }
    transaction.commit().await?;
    receipt.notify().await;
    Ok(format!("order {id}\n"))
}

/// The status of an answer.
struct Refusal(StatusCode);

impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.0.into_response()
    }
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        println!("{error}");
        Self(StatusCode::INTERNAL_SERVER_ERROR)
    }
}
