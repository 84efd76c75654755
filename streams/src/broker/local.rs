//! The subscribers of this process: starts and ends the work that each is given, and confirms the
//! end of work.
//!
//! Work is started only with a ticket that was taken before the subscription was read. The ticket
//! is void as soon as the node's session, or the subscriber's registration, has ended.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::session::Session;
use crate::consumer::{EventSubscriber, Health};
use crate::event::{SubscriberId, Subscription};
use wakeq::log::EventSource;

/// The delay before another attempt to start work that was given while no session was valid.
const AGAIN: Duration = Duration::from_millis(100);

/// All subscribers of this process.
#[derive(Default)]
pub(super) struct EventSubscriberStore {
    locals: Mutex<Vec<Arc<Local>>>,
}

impl EventSubscriberStore {
    pub(super) fn add(&self, local: Arc<Local>) {
        self.locals.lock().unwrap_or_else(PoisonError::into_inner).push(local);
    }

    pub(super) fn all(&self) -> Vec<Arc<Local>> {
        self.locals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether a subscriber is a member of its group, as far as this node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Membership {
    /// It has to be registered.
    Unregistered,
    /// It is registered, and heartbeats.
    Registered,
    /// It was reported as unhealthy.
    Unhealthy,
    /// This process works alone, and another one works on this group.
    Waiting,
    /// Its registration was refused, for this reason: members of its group ask for other sources.
    Refused(String),
    /// It panicked, so it is unknown what it works on. It no longer heartbeats, so that its lease
    /// runs out, and is never started again.
    Lost {
        /// The reason.
        why: &'static str,
        /// Whether it was reported to the other nodes.
        reported: bool,
    },
}

#[derive(Debug)]
struct LocalState {
    membership: Membership,
    /// Incremented whenever what was read before is no longer valid.
    ticket: u64,
}

impl LocalState {
    /// A lost subscriber stays lost.
    fn set_membership(&mut self, membership: Membership) {
        if !matches!(self.membership, Membership::Lost { .. }) {
            self.membership = membership;
        }
    }
}

/// The sources that it should work on now, and the epoch under which it has them.
#[derive(Clone, Debug, Default)]
struct Assignment {
    epoch: i64,
    sources: BTreeSet<EventSource>,
}

/// A subscriber of this process.
pub(super) struct Local {
    pub(super) subscriber: Arc<dyn EventSubscriber>,
    state: Mutex<LocalState>,
    assignment: watch::Sender<Assignment>,
    confirmed: watch::Sender<i64>,
}

impl Local {
    pub(super) fn new(subscriber: Arc<dyn EventSubscriber>) -> Self {
        let state = Mutex::new(LocalState { membership: Membership::Unregistered, ticket: 0 });
        Self { subscriber, state, assignment: watch::Sender::default(), confirmed: watch::Sender::default() }
    }

    pub(super) fn id(&self) -> SubscriberId {
        self.subscriber.id()
    }

    pub(super) fn health(&self) -> Health {
        self.subscriber.health().borrow().clone()
    }

    /// The epoch up to which it has stopped working on everything that was taken from it.
    pub(super) fn confirmed(&self) -> i64 {
        *self.confirmed.borrow()
    }

    /// The epoch under which it works, if it has any sources.
    pub(super) fn works_under(&self) -> Option<i64> {
        let assignment = self.assignment.borrow();
        (!assignment.sources.is_empty()).then_some(assignment.epoch)
    }

    pub(super) fn membership(&self) -> Membership {
        self.state().membership.clone()
    }

    pub(super) fn set_registered(&self) {
        self.state().set_membership(Membership::Registered);
    }

    /// Notes that it was reported as lost.
    pub(super) fn set_reported(&self) {
        if let Membership::Lost { reported, .. } = &mut self.state().membership {
            *reported = true;
        }
    }

    /// Has to be taken before its subscription is read, and passed to [`assign`](Self::assign) with
    /// the result.
    pub(super) fn ticket(&self) -> u64 {
        self.state().ticket
    }

    /// Ends all its work and voids subscriptions that were read before. It starts again when it is
    /// registered and its subscription has been read after that.
    pub(super) fn suspend(&self, membership: Membership) {
        let mut state = self.state();
        state.set_membership(membership);
        state.ticket += 1;
        self.assignment.send_modify(|assignment| assignment.sources.clear());
    }

    /// The same, without a change of its membership.
    pub(super) fn pause(&self) {
        let membership = self.membership();
        self.suspend(membership);
    }

    /// From now on it works on the sources that were read, if the ticket is still valid.
    pub(super) fn assign(&self, ticket: u64, subscription: Option<&Subscription>) {
        let state = self.state();
        if state.ticket != ticket {
            return;
        }
        let works = state.membership == Membership::Registered;
        self.assignment.send_if_modified(|assignment| {
            let (epoch, sources) = match subscription {
                Some(one) if works => (one.epoch, one.sources.iter().cloned().collect()),
                Some(one) => (one.epoch, BTreeSet::new()),
                None => (assignment.epoch, BTreeSet::new()),
            };
            let changed = assignment.epoch != epoch || assignment.sources != sources;
            *assignment = Assignment { epoch, sources };
            changed
        });
    }

    fn state(&self) -> MutexGuard<'_, LocalState> {
        // No code panics half-way under this lock, so what a poisoned lock guards is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts and ends the subscriber's work, and notifies `changed` when the other nodes have to
    /// know. Returns once `ending` is set and all work has ended.
    pub(super) async fn run(
        self: Arc<Self>,
        session: Arc<Session>,
        changed: Arc<Notify>,
        mut ending: watch::Receiver<bool>,
    ) {
        let mut assignments = self.assignment.subscribe();
        let mut health = self.subscriber.health();
        let mut says_how_it_is = true;
        let mut work = SubscriberWork {
            local: &self,
            epoch: 0,
            working: BTreeSet::new(),
            ending: BTreeSet::new(),
            tasks: JoinSet::new(),
        };
        loop {
            let assignment = assignments.borrow_and_update().clone();
            let is_ending = *ending.borrow_and_update();
            let waits = match work.apply(&assignment, &session, is_ending) {
                ApplyOutcome::Done => false,
                ApplyOutcome::Waits => true,
                ApplyOutcome::Lost => {
                    changed.notify_one();
                    // It was suspended: the next round ends what it has.
                    continue;
                }
            };
            if work.ending.is_empty() {
                let confirmed = self.confirmed.send_if_modified(|confirmed| {
                    let before = std::mem::replace(confirmed, (*confirmed).max(assignment.epoch));
                    before != *confirmed
                });
                if confirmed {
                    changed.notify_one();
                }
            }
            if is_ending && work.tasks.is_empty() {
                return;
            }
            tokio::select! {
                _ = assignments.changed() => {}
                _ = ending.changed(), if !is_ending => {}
                spoken = health.changed(), if says_how_it_is => {
                    says_how_it_is = spoken.is_ok();
                    changed.notify_one();
                }
                () = tokio::time::sleep(AGAIN), if waits => {}
                Some(ended) = work.tasks.join_next() => {
                    if !work.ended(ended) {
                        changed.notify_one();
                    }
                }
            }
        }
    }
}

/// The work of a subscriber in this process.
struct SubscriberWork<'a> {
    local: &'a Local,
    /// The epoch under which it was given its sources.
    epoch: i64,
    working: BTreeSet<EventSource>,
    /// The sources that are being withdrawn.
    ending: BTreeSet<EventSource>,
    tasks: JoinSet<EventSource>,
}

/// The outcome of starting and ending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplyOutcome {
    Done,
    /// It can't start now.
    Waits,
    /// The subscriber panicked.
    Lost,
}

impl SubscriberWork<'_> {
    /// Ends work on sources that were taken, and starts work on those that were given.
    fn apply(&mut self, assignment: &Assignment, session: &Session, is_ending: bool) -> ApplyOutcome {
        let stays = |source: &EventSource| !is_ending && assignment.sources.contains(source);
        let over: Vec<EventSource> = self.working.iter().filter(|source| !stays(source)).cloned().collect();
        for source in over {
            self.working.remove(&source);
            self.ending.insert(source.clone());
            let subscriber = Arc::clone(&self.local.subscriber);
            self.tasks.spawn(async move {
                subscriber.withdraw(&source).await;
                source
            });
        }
        // A process that was suspended must not start work that it was given long ago.
        if is_ending || assignment.sources.is_empty() {
            return ApplyOutcome::Done;
        }
        if !session.is_valid() {
            return ApplyOutcome::Waits;
        }
        let is_newer = std::mem::replace(&mut self.epoch, assignment.epoch) != assignment.epoch;
        for source in assignment.sources.iter().filter(|source| !self.ending.contains(source)) {
            if self.working.insert(source.clone()) || is_newer {
                let accepting = || self.local.subscriber.accept(source.clone(), assignment.epoch);
                if catch_unwind(AssertUnwindSafe(accepting)).is_err() {
                    self.lose("it panicked when it was assigned a source; restart its process");
                    return ApplyOutcome::Lost;
                }
            }
        }
        ApplyOutcome::Done
    }

    /// It is unknown what the subscriber works on: nothing is confirmed, and its lease decides.
    fn lose(&self, why: &'static str) {
        tracing::error!(
            group = %self.local.subscriber.name(),
            subscriber = %self.local.id(),
            why,
            "a subscriber is lost: it no longer heartbeats, its sources move when its lease has \
             expired, and it is assigned nothing until its process is restarted"
        );
        self.local.suspend(Membership::Lost { why, reported: false });
    }

    /// Notes the end of a withdrawal. Returns whether the subscriber can still be relied on.
    fn ended(&mut self, ended: Result<EventSource, tokio::task::JoinError>) -> bool {
        match ended {
            Ok(source) => {
                self.ending.remove(&source);
                true
            }
            // It is unknown which source that was.
            Err(_) => {
                self.lose("it panicked while a source was withdrawn; restart its process");
                false
            }
        }
    }
}
