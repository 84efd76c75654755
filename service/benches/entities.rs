//! What entities cost: `cargo bench --bench entities`.
//!
//! First, validation and application alone, as in an actor (events per second, and the 99th
//! percentile of one, which has a limit). Then events from the inbox to the commit of their
//! answers: on one entity and on many, with the state written in every batch and in every hundredth
//! version. Then what an operation of a second costs the other entities, if it is part of an
//! event's application, and if the event asks a handler for it. Then the start: how long loading
//! the entities takes, and the estimate of their memory. With `-- million`, instead: the start with
//! a million entities, its memory, and the longest statement; these have limits.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first error"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use wakeq::log::Log;
use wakeq::notify::NoNotifier;
use wakeq::{CanvasId, Event, Queue, QueueConfig, Store, StoreConfig};
use wakeq_streams::{
    Applied, Entities, Entity, EntityConfig, EntityEvent, EntityId, EntityProcessor, EventSubscriber,
    Rejection,
};
use wakeq_testbed::{Cluster, ClusterOptions, Folder};

const EVENTS: usize = 20_000;
const ENTITIES: usize = 20_000;
/// The limit for the 99th percentile of validation and application.
const APPLIED_WITHIN: Duration = Duration::from_micros(100);
/// How long an operation takes.
const LONG: Duration = Duration::from_secs(1);

struct Account;

#[derive(Clone, Default, Serialize, Deserialize)]
struct Balance {
    cents: i64,
    note: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Deposit {
        cents: u32,
    },
    Note {
        text: String,
    },
    /// Its application takes [`LONG`].
    Work,
    /// Asks a handler to do the same.
    Ask,
}

impl Entity for Account {
    const TYPE: &'static str = "account";
    type State = Balance;
    type Event = Change;

    fn validate(balance: &Balance, change: &Change) -> Result<(), Rejection> {
        match change {
            Change::Deposit { cents } if balance.cents + i64::from(*cents) < 0 => {
                Err(Rejection::new("overdrawn"))
            }
            Change::Deposit { .. } | Change::Note { .. } | Change::Work | Change::Ask => Ok(()),
        }
    }

    fn apply(mut balance: Balance, change: &Change) -> Applied<Balance> {
        match change {
            Change::Deposit { cents } => balance.cents += i64::from(*cents),
            Change::Note { text } => balance.note.clone_from(text),
            #[allow(clippy::disallowed_methods, reason = "what applies an event has no runtime")]
            Change::Work => std::thread::sleep(LONG),
            Change::Ask => return Applied::new(balance).ask(Event::new("work", &LONG.as_secs())),
        }
        let cents = balance.cents;
        Applied::new(balance).result(&cents)
    }
}

#[tokio::main]
async fn main() {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    if std::env::args().any(|argument| argument == "million") {
        return million().await;
    }
    alone();
    let cluster = Cluster::start(ClusterOptions::default()).await.unwrap();
    for (number, (what, entities, snapshot_every)) in [
        ("one entity", 1, 1),
        ("1,000 entities", 1_000, 1),
        ("1,000 entities, every 100th version", 1_000, 100),
    ]
    .into_iter()
    .enumerate()
    {
        through(&cluster, number, what, entities, snapshot_every).await;
    }
    long(&cluster).await;
    start(&cluster).await;
    cluster.stop().await.unwrap();
}

/// Reads, validates, applies, and writes the result, as an actor does for an event.
fn alone() {
    let mut balance = Balance::default();
    let mut took = Vec::with_capacity(200_000);
    let begun = Instant::now();
    for _ in 0..200_000 {
        let since = Instant::now();
        let change: Change = serde_json::from_str(r#"{"deposit":{"cents":1}}"#).unwrap();
        Account::validate(&balance, &change).unwrap();
        let applied = Account::apply(balance, &change);
        balance = applied.state().clone();
        took.push(since.elapsed());
    }
    let all = begun.elapsed();
    took.sort_unstable();
    let rate = 200_000.0 / all.as_secs_f64();
    let p99 = took[took.len() * 99 / 100];
    println!("validate and apply   {rate:>9.0} a second   p99 {p99:?}, to be below {APPLIED_WITHIN:?}");
    assert!(p99 < APPLIED_WITHIN, "validation and application take too long");
}

struct Bank {
    entities: Entities,
    processor: EntityProcessor<Account>,
    log: Log,
    pool: sqlx::PgPool,
}

async fn bank(cluster: &Cluster, database: &str, snapshot_every: u32) -> Bank {
    let mut connection =
        <sqlx::PgConnection as sqlx::Connection>::connect(&cluster.url("postgres")).await.unwrap();
    let create = format!("create database {database}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut connection).await.unwrap();
    let url = cluster.url(database);
    Store::migrate(&url, false).await.unwrap();
    let store = Store::connect(&url, StoreConfig::default()).await.unwrap();
    let queue = Queue::new(store.clone(), Arc::new(NoNotifier), QueueConfig::default());
    let log = Log::with_signals(store, queue.signals().clone());
    let config =
        EntityConfig { snapshot_every, poll_interval: Duration::from_millis(50), ..EntityConfig::default() };
    let processor = EntityProcessor::new(queue.clone(), Arc::new(log.clone()), config).unwrap();
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    Bank { entities: Entities::new(queue), processor, log, pool }
}

impl Bank {
    async fn send(&self, events: usize, entities: usize, event: &Change) {
        for start in (0..events).step_by(1000) {
            let one = |at| {
                let entity =
                    EntityId::new(CanvasId::DEFAULT, "account", &format!("a{}", at % entities)).unwrap();
                (entity, EntityEvent::of(event).unwrap())
            };
            self.entities.send_all((start..events.min(start + 1000)).map(one).collect()).await.unwrap();
        }
    }

    async fn until_decided(&self) {
        let left = "select count(*) from wakeq.entity_events where status = 'accepted'";
        while sqlx::query_scalar::<_, i64>(left).fetch_one(&self.pool).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn through(cluster: &Cluster, number: usize, what: &str, entities: usize, snapshot_every: u32) {
    let bank = bank(cluster, &format!("through_{number}"), snapshot_every).await;
    let since = Instant::now();
    bank.send(EVENTS, entities, &Change::Deposit { cents: 1 }).await;
    let sent = since.elapsed();
    let since = Instant::now();
    bank.processor.accept(bank.processor.entity_type().source(), 1);
    bank.until_decided().await;
    let rate = |took: Duration| EVENTS as f64 / took.as_secs_f64();
    println!(
        "{what:<38} {:>7.0} sent a second   {:>7.0} decided a second",
        rate(sent),
        rate(since.elapsed())
    );
    // One at a time, from the send to the commit.
    let mut took = Vec::new();
    for _ in 0..200 {
        let since = Instant::now();
        bank.send(1, 1, &Change::Deposit { cents: 1 }).await;
        bank.until_decided().await;
        took.push(since.elapsed());
    }
    took.sort_unstable();
    println!("{:<38} one at a time: median {:?}, p99 {:?}", "", took[100], took[198]);
    bank.processor.withdraw(&bank.processor.entity_type().source()).await;
}

/// How long a deposit takes on one entity while an operation of another one is running.
async fn long(cluster: &Cluster) {
    let bank = bank(cluster, "long", 1).await;
    bank.processor.accept(bank.processor.entity_type().source(), 1);
    bank.processor.ready().await;
    for (how, change) in [("applied", &Change::Work), ("asked for", &Change::Ask)] {
        let entity = |id| EntityId::new(CanvasId::DEFAULT, "account", id).unwrap();
        bank.entities.send(&entity("slow"), EntityEvent::of(change).unwrap()).await.unwrap();
        let since = Instant::now();
        let deposit = EntityEvent::of(&Change::Deposit { cents: 1 }).unwrap();
        let sent = bank.entities.send(&entity("quick"), deposit).await.unwrap();
        let left = "select count(*) from wakeq.entity_events where event_id = $1 and status = 'accepted'";
        while sqlx::query_scalar::<_, i64>(left).bind(sent.id.0).fetch_one(&bank.pool).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        println!("a deposit beside an operation of {LONG:?} that is {how}: {:?}", since.elapsed());
    }
    bank.processor.withdraw(&bank.processor.entity_type().source()).await;
}

async fn start(cluster: &Cluster) {
    let first = bank(cluster, "start", 1).await;
    let text = "x".repeat(200);
    first.send(ENTITIES, ENTITIES, &Change::Note { text }).await;
    first.processor.accept(first.processor.entity_type().source(), 1);
    first.until_decided().await;
    first.processor.withdraw(&first.processor.entity_type().source()).await;
    let since = Instant::now();
    first.processor.accept(first.processor.entity_type().source(), 2);
    let (entities, _) = first.processor.ready().await;
    let took = since.elapsed();
    let (_, estimated) = first.processor.size().await;
    println!("start with {entities} entities: {took:?}; estimated {} bytes each", estimated / entities);
    drop(first.log);
}

/// Starts with a million entities on a hundred canvases, each with a state of 220 bytes, and then
/// decides on events for them.
async fn million() {
    let cluster =
        Cluster::start(ClusterOptions { folder: Folder::Memory, ..ClusterOptions::default() }).await.unwrap();
    let bank = bank(&cluster, "million", 1).await;
    let since = Instant::now();
    sqlx::raw_sql(include_str!("entities/million.sql")).execute(&bank.pool).await.unwrap();
    println!("a million entities were written in {:?}", since.elapsed());
    let longest = tokio::spawn(longest_statement(bank.pool.clone()));
    let before = resident_mib();
    let since = Instant::now();
    bank.processor.accept(bank.processor.entity_type().source(), 1);
    let (entities, _) = bank.processor.ready().await;
    let (took, (held, estimated)) = (since.elapsed(), bank.processor.size().await);
    assert_eq!(entities, 1_000_000);
    println!(
        "start with {entities} entities: {took:?}, {held} of them in memory; estimated {} MiB, the process grew from {before} \
         to {} MiB at most",
        estimated >> 20,
        resident_mib()
    );
    let since = Instant::now();
    bank.send(20_000, 1_000_000, &Change::Deposit { cents: 1 }).await;
    bank.until_decided().await;
    println!("20,000 events of as many entities: sent and decided in {:?}", since.elapsed());
    longest.abort();
    let longest = *LONGEST.lock().unwrap();
    println!("the longest statement: {longest:?}, to be below 1 s");
    assert!(took < Duration::from_secs(60) && longest < Duration::from_secs(1) && resident_mib() < 2048);
    cluster.stop().await.unwrap();
}

/// The longest observed duration of a statement.
static LONGEST: std::sync::Mutex<Duration> = std::sync::Mutex::new(Duration::ZERO);

/// Samples all running statements except vacuum's a hundred times a second.
async fn longest_statement(pool: sqlx::PgPool) {
    let running = "select coalesce(max(extract(epoch from clock_timestamp() - query_start)), 0)::float8
                     from pg_stat_activity where datname = current_database() and state = 'active' and pid <> pg_backend_pid()
                      and backend_type = 'client backend'";
    loop {
        let running: f64 = sqlx::query_scalar(running).fetch_one(&pool).await.unwrap();
        {
            let mut longest = LONGEST.lock().unwrap();
            *longest = longest.max(Duration::from_secs_f64(running.max(0.0)));
        }
        // The sampling interval.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The peak memory of this process.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}
