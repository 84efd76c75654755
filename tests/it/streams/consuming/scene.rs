//! Shared by the tests of consumers: a log, positions, and a processor that reports what it
//! receives.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc, watch};
use wakeq::log::{AppendCondition, EventSource, Log, LogEvent, LogPage, NewLogEvent, PageLimit, StreamId};
use wakeq::{CanvasId, Name};
use wakeq_streams::consumers::{MemoryLog, MemoryPositions, PositionKey};
use wakeq_streams::{
    Consumer, ConsumerConfig, ConsumerError, EventProcessor, EventProvider, EventSubscriber, Health,
    PositionStore,
};

use crate::support::{Stage, TIMEOUT};

/// Where events and positions are kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Both in memory.
    Memory,
    /// Both in Postgres.
    Postgres,
}

enum Backend {
    Memory(Arc<MemoryLog>, Arc<MemoryPositions>),
    Postgres(Log, Box<Stage>),
}

pub(super) struct Scene {
    backend: Backend,
    pub(super) provider: Arc<dyn EventProvider>,
    pub(super) positions: Arc<dyn PositionStore>,
}

/// A consumer, its processor, and what that handles.
pub(super) type Parts = (Consumer, Arc<Recorder>, HandledEvents);

impl Scene {
    /// With the log in memory, and positions in the database of a stage.
    pub(super) async fn over(stage: &Stage) -> Self {
        Self { positions: Arc::new(stage.store.clone()), ..Self::new(Kind::Memory).await }
    }

    pub(super) async fn on_a_stage() -> (Stage, Self) {
        let (stage, _) = Stage::memory().await;
        let scene = Self::over(&stage).await;
        (stage, scene)
    }

    pub(super) async fn new(kind: Kind) -> Self {
        match kind {
            Kind::Memory => {
                let log = Arc::new(MemoryLog::default());
                let positions = Arc::new(MemoryPositions::default());
                let backend = Backend::Memory(log.clone(), positions.clone());
                Self { backend, provider: log, positions }
            }
            Kind::Postgres => {
                let (stage, _) = Stage::memory().await;
                let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
                let (provider, positions) = (Arc::new(log.clone()), Arc::new(stage.store.clone()));
                Self { backend: Backend::Postgres(log, Box::new(stage)), provider, positions }
            }
        }
    }

    /// Appends an event to a stream of `companies`; returns its `seq`.
    pub(super) async fn append(&self, stream: &str, payload: usize) -> i64 {
        self.append_to(&companies(stream), payload).await
    }

    /// Appends these payloads to the stream `one`; returns each `seq`.
    pub(super) async fn append_all(&self, payloads: impl IntoIterator<Item = usize>) -> Vec<i64> {
        let mut seqs = Vec::new();
        for payload in payloads {
            seqs.push(self.append("one", payload).await);
        }
        seqs
    }

    pub(super) async fn append_to(&self, stream: &StreamId, payload: usize) -> i64 {
        match &self.backend {
            Backend::Memory(log, _) => {
                log.append(stream, "changed".parse().unwrap(), &payload.to_string()).seq
            }
            Backend::Postgres(log, _) => {
                let event = NewLogEvent::new("changed", &payload).unwrap();
                log.append(stream, vec![event], AppendCondition::None).await.unwrap()[0].seq
            }
        }
    }

    /// A consumer of `companies`, and the events that its processor receives.
    pub(super) fn consumer(&self, config: ConsumerConfig) -> Parts {
        self.consumer_of(category(), config)
    }

    pub(super) fn consumer_of(&self, source: EventSource, config: ConsumerConfig) -> Parts {
        self.consumer_in("projection".parse().unwrap(), source, config)
    }

    pub(super) fn consumer_named(&self, group: Name, config: ConsumerConfig) -> Parts {
        self.consumer_in(group, category(), config)
    }

    fn consumer_in(&self, group: Name, source: EventSource, config: ConsumerConfig) -> Parts {
        self.consumer_with(Recorder::new, group, source, config)
    }

    /// A consumer behind a door: handling an event ends only when the door lets it through.
    pub(super) fn behind_a_door(&self, config: ConsumerConfig) -> Parts {
        self.consumer_with(Recorder::behind_a_door, "projection".parse().unwrap(), category(), config)
    }

    fn consumer_with(
        &self,
        recorder: fn(mpsc::Sender<LogEvent>) -> Recorder,
        group: Name,
        source: EventSource,
        config: ConsumerConfig,
    ) -> Parts {
        let (sender, handed) = mpsc::channel(2_000);
        let recorder = Arc::new(recorder(sender));
        let (provider, positions) = (Arc::clone(&self.provider), Arc::clone(&self.positions));
        let consumer = Consumer::new(group, source, provider, positions, recorder.clone(), config);
        (consumer.unwrap(), recorder, HandledEvents(handed))
    }

    /// As an operator does: moves the position of `companies`, owned or not.
    pub(super) async fn reset(&self, position: i64) {
        match &self.backend {
            Backend::Memory(_, positions) => {
                let key = PositionKey { group: "projection".parse().unwrap(), source: category() };
                positions.reset(&key, position);
            }
            Backend::Postgres(_, stage) => {
                let reset = "update wakeq.consumer_positions set position = $1";
                sqlx::query(reset).bind(position).execute(&stage.pool).await.unwrap();
            }
        }
    }

    /// The group's position in a source; reading it takes the source for an epoch.
    pub(super) async fn position(&self, source: &EventSource, epoch: i64) -> i64 {
        let key = PositionKey { group: "projection".parse().unwrap(), source: source.clone() };
        self.positions.open(&key, epoch).await.unwrap()
    }
}

pub(super) fn companies(stream: &str) -> StreamId {
    StreamId::new(CanvasId::DEFAULT, "companies", stream).unwrap()
}

pub(super) fn category() -> EventSource {
    EventSource::category("companies").unwrap()
}

/// Why a consumer is unhealthy, once it is.
pub(super) async fn unhealthy(consumer: &Consumer) -> String {
    let mut health = consumer.health();
    let ill = tokio::time::timeout(TIMEOUT, health.wait_for(|health| *health != Health::Healthy)).await;
    let Health::Unhealthy(why) = ill.expect("it stops").unwrap().clone() else { unreachable!() };
    why
}

/// A configuration in which the clock triggers nothing.
pub(super) fn woken() -> ConsumerConfig {
    ConsumerConfig { poll_interval: Duration::from_secs(3600), ..ConsumerConfig::default() }
}

/// How an event fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Fails,
    Panics,
    Hangs,
}

/// Reports the events that it receives, and fails as configured.
pub(super) struct Recorder {
    sender: mpsc::Sender<LogEvent>,
    /// Failures to come, by payload: which, and how often.
    troubles: Mutex<HashMap<String, (Trouble, u32)>>,
    /// A permit for each event that may finish, if the door is closed at first.
    door: Semaphore,
    behind_door: bool,
}

impl Recorder {
    fn new(sender: mpsc::Sender<LogEvent>) -> Self {
        Self { sender, troubles: Mutex::default(), door: Semaphore::new(0), behind_door: false }
    }

    /// A recorder whose events finish only when they are let through.
    fn behind_a_door(sender: mpsc::Sender<LogEvent>) -> Self {
        Self { behind_door: true, ..Self::new(sender) }
    }

    pub(super) fn open(&self, events: usize) {
        self.door.add_permits(events);
    }

    pub(super) fn trouble(&self, payload: usize, trouble: Trouble, times: u32) {
        self.troubles.lock().unwrap().insert(payload.to_string(), (trouble, times));
    }

    fn next_trouble(&self, payload: &str) -> Option<Trouble> {
        let mut troubles = self.troubles.lock().unwrap();
        let (trouble, times) = troubles.get_mut(payload)?;
        *times = times.checked_sub(1)?;
        Some(*trouble)
    }
}

#[async_trait]
impl EventProcessor for Recorder {
    async fn handle_event(&self, event: &LogEvent) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.sender.try_send(event.clone())?;
        if self.behind_door {
            self.door.acquire().await?.forget();
        }
        match self.next_trouble(&event.payload) {
            None => Ok(()),
            Some(Trouble::Fails) => Err("it was told to fail".into()),
            Some(Trouble::Panics) => panic!("it was told to panic"),
            Some(Trouble::Hangs) => std::future::pending().await,
        }
    }
}

/// The events that a processor received.
pub(super) struct HandledEvents(pub(super) mpsc::Receiver<LogEvent>);

impl HandledEvents {
    pub(super) async fn next(&mut self) -> LogEvent {
        let next = tokio::time::timeout(TIMEOUT, self.0.recv()).await;
        next.expect("an event is handled in time").expect("the processor lives")
    }

    pub(super) async fn take(&mut self, count: usize) -> Vec<i64> {
        let mut seqs = Vec::new();
        while seqs.len() < count {
            seqs.push(self.next().await.seq);
        }
        seqs
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

/// A provider that signals no append, and whose reads fail the given number of times.
pub(super) struct SilentProvider {
    pub(super) inner: Arc<dyn EventProvider>,
    pub(super) failures: Mutex<u32>,
    silence: watch::Sender<u64>,
}

impl SilentProvider {
    pub(super) fn new(inner: Arc<dyn EventProvider>) -> Self {
        Self { inner, failures: Mutex::new(0), silence: watch::Sender::new(0) }
    }
}

#[async_trait]
impl EventProvider for SilentProvider {
    async fn read(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, ConsumerError> {
        let fails = {
            let mut failures = self.failures.lock().unwrap();
            let left = failures.saturating_sub(1);
            std::mem::replace(&mut *failures, left) > 0
        };
        if fails {
            return Err(ConsumerError::unavailable("it was told to fail", std::io::Error::other("away")));
        }
        self.inner.read(source, after, limit).await
    }

    fn watch(&self, _: &EventSource) -> watch::Receiver<u64> {
        self.silence.subscribe()
    }
}

/// Runs a test with each kind.
macro_rules! on_each {
    ($($(#[$meta:meta])* $name:ident;)*) => {
        mod memory {
            use crate::streams::consuming::scene::{Kind, Scene};
            $($(#[$meta])* #[tokio::test] async fn $name() { super::$name(Scene::new(Kind::Memory).await).await })*
        }
        mod postgres {
            use crate::streams::consuming::scene::{Kind, Scene};
            $($(#[$meta])* #[tokio::test] async fn $name() { super::$name(Scene::new(Kind::Postgres).await).await })*
        }
    };
}
pub(super) use on_each;
