//! The broker: topics, subscriptions, snapshots, messages and leases, and how they hang together: which topic feeds
//! which subscription, who has something new to take, and when something is due.
//!
//! It does no I/O, reads no clock, starts no threads: every method is told the time. What happens inside one
//! subscription is `delivery`'s.

mod agenda;
mod calls;
mod consume;
mod delivery;
mod faults;
mod filter;
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
mod snapshots;
mod streams;
mod subscriptions;
mod time;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agenda::Agenda;
use faults::{Chance, Purpose};
use snapshots::Snapshot;
use subscriptions::Subscription;
use topics::Topic;

pub use calls::{CallFate, FaultCode, Method, NextCalls};
pub use delivery::Figures;
pub use faults::Faults;
pub use message::Message;
pub use overview::{Overview, SnapshotOverview, SubscriptionOverview, TopicOverview};
pub use push::{PushDelivery, PushResult};
pub use refusal::{Answer, Reason, Refusal};
pub use streams::{StreamId, StreamTurn};
pub use time::Time;

use crate::proto::iam;

/// A resource's full name, shared by everything that refers to it.
type Name = Arc<str>;

/// A whole Pub/Sub service in memory, for any number of projects.
pub struct Broker {
    topics: BTreeMap<Name, Topic>,
    subscriptions: BTreeMap<Name, Subscription>,
    snapshots: BTreeMap<Name, Snapshot>,
    /// By the resource they are set on.
    policies: BTreeMap<Name, iam::Policy>,
    /// When which resource needs a look.
    agenda: Agenda,
    /// Subscriptions with something new to take, to end, or to push.
    woken: BTreeSet<Name>,
    faults: Faults,
    /// What decides the faults of calls.
    call_chance: Chance,
    /// The number of the last message.
    last_message: u64,
    /// How many resources were ever made: tells a new one from a deleted one of the same name, and makes up names.
    last_resource: u64,
}

impl Broker {
    /// An empty one.
    pub fn new(faults: Faults) -> Self {
        Self {
            topics: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            policies: BTreeMap::new(),
            agenda: Agenda::default(),
            woken: BTreeSet::new(),
            call_chance: Chance::new(faults.seed, Purpose::Calls),
            faults,
            last_message: 0,
            last_resource: 0,
        }
    }

    /// The subscriptions that have something new to take, to end, or to push since this was last asked: whoever waits
    /// on one of them should look again.
    pub fn take_woken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.woken).iter().map(ToString::to_string).collect()
    }

    /// What goes wrong from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.call_chance = Chance::new(faults.seed, Purpose::Calls);
        self.faults = faults;
    }

    /// What goes wrong at present.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    fn next_resource(&mut self) -> u64 {
        self.last_resource += 1;
        self.last_resource
    }
}
