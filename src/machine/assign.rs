//! Who works on what: the plan for the sources of all groups. Values in, plan out.
//!
//! A plan never gives away what somebody may still work on: a source that is taken from a subscriber is *released* first, and
//! given to another in a later round, when the subscriber has confirmed it or is gone. It leaves alone what is well where it
//! is: what nobody has is given to who has least, and then single sources are moved while that evens out the load.

mod even;
mod sketch;

use std::collections::BTreeMap;

use crate::event::{EventSource, Name, NodeId, SubscriberId};
use sketch::Sketch;

/// Whether a subscriber can be given sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStanding {
    /// It is well.
    Working,
    /// It is unhealthy: what it has is taken from it.
    Unhealthy,
    /// It has not been heard of for too long. It keeps what it has until its rows are removed.
    Lapsed,
}

/// A subscriber of a group, and what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Which one it is.
    pub id: SubscriberId,
    /// Where it runs.
    pub node: NodeId,
    /// Whether it can be given sources.
    pub standing: MemberStanding,
    /// What it could work on.
    pub requests: Vec<EventSource>,
    /// What it was given.
    pub holds: Vec<EventSource>,
    /// What was taken from it, and what it has not confirmed yet.
    pub releasing: Vec<EventSource>,
}

/// A group and all its subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMembers {
    /// Its name.
    pub name: Name,
    /// Its subscribers, in any order.
    pub members: Vec<GroupMember>,
}

/// What a subscriber has from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reallocation {
    /// Its group.
    pub group: Name,
    /// Whose it is.
    pub subscriber: SubscriberId,
    /// Where the subscriber runs.
    pub node: NodeId,
    /// What it works on, in order.
    pub sources: Vec<EventSource>,
    /// What it has to end with, in order.
    pub releasing: Vec<EventSource>,
}

/// How many groups each node serves: has a subscriber of with a source.
type Served = BTreeMap<NodeId, usize>;

/// The sources of a group: the longest set of requests among those who work, of equals that of the subscriber that is
/// newest. While a deployment is rolled out, who knows more sources decides.
///
/// ```
/// use wakeq::machine::{GroupMember, MemberStanding, wanted_sources};
/// use wakeq::{EventSource, NodeId, SubscriberId};
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

/// Plans a round for all groups: the subscribers whose sources change, each with all of its own.
///
/// Ties go to the node that serves the fewest groups, then to the lowest id. Planned again after it was carried out, and
/// confirmed, a plan comes to rest: within a group the numbers of sources differ by at most one, and so do the numbers of
/// groups that nodes serve, as far as requests and groups of one source allow.
pub fn allocate(groups: &[GroupMembers]) -> Vec<Reallocation> {
    let mut sketches: Vec<Sketch> = groups.iter().map(Sketch::new).collect();
    sketches.sort_by_key(|sketch| sketch.name);
    let mut served = Served::new();
    for sketch in &sketches {
        sketch.count_served(&mut served, 1);
    }
    for sketch in &mut sketches {
        sketch.give_free(&mut served);
    }
    for sketch in &mut sketches {
        sketch.even_within(&served);
    }
    even::across(&mut sketches);
    sketches.iter().flat_map(Sketch::changes).collect()
}
