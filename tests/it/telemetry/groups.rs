//! The metrics of a program with a broker about its groups, as Prometheus scrapes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use wakeq::CanvasId;
use wakeq::log::{AppendCondition, EventSource, Log, LogEvent, NewLogEvent, StreamId};
use wakeq_streams::{BrokerBacking, BrokerConfig, Consumer, ConsumerConfig, EventBroker, EventProcessor};

use super::scraped::{ANY_PORT, address, scrape};
use crate::processes::work::Process;
use crate::support::{Looks, Stage, TIMEOUT, wait_while};

/// Appends an event of a company of this canvas; returns its `seq`.
async fn append(log: &Log, canvas: CanvasId, says: &str) -> i64 {
    let stream = StreamId::new(canvas, "companies", "acme").unwrap();
    let event = NewLogEvent::new("changed", &says).unwrap();
    log.append(&stream, vec![event], AppendCondition::None).await.unwrap()[0].seq
}

/// Scrapes until these series have these values.
async fn until(url: &str, expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let mut looks = Looks::default();
    let seen = async {
        loop {
            let series = scrape(url).await;
            if expected.iter().all(|(name, value)| series.get(*name) == Some(value)) {
                return series;
            }
            looks.pause().await;
        }
    };
    let seen = tokio::time::timeout(TIMEOUT, seen).await;
    match seen {
        Ok(series) => series,
        Err(_) => panic!("{expected:?} did not come: {:#?}", scrape(url).await),
    }
}

/// Handles every event.
struct Content;

#[async_trait::async_trait]
impl EventProcessor for Content {
    async fn handle_event(&self, _: &LogEvent) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

/// A node that coordinates and works on a group of its own.
async fn node(stage: &Stage, log: &Log) -> (CancellationToken, JoinHandle<()>) {
    let (backing, signals) = (BrokerBacking::Postgres(stage.store.clone()), stage.queue.signals().clone());
    let broker = EventBroker::distributed(backing, signals, BrokerConfig::default()).unwrap();
    let (group, source) = ("shared".parse().unwrap(), EventSource::category("companies").unwrap());
    let (log, positions) = (Arc::new(log.clone()), Arc::new(stage.store.clone()));
    let consumer =
        Consumer::new(group, source, log, positions, Arc::new(Content), ConsumerConfig::default()).unwrap();
    broker.register(Arc::new(consumer)).await.unwrap();
    let stop = broker.stop_token();
    (stop, tokio::spawn(async move { broker.run().await.unwrap() }))
}

/// A group that one process consumes alone, what became of its events, a group that nodes share,
/// and what holds the log; over all canvases, none of which is named.
// Shows: SUB-49, TELEMETRY-02
#[tokio::test]
async fn a_program_with_a_broker_exports_metrics_of_its_groups() {
    let stage = Stage::memory().await.0;
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    let canvases = [CanvasId::DEFAULT, CanvasId(Uuid::from_u128(7))];
    append(&log, canvases[0], "fine").await;
    append(&log, canvases[1], "broken").await;
    // The first partition of the log is full, and an operator's pin keeps it.
    let full =
        "insert into wakeq.log_pins values ('kept by hand', 0); select setval('wakeq.log_seq', 5000001)";
    sqlx::raw_sql(full).execute(&stage.pool).await.unwrap();
    let last = append(&log, canvases[0], "fine").await;
    let (stop, running) = node(&stage, &log).await;
    let variables = [("WAKEQ_NOTIFIER", "local"), ANY_PORT[0]];
    let process = Process::own("work", stage.database.url(), None, &variables);
    let behind = "select 3 - count(*) from wakeq.consumer_positions where position >= $1";
    wait_while!(
        sqlx::query_scalar::<_, i64>(behind).bind(last).fetch_one(&stage.pool).await.unwrap() > 0,
        "they come to the end of the log"
    );
    let url = address(&process).unwrap();
    let of = |name: &str, group: &str| format!("{name}{{messaging_consumer_group_name=\"{group}\"}}");
    let failed = "wakeq_consumer_events_total{error_type=\"error\",messaging_consumer_group_name=\"choosy\"}";
    let handled = [of("wakeq_consumer_events_total", "printed"), of("wakeq_consumer_events_total", "choosy")];
    let dead = of("wakeq_consumer_dead_total", "choosy");
    let names = ["sources", "owned"].map(|name| of(&format!("wakeq_group_{name}"), "printed"));
    let lag = of("wakeq_group_lag", "choosy");
    let shared = ["sources", "owned"].map(|name| of(&format!("wakeq_group_{name}"), "shared"));
    let (nodes, term) = ("wakeq_group_nodes", "wakeq_group_coordinator_term");
    let holder = "wakeq_log_holders{wakeq_log_holder=\"pin kept by hand\"}";
    let gauges = [(&*names[0], 1.0), (&names[1], 1.0), (&lag, 0.0), (holder, last as f64)];
    // A process with a single broker is not a node.
    let of_node = [(&*shared[0], 1.0), (&shared[1], 1.0), (nodes, 1.0), (term, 1.0)];
    let counters = [(&*handled[0], 3.0), (&handled[1], 2.0), (failed, 1.0), (&dead, 1.0)];
    let series = until(&url, &[&gauges[..], &of_node, &counters].concat()).await;
    assert!(series["wakeq_group_allocations_total"] >= 2.0, "{series:#?}");
    let text = series.keys().cloned().collect::<Vec<_>>().join("\n");
    for canvas in canvases {
        assert!(!text.contains(&canvas.to_string()), "{text}");
    }
    assert_eq!(process.stop().await, Some(0));
    stop.cancel();
    running.await.unwrap();
}
