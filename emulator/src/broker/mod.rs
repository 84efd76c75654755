//! The broker: topics, subscriptions, snapshots, schemas, messages and leases, and their relations:
//! which topic feeds which subscription, which subscriptions have news for their waiters, and what
//! is due when.
//!
//! It does no I/O, reads no clock and starts no threads: every method takes the time. What happens
//! within a subscription is decided in `delivery`.

mod agenda;
mod attend;
mod calls;
mod changes;
mod consume;
mod delivery;
mod faults;
mod filter;
mod inspect;
mod limits;
mod mask;
mod message;
mod names;
mod overview;
mod pages;
mod policies;
mod publish;
mod push;
mod refusal;
mod saved;
mod schemas;
mod snapshots;
mod streams;
mod subscriptions;
mod time;
mod topics;
mod topology;
mod unsupported;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agenda::Agenda;
use changes::Ledger;
use faults::{Purpose, SeededRng};
use policies::Policies;
use push::Pushes;
use schemas::Schema;
use snapshots::Snapshot;
use streams::Streams;
use subscriptions::Subscription;
use topics::Topic;

pub use calls::{CallFaults, FaultCode, Method, NextCalls};
pub(crate) use changes::{Change, Held};
pub use delivery::{Figures, Holder, MessagePage, MessageQuery, MessageState, MessageView, PageSize, Place};
pub use faults::{FaultCounts, Faults};
pub(crate) use inspect::LISTED_MAX;
pub use inspect::{SubscriptionContents, TopicContents};
pub use message::Message;
pub(crate) use overview::Counts;
pub use overview::{Overview, SchemaOverview, SnapshotOverview, SubscriptionOverview, TopicOverview};
pub(crate) use publish::Offered;
pub use push::{PushDelivery, PushFigures, PushResult};
pub use refusal::{Answer, Reason, Refusal};
pub(crate) use saved::{Misfit, Saved};
pub use schemas::SchemaMark;
pub(crate) use schemas::{Committed, NewSchema, RevisionRange, validate_schema};
pub(crate) use streams::answers_pings;
pub use streams::{StreamId, StreamOverview, StreamTurn};
pub use time::Time;
pub use unsupported::StoredSetting;

/// A resource's full name, shared by everything that refers to it.
type Name = Arc<str>;

/// A whole Pub/Sub service in memory, for any number of projects.
///
/// ```
/// use wakeq_emulator::broker::{Broker, Faults, Time};
/// use wakeq_emulator::proto::pubsub;
///
/// let mut broker = Broker::new(Faults::default());
/// let now = Time::from_secs(1_700_000_000);
/// let topic = pubsub::Topic { name: "projects/p/topics/orders".to_owned(), ..Default::default() };
/// assert!(broker.create_topic(now, topic.clone()).is_ok());
/// assert!(broker.create_topic(now, topic).is_err(), "it is there already");
/// ```
pub struct Broker {
    topics: BTreeMap<Name, Topic>,
    subscriptions: BTreeMap<Name, Subscription>,
    snapshots: BTreeMap<Name, Snapshot>,
    schemas: BTreeMap<Name, Schema>,
    policies: Policies,
    pushes: Pushes,
    /// The subscriptions that send their dead letters to a topic.
    dead_letter_sources: BTreeMap<Name, BTreeSet<Name>>,
    /// The due times of resources.
    agenda: Agenda,
    /// Subscriptions with something new to take, to end, or to push.
    woken: BTreeSet<Name>,
    streams: Streams,
    /// Whether settings that are not carried out are stored, and not refused.
    accepts_unsupported: bool,
    /// Lines for the log that were not taken yet.
    notices: Vec<String>,
    ledger: Ledger,
    faults: Faults,
    fault_counts: FaultCounts,
    /// Decides the faults of messages.
    rng: SeededRng,
    /// Decides the faults of calls.
    call_rng: SeededRng,
    /// The number of the last message.
    last_message: u64,
    /// The number of the last resource: distinguishes a new one from a deleted one of the same
    /// name, and is part of assigned names.
    last_resource: u64,
}

impl Broker {
    /// An empty broker.
    pub fn new(faults: Faults) -> Self {
        let rng = SeededRng::new(faults.seed, Purpose::Messages);
        Self {
            topics: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            schemas: BTreeMap::new(),
            policies: Policies::default(),
            pushes: Pushes::default(),
            dead_letter_sources: BTreeMap::new(),
            agenda: Agenda::default(),
            woken: BTreeSet::new(),
            streams: Streams::new(faults.seed),
            accepts_unsupported: false,
            notices: Vec::new(),
            ledger: Ledger::default(),
            call_rng: SeededRng::new(faults.seed, Purpose::Calls),
            faults,
            fault_counts: FaultCounts::default(),
            rng,
            last_message: 0,
            last_resource: 0,
        }
    }

    /// Numbers messages and resources onwards from this time in microseconds. So an id that an
    /// earlier broker issued matches nothing in this one.
    pub fn number_from(&mut self, time: Time) {
        self.last_message = self.last_message.max(time.micros());
        self.last_resource = self.last_resource.max(time.micros());
    }

    /// Takes the subscriptions that have had something new to take, to end, or to push since the
    /// last call; waiters on them should look again.
    pub fn take_woken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.woken).iter().map(ToString::to_string).collect()
    }

    /// Replaces the faults. The random sequence restarts from their seed.
    pub fn set_faults(&mut self, faults: Faults) {
        self.rng = SeededRng::new(faults.seed, Purpose::Messages);
        self.streams.reseed(faults.seed);
        self.call_rng = SeededRng::new(faults.seed, Purpose::Calls);
        self.faults = faults;
    }

    /// The faults in force.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// How often each fault has occurred.
    pub fn fault_counts(&self) -> FaultCounts {
        self.fault_counts
    }

    /// Forgets all resources and messages. Faults stay in force and restart from their seed. The
    /// numbers of messages and resources keep increasing, so that an id issued before matches
    /// nothing created later.
    pub fn forget_everything(&mut self) {
        let mut broker = Self::new(std::mem::take(&mut self.faults));
        broker.woken = self.subscriptions.keys().cloned().collect();
        broker.woken.append(&mut self.woken);
        broker.streams = self.streams.forgotten(broker.faults.seed);
        broker.accepts_unsupported = self.accepts_unsupported;
        broker.notices.append(&mut self.notices);
        broker.ledger = self.ledger.clone();
        broker.ledger.note(|| changes::Change::Emptied);
        broker.fault_counts = self.fault_counts;
        broker.last_message = self.last_message;
        broker.last_resource = self.last_resource;
        *self = broker;
    }

    fn next_resource(&mut self) -> u64 {
        self.last_resource += 1;
        self.last_resource
    }
}
