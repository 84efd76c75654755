//! A consumer: what it is told to read, a task reads for each source, until it is told to end.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::config::{Work, check_name};
use super::reading::{End, Parts, Reading};
use super::{
    ConsumerConfig, EventProcessor, EventProvider, EventSubscriber, Health, InvalidConsumer, PositionKey,
    PositionStore, ReadBudget,
};
use crate::event::{EventSource, Name, SubscriberId};

/// A member of a consumer group, in one process. A broker gives it sources; of each it hands the events to its processor, one
/// after the other, and keeps how far it has come.
///
/// ```
/// use std::sync::Arc;
/// use async_trait::async_trait;
/// use wakeq::{
///     Consumer, ConsumerConfig, EventProcessor, EventSource, LogEvent, MemoryLog, MemoryPositions,
/// };
///
/// struct Projection;
///
/// #[async_trait]
/// impl EventProcessor for Projection {
///     async fn handle_event(&self, event: &LogEvent) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         println!("{} of {}: {}", event.name, event.stream.name, event.payload);
///         Ok(())
///     }
/// }
///
/// let consumer = Consumer::new(
///     "company-projection".parse().unwrap(),
///     EventSource::category("companies").unwrap(),
///     Arc::new(MemoryLog::default()),
///     Arc::new(MemoryPositions::default()),
///     Arc::new(Projection),
///     ConsumerConfig::default(),
/// ).unwrap();
/// let consumer = consumer.partitioned(16).unwrap();
/// ```
pub struct Consumer {
    work: Work,
    id: SubscriberId,
    parts: Arc<Parts>,
    budget: ReadBudget,
    health: Arc<watch::Sender<Health>>,
    running: Mutex<BTreeMap<EventSource, Running>>,
}

/// A source that is, or was, worked on.
struct Running {
    epoch: i64,
    /// Dropped, it ends the task.
    cancel: DropGuard,
    task: JoinHandle<()>,
    /// It has come to its end, whatever is still to be said of that.
    over: Arc<AtomicBool>,
}

impl Running {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst) || self.task.is_finished()
    }
}

impl Consumer {
    /// A consumer of a source, which is one piece of work. Errors: [`InvalidConsumer`] for a configuration outside its limits, and for a name
    /// that begins with `entities.`: those are the groups of processors of entities.
    pub fn new(
        group: Name,
        source: EventSource,
        provider: Arc<dyn EventProvider>,
        positions: Arc<dyn PositionStore>,
        processor: Arc<dyn EventProcessor>,
        config: ConsumerConfig,
    ) -> Result<Self, InvalidConsumer> {
        config.check()?;
        check_name(&group)?;
        Ok(Self {
            work: Work::new(group.clone(), source),
            id: SubscriberId::new(),
            parts: Arc::new(Parts::new(group, provider, positions, processor, config)),
            budget: ReadBudget::default(),
            health: Arc::new(watch::Sender::new(Health::Healthy)),
            running: Mutex::default(),
        })
    }

    /// The same for a category that is divided into so many partitions, 1 to 1,024, which members of the group share. Each stream is
    /// in one of them, for as long as their number does not change. After [`and`](Self::and) this is about the source that was
    /// added last.
    pub fn partitioned(self, partitions: u16) -> Result<Self, InvalidConsumer> {
        Ok(Self { work: self.work.partitioned(partitions)?, ..self })
    }

    /// The same with another source besides, which has nothing in common with the others. Every member of the group has to ask for the
    /// same sources.
    ///
    /// ```
    /// # fn example(consumer: wakeq::Consumer) -> Result<(), Box<dyn std::error::Error>> {
    /// let contacts = wakeq::EventSource::category("contacts")?;
    /// let consumer = consumer.and(contacts)?.partitioned(8)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn and(self, source: EventSource) -> Result<Self, InvalidConsumer> {
        Ok(Self { work: self.work.and(source)?, ..self })
    }

    /// The same with a budget of its own, or one that it shares with those that are given a clone of it. By default it has a part of that of the
    /// process, 64 MiB.
    ///
    /// ```
    /// # fn example(consumer: wakeq::Consumer) {
    /// let consumer = consumer.with_budget(wakeq::ReadBudget::new(16 * 1024 * 1024));
    /// # }
    /// ```
    pub fn with_budget(self, budget: ReadBudget) -> Self {
        Self { budget, ..self }
    }

    /// Makes a consumer that stopped at a failure healthy again, so that it may be given sources, and begins anew with those
    /// that it has. What waits for its next attempt is tried at once.
    pub fn recover(&self) {
        self.parts.recovered.send_modify(|times| *times += 1);
        self.health.send_replace(Health::Healthy);
        let mut running = self.running();
        for (source, one) in running.iter_mut().filter(|(_, one)| one.is_over()) {
            *one = self.start(source, one.epoch);
        }
    }

    /// The sources that it works on now.
    pub fn sources(&self) -> Vec<EventSource> {
        let running = self.running();
        let working = running.iter().filter(|(_, one)| !one.is_over());
        working.map(|(source, _)| source.clone()).collect()
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<EventSource, Running>> {
        // Nothing that is done under it panics half-way.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, source: &EventSource, epoch: i64) -> Running {
        let cancel = CancellationToken::new();
        let key = PositionKey { group: self.work.group.clone(), source: source.clone() };
        let (parts, budget) = (Arc::clone(&self.parts), self.budget.clone());
        let reading = Reading::new(key, epoch, parts, budget, cancel.clone());
        let (health, name) = (Arc::clone(&self.health), source.to_string());
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let task = tokio::spawn(async move {
            // Provider and positions are whatever somebody brings.
            let end = AssertUnwindSafe(reading.run()).catch_unwind().await;
            // Before its health is heard of: whoever recovers it then finds that it has ended.
            ended.store(true, Ordering::SeqCst);
            let why = match end {
                Ok(End::Withdrawn | End::Fenced) => return,
                Ok(End::Failed(why)) => why,
                Err(_) => format!("{name} panicked where it is read or its position is kept"),
            };
            health.send_replace(Health::Unhealthy(why));
        });
        Running { epoch, cancel: cancel.drop_guard(), task, over }
    }
}

#[async_trait]
impl EventSubscriber for Consumer {
    fn name(&self) -> &Name {
        &self.work.group
    }

    fn id(&self) -> SubscriberId {
        self.id
    }

    fn requests(&self) -> Vec<EventSource> {
        self.work.sources.clone()
    }

    fn accept(&self, source: EventSource, epoch: i64) {
        let mut running = self.running();
        // One that was fenced out begins again only under a higher epoch: it was somebody else's meanwhile.
        let goes_on = |one: &Running| one.epoch >= epoch || !one.is_over();
        if running.get(&source).is_some_and(goes_on) {
            return;
        }
        let started = self.start(&source, epoch);
        running.insert(source, started);
    }

    async fn withdraw(&self, source: &EventSource) {
        let Some(Running { cancel, task, .. }) = self.running().remove(source) else { return };
        // Its task ends by itself within the grace, also if nobody waits here.
        drop(cancel);
        if let Err(defect) = task.await {
            tracing::error!(
                error = &defect as &dyn std::error::Error,
                group = %self.work.group,
                source = %source,
                "a consumer was cut short"
            );
        }
    }

    fn grace(&self) -> Duration {
        self.parts.config.withdraw_grace
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn recover(&self) {
        Self::recover(self);
    }
}
