//! The subscribers of this process, and what each is given here: begun with, ended with, confirmed.
//!
//! A subscriber's work is begun only under a ticket that was taken before its subscription was read, and that is void as soon
//! as the node's session, or the subscriber's registration, has ended.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::session::Session;
use crate::consumer::{EventSubscriber, Health};
use crate::event::{EventSource, SubscriberId, Subscription};

/// How soon it is tried again to begin with what was given while the session was over.
const AGAIN: Duration = Duration::from_millis(100);

/// All local subscriber instances.
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

/// How a subscriber stands with the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has to be registered.
    Unregistered,
    /// It is registered, and counted on.
    Registered,
    /// The others have been told that it is unhealthy.
    Unhealthy,
    /// Its group is worked on by another process, and was to be by this one alone.
    Waiting,
    /// It was not registered, for this reason: members of its group ask for other sources.
    Refused(String),
    /// Nobody knows what it works on: it is not heard of any more, so that its lease decides, and never begins anew.
    Lost {
        /// Why.
        why: &'static str,
        /// Whether the others have been told.
        told: bool,
    },
}

#[derive(Debug)]
struct State {
    standing: Standing,
    /// Grows whenever what was read before must not be acted on any more.
    ticket: u64,
}

impl State {
    /// Who is lost stays so, whatever was about to be said of it.
    fn stand(&mut self, standing: Standing) {
        if !matches!(self.standing, Standing::Lost { .. }) {
            self.standing = standing;
        }
    }
}

/// What it should work on now.
#[derive(Clone, Debug, Default)]
struct Given {
    epoch: i64,
    sources: BTreeSet<EventSource>,
}

/// A subscriber of this process.
pub(super) struct Local {
    pub(super) subscriber: Arc<dyn EventSubscriber>,
    state: Mutex<State>,
    given: watch::Sender<Given>,
    confirmed: watch::Sender<i64>,
}

impl Local {
    pub(super) fn new(subscriber: Arc<dyn EventSubscriber>) -> Self {
        let state = Mutex::new(State { standing: Standing::Unregistered, ticket: 0 });
        Self { subscriber, state, given: watch::Sender::default(), confirmed: watch::Sender::default() }
    }

    pub(super) fn id(&self) -> SubscriberId {
        self.subscriber.id()
    }

    pub(super) fn health(&self) -> Health {
        self.subscriber.health().borrow().clone()
    }

    /// The epoch by which it has ended with everything that was taken from it.
    pub(super) fn confirmed(&self) -> i64 {
        *self.confirmed.borrow()
    }

    /// Under which epoch it works, if it has anything to work on.
    pub(super) fn works_under(&self) -> Option<i64> {
        let given = self.given.borrow();
        (!given.sources.is_empty()).then_some(given.epoch)
    }

    pub(super) fn standing(&self) -> Standing {
        self.state().standing.clone()
    }

    pub(super) fn set_registered(&self) {
        self.state().stand(Standing::Registered);
    }

    /// The others know that it is lost.
    pub(super) fn set_told(&self) {
        if let Standing::Lost { told, .. } = &mut self.state().standing {
            *told = true;
        }
    }

    /// To be taken before its subscription is read, and given with what was read.
    pub(super) fn ticket(&self) -> u64 {
        self.state().ticket
    }

    /// Ends with everything, whatever was read before. It begins anew when it stands with the others again, and its
    /// subscription has been read after that.
    pub(super) fn suspend(&self, standing: Standing) {
        let mut state = self.state();
        state.stand(standing);
        state.ticket += 1;
        self.given.send_modify(|given| given.sources.clear());
    }

    /// The same, but that it stands as before.
    pub(super) fn pause(&self) {
        let standing = self.standing();
        self.suspend(standing);
    }

    /// Works on what was read from now on, if that is still to be acted on.
    pub(super) fn give(&self, ticket: u64, subscription: Option<&Subscription>) {
        let state = self.state();
        if state.ticket != ticket {
            return;
        }
        let works = state.standing == Standing::Registered;
        self.given.send_if_modified(|given| {
            let (epoch, sources) = match subscription {
                Some(one) if works => (one.epoch, one.sources.iter().cloned().collect()),
                Some(one) => (one.epoch, BTreeSet::new()),
                None => (given.epoch, BTreeSet::new()),
            };
            let changed = given.epoch != epoch || given.sources != sources;
            *given = Given { epoch, sources };
            changed
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under it panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the subscriber begin and end as it is given, and says when that changes anything. Ends when it works on nothing
    /// after `ending` was told.
    pub(super) async fn run(
        self: Arc<Self>,
        session: Arc<Session>,
        changed: Arc<Notify>,
        mut ending: watch::Receiver<bool>,
    ) {
        let mut given = self.given.subscribe();
        let mut health = self.subscriber.health();
        let mut says_how_it_is = true;
        let mut work = Work {
            local: &self,
            epoch: 0,
            working: BTreeSet::new(),
            ending: BTreeSet::new(),
            tasks: JoinSet::new(),
        };
        loop {
            let standing = given.borrow_and_update().clone();
            let is_ending = *ending.borrow_and_update();
            let waits = match work.apply(&standing, &session, is_ending) {
                Applied::Done => false,
                Applied::Waits => true,
                Applied::Lost => {
                    changed.notify_one();
                    // It has been given nothing from here on, and is to end with what it has.
                    continue;
                }
            };
            if work.ending.is_empty() {
                let confirmed = self.confirmed.send_if_modified(|confirmed| {
                    let before = std::mem::replace(confirmed, (*confirmed).max(standing.epoch));
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
                _ = given.changed() => {}
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

/// What a subscriber does here.
struct Work<'a> {
    local: &'a Local,
    /// Under which it was given what it has.
    epoch: i64,
    working: BTreeSet<EventSource>,
    /// What it has been told to end with.
    ending: BTreeSet<EventSource>,
    tasks: JoinSet<EventSource>,
}

/// What became of letting a subscriber begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    Done,
    /// It can't begin now.
    Waits,
    /// It panicked.
    Lost,
}

impl Work<'_> {
    /// Ends and begins.
    fn apply(&mut self, given: &Given, session: &Session, is_ending: bool) -> Applied {
        let stays = |source: &EventSource| !is_ending && given.sources.contains(source);
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
        // A process that was stopped does not begin with what it has been given long ago.
        if is_ending || given.sources.is_empty() {
            return Applied::Done;
        }
        if !session.is_valid() {
            return Applied::Waits;
        }
        let is_newer = std::mem::replace(&mut self.epoch, given.epoch) != given.epoch;
        for source in given.sources.iter().filter(|source| !self.ending.contains(source)) {
            if self.working.insert(source.clone()) || is_newer {
                let accepting = || self.local.subscriber.accept(source.clone(), given.epoch);
                if catch_unwind(AssertUnwindSafe(accepting)).is_err() {
                    self.lose("it panicked when it was given a source; start its process anew");
                    return Applied::Lost;
                }
            }
        }
        Applied::Done
    }

    /// What it works on is not known any more: nothing is confirmed, and its lease decides.
    fn lose(&self, why: &'static str) {
        tracing::error!(
            group = %self.local.subscriber.name(),
            subscriber = %self.local.id(),
            why,
            "a subscriber is lost: it is not heard of any more, what it had moves when its lease has run out, and it is given \
             nothing until its process is started anew"
        );
        self.local.suspend(Standing::Lost { why, told: false });
    }

    /// Whether the subscriber can still be counted on.
    fn ended(&mut self, ended: Result<EventSource, tokio::task::JoinError>) -> bool {
        match ended {
            Ok(source) => {
                self.ending.remove(&source);
                true
            }
            // Which one that was is not known.
            Err(_) => {
                self.lose("it panicked while a source was withdrawn; start its process anew");
                false
            }
        }
    }
}
