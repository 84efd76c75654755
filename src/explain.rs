//! Why an event is not running, in the words of the state machine.

use std::time::Duration;

use crate::event::{
    CanvasId, CopyOf, EventId, EventOptions, HandlerAddress, Lane, LimitWait, Link, Metadata, Name, Place,
    RuleKind, RuleReach, Timestamp, Turn,
};
use crate::machine::{CheckResult, Policy, check_schedule};
use crate::store::{DeadEvent, EndedEvent, LoadedEvent, Rule, Store, StoreError, WorkerSummary};

/// What is known of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// It has not ended.
    Live(Box<LiveEvent>),
    /// It died, and is kept among the dead events.
    Dead(Box<DeadEvent>),
    /// It has ended, and is kept.
    Ended(Box<EndedEvent>),
    /// The caller chose its id, which is remembered: it completed, or was cancelled or purged.
    Gone {
        /// Its id.
        id: EventId,
        /// When it was emitted.
        emitted_at: Timestamp,
    },
    /// Nothing is known: it completed, was cancelled or purged, or never existed.
    Unknown,
}

/// An event that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveEvent {
    /// Its id.
    pub id: EventId,
    /// Its handler.
    pub address: HandlerAddress,
    /// The result that a notification would find now; [`CheckResult::outcome`] is its name in the
    /// chart.
    pub state: CheckResult,
    /// Since when that has been the case.
    pub since: Timestamp,
    /// Until when, if known.
    pub until: Option<Timestamp>,
    /// The rule that holds it, if any: on its handler, its canvas or everything. Of several of a
    /// kind, the one that stops most.
    pub rule: Option<Rule>,
    /// The limit whose place it waits for, or whose rate has given it its due time, and which
    /// events of its canvas have the places.
    pub limited: Option<LimitWait>,
    /// When its notification is next published if nothing else happens; `None` while it is parked.
    pub notify_at: Option<Timestamp>,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When it is or was due.
    pub delay_until: Timestamp,
    /// The worker that has claimed it, while the lease stands, or the name of the program that has
    /// leased it over HTTP; `None` for one that gave no name.
    pub worker: Option<Name>,
    /// What is known of that worker: its host, its release, and when it was last seen. `None` if it
    /// has no row, because it ended, or was lost a day ago. `None` also if a program has leased the
    /// event, now or before, since a program may call itself as it likes.
    pub worker_process: Option<WorkerSummary>,
    /// Who has cancelled it while it ran. It is not started again.
    pub cancelled_by: Option<String>,
    /// Retries so far.
    pub retries: i32,
    /// Claims that were lost because their workers died or stalled.
    pub losses: i32,
    /// Since when a worker has found no handler for it.
    pub unknown_since: Option<Timestamp>,
    /// How many events of its handler are running, if it could run as well: of the 1,000 that were
    /// due first.
    pub running: u32,
    /// The URL of its handler's target, if any. A worker that has a function for it runs that.
    pub target: Option<String>,
    /// Since when nothing is sent there, because the target answered 410 Gone.
    pub target_gone_since: Option<Timestamp>,
    /// The last error of its handler.
    pub last_error: Option<String>,
    /// Its metadata.
    pub metadata: Metadata,
    /// What its emit asked for beside it.
    pub options: Option<Box<EventOptions>>,
    /// The object it is on, and its link there, if any.
    pub place: Option<Place>,
    /// Its unique key, if it has one. An event that had its key only while it waited may have lost
    /// it to a later one.
    pub unique_key: Option<String>,
    /// If it is a copy: its queue, and the event that was copied.
    pub copy_of: Option<CopyOf>,
    /// Whether its handler, or the queue of a copy, is pulled: programs lease its events over HTTP,
    /// and no worker runs it.
    pub pulled: bool,
    /// Whether a program has leased it over HTTP, at this attempt or before.
    pub was_leased: bool,
    /// The first event left in its lane, with its link, if that is another one: it has to end
    /// first.
    pub first: Option<(EventId, Link)>,
    /// The database's clock.
    pub now: Timestamp,
}

impl LiveEvent {
    /// What happens next, in one sentence.
    pub fn next(&self) -> &'static str {
        if self.cancelled_by.is_some() {
            return if self.state == CheckResult::Running {
                "is deleted when its handler, which is told to stop, has ended or is cut off, unless \
                 that completes it before"
            } else {
                "was cancelled while it ran, and is deleted within a minute"
            };
        }
        if self.is_expired() && self.state != CheckResult::Running {
            return "dies as soon as it would run, because the moment has passed after which its emit \
                    wanted no attempt to start";
        }
        match self.state {
            CheckResult::Behind => {
                "runs when every earlier event of its object has ended; explain the first of them"
            }
            CheckResult::Halted => {
                "its object has been halted since an event of it died: redrive that event, or skip it"
            }
            CheckResult::FacetHeld => {
                "its canvas is paused in the queue, or is at its limit of copies in flight there: \
                 runs when that changes"
            }
            CheckResult::Delayed if self.rule.is_some() => {
                "is due then, but runs only when the rule that holds it has ended"
            }
            CheckResult::Delayed if self.limited.is_some() => {
                "runs when it is due, which is the start that the rates of its limits have given it"
            }
            CheckResult::Delayed => "runs when it is due",
            CheckResult::Running if self.pulled && (self.worker.is_none() || self.was_leased) => {
                "ends when the service that leased it completes or releases it; can be leased again \
                 if its lease expires first"
            }
            CheckResult::Running => "ends when its handler returns, or is taken over when its lease expires",
            CheckResult::Held(kind) => self.next_of_held(kind),
            CheckResult::Limited => {
                "runs when its limit has room, after those that were due before it: when one of the events \
                 that have its places has ended, or its rate lets the next one start"
            }
            CheckResult::Ready => self.next_of_ready(),
        }
    }

    /// Whether no attempt may start any more.
    fn is_expired(&self) -> bool {
        let not_after = self.options.as_ref().and_then(|options| options.not_after());
        not_after.is_some_and(|moment| moment <= self.now)
    }

    fn next_of_ready(&self) -> &'static str {
        if self.pulled && self.copy_of.is_none() {
            "waits until a program leases it: its handler is pulled over HTTP"
        } else if self.pulled {
            "waits until a service leases it: its queue is pulled over HTTP"
        } else if self.target_gone_since.is_some() {
            "its target answered 410 Gone: it is sent there when another URL is registered, or its \
             handler is unpaused"
        } else if self.target.is_some() && self.running > 0 {
            "is sent to its target when others of its handler or canvas have ended, or a worker has \
             more places free: waits for its share of the workers, the target's within its canvas's; \
             a target that refuses for load gets less from each worker, as its log and the metric \
             wakeq.target.held say"
        } else if self.target.is_some() && self.copy_of.is_none() {
            "is sent to its target when a worker that receives its notification has a place for it: \
             none of its handler is running, so only its canvas's share of the workers, which other \
             targets of its canvas may have taken, can hold it back there; a target that refuses for \
             load gets less from each worker, as its log and the metric wakeq.target.held say"
        } else if self.unknown_since.is_some() {
            "waits for a worker that has its handler, or for a target to be registered; is retried \
             every few minutes"
        } else if self.copy_of.is_some() {
            "runs when a worker with free capacity receives its notification: waits at most for its \
             canvas's share of the workers or, if its queue has a target, for that queue's"
        } else if self.running > 0 {
            "runs when a worker has a place free: others of its handler are running, so it waits for \
             its canvas's share, as each free place goes to the canvas with the fewest, or for its \
             handler's, as a slow one leaves some places to others"
        } else {
            "runs when a worker with free capacity receives its notification: none of its handler is \
             running, so it waits for its canvas's share at most, as each free place goes to the \
             canvas with the fewest"
        }
    }

    fn next_of_held(&self, kind: RuleKind) -> &'static str {
        let reach = self.rule.as_ref().map_or(RuleReach::Handler, Rule::reach);
        match (reach, kind) {
            (RuleReach::Handler, RuleKind::Pause) => "is woken when the handler is unpaused",
            (RuleReach::Handler, RuleKind::Block) => "is woken when an admin unblocks the handler",
            (RuleReach::Canvas, RuleKind::Pause) => "is woken when its whole canvas is unpaused",
            (RuleReach::Canvas, RuleKind::Block) => "is woken when an admin unblocks its whole canvas",
            (RuleReach::Everything, _) => "is woken when an operator lifts the block of everything",
        }
    }
}

pub(crate) async fn explain(store: &Store, canvas: CanvasId, id: EventId) -> Result<Explanation, StoreError> {
    let loaded = store.load(&[id]).await?.pop().flatten();
    if let Some(event) = loaded.filter(|event| event.address.scope.canvas == canvas) {
        return Ok(Explanation::Live(Box::new(live(store, id, event).await?)));
    }
    if let Some(dead) = store.dead_event(canvas, id).await? {
        return Ok(Explanation::Dead(Box::new(dead)));
    }
    if let Some(ended) = store.ended_event(canvas, id).await? {
        return Ok(Explanation::Ended(Box::new(ended)));
    }
    Ok(match store.emitted_at(canvas, id).await? {
        Some(emitted_at) => Explanation::Gone { id, emitted_at },
        None => Explanation::Unknown,
    })
}

async fn live(store: &Store, id: EventId, event: LoadedEvent) -> Result<LiveEvent, StoreError> {
    let timing = store.timing();
    let policy = Policy::of(timing, u32::MAX);
    let schedule = event.schedule;
    let state = check_schedule(schedule, &policy).at_limit(event.waits);
    let rule = match schedule.rule {
        Some(kind) => {
            store.rules_over(&event.address.scope).await?.into_iter().find(|rule| rule.kind == kind)
        }
        None => None,
    };
    let HandlerAddress { scope, modifier } = &event.address;
    let unknown_since = store.unknown_since(scope, modifier, timing.unknown_noted_within()).await?;
    let running = match (state, &event.copy_of) {
        (CheckResult::Ready, None) => store.running_of(scope).await?,
        (_, Some(_))
        | (CheckResult::Behind | CheckResult::Halted | CheckResult::FacetHeld, None)
        | (CheckResult::Delayed | CheckResult::Running | CheckResult::Held(_) | CheckResult::Limited, None) => {
            0
        }
    };
    let worker_process = process_of(store, &event, state).await?;
    // Only a claimed event can have been cancelled and be left.
    let cancelled_by = match event.claims {
        0 => None,
        _ => store.cancelled_by(event.address.scope.canvas, id).await?,
    };
    let (target, target_gone_since) = store.target_url(&event.address).await?.unzip();
    let first = first(store, &event).await?.filter(|(first, _)| *first != id);
    let limited = limited(store, id, state, &event).await?;
    let unique_key = store.unique_key(scope.canvas, id).await?;
    let (since, until) = match &limited {
        Some(wait) => (wait.since, wait.next),
        None => times(state, &event, rule.as_ref(), timing.lease),
    };
    Ok(LiveEvent {
        id,
        state,
        since,
        until,
        rule,
        limited,
        notify_at: event.notify_at,
        address: event.address,
        enqueued_at: event.enqueued_at,
        delay_until: schedule.delay_until,
        retries: event.retries,
        losses: event.losses,
        unknown_since,
        running,
        target,
        target_gone_since: target_gone_since.flatten(),
        worker: event.worker,
        worker_process,
        cancelled_by,
        last_error: event.last_error,
        metadata: event.metadata,
        options: event.options,
        place: event.place,
        unique_key,
        copy_of: event.copy_of,
        pulled: event.pulled,
        was_leased: event.was_leased,
        first,
        now: schedule.now,
    })
}

/// The process of the worker that runs an event. A program may call itself like a worker, of which
/// its canvas must not learn anything.
async fn process_of(
    store: &Store,
    event: &LoadedEvent,
    state: CheckResult,
) -> Result<Option<WorkerSummary>, StoreError> {
    let is_claimed = state == CheckResult::Running && !event.was_leased;
    match event.worker.as_ref().filter(|_| is_claimed) {
        Some(worker) => store.seen_worker(worker).await,
        None => Ok(None),
    }
}

/// What an event waits for, if that is a limit.
async fn limited(
    store: &Store,
    id: EventId,
    state: CheckResult,
    event: &LoadedEvent,
) -> Result<Option<LimitWait>, StoreError> {
    match state {
        CheckResult::Limited | CheckResult::Delayed if event.is_limited => {
            store.waits_for(event.address.scope.canvas, id).await
        }
        CheckResult::Behind
        | CheckResult::Halted
        | CheckResult::FacetHeld
        | CheckResult::Delayed
        | CheckResult::Running
        | CheckResult::Held(_)
        | CheckResult::Limited
        | CheckResult::Ready => Ok(None),
    }
}

/// Since when an event is in this state, and until when, if that is known.
fn times(
    state: CheckResult,
    event: &LoadedEvent,
    rule: Option<&Rule>,
    lease: Duration,
) -> (Timestamp, Option<Timestamp>) {
    let schedule = event.schedule;
    match state {
        CheckResult::Behind | CheckResult::Halted | CheckResult::FacetHeld => (event.enqueued_at, None),
        CheckResult::Delayed => (event.enqueued_at, Some(schedule.delay_until)),
        CheckResult::Running => {
            let locked_at = schedule.locked_at.unwrap_or(schedule.now);
            // A pulled copy's stored time is derived from its lease's end, and may be in the
            // future.
            (locked_at.min(schedule.now), Some(locked_at + lease))
        }
        CheckResult::Held(_) => {
            let started = rule.map_or(schedule.now, |rule| rule.created_at);
            (started.max(event.enqueued_at), rule.and_then(|rule| rule.until))
        }
        CheckResult::Ready | CheckResult::Limited => (schedule.delay_until, None),
    }
}

/// The first event of an event's lane, if the event waits for its turn.
async fn first(store: &Store, event: &LoadedEvent) -> Result<Option<(EventId, Link)>, StoreError> {
    match (&event.place, event.schedule.turn) {
        (Some(Place { object, .. }), Turn::Behind | Turn::Halted) => {
            let (scope, object) = (event.address.scope.clone(), object.clone());
            let queue = event.copy_of.as_ref().map(|copy| copy.queue.clone());
            let lane = Lane { scope, object, queue };
            store.first(&lane).await
        }
        (Some(_) | None, _) => Ok(None),
    }
}
