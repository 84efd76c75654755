//! A simulated world for the real state machine: the rows, rules and clock of a database, a broker,
//! and workers.
//!
//! It makes none of the machine's decisions; its statements do what the SQL does, each at one
//! moment.

pub(crate) mod broker;
pub(crate) mod cancelling;
pub(crate) mod dice;
pub(crate) mod emulated;
pub(crate) mod lanes;
pub(crate) mod limits;
pub(crate) mod removing;
pub(crate) mod slots;
pub(crate) mod statements;
pub(crate) mod tally;
pub(crate) mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;
use wakeq::control::RuleKind;
use wakeq::machine::{Outcome, Policy, Removal};
use wakeq::{EventId, RetryPolicy, Timestamp, Timing};

use broker::Broker;
use limits::Limits;

/// A deliberate bug in a statement, to show that the checks notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Parking does not check the rule again.
    ParkWithoutRule,
    /// Completing does not compare `claims`.
    RemoveWithoutFence,
    /// Saving a retry does not compare `claims`.
    RetryWithoutFence,
    /// Claiming does not check the lock again.
    ClaimWithoutLock,
    /// Claiming does not check the rules again.
    ClaimWithoutRule,
    /// Lifting a rule leaves no resume job behind.
    LiftWithoutJob,
    /// The resume job skips rows that are running.
    ResumeSkipsRunning,
    /// Retrying forgets to set the promise.
    RetryWithoutPromise,
    /// Completing leaves the row in place, unlocked.
    RemoveNothing,
    /// Removing an event and looking for the next one is one statement, which misses whatever is
    /// committed after its snapshot.
    HandOverInTheRemoval,
    /// Removing an event does not restore the promise of the next one.
    RemoveWithoutArming,
    /// A halted object resumes without a wake-up.
    SkipWithoutWaking,
    /// Claiming does not return that the event was cancelled.
    ClaimWithoutCancelling,
    /// The minute's pass leaves cancelled events where they are.
    CancelledStay,
    /// Claiming takes a place more than a limit has.
    ClaimPastLimit,
    /// The end of a run wakes nothing that waits for its places.
    EndWithoutWaking,
    /// An event that was woken for a place of one limit, and waits for another one, leaves it to
    /// nobody.
    KeepsItsWake,
    /// An event has its place even when its claim is over.
    DeadHoldersCount,
    /// A start is not counted by the rates of its limits.
    StartWithoutPaying,
    /// A worker does not learn when the rates of an event let it start.
    ForgetsItsTime,
    /// An event that was woken for a place, and waits for something else, keeps the place.
    NeverStepsAside,
    /// Removing many events leaves the places that were kept for them to nobody.
    PurgeWithoutWaking,
    /// What is published after the emit does not say that it is urgent.
    PublishWithoutClass,
    /// The places that are kept for urgent events are anybody's.
    KeptPlacesAreTaken,
    /// Urgent events start before all others, however many have.
    UrgentAlone,
    /// What waits in the parking lot keeps its place in the worker.
    LotKeepsItsPlace,
}

/// A row of `events_v2`, as far as it matters for scheduling.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) delay_until: Timestamp,
    pub(crate) locked_at: Option<Timestamp>,
    pub(crate) notify_at: Option<Timestamp>,
    pub(crate) probes: u32,
    pub(crate) claims: i32,
    pub(crate) losses: u32,
    pub(crate) retries: u32,
    pub(crate) postponed_since: Option<Timestamp>,
    pub(crate) is_cancelled: bool,
    /// No attempt starts at this moment or later.
    pub(crate) not_after: Option<Timestamp>,
}

/// What the test remembers of an event, even after its row is gone.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) label: String,
    pub(crate) handler: String,
    /// The object, if any; ids are in the order of its chain.
    pub(crate) object: Option<String>,
    /// Its last notification was acknowledged because it was not its turn, and nothing has taken it
    /// on since.
    pub(crate) turned_away: bool,
    /// How often something took it on: its notification was published, a run found that it is its
    /// turn, or the probe found its promise overdue then.
    pub(crate) taken_on: u32,
    /// How often the handler was started.
    pub(crate) starts: u32,
    /// How often the handler completed, fenced out or not.
    pub(crate) completions: u32,
    /// How often its claim was released because a worker shut down or its handler returned "not
    /// yet".
    pub(crate) releases: u32,
    /// Somebody cancelled it while it ran.
    pub(crate) is_cancelled: bool,
    /// How the row was removed.
    pub(crate) removed: Option<Removal>,
    /// The row as it last was.
    pub(crate) last: Row,
}

/// Wakes a handler's events, page by page.
#[derive(Clone, Debug)]
pub(crate) struct ResumeJob {
    pub(crate) handler: String,
    /// Only the parked ones (a rule was lifted), or all (the handler appeared).
    pub(crate) only_parked: bool,
    pub(crate) after: Option<EventId>,
}

/// Everything outside the workers.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) timing: Timing,
    pub(crate) losses_max: u32,
    pub(crate) retry: RetryPolicy,
    /// Rows per page of a resume job.
    pub(crate) page: usize,
    pub(crate) defect: Option<Defect>,
    pub(crate) rows: BTreeMap<EventId, Row>,
    pub(crate) rules: BTreeSet<(String, RuleKind)>,
    pub(crate) jobs: Vec<ResumeJob>,
    /// Handlers for which the death of an event halts its object.
    pub(crate) halting: BTreeSet<String>,
    /// Halted lanes, as handler and object.
    pub(crate) halted: BTreeSet<(String, String)>,
    /// Removals that are not committed yet, with the next event that each saw in its lane. Only a
    /// defective removal leaves an entry.
    pub(crate) leaving: BTreeMap<EventId, Option<EventId>>,
    pub(crate) limits: Limits,
    pub(crate) broker: Broker,
    pub(crate) records: BTreeMap<EventId, Record>,
    /// The edges that any worker took.
    pub(crate) outcomes: BTreeSet<Outcome>,
    /// Failed checks.
    pub(crate) violations: Vec<String>,
    /// A readable log; `None` when thousands of worlds are played.
    pub(crate) trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: Timestamp::from_timestamp(1_767_225_600, 0).unwrap(),
            timing: Timing::default(),
            losses_max: 5,
            retry: RetryPolicy { jitter_percent: 0, ..RetryPolicy::default() },
            page: 1_000,
            defect: None,
            rows: BTreeMap::new(),
            rules: BTreeSet::new(),
            jobs: Vec::new(),
            halting: BTreeSet::new(),
            halted: BTreeSet::new(),
            leaving: BTreeMap::new(),
            limits: Limits::default(),
            broker: Broker::default(),
            records: BTreeMap::new(),
            outcomes: BTreeSet::new(),
            violations: Vec::new(),
            trace: None,
        }
    }

    /// The machine's settings in this world.
    pub(crate) fn policy(&self) -> Policy {
        let Timing { lease, horizon, retry_delay_max, .. } = self.timing;
        Policy { lease, horizon, losses_max: self.losses_max, retry_delay_max, spreads: true }
    }

    /// The n-th event emitted here gets the id n.
    pub(crate) fn next_id(&self) -> EventId {
        EventId(Uuid::from_u128(self.records.len() as u128 + 1))
    }

    pub(crate) fn record(&mut self, id: EventId) -> &mut Record {
        self.records.get_mut(&id).unwrap()
    }

    pub(crate) fn handler_of(&self, id: EventId) -> &str {
        &self.records[&id].handler
    }

    pub(crate) fn log(&mut self, line: impl FnOnce(&Self) -> String) {
        let Some(mut trace) = self.trace.take() else { return };
        trace.push(format!("{}  {}", self.now.format("%d %H:%M:%S%.3f"), line(self)));
        self.trace = Some(trace);
    }

    pub(crate) fn violated(&mut self, what: String) {
        self.log(|_| format!("!! {what}"));
        self.violations.push(what);
    }

    /// When an event must be woken: the single definition for all statements.
    pub(crate) fn wake_at(&self, due: Timestamp, wait: Duration) -> Timestamp {
        let horizon = self.timing.horizon;
        if due > self.now + horizon { due - horizon } else { due.max(self.now) + wait }
    }

    /// Invariants of the rows, checked between any two statements.
    pub(crate) fn check_rows(&mut self) {
        let mut found = Vec::new();
        for (id, row) in &self.rows {
            let Record { label, handler, last, .. } = &self.records[id];
            let resuming = self.jobs.iter().any(|job| job.handler == *handler);
            if row.notify_at.is_none() && !resuming && self.rule_on(handler).is_none() {
                found.push(format!("{label} is parked, but no rule stands and no job will wake it"));
            }
            if row.retries > self.retry.retries {
                found.push(format!("{label} was retried {} times", row.retries));
            }
            if row.claims < last.claims {
                found.push(format!("the claims of {label} went back to {}", row.claims));
            }
        }
        for what in found {
            self.violated(what);
        }
    }
}
