//! A node of the crash tests of groups: consumers of the real log under a real broker, in a process
//! of its own.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use wakeq::Store;
use wakeq::log::{EventSource, Log, LogEvent};
use wakeq::notify::Notifier;
use wakeq_streams::consumers::{DeadLetter, PositionKey};
use wakeq_streams::{
    BrokerBacking, BrokerConfig, Consumer, ConsumerConfig, ConsumerError, EventBroker, EventProcessor,
    PositionStore,
};

use crate::streams::entities::measured::gathered;
use crate::support::child_processes::{Services, say};

/// The work of a node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct GroupWork {
    pub(crate) groups: usize,
    pub(crate) partitions: u16,
    pub(crate) heartbeat_ms: u64,
    pub(crate) lease_ms: u64,
    /// How long handling an event takes.
    pub(crate) handle_ms: u64,
}

/// The category that all groups consume.
pub(crate) const CATEGORY: &str = "companies";

/// Prints `node ID`, then `deposed WRITES METRIC` whenever that grows, until SIGTERM.
pub(crate) async fn perform(services: &Services, store: Store, notifier: Arc<dyn Notifier>, work: GroupWork) {
    // Installs the recorder first: anything counted before it is in no metric.
    gathered();
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(4)
        .connect(&services.database_url)
        .await
        .unwrap();
    let log = Log::new(store.clone(), &*notifier);
    let config = BrokerConfig {
        heartbeat: Duration::from_millis(work.heartbeat_ms),
        lease: Duration::from_millis(work.lease_ms),
        ..BrokerConfig::default()
    };
    let backing = BrokerBacking::Postgres(store.clone());
    let broker = EventBroker::distributed(backing, notifier.signals(), config).unwrap();
    for number in 0..work.groups {
        let group = format!("group-{number}");
        let positions = Recording { store: store.clone(), pool: pool.clone() };
        let processor = Recorder {
            pool: pool.clone(),
            group: group.clone(),
            lasts: Duration::from_millis(work.handle_ms),
        };
        let config = ConsumerConfig {
            poll_interval: Duration::from_secs(1),
            commit_every: 5,
            page: 50,
            withdraw_grace: Duration::from_millis(500),
            ..ConsumerConfig::default()
        };
        let category = EventSource::category(CATEGORY).unwrap();
        let (log, positions) = (Arc::new(log.clone()), Arc::new(positions));
        let consumer =
            Consumer::new(group.parse().unwrap(), category, log, positions, Arc::new(processor), config)
                .unwrap();
        broker.register(Arc::new(consumer.partitioned(work.partitions).unwrap())).await.unwrap();
    }
    let (signal, stop) = (wakeq::shutdown_signal().unwrap(), broker.stop_token());
    tokio::spawn(async move {
        signal.await;
        stop.cancel();
    });
    say(&format!("node {}", broker.node()));
    tokio::select! {
        ended = broker.run() => ended.unwrap(),
        () = tell(&broker) => {}
    }
    say("ended");
}

async fn tell(broker: &EventBroker) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let mut reported = 0;
    loop {
        ticks.tick().await;
        let refused = broker.refused_allocations();
        if refused != reported {
            reported = refused;
            say(&format!("deposed {refused} {}", refused_by_metric()));
        }
    }
}

fn refused_by_metric() -> String {
    let text = gathered();
    let refused = text.lines().find(|line| line.starts_with("wakeq_group_allocations_refused_total"));
    refused.and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned()
}

/// Positions in Postgres, with a row for each refused commit.
struct Recording {
    store: Store,
    pool: PgPool,
}

impl Recording {
    async fn recorded<T>(&self, answer: Result<T, ConsumerError>) -> Result<T, ConsumerError> {
        if matches!(answer, Err(ConsumerError::Fenced { .. })) {
            let refusal = sqlx::query("insert into refusals (pid) values ($1)");
            let pid = i32::try_from(std::process::id()).unwrap_or(0);
            if let Err(error) = refusal.bind(pid).execute(&self.pool).await {
                say(&format!("a refusal was not written: {error}"));
            }
        }
        answer
    }
}

#[async_trait]
impl PositionStore for Recording {
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<i64, ConsumerError> {
        self.store.open(key, epoch).await
    }

    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError> {
        hold_if_asked(key, epoch);
        self.recorded(self.store.commit(key, epoch, from, to).await).await
    }

    async fn skip(
        &self,
        key: &PositionKey,
        epoch: i64,
        from: i64,
        dead: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        self.recorded(self.store.skip(key, epoch, from, dead).await).await
    }
}

/// Records the events that it was given.
struct Recorder {
    pool: PgPool,
    group: String,
    lasts: Duration,
}

#[async_trait]
impl EventProcessor for Recorder {
    async fn handle_event(&self, event: &LogEvent) -> Result<(), Box<dyn Error + Send + Sync>> {
        // Simulates the work of a handler.
        tokio::time::sleep(self.lasts).await;
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        sqlx::query("insert into handled (consumer_group, stream, seq, pid) values ($1, $2, $3, $4)")
            .bind(&self.group)
            .bind(event.stream.name.as_str())
            .bind(event.seq)
            .bind(pid)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

/// The path that asks a node to hold a commit, and the path that exists while one is held, with its
/// group, source and epoch.
pub(super) fn hold_paths(pid: i32) -> (PathBuf, PathBuf) {
    let path = |state: &str| std::env::temp_dir().join(format!("wakeq-{state}-{pid}"));
    (path("hold"), path("held"))
}

/// The first commit that finds the request blocks until it is withdrawn. It never yields meanwhile:
/// a stopped node that holds events continues from here to the commit, whatever its timers say by
/// then.
#[allow(
    clippy::disallowed_methods,
    reason = "it must not yield, and there is nobody to signal a stopped process"
)]
fn hold_if_asked(key: &PositionKey, epoch: i64) {
    let (asked, held) = hold_paths(i32::try_from(std::process::id()).unwrap_or(0));
    let written = held.with_extension("written");
    if std::fs::rename(asked, &written).is_err() {
        return;
    }
    std::fs::write(&written, format!("{} {} {epoch}", key.group, key.source)).unwrap();
    std::fs::rename(written, &held).unwrap();
    tokio::task::block_in_place(|| {
        while held.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}
