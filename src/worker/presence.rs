//! The row of a worker: what it says from the start on, and what the worker does now.
//!
//! It holds up no event and no shutdown: what could not be written is written a minute later, and a
//! row that could not be deleted shows a worker that is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::busy::{BusyTargets, LearntRate};
use super::config::WorkerConfig;
use super::handlers::Registry;
use super::leases::Leases;
use super::name;
use super::subject::Subject;
use crate::event::{EventId, Name, spread};
use crate::store::{Activity, Attendance, NewWorker, SlowedAddress, Store, StoreError, WorkerRun};

/// Maximum number and bytes of the handlers in a row.
const HANDLERS_MAX: usize = 1_000;
const HANDLERS_BYTES_MAX: usize = 64 * 1024;
/// Maximum number and bytes of the events in a row.
const RUNS_MAX: usize = 100;
const RUNS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of an event in a row without its handler: two ids, a time, and what names them.
const RUN_BYTES: usize = 160;
/// Maximum number and bytes of the targets in a row.
const SLOWED_MAX: usize = 100;
const SLOWED_BYTES_MAX: usize = 32 * 1024;
/// Bytes of a target in a row without its address: two ids, two numbers, and what names them.
const SLOWED_BYTES: usize = 250;
/// How long the deletion of the row may take: the grace of the shutdown may be over.
const LEAVE_WAIT: Duration = Duration::from_millis(200);

/// A worker as its row shows it.
pub(super) struct Presence {
    store: Store,
    worker: Arc<NewWorker>,
    leases: Arc<Leases>,
    busy: Arc<BusyTargets>,
    stop: CancellationToken,
}

/// A worker that starts. With `may_sleep` its silence means nothing.
pub(super) fn new_worker(
    name: &Name,
    config: &WorkerConfig,
    registry: &Registry,
    (has_targets, may_sleep): (bool, bool),
) -> NewWorker {
    let handlers = registry.addresses();
    NewWorker {
        name: name.clone(),
        instance: Uuid::new_v4(),
        host: name::host_of_this_process(),
        pid: i32::try_from(std::process::id()).ok(),
        release: env!("CARGO_PKG_VERSION"),
        build: config.build.clone(),
        may_sleep,
        capacity: i32::try_from(config.capacity).unwrap_or(i32::MAX),
        handler_count: i32::try_from(handlers.len()).unwrap_or(i32::MAX),
        handlers: fitting(handlers.into_iter().take(HANDLERS_MAX), HANDLERS_BYTES_MAX, String::len),
        has_targets,
        row: Arc::default(),
    }
}

impl Presence {
    pub(super) fn new(
        store: Store,
        worker: NewWorker,
        (leases, busy): (Arc<Leases>, Arc<BusyTargets>),
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { store, worker: Arc::new(worker), leases, busy, stop })
    }

    /// The worker, and what it does now.
    pub(super) fn attendance(&self) -> Attendance {
        let (running, longest) = self.leases.longest(RUNS_MAX);
        let slowed = self.busy.rates(SLOWED_MAX, Instant::now()).into_iter().map(slowed);
        let activity = Activity {
            is_stopping: self.stop.is_cancelled(),
            running: i32::try_from(running).unwrap_or(i32::MAX),
            runs: fitting(longest.into_iter().map(run), RUNS_BYTES_MAX, |run| RUN_BYTES + run.handler.len()),
            slowed: fitting(slowed, SLOWED_BYTES_MAX, |SlowedAddress { module, name, modifier, .. }| {
                SLOWED_BYTES + module.len() + name.len() + modifier.len()
            }),
        };
        Attendance { worker: Arc::clone(&self.worker), activity }
    }

    /// Adds the row.
    pub(super) async fn enter(&self) {
        note(self.store.enter_worker(&self.attendance()).await);
    }

    /// Waits until the worker is told to stop, and writes that it is stopping if handlers are left
    /// that it waits for.
    pub(super) async fn tell_stop(self: Arc<Self>) {
        self.stop.cancelled().await;
        let seen = self.attendance();
        if seen.activity.running > 0 {
            note(self.store.see_worker(&seen).await);
        }
    }

    /// Writes the row once a period, for a process that is not the one whose passes would. It sends
    /// nothing while the process does not use the database either.
    pub(super) async fn attend(self: Arc<Self>) {
        let period = self.store.timing().probe_period;
        let mut uses = self.store.uses().count();
        loop {
            tokio::time::sleep(spread(period)).await;
            if self.store.uses().count() == uses {
                continue;
            }
            let seen = self.attendance();
            match self.store.see_worker(&seen).await {
                Ok(false) => note(self.store.enter_worker(&seen).await),
                written => note(written),
            }
            uses = self.store.uses().count();
        }
    }

    /// Deletes the row, at the end of the worker. What takes longer goes on while the process does.
    pub(super) async fn leave(&self) {
        let (store, worker) = (self.store.clone(), Arc::clone(&self.worker));
        let leaving = tokio::spawn(async move { note(store.leave_worker(&worker).await) });
        // The row of a worker that was not in time shows that it is lost.
        let _ = tokio::time::timeout(LEAVE_WAIT, leaving).await;
    }
}

fn run((event, subject): (EventId, Arc<Subject>)) -> WorkerRun {
    let Subject { address, claimed_at, .. } = subject.as_ref();
    WorkerRun::new(event, address.scope.canvas, address.to_string(), *claimed_at)
}

/// With a hundredth of an event per second, and the whole seconds that have begun.
fn slowed(LearntRate { target: (address, revision), per_second, held }: LearntRate) -> SlowedAddress {
    SlowedAddress {
        canvas: address.scope.canvas,
        module: address.scope.module.to_string(),
        name: address.scope.name.to_string(),
        modifier: address.modifier.to_string(),
        revision,
        per_second: (per_second * 100.0).round() / 100.0,
        held_s: held.as_secs_f64().ceil() as u64,
    }
}

/// The first of these that together have at most this many bytes.
fn fitting<T>(all: impl Iterator<Item = T>, bytes_max: usize, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut sum = 0;
    all.take_while(|one| {
        sum += bytes(one);
        sum <= bytes_max
    })
    .collect()
}

fn note<T>(written: Result<T, StoreError>) {
    if let Err(error) = written {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "the row that shows this worker to people was not written; the work goes on");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_lists_is_limited_in_bytes() {
        let texts = ["a", "bb", "ccc", "d"];
        let fitting = |most| fitting(texts.into_iter(), most, |text| text.len());
        assert_eq!(fitting(100), texts);
        assert_eq!(fitting(5), ["a", "bb"]);
        assert_eq!(fitting(0), [""; 0]);
    }
}
