//! What an allocation is about: groups with their subscribers, and what becomes of those.

use std::collections::BTreeMap;

use crate::event::{NodeId, SubscriberId};
use wakeq::Name;
use wakeq::log::EventSource;

/// Whether a subscriber can be allocated sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStanding {
    /// It is healthy.
    Working,
    /// It is unhealthy: its sources are revoked.
    Unhealthy,
    /// Its lease has expired. It keeps its sources until its rows are removed.
    Lapsed,
}

/// A subscriber of a group and its sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The subscriber's id.
    pub id: SubscriberId,
    /// The node it runs on.
    pub node: NodeId,
    /// Whether it can be allocated sources.
    pub standing: MemberStanding,
    /// The sources it can consume.
    pub requests: Vec<EventSource>,
    /// The sources allocated to it.
    pub holds: Vec<EventSource>,
    /// The sources that were revoked and whose release it has not confirmed.
    pub releasing: Vec<EventSource>,
}

/// A group with all its subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMembers {
    /// Its name.
    pub name: Name,
    /// Its subscribers, in any order.
    pub members: Vec<GroupMember>,
}

/// The sources of a subscriber from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reallocation {
    /// Its group.
    pub group: Name,
    /// The subscriber.
    pub subscriber: SubscriberId,
    /// The node the subscriber runs on.
    pub node: NodeId,
    /// The sources it consumes, sorted.
    pub sources: Vec<EventSource>,
    /// The sources it has to release, sorted.
    pub releasing: Vec<EventSource>,
}

/// How many groups each node serves: those of which it has a subscriber with a source.
pub(super) type Served = BTreeMap<NodeId, usize>;

/// The sources of a group: the longest set of requests among its working subscribers; among equally
/// long sets, that of the newest subscriber. During a rollout, the release that knows more sources
/// decides.
///
/// ```
/// use wakeq_streams::machine::{GroupMember, MemberStanding, wanted_sources};
/// use wakeq::log::EventSource;
/// use wakeq_streams::brokers::{NodeId, SubscriberId};
///
/// let companies = EventSource::category("companies").unwrap();
/// let member = GroupMember {
///     id: SubscriberId::new(),
///     node: NodeId::new(),
///     standing: MemberStanding::Working,
///     requests: vec![companies.clone()],
///     holds: Vec::new(),
///     releasing: Vec::new(),
/// };
/// assert_eq!(wanted_sources(&[member]), [companies]);
/// ```
pub fn wanted_sources(members: &[GroupMember]) -> Vec<EventSource> {
    let working = members.iter().filter(|member| member.standing == MemberStanding::Working);
    let sets = working.map(|member| {
        let mut requests = member.requests.clone();
        requests.sort();
        requests.dedup();
        (requests.len(), member.id, requests)
    });
    sets.max_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1))).map(|set| set.2).unwrap_or_default()
}
