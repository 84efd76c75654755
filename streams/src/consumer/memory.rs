//! A provider and a position store in memory, for tests and for a single process that needs no
//! database. Both end with their process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{ConsumerError, DeadLetter, EventProvider, PositionKey, PositionStore};
use wakeq::log::{EventSource, LogEvent, LogPage, PageLimit, StreamId};
use wakeq::{EventId, Name, Timestamp};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics half-way under this lock, so what a poisoned lock guards is consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log in memory.
///
/// ```
/// use wakeq::CanvasId;
/// use wakeq::log::StreamId;
/// use wakeq_streams::consumers::MemoryLog;
///
/// let log = MemoryLog::default();
/// let company = StreamId::new(CanvasId::DEFAULT, "companies", "company-7").unwrap();
/// let event = log.append(&company, "opened".parse().unwrap(), "{}");
/// assert_eq!((event.seq, event.position), (1, 0));
/// ```
#[derive(Debug, Default)]
pub struct MemoryLog {
    events: Mutex<Vec<LogEvent>>,
    grown: watch::Sender<u64>,
}

impl MemoryLog {
    /// Appends an event to a stream and returns it. The payload is JSON, as the processors expect
    /// it, and is not checked.
    pub fn append(&self, stream: &StreamId, name: Name, payload: &str) -> LogEvent {
        let mut events = locked(&self.events);
        let before = events.iter().rev().find(|event| event.stream == *stream);
        let event = LogEvent {
            seq: i64::try_from(events.len()).map_or(i64::MAX, |count| count + 1),
            prev: before.map_or(0, |event| event.seq),
            id: EventId::new(),
            stream: stream.clone(),
            position: before.map_or(0, |event| event.position + 1),
            name,
            payload: payload.to_owned(),
            metadata: "{}".to_owned(),
            place: None,
            appended_at: Timestamp::from(std::time::SystemTime::now()),
        };
        events.push(event.clone());
        drop(events);
        self.grown.send_modify(|times| *times += 1);
        event
    }
}

#[async_trait]
impl EventProvider for MemoryLog {
    async fn read(
        &self,
        source: &EventSource,
        after: i64,
        limit: PageLimit,
    ) -> Result<LogPage, ConsumerError> {
        let events = locked(&self.events);
        let of_source = |event: &&LogEvent| event.seq > after && source.has(&event.stream);
        let (mut found, mut bytes, mut more): (Vec<LogEvent>, usize, bool) = (Vec::new(), 0, false);
        for event in events.iter().filter(of_source) {
            bytes += event.size_bytes();
            more = found.len() >= limit.events || !found.is_empty() && bytes > limit.bytes;
            if more {
                break;
            }
            found.push(event.clone());
        }
        let end = if more { found.last() } else { events.last() };
        let through = end.map_or(after, |event| event.seq.max(after));
        Ok(LogPage { events: found, through, more, held: false })
    }

    fn watch(&self, _: &EventSource) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }
}

/// Positions in memory, and the events that were given up.
#[derive(Debug, Default)]
pub struct MemoryPositions {
    positions: Mutex<BTreeMap<PositionKey, StoredPosition>>,
}

#[derive(Clone, Debug, Default)]
struct StoredPosition {
    epoch: i64,
    position: i64,
    dead: Vec<LogEvent>,
}

impl MemoryPositions {
    /// The position of a group in a source; 0 before the first event.
    pub fn position(&self, key: &PositionKey) -> i64 {
        locked(&self.positions).get(key).map_or(0, |stored| stored.position)
    }

    /// The events of a source that a group has given up.
    pub fn dead(&self, key: &PositionKey) -> Vec<LogEvent> {
        locked(&self.positions).get(key).map(|stored| stored.dead.clone()).unwrap_or_default()
    }

    /// Moves a position, owned or not; its owner continues from there.
    pub fn reset(&self, key: &PositionKey, position: i64) {
        locked(&self.positions).entry(key.clone()).or_default().position = position;
    }

    fn move_on(
        &self,
        key: &PositionKey,
        epoch: i64,
        from: i64,
        to: i64,
        dead: Option<&LogEvent>,
    ) -> Result<(), ConsumerError> {
        let mut positions = locked(&self.positions);
        let stored = positions.entry(key.clone()).or_default();
        if (stored.epoch, stored.position) != (epoch, from) || to < from {
            return Err(ConsumerError::Fenced { source_key: key.source.to_string(), epoch: stored.epoch });
        }
        stored.position = to;
        stored.dead.extend(dead.cloned());
        Ok(())
    }
}

#[async_trait]
impl PositionStore for MemoryPositions {
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<i64, ConsumerError> {
        let mut positions = locked(&self.positions);
        let stored = positions.entry(key.clone()).or_default();
        if stored.epoch > epoch {
            return Err(ConsumerError::Fenced { source_key: key.source.to_string(), epoch: stored.epoch });
        }
        stored.epoch = epoch;
        Ok(stored.position)
    }

    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError> {
        self.move_on(key, epoch, from, to, None)
    }

    async fn skip(
        &self,
        key: &PositionKey,
        epoch: i64,
        from: i64,
        dead: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        self.move_on(key, epoch, from, dead.event.seq, Some(dead.event))
    }
}
