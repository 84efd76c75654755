//! The phases: what each of them does to a subject, and what all of them share.
//!
//! A phase knows nothing of what a subject is made of.

mod drain;
mod emit;
mod idle;
mod noisy;
mod paused;
mod rate;
mod snapshot;
mod unpause;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures_util::future::try_join_all;

use crate::baseline::Polled;
use crate::growth::Growth;
use crate::latency::{Latencies, Percentiles};
use crate::meter::{Meter, Usage};
use crate::own::Own;
use crate::report::Unit;
use crate::server::Server;
use crate::subject::{Job, Kind, Subject, Working};

/// Most events in a call.
pub(crate) const CALL: u64 = 1_000;
/// How many events warm up a worker, or a phase that emits one by one.
pub(crate) const WARMING: u64 = 256;
/// How long after the last intended start all events have to be done.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How often a worker is asked how far it is: as often as peers ask theirs, and so seldom that it
/// hardly counts as processor time.
const LOOK: Duration = Duration::from_millis(5);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// 32 callers, one event each at a time.
    EmitSingle,
    /// One caller, 1,000 events in each call.
    EmitBulk,
    /// 32 connections to the API, one event each at a time.
    EmitHttp,
    /// A backlog, processed at this capacity.
    Drain(usize),
    /// This many events a second.
    Rate(u32),
    /// A worker without work.
    Idle,
    /// 500 events a second beside a million that wait under a pause.
    Paused,
    /// 500 events a second while a snapshot keeps 200,000 dead rows.
    Snapshot,
    /// 49 quiet canvases beside one that always has a backlog.
    Noisy,
    /// A pause of 100,000 events is lifted.
    Unpause,
    /// A backlog is emitted and drained while there is much of one thing.
    Grow(Growth, u64),
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) singles: u64,
    pub(crate) events: u64,
    pub(crate) dead: u64,
    pub(crate) paused: u64,
    pub(crate) length: Duration,
    pub(crate) idle: Duration,
}

/// What a phase has measured.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// How many events, or minutes.
    pub(crate) count: f64,
    pub(crate) unit: Unit,
    pub(crate) usage: Usage,
    pub(crate) latency: Option<Percentiles>,
}

/// A subject in a database of its own, and its meter.
pub(crate) struct Trial {
    subject: Arc<dyn Subject>,
    meter: Meter,
    url: String,
}

impl Sizes {
    pub(crate) fn full() -> Self {
        let (length, idle) = (Duration::from_secs(10), Duration::from_secs(120));
        Self { singles: 20_000, events: 100_000, dead: 200_000, paused: 1_000_000, length, idle }
    }

    pub(crate) fn quick() -> Self {
        let (length, idle) = (Duration::from_secs(1), Duration::from_secs(6));
        Self { singles: 2_000, events: 10_000, dead: 20_000, paused: 100_000, length, idle }
    }
}

impl Measured {
    fn events(count: u64, usage: Usage, latency: Option<Percentiles>) -> Self {
        Self { count: count as f64, unit: Unit::Event, usage, latency }
    }
}

impl Phase {
    /// What runs if nothing is chosen.
    const USUAL: [Self; 14] = [
        Self::EmitSingle,
        Self::EmitBulk,
        Self::EmitHttp,
        Self::Drain(64),
        Self::Drain(1_000),
        Self::Rate(100),
        Self::Rate(500),
        Self::Rate(2_000),
        Self::Rate(10_000),
        Self::Idle,
        Self::Paused,
        Self::Snapshot,
        Self::Noisy,
        Self::Unpause,
    ];

    fn all() -> impl Iterator<Item = Self> {
        let grown = |growth: Growth| growth.sizes().iter().map(move |size| Self::Grow(growth, *size));
        Self::USUAL.into_iter().chain(Growth::ALL.into_iter().flat_map(grown))
    }

    /// The usual ones, or of all those whose names begin with one of the words.
    pub(crate) fn chosen(words: &[String]) -> Vec<Self> {
        let is_chosen = |phase: &Self| words.iter().any(|word| phase.name().starts_with(word.as_str()));
        if words.is_empty() { Self::USUAL.to_vec() } else { Self::all().filter(is_chosen).collect() }
    }

    pub(crate) fn names() -> String {
        Self::all().map(Self::name).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::EmitSingle => "emit-single".to_owned(),
            Self::EmitBulk => "emit-bulk".to_owned(),
            Self::EmitHttp => "emit-http".to_owned(),
            Self::Drain(capacity) => format!("drain-{capacity}"),
            Self::Rate(rate) => format!("rate-{rate}"),
            Self::Idle => "idle".to_owned(),
            Self::Paused => "paused".to_owned(),
            Self::Snapshot => "snapshot".to_owned(),
            Self::Noisy => "noisy".to_owned(),
            Self::Unpause => "unpause".to_owned(),
            Self::Grow(growth, size) => format!("grow-{}-{}", growth.name(), growth.label(size)),
        }
    }

    /// Whether a second round can tell more: what an idle worker sends, it sends by a timer.
    pub(crate) fn varies(self) -> bool {
        self != Self::Idle
    }

    /// The API is a process of its own, growth that of the queue in memory. Bare statements only
    /// drain, and at one size. Postgres as the notifier keeps nothing for a worker that comes
    /// later, as that of a drain does.
    pub(crate) fn has(self, kind: Kind) -> bool {
        match kind {
            _ if self == Self::EmitHttp => matches!(kind, Kind::Postgres | Kind::Emulator),
            _ if matches!(self, Self::Grow(..)) => kind == Kind::Memory,
            Kind::Statements => self == Self::Drain(1_000),
            Kind::Postgres => matches!(self, Self::EmitSingle | Self::EmitBulk | Self::Rate(_) | Self::Idle),
            Kind::Handwritten | Kind::Memory | Kind::Emulator => true,
        }
    }

    pub(crate) async fn run(
        self,
        server: &Server,
        database: &str,
        kind: Kind,
        sizes: &Sizes,
    ) -> Result<Measured> {
        let url = server.url(database);
        if let Self::Grow(growth, size) = self {
            let (count, usage) = growth.run(size, &url, &Meter::new(server, database), sizes).await?;
            return Ok(Measured::events(count, usage, None));
        }
        let subject: Arc<dyn Subject> = match kind {
            Kind::Handwritten => Arc::new(Polled::handwritten(&url).await?),
            Kind::Memory => Arc::new(Own::in_memory(&url).await?),
            Kind::Postgres => Arc::new(Own::over_postgres(&url).await?),
            Kind::Emulator => Arc::new(Own::over_emulator(&url, server.emulator(), database).await?),
            Kind::Statements => {
                let (own, meter) = (Own::in_memory(&url).await?, Meter::new(server, database));
                let usage = crate::live_sql::drain(&own, &url, &meter, sizes.events).await?;
                return Ok(Measured::events(sizes.events, usage, None));
            }
        };
        self.of(subject, server, database, sizes).await
    }

    /// Runs it for a given subject.
    pub(crate) async fn of(
        self,
        subject: Arc<dyn Subject>,
        server: &Server,
        database: &str,
        sizes: &Sizes,
    ) -> Result<Measured> {
        let meter = Meter::new(server, database);
        let trial = Trial { subject, meter, url: server.url(database) };
        match self {
            Self::EmitSingle => emit::single(&trial, sizes.singles).await,
            Self::EmitBulk => emit::bulk(&trial, sizes.events).await,
            Self::Drain(capacity) => drain::run(&trial, sizes.events, capacity).await,
            Self::Rate(rate) => rate::run(&trial, rate, sizes.length).await,
            Self::Idle => idle::run(&trial, sizes.idle).await,
            Self::Paused => paused::run(&trial, sizes).await,
            Self::Snapshot => snapshot::run(&trial, sizes).await,
            Self::Noisy => noisy::run(&trial, sizes.length).await,
            Self::Unpause => unpause::run(&trial, sizes.events).await,
            Self::EmitHttp | Self::Grow(..) => bail!("{} is of the queue itself", self.name()),
        }
    }
}

impl Trial {
    /// Lets a worker run a few events, so that connections are open and statements are prepared.
    async fn warm_up(&self, working: &Working) -> Result<()> {
        let before = (working.ended)();
        try_join_all((0..WARMING).map(|_| self.subject.emit(Job::warm()))).await?;
        until_ended([working], before + WARMING, PATIENCE).await
    }

    /// Emits each event at its moment, each for its canvas, and measures until all have ended.
    async fn live(
        &self,
        working: &Working,
        latencies: &Arc<Latencies>,
        canvas: fn(u64) -> u128,
    ) -> Result<Measured> {
        let ended = (working.ended)();
        let (subject, failed) = (Arc::clone(&self.subject), Arc::new(Mutex::new(None::<anyhow::Error>)));
        let (runtime, failure) = (tokio::runtime::Handle::current(), Arc::clone(&failed));
        let running = self.meter.start().await?;
        let pacing = latencies.pace(move |number| {
            let (subject, failure) = (Arc::clone(&subject), Arc::clone(&failure));
            runtime.spawn(async move {
                if let Err(error) = subject.emit(Job { canvas: canvas(number), number }).await {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            });
        });
        let mut deadline = None;
        while latencies.left() > 0 {
            if let Some(error) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(error.context("an event was not emitted"));
            }
            if pacing.is_finished() && *deadline.get_or_insert(Instant::now() + PATIENCE) < Instant::now() {
                bail!("{} events have not started", latencies.left());
            }
            tokio::time::sleep(LOOK).await;
        }
        until_ended([working], ended + latencies.count(), PATIENCE).await?;
        let count = (working.ended)() - ended;
        Ok(Measured::events(count, running.stop().await?, Some(latencies.percentiles())))
    }
}

/// Emits events that only warm up or wait, without measuring it.
pub(crate) async fn fill(subject: &dyn Subject, count: u64) -> Result<()> {
    for from in (0..count).step_by(CALL as usize) {
        let jobs = (from..count.min(from + CALL)).map(|_| Job::warm()).collect();
        subject.emit_all(jobs).await?;
    }
    Ok(())
}

/// Waits until workers have ended this many events together.
pub(crate) async fn until_ended<'a>(
    workers: impl IntoIterator<Item = &'a Working> + Clone,
    count: u64,
    patience: Duration,
) -> Result<()> {
    let ended = || workers.clone().into_iter().map(|working| (working.ended)()).sum::<u64>();
    let deadline = Instant::now() + patience;
    while ended() < count {
        if workers.clone().into_iter().any(|working| working.task.is_finished()) {
            bail!("a worker has stopped");
        }
        if deadline < Instant::now() {
            bail!("{} of {count} events have ended after {patience:?}", ended());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
