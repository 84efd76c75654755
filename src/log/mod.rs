//! The log: appends events to streams, alone or in the caller's transaction, and reads them in
//! order.
//!
//! Appended events never change, except that those of entities can be erased. A reader never gets
//! an event while an earlier one may still appear. Nothing here decides what an event means, or
//! what reads it.

mod error;
mod limits;

use std::collections::BTreeMap;

use sqlx::postgres::PgConnection;
use tokio::sync::watch;

use crate::broadcast::{Signal, Signals};
use crate::event::CanvasId;
use crate::notify::Notifier;
use crate::store::{Additions, AppendRefusal, LogBatch, Store, StoreError, append_batch, lacks_partition};

pub use crate::event::{
    AppendCondition, Appended, Category, EventSequencePartitioner, EventSource, InvalidCondition,
    InvalidLogName, InvalidSource, LogEvent, LogEventError, LogPage, NewLogEvent, PageLimit, Partition,
    SourceList, StreamAppend, StreamId, StreamName,
};
pub use crate::store::{LogAppender, LogEnd, LogHolder, LogHorizon, LogStream};
pub use error::LogError;
use limits::CALL_BYTES_MAX;
pub use limits::{APPEND_MAX, READ_MAX};

/// The default limit of a payload.
const PAYLOAD_MAX_BYTES: usize = 256 * 1024;
/// How often an append is tried whose streams are held by others.
const TRIES: u32 = 5;

/// The log. Cheap to clone.
///
/// ```no_run
/// # async fn example(store: wakeq::Store, notifier: wakeq::notify::LocalNotifier) -> Result<(), Box<dyn std::error::Error>> {
/// use wakeq::CanvasId;
/// use wakeq::log::{AppendCondition, EventSource, Log, NewLogEvent, StreamId};
///
/// let log = Log::new(store, &notifier);
/// let account = StreamId::new(CanvasId::DEFAULT, "accounts", "account-7")?;
/// log.append(&account, vec![NewLogEvent::new("opened", &0)?], AppendCondition::Empty).await?;
/// let page = log.read(&EventSource::category("accounts")?, 0, 100).await?;
/// println!("{} events, and the next page begins after {}", page.events.len(), page.through);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Log {
    store: Store,
    signals: Signals,
    payload_limit_bytes: usize,
}

impl Log {
    /// The log of a store, with the signals of this process's notifier.
    pub fn new(store: Store, notifier: &dyn Notifier) -> Self {
        Self::with_signals(store, notifier.signals())
    }

    /// The same with existing signals.
    pub fn with_signals(store: Store, signals: Signals) -> Self {
        Self { store, signals, payload_limit_bytes: PAYLOAD_MAX_BYTES }
    }

    /// Sets the limit of a payload, in bytes. Default 256 KiB. A call is limited to 16 MiB in any
    /// case.
    pub fn with_payload_limit(mut self, limit_bytes: usize) -> Self {
        self.payload_limit_bytes = limit_bytes;
        self
    }

    /// Appends to a stream, in this order, all or nothing: when this returns, the events are
    /// committed.
    ///
    /// Errors: [`LogError::Condition`] if the condition does not hold; nothing was appended then.
    pub async fn append(
        &self,
        stream: &StreamId,
        events: Vec<NewLogEvent>,
        condition: AppendCondition,
    ) -> Result<Vec<Appended>, LogError> {
        self.append_all(&[StreamAppend::new(stream.clone(), events).expect(condition)]).await
    }

    /// Appends to several streams, all or nothing, if every condition holds. All conditions on a
    /// stream refer to its state before the call. Returns the events in the order of the call,
    /// which is their order in the log.
    pub async fn append_all(&self, appends: &[StreamAppend]) -> Result<Vec<Appended>, LogError> {
        self.check(appends)?;
        admit(&self.store, appends).await?;
        let batch = LogBatch::of(appends);
        let mut tries = 1;
        let appended = loop {
            match self.store.append_to_log(&batch).await {
                Err(error) if error.is_contention() && tries < TRIES => tries += 1,
                Err(error) => return Err(LogError::from(error)),
                Ok(appended) => break appended.map_err(refused)?,
            }
        };
        self.announce(appends);
        Ok(appended)
    }

    /// Appends inside the caller's own transaction. Call [`LogReceipt::announce`] after the commit;
    /// without it consumers find the events with their next poll.
    ///
    /// Until that transaction ends, nothing that is appended after it can be read: keep it short.
    /// Two such transactions that append to several streams in several calls may deadlock: use one
    /// call, or the same order.
    ///
    /// A condition that does not hold leaves the transaction as it was.
    ///
    /// ```no_run
    /// # async fn example(log: wakeq::log::Log, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::CanvasId;
    /// use wakeq::log::{NewLogEvent, StreamAppend, StreamId};
    ///
    /// let account = StreamId::new(CanvasId::DEFAULT, "accounts", "account-7")?;
    /// let paid = StreamAppend::new(account, vec![NewLogEvent::new("paid", &17)?]);
    /// let mut transaction = pool.begin().await?;
    /// // … the caller's own statements …
    /// let receipt = log.append_in(&mut transaction, &[paid]).await?;
    /// transaction.commit().await?;
    /// receipt.announce();
    /// # Ok(())
    /// # }
    /// ```
    pub async fn append_in(
        &self,
        connection: &mut PgConnection,
        appends: &[StreamAppend],
    ) -> Result<LogReceipt, LogError> {
        self.check(appends)?;
        let beside = self.store.beside_transactions();
        admit(&beside, appends).await?;
        let appended = append_batch(connection, &LogBatch::of(appends)).await;
        let appended = match appended.map_err(|error| StoreError::from_sqlx("append to the log", error)) {
            Ok(appended) => appended.map_err(refused)?,
            Err(error) => {
                // That transaction is over; the next one finds the partition.
                if lacks_partition(&error) {
                    beside.add_log_partitions().await?;
                }
                return Err(LogError::from(error));
            }
        };
        Ok(LogReceipt { appended, categories: categories(appends), signals: self.signals.clone() })
    }

    /// The events of a source after this `seq`, in order: at most `limit` (1 to 10,000), and at
    /// most 4 MiB of payloads and metadata, but always one if there is one. The next page begins
    /// after [`LogPage::through`].
    pub async fn read(&self, source: &EventSource, after: i64, limit: usize) -> Result<LogPage, LogError> {
        check_limit(limit)?;
        Ok(self.store.read_log(source, after.max(0), limit).await?)
    }

    /// The same with a limit in bytes. The database does not send what exceeds it, except for the
    /// first event.
    pub async fn read_within(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, LogError> {
        check_limit(limit.events)?;
        Ok(self.store.read_log_within(source, after.max(0), limit.events, limit.bytes).await?)
    }

    /// The end of a stream; `None` if it has no event.
    pub async fn end(&self, stream: &StreamId) -> Result<Option<LogEnd>, LogError> {
        Ok(self.store.log_end(stream).await?)
    }

    /// The categories of a canvas in which something was appended, by name, after the given one: up
    /// to `limit`, 1 to 10,000.
    ///
    /// ```no_run
    /// # async fn example(log: wakeq::log::Log) -> Result<(), wakeq::log::LogError> {
    /// use wakeq::CanvasId;
    ///
    /// for category in log.categories(CanvasId::DEFAULT, None, 100).await? {
    ///     let streams = log.streams(CanvasId::DEFAULT, &category, None, 100).await?;
    ///     println!("{category} has {} streams, or more", streams.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn categories(
        &self,
        canvas: CanvasId,
        after: Option<&Category>,
        limit: usize,
    ) -> Result<Vec<Category>, LogError> {
        Ok(self.store.log_categories(canvas, after, rows(limit)?).await?)
    }

    /// The streams of a category of a canvas, by name, after the given one: up to `limit`, 1 to
    /// 10,000. They stay after their events have expired.
    pub async fn streams(
        &self,
        canvas: CanvasId,
        category: &Category,
        after: Option<&StreamName>,
        limit: usize,
    ) -> Result<Vec<LogStream>, LogError> {
        Ok(self.store.log_streams(canvas, category, after, rows(limit)?).await?)
    }

    /// How far the log can be read, and how far it extends.
    pub async fn horizon(&self) -> Result<LogHorizon, LogError> {
        Ok(self.store.log_horizon().await?)
    }

    /// The open transactions that have appended and so hold readers back, the one that holds back
    /// the most first; at most 20.
    pub async fn appenders(&self) -> Result<Vec<LogAppender>, LogError> {
        Ok(self.store.log_appenders().await?)
    }

    /// Changes whenever the source may have grown. It may miss changes: poll as well.
    pub fn watch(&self, source: &EventSource) -> watch::Receiver<u64> {
        let signal = match source {
            EventSource::Log { .. } => Signal::AnyLog,
            EventSource::Category { category, .. } => Signal::Log(category.clone()),
            EventSource::Stream(stream) => Signal::Log(stream.category.clone()),
        };
        self.signals.watch(signal)
    }

    /// The signals that it uses.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    fn announce(&self, appends: &[StreamAppend]) {
        categories(appends).into_iter().for_each(|category| self.signals.send(Signal::Log(category)));
    }

    fn check(&self, appends: &[StreamAppend]) -> Result<(), LogError> {
        let events = || appends.iter().flat_map(|append| &append.events);
        let count = events().count();
        if count.max(appends.len()) > APPEND_MAX {
            return Err(LogError::TooMany(count.max(appends.len())));
        }
        if let Some(append) = appends.iter().find(|append| append.stream.canvas.is_reserved()) {
            return Err(LogError::Canvas(append.stream.canvas));
        }
        if let Some(append) = appends.iter().find(|append| append.stream.category.is_reserved()) {
            return Err(LogError::Category(append.stream.category.clone()));
        }
        let limit_bytes = self.payload_limit_bytes;
        if let Some(large) = events().find(|event| event.payload.len() > limit_bytes) {
            return Err(LogError::TooLarge { size_bytes: large.payload.len(), limit_bytes });
        }
        let size_bytes = events().map(NewLogEvent::size_bytes).sum::<usize>();
        if size_bytes > CALL_BYTES_MAX {
            return Err(LogError::CallTooLarge { size_bytes });
        }
        Ok(())
    }
}

/// Refuses events that exceed the quotas of their canvas, before anything is written.
async fn admit(store: &Store, appends: &[StreamAppend]) -> Result<(), LogError> {
    let mut all: BTreeMap<CanvasId, Additions<'_>> = BTreeMap::new();
    for append in appends.iter().filter(|append| !append.events.is_empty()) {
        let added = all.entry(append.stream.canvas).or_default();
        append.events.iter().for_each(|event| added.append(&append.stream, event.size_bytes()));
    }
    for (canvas, added) in all {
        store.admit(canvas, &added).await?;
    }
    Ok(())
}

fn check_limit(events: usize) -> Result<(), LogError> {
    if (1..=READ_MAX).contains(&events) { Ok(()) } else { Err(LogError::Limit(events)) }
}

/// A limit of a list of names.
fn rows(limit: usize) -> Result<i64, LogError> {
    check_limit(limit)?;
    Ok(i64::try_from(limit).unwrap_or(i64::MAX))
}

/// The categories that are appended to.
fn categories(appends: &[StreamAppend]) -> Vec<Category> {
    let grown = appends.iter().filter(|append| !append.events.is_empty());
    let mut categories: Vec<Category> = grown.map(|append| append.stream.category.clone()).collect();
    categories.sort();
    categories.dedup();
    categories
}

fn refused(AppendRefusal { stream, expected, position }: AppendRefusal) -> LogError {
    LogError::Condition { stream: Box::new(stream), expected, position }
}

/// A receipt for events that were appended in a transaction that the caller still has to commit.
#[derive(Debug)]
#[must_use = "call `announce` after the commit, or consumers find the events only when they poll"]
pub struct LogReceipt {
    appended: Vec<Appended>,
    categories: Vec<Category>,
    signals: Signals,
}

impl LogReceipt {
    /// Where the events are, in the order of the call.
    pub fn appended(&self) -> &[Appended] {
        &self.appended
    }

    /// Wakes the readers of the categories. Call it after the commit; it never blocks.
    pub fn announce(self) -> Vec<Appended> {
        self.categories.into_iter().for_each(|category| self.signals.send(Signal::Log(category)));
        self.appended
    }
}
