//! What is measured: a queue, whatever it is made of. Phases are written once, for all of them.

use std::num::ParseIntError;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The handler of measured events.
pub(crate) const LIVE: &str = "bench";
/// The handler of events that wait under a pause.
pub(crate) const PARKED: &str = "parked";
/// The number of events that only warm up.
pub(crate) const WARM: u64 = u64::MAX;
/// Padding that makes a payload 126 bytes long.
const PADDING: &str = "eighty bytes of an ordinary payload, such as a few ids, a name and an address...";

/// Called with the number of each event as its handler starts.
pub(crate) type Seen = Arc<dyn Fn(u64) + Send + Sync>;

/// An event to emit: a tenant, and a number by which its start is recognized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) canvas: u128,
    pub(crate) number: u64,
}

impl Job {
    pub(crate) fn warm() -> Self {
        Self { canvas: 0, number: WARM }
    }
}

/// The same for every subject. The number is text of one width, so that all payloads have the same
/// length, in whatever type a queue keeps them.
#[derive(Serialize)]
pub(crate) struct Payload {
    number: String,
    padding: &'static str,
}

impl Payload {
    pub(crate) fn new(number: u64) -> Self {
        Self { number: format!("{number:020}"), padding: PADDING }
    }

    /// The length of every payload's JSON.
    pub(crate) fn bytes() -> Result<usize> {
        Ok(serde_json::to_string(&Self::new(WARM))?.len())
    }
}

/// What a handler reads of a payload.
#[derive(Deserialize)]
pub(crate) struct Received {
    number: String,
}

impl Received {
    pub(crate) fn number(&self) -> Result<u64, ParseIntError> {
        self.number.parse()
    }
}

/// How a worker works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Maximum events in progress; for a queue that polls, the limit of a statement.
    pub(crate) capacity: usize,
    /// Connections and pause of a queue that polls.
    pub(crate) pollers: usize,
    pub(crate) pause: Duration,
}

impl Load {
    /// A backlog: two connections that poll are as fast as more of them.
    pub(crate) fn drain(capacity: usize) -> Self {
        Self { capacity, pollers: 2, pause: Duration::from_millis(1) }
    }

    /// Traffic, and waiting for it: an idle worker is configured like a busy one.
    pub(crate) fn live() -> Self {
        Self { capacity: 64, pollers: 1, pause: Duration::from_millis(10) }
    }
}

/// A running worker.
pub(crate) struct Working {
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<Result<()>>,
    /// How many events have ended: their rows are gone.
    pub(crate) ended: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Working {
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.task.await?
    }
}

/// A queue.
#[async_trait]
pub(crate) trait Subject: Send + Sync {
    /// Emits an event: when this returns, it is committed.
    async fn emit(&self, job: Job) -> Result<()>;

    /// Emits events in one call.
    async fn emit_all(&self, jobs: Vec<Job>) -> Result<()>;

    /// Adds events numbered from 0 for the handler [`PARKED`], which is paused from then on.
    async fn park(&self, count: u64) -> Result<()>;

    /// Lifts the pause.
    async fn unpark(&self) -> Result<()>;

    /// Starts a worker.
    async fn work(&self, load: Load, seen: Seen) -> Result<Working>;
}

/// The kinds that every run compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The baseline of the gate.
    Handwritten,
    /// The queue's own statements, with nothing around them.
    Statements,
    /// The queue with a notifier in memory.
    Memory,
    /// The queue with Postgres as the notifier: what one process emits, another one runs.
    Postgres,
    /// The queue over our emulator.
    Emulator,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Handwritten, Self::Statements, Self::Memory, Self::Postgres, Self::Emulator];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Handwritten => "handwritten",
            Self::Statements => "statements",
            Self::Memory => "memory",
            Self::Postgres => "postgres",
            Self::Emulator => "emulator",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_has_the_same_length() {
        for number in [0, 4_999, WARM] {
            let text = serde_json::to_string(&Payload::new(number)).unwrap();
            assert_eq!(text.len(), 126, "{text}");
            assert_eq!(serde_json::from_str::<Received>(&text).unwrap().number().unwrap(), number);
        }
        assert_eq!(Payload::bytes().unwrap(), 126);
    }
}
