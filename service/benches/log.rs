//! The throughput of the log: `cargo bench --bench log`.
//!
//! First appends per second, of one event and of a hundred in a call, by one writer and by eight,
//! to streams of their own and to one that all share; then reads per second, of the whole log, a
//! category, a partition of sixteen and a stream, page after page.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first error"
)]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use wakeq::log::{AppendCondition, EventSource, Log, NewLogEvent, Partition, StreamId};
use wakeq::notify::LocalNotifier;
use wakeq::{CanvasId, Store, StoreConfig};
use wakeq_testbed::{Cluster, ClusterOptions};

const LENGTH: Duration = Duration::from_secs(3);
const PAGE: usize = 1_000;

#[tokio::main]
async fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    let url = cluster.url("postgres");
    Store::migrate(&url, false).await.unwrap();
    let config =
        StoreConfig { max_connections: 10, lock_timeout: Duration::from_secs(4), ..StoreConfig::default() };
    let store = Store::connect(&url, config).await.unwrap();
    let log = Log::new(store.clone(), &LocalNotifier::new());
    println!("appends, for {LENGTH:?} each: events a second, calls a second");
    for (writers, each) in [(1, 1), (8, 1), (1, 100), (8, 100)] {
        for shared in [false, true] {
            append(&log, writers, each, shared).await;
        }
    }
    println!("reads, in pages of {PAGE}: events a second");
    let bench = EventSource::category("bench").unwrap();
    let part = bench.partition(Partition::new(3, 16).unwrap()).unwrap();
    let stream = EventSource::Stream(stream("w-0"));
    for source in [EventSource::Log { canvas: None }, bench, part, stream] {
        read(&log, &source).await;
    }
    store.close().await;
    cluster.stop().await.unwrap();
}

fn stream(name: &str) -> StreamId {
    StreamId::new(CanvasId::DEFAULT, "bench", name).unwrap()
}

async fn append(log: &Log, writers: usize, each: usize, shared: bool) {
    let until = Instant::now() + LENGTH;
    let writing = (0..writers).map(|writer| async move {
        let stream = stream(&if shared { "shared".to_owned() } else { format!("w-{writer}") });
        let mut calls = 0_u32;
        while Instant::now() < until {
            let events = (0..each).map(|number| NewLogEvent::new("happened", &number).unwrap()).collect();
            log.append(&stream, events, AppendCondition::None).await.unwrap();
            calls += 1;
        }
        calls
    });
    let calls: u32 = join_all(writing).await.into_iter().sum();
    let a_second = f64::from(calls) / LENGTH.as_secs_f64();
    let streams = if shared { "one stream" } else { "a stream each" };
    println!(
        "{writers} writers, {each:>3} a call, {streams:<13} {:>9.0} {a_second:>8.0}",
        a_second * each as f64
    );
}

async fn read(log: &Log, source: &EventSource) {
    let (mut after, mut count, started) = (0, 0, Instant::now());
    loop {
        let page = log.read(source, after, PAGE).await.unwrap();
        (after, count) = (page.through, count + page.events.len());
        if !page.more {
            break;
        }
    }
    let took = started.elapsed().as_secs_f64();
    println!("{:<24} {count:>8} events {:>9.0}", source.to_string(), count as f64 / took);
}
