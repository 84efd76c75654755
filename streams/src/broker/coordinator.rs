//! The coordinator decides which sources each subscriber of every group has. There is one at a
//! time, and each of its writes carries its term.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::elector::Leadership;
use super::{BrokerError, EventSubscriberStateStore, EventSubscriptionStateStore};
use crate::event::{NewSubscription, SubscriberState, Subscription};
use crate::machine::{GroupMember, GroupMembers, MemberStanding, Reallocation, allocate};
use crate::telemetry::BrokerMetrics;
use wakeq::Name;

/// Maximum number of subscriptions that one statement writes.
const WRITE_MAX: usize = 500;

/// The outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Nothing had to change.
    Quiet,
    /// Something changed, and the other nodes have to look.
    Changed,
    /// Another node leads by now, or may.
    Deposed,
}

pub(super) struct EventSubscriptionCoordinator {
    states: Arc<dyn EventSubscriberStateStore>,
    subscriptions: Arc<dyn EventSubscriptionStateStore>,
    metrics: BrokerMetrics,
    refused: AtomicU64,
}

impl EventSubscriptionCoordinator {
    pub(super) fn new(
        states: Arc<dyn EventSubscriberStateStore>,
        subscriptions: Arc<dyn EventSubscriptionStateStore>,
    ) -> Self {
        Self { states, subscriptions, metrics: BrokerMetrics::new(), refused: AtomicU64::new(0) }
    }

    /// Removes the subscribers whose lease has run out, plans, and writes the changes.
    ///
    /// The subscribers are read before their subscriptions, which only the coordinator writes: so a
    /// confirmation never refers to an epoch that is missing from the subscriptions that were read.
    pub(super) async fn round(&self, leadership: &Leadership) -> Result<Round, BrokerError> {
        let Some(removed) = self.subscriptions.remove_lapsed(&leadership.lead).await? else {
            return Ok(self.deposed(leadership));
        };
        for subscriber in &removed {
            tracing::warn!(
                %subscriber,
                term = leadership.lead.term,
                "a subscriber did not heartbeat within its lease; its sources are assigned to others"
            );
        }
        let states = self.states.states().await?;
        let subscriptions = self.subscriptions.allocations().await?;
        let new = changes(&states, &subscriptions);
        if new.is_empty() {
            return Ok(if removed.is_empty() { Round::Quiet } else { Round::Changed });
        }
        for part in new.chunks(WRITE_MAX) {
            // Its own clock saves a write that would be refused; the statement decides.
            if Instant::now() >= leadership.until {
                return Ok(Round::Deposed);
            }
            wakeq::internals::fault::point("broker.allocate");
            let Some(written) = self.subscriptions.allocate(&leadership.lead, part).await? else {
                return Ok(self.deposed(leadership));
            };
            self.metrics.moved(written.len());
        }
        Ok(Round::Changed)
    }

    /// How many of its writes were refused.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn deposed(&self, leadership: &Leadership) -> Round {
        self.metrics.refused();
        self.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            term = leadership.lead.term,
            "a write of the coordinator was refused: another node leads now"
        );
        Round::Deposed
    }
}

/// The subscriptions that have to be written.
fn changes(states: &[SubscriberState], subscriptions: &[Subscription]) -> Vec<NewSubscription> {
    let standing: BTreeMap<_, &Subscription> =
        subscriptions.iter().map(|one| (one.subscriber, one)).collect();
    let mut groups = BTreeMap::<&Name, Vec<GroupMember>>::new();
    for state in states {
        groups.entry(&state.group).or_default().push(member(state, standing.get(&state.id).copied()));
    }
    let groups: Vec<GroupMembers> =
        groups.into_iter().map(|(name, members)| GroupMembers { name: name.clone(), members }).collect();
    let new = |change: Reallocation| NewSubscription {
        seen_epoch: standing.get(&change.subscriber).map_or(0, |one| one.epoch),
        group: change.group,
        subscriber: change.subscriber,
        node: change.node,
        sources: change.sources,
        releasing: change.releasing,
    };
    allocate(&groups).into_iter().map(new).collect()
}

/// A source that is being released counts as held until its release is confirmed.
fn member(state: &SubscriberState, subscription: Option<&Subscription>) -> GroupMember {
    let open = subscription.filter(|one| state.confirmed_epoch < one.epoch);
    let standing = if state.lapsed {
        MemberStanding::Lapsed
    } else if state.unhealthy.is_some() {
        MemberStanding::Unhealthy
    } else {
        MemberStanding::Working
    };
    GroupMember {
        id: state.id,
        node: state.node,
        standing,
        requests: state.requests.clone(),
        holds: subscription.map(|one| one.sources.clone()).unwrap_or_default(),
        releasing: open.map(|one| one.releasing.clone()).unwrap_or_default(),
    }
}
