//! A consumer: one task per source that it was given, until the source is withdrawn.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::config::{Work, check_name};
use super::reading::{End, Reading, Shared};
use super::{
    ConsumerConfig, EventProcessor, EventProvider, EventSubscriber, Health, InvalidConsumer, PositionKey,
    PositionStore, ReadBudget, Running,
};
use crate::event::SubscriberId;
use wakeq::Name;
use wakeq::log::EventSource;

/// A member of a consumer group, in one process.
///
/// A broker gives it sources. It hands the events of each source to its processor, one after the
/// other, and stores its position.
///
/// ```
/// use std::sync::Arc;
/// use async_trait::async_trait;
/// use wakeq::log::{EventSource, LogEvent};
/// use wakeq_streams::consumers::{MemoryLog, MemoryPositions};
/// use wakeq_streams::{Consumer, ConsumerConfig, EventProcessor};
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
    shared: Arc<Shared>,
    budget: ReadBudget,
    health: Arc<watch::Sender<Health>>,
    running: Mutex<BTreeMap<EventSource, Running>>,
}

impl Consumer {
    /// A consumer of one source, which one member of the group reads as a whole.
    ///
    /// Errors: [`InvalidConsumer`] for a configuration outside its limits, and for a group name
    /// that begins with `entities.`, which is reserved for processors of entities.
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
            shared: Arc::new(Shared::new(group, provider, positions, processor, config)),
            budget: ReadBudget::default(),
            health: Arc::new(watch::Sender::new(Health::Healthy)),
            running: Mutex::default(),
        })
    }

    /// Divides the source, a category, into 1 to 1,024 partitions, which the members of the group
    /// share. A stream stays in the same partition as long as their number does not change. After
    /// [`and`](Self::and) this applies to the source that was added last.
    ///
    /// Errors: [`InvalidConsumer`] for another number, or a source that is not a category.
    pub fn partitioned(self, partitions: u16) -> Result<Self, InvalidConsumer> {
        Ok(Self { work: self.work.partitioned(partitions)?, ..self })
    }

    /// Adds a source. All members of the group must ask for the same sources.
    ///
    /// Errors: [`InvalidConsumer`] if it overlaps with one of the others.
    ///
    /// ```
    /// # fn example(consumer: wakeq_streams::Consumer) -> Result<(), Box<dyn std::error::Error>> {
    /// let contacts = wakeq::log::EventSource::category("contacts")?;
    /// let consumer = consumer.and(contacts)?.partitioned(8)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn and(self, source: EventSource) -> Result<Self, InvalidConsumer> {
        Ok(Self { work: self.work.and(source)?, ..self })
    }

    /// Uses this budget, shared with the consumers that are given a clone of it, instead of the
    /// budget of the process, 64 MiB.
    ///
    /// ```
    /// # fn example(consumer: wakeq_streams::Consumer) {
    /// let consumer = consumer.with_budget(wakeq_streams::consumers::ReadBudget::new(16 * 1024 * 1024));
    /// # }
    /// ```
    pub fn with_budget(self, budget: ReadBudget) -> Self {
        Self { budget, ..self }
    }

    /// Makes a consumer that stopped at a failure healthy again, so that it can be given sources,
    /// and restarts those that it has. An event that waits for a retry is retried at once.
    pub fn recover(&self) {
        self.shared.recovered.send_modify(|times| *times += 1);
        self.health.send_replace(Health::Healthy);
        let mut running = self.running();
        for (source, one) in running.iter_mut().filter(|(_, one)| one.is_over()) {
            *one = self.start(source, one.epoch);
        }
    }

    /// The sources that it is reading now.
    pub fn sources(&self) -> Vec<EventSource> {
        let running = self.running();
        let working = running.iter().filter(|(_, one)| !one.is_over());
        working.map(|(source, _)| source.clone()).collect()
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<EventSource, Running>> {
        // No code panics half-way under this lock, so what a poisoned lock guards is consistent.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, source: &EventSource, epoch: i64) -> Running {
        let cancel = CancellationToken::new();
        let key = PositionKey { group: self.work.group.clone(), source: source.clone() };
        let (shared, budget) = (Arc::clone(&self.shared), self.budget.clone());
        let reading = Reading::new(key, epoch, shared, budget, cancel.clone());
        let (health, name) = (Arc::clone(&self.health), source.to_string());
        // The provider and the position store may be the user's own code, and panic.
        let work = AssertUnwindSafe(reading.run()).catch_unwind();
        Running::start(epoch, cancel, work, move |end| {
            let why = match end {
                Ok(End::Withdrawn | End::Fenced) => return,
                Ok(End::Failed(why)) => why,
                Err(_) => format!("the provider or the position store of {name} panicked"),
            };
            health.send_replace(Health::Unhealthy(why));
        })
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
        if running.get(&source).is_some_and(|one| one.continues(epoch)) {
            return;
        }
        let started = self.start(&source, epoch);
        running.insert(source, started);
    }

    async fn withdraw(&self, source: &EventSource) {
        let Some(Running { cancel, task, .. }) = self.running().remove(source) else { return };
        // The task ends by itself within the grace, even if this future is dropped.
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
        self.shared.config.withdraw_grace
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn recover(&self) {
        Self::recover(self);
    }
}
