//! A consumer group in as many processes as you start: each prints its sources, and the events that
//! it receives.
//!
//! Run `cargo run -p wakeq-streams --example groups` in several terminals, with `DATABASE_URL` set,
//! and `cargo run -p wakeq-streams --example groups -- append` in another one.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wakeq::listeners::Signals;
use wakeq::log::{AppendCondition, EventSource, Log, LogEvent, NewLogEvent, StreamId};
use wakeq::{CanvasId, Store, StoreConfig};
use wakeq_streams::{BrokerBacking, BrokerConfig, Consumer, ConsumerConfig, EventBroker, EventProcessor};

type Failure = Box<dyn Error + Send + Sync>;

struct Projection;

#[async_trait]
impl EventProcessor for Projection {
    async fn handle_event(&self, event: &LogEvent) -> Result<(), Failure> {
        println!("{} {} {}", event.stream.name, event.name, event.payload);
        Ok(())
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Failure> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    // Processes that share a topic would pass `notifier.signals()`, and learn of everything at
    // once. Without that, they poll.
    let log = Log::with_signals(store.clone(), Signals::alone());
    match std::env::args().next_back().as_deref() {
        Some("append") => append(&log).await,
        _ => consume(store, log).await,
    }
}

/// Appends an event per second, on eight streams in turn.
async fn append(log: &Log) -> Result<(), Failure> {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for number in 0_u32.. {
        seconds.tick().await;
        let company = StreamId::new(CanvasId::DEFAULT, "companies", &format!("company-{}", number % 8))?;
        log.append(&company, vec![NewLogEvent::new("changed", &number)?], AppendCondition::None).await?;
    }
    Ok(())
}

async fn consume(store: Store, log: Log) -> Result<(), Failure> {
    // The grace fits into a third of the lease below.
    let second = Duration::from_secs(1);
    let often = ConsumerConfig { poll_interval: second, withdraw_grace: second, ..ConsumerConfig::default() };
    let consumer = Consumer::new(
        "company-projection".parse()?,
        EventSource::category("companies")?,
        Arc::new(log),
        Arc::new(store.clone()),
        Arc::new(Projection),
        often,
    )?;
    let consumer = Arc::new(consumer.partitioned(4)?);
    let (heartbeat, lease) = (second, 3 * second);
    let config = BrokerConfig { heartbeat, lease, ..BrokerConfig::default() };
    let broker = EventBroker::distributed(BrokerBacking::Postgres(store), Signals::alone(), config)?;
    broker.register(consumer.clone()).await?;
    let (signal, stop) = (wakeq::shutdown_signal()?, broker.stop_token());
    tokio::spawn(async move {
        signal.await;
        stop.cancel();
    });
    println!("node {}", broker.node());
    tokio::select! {
        ended = broker.run() => Ok(ended?),
        () = show(&consumer) => Ok(()),
    }
}

/// Prints the consumer's sources whenever they change.
async fn show(consumer: &Consumer) {
    let mut looks = tokio::time::interval(Duration::from_millis(200));
    let mut before = Vec::new();
    loop {
        looks.tick().await;
        let now = consumer.sources();
        if now != before {
            println!("-- works on {:?}", now.iter().map(EventSource::to_string).collect::<Vec<_>>());
            before = now;
        }
    }
}
