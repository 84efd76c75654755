//! SUB-05, SUB-35, SUB-55: whatever happens to a cluster, no source is consumed twice, and plans
//! converge to an even allocation without needless moves.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::carry_out;
use crate::event::{NodeId, SubscriberId};
use crate::machine::{GroupMember, GroupMembers, MemberStanding, Reallocation, allocate};
use wakeq::log::{EventSource, Partition};

const GROUPS: usize = 4;

/// Something that happens to a node, or to a subscriber, given by its node and group.
#[derive(Clone, Copy, Debug)]
enum ClusterEvent {
    Join(u8),
    Leave(u8),
    Lapse(u8),
    RemoveLapsed,
    MarkUnhealthy(u8, usize),
    Recover(u8, usize),
    Observe(u8, usize),
    Round,
}

fn cluster_events() -> impl Strategy<Value = ClusterEvent> {
    let node = 1_u8..6;
    let both = (1_u8..6, 0..GROUPS);
    prop_oneof![
        3 => node.clone().prop_map(ClusterEvent::Join),
        1 => node.clone().prop_map(ClusterEvent::Leave),
        1 => node.prop_map(ClusterEvent::Lapse),
        1 => Just(ClusterEvent::RemoveLapsed),
        1 => both.clone().prop_map(|(node, group)| ClusterEvent::MarkUnhealthy(node, group)),
        1 => both.clone().prop_map(|(node, group)| ClusterEvent::Recover(node, group)),
        6 => both.prop_map(|(node, group)| ClusterEvent::Observe(node, group)),
        6 => Just(ClusterEvent::Round),
    ]
}

/// The rows, and what each subscriber is actually consuming.
struct Cluster {
    groups: Vec<GroupMembers>,
    works: BTreeMap<SubscriberId, BTreeSet<EventSource>>,
    partitions: [u16; GROUPS],
    joined: u128,
}

impl Cluster {
    fn new(partitions: [u16; GROUPS]) -> Self {
        let group = |at| GroupMembers { name: format!("g{at}").parse().unwrap(), members: Vec::new() };
        Self { groups: (0..GROUPS).map(group).collect(), works: BTreeMap::new(), partitions, joined: 0 }
    }

    fn members(&mut self, node: u8) -> impl Iterator<Item = &mut GroupMember> {
        let node = NodeId::from_number(node.into());
        self.groups.iter_mut().flat_map(|group| &mut group.members).filter(move |member| member.node == node)
    }

    fn member(&mut self, node: u8, group: usize) -> Option<&mut GroupMember> {
        let node = NodeId::from_number(node.into());
        self.groups[group].members.iter_mut().find(|member| member.node == node)
    }

    fn join(&mut self, node: u8) {
        if self.members(node).next().is_some() {
            return;
        }
        for (at, group) in self.groups.iter_mut().enumerate() {
            self.joined += 1;
            let whole = EventSource::category(&format!("c{at}")).unwrap();
            let parts = Partition::all(self.partitions[at]).into_iter();
            let requests = parts.filter_map(|part| whole.partition(part)).collect();
            group.members.push(GroupMember {
                id: SubscriberId::from_number(u128::from(node) << 64 | self.joined),
                node: NodeId::from_number(node.into()),
                standing: MemberStanding::Working,
                requests,
                holds: Vec::new(),
                releasing: Vec::new(),
            });
        }
    }

    fn apply(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::Join(node) => self.join(node),
            ClusterEvent::Leave(node) => {
                let gone: Vec<_> = self.members(node).map(|member| member.id).collect();
                self.remove(|member| gone.contains(&member.id));
            }
            // Its own clock is the first to notice: by then it has stopped consuming.
            ClusterEvent::Lapse(node) => {
                let lapsed: Vec<_> = self
                    .members(node)
                    .map(|member| {
                        member.standing = MemberStanding::Lapsed;
                        member.id
                    })
                    .collect();
                self.works.retain(|id, _| !lapsed.contains(id));
            }
            ClusterEvent::RemoveLapsed => self.remove(|member| member.standing == MemberStanding::Lapsed),
            ClusterEvent::MarkUnhealthy(node, group) => self.turn(node, group, MemberStanding::Unhealthy),
            ClusterEvent::Recover(node, group) => self.turn(node, group, MemberStanding::Working),
            ClusterEvent::Observe(node, group) => self.observe(node, group),
            ClusterEvent::Round => drop(self.round()),
        }
    }

    fn remove(&mut self, gone: impl Fn(&GroupMember) -> bool) {
        for group in &mut self.groups {
            for member in group.members.iter().filter(|member| gone(member)) {
                self.works.remove(&member.id);
            }
            group.members.retain(|member| !gone(member));
        }
    }

    fn turn(&mut self, node: u8, group: usize, standing: MemberStanding) {
        if let Some(member) =
            self.member(node, group).filter(|member| member.standing != MemberStanding::Lapsed)
        {
            member.standing = standing;
        }
    }

    /// The subscriber reads its subscription, starts and stops consuming accordingly, and confirms.
    fn observe(&mut self, node: u8, group: usize) {
        if let Some(member) =
            self.member(node, group).filter(|member| member.standing != MemberStanding::Lapsed)
        {
            member.releasing.clear();
            let (id, holds) = (member.id, member.holds.iter().cloned().collect());
            self.works.insert(id, holds);
        }
    }

    fn round(&mut self) -> Vec<Reallocation> {
        let plan = allocate(&self.groups);
        carry_out(&mut self.groups, &plan);
        plan
    }

    /// Each source has one owner, those that are releasing included, and at most one consumer.
    fn check(&self) {
        for group in &self.groups {
            let mut owned = BTreeSet::new();
            let mut worked = BTreeSet::new();
            for member in &group.members {
                for source in member.holds.iter().chain(&member.releasing) {
                    assert!(owned.insert(source), "{source} of {} has two owners", group.name);
                }
                for source in self.works.get(&member.id).into_iter().flatten() {
                    assert!(worked.insert(source), "{source} of {} is worked on twice", group.name);
                }
            }
        }
    }

    /// All subscribers observe, and plans are carried out, until nothing changes.
    fn come_to_rest(&mut self) -> usize {
        self.remove(|member| member.standing == MemberStanding::Lapsed);
        for member in self.groups.iter_mut().flat_map(|group| &mut group.members) {
            member.standing = MemberStanding::Working;
        }
        for round in 0..500 {
            for node in 1..6 {
                (0..GROUPS).for_each(|group| self.observe(node, group));
            }
            self.check();
            if self.round().is_empty() {
                return round;
            }
            self.check();
        }
        panic!("it does not come to rest");
    }

    fn served(&self) -> BTreeMap<NodeId, usize> {
        let mut served = BTreeMap::new();
        for member in self.groups.iter().flat_map(|group| &group.members) {
            *served.entry(member.node).or_default() += usize::from(!member.holds.is_empty());
        }
        served
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // Shows: SUB-05, SUB-35
    #[test]
    fn no_source_has_two_owners_and_plans_converge(
        partitions in prop::array::uniform4(prop_oneof![Just(1_u16), 1_u16..9]),
        cluster_events in prop::collection::vec(cluster_events(), 1..80),
    ) {
        let mut cluster = Cluster::new(partitions);
        for event in cluster_events {
            cluster.apply(event);
            cluster.check();
        }
        cluster.apply(ClusterEvent::RemoveLapsed);
        cluster.join(1);
        let sources: usize = partitions.iter().map(|of| usize::from(*of)).sum();
        let rounds = cluster.come_to_rest();
        prop_assert!(rounds <= 2 * sources + 4, "{rounds} rounds for {sources} sources");
        for (at, group) in cluster.groups.iter().enumerate() {
            let loads: Vec<usize> = group.members.iter().map(|member| member.holds.len()).collect();
            prop_assert_eq!(loads.iter().sum::<usize>(), usize::from(partitions[at]), "everything is in work");
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{:?}", loads);
        }
        let served = cluster.served();
        for group in cluster.groups.iter().filter(|group| group.members[0].requests.len() == 1) {
            let owner = group.members.iter().find(|member| !member.holds.is_empty()).unwrap();
            prop_assert!(served[&owner.node] <= served.values().min().unwrap() + 1, "{:?}", served);
        }
    }

    /// A node that leaves takes nothing from others; one that joins at most what evens them out.
    // Shows: SUB-35
    #[test]
    fn moves_are_few(partitions in prop::array::uniform4(1_u16..12), nodes in 2_u8..5) {
        let mut cluster = Cluster::new(partitions);
        (1..=nodes).for_each(|node| cluster.join(node));
        cluster.come_to_rest();
        let before = owners(&cluster);
        cluster.apply(ClusterEvent::Leave(nodes));
        let plan = cluster.round();
        let moved = before.iter().filter(|(source, owner)| {
            owner.0 != u128::from(nodes) && owners(&cluster).get(*source) != Some(owner)
        });
        let released: usize = plan.iter().map(|change| change.releasing.len()).sum();
        prop_assert_eq!(moved.count(), released, "only to even out nodes");
        for group in &cluster.groups {
            let of_group = plan.iter().filter(|change| change.group == group.name);
            prop_assert!(of_group.map(|change| change.releasing.len()).sum::<usize>() <= 1);
        }
        cluster.come_to_rest();
        let before = owners(&cluster);
        cluster.join(nodes);
        cluster.come_to_rest();
        let after = owners(&cluster);
        let moved = before.iter().filter(|(source, owner)| after[*source] != **owner).count();
        let share: usize = partitions.iter().map(|of| usize::from(of.div_ceil(nodes.into()))).sum();
        prop_assert!(moved <= share + GROUPS, "{moved} of at most {share}");
    }
}

fn owners(cluster: &Cluster) -> BTreeMap<EventSource, (u128, usize)> {
    let groups = cluster.groups.iter().enumerate();
    let members = groups.flat_map(|(at, group)| group.members.iter().map(move |member| (at, member)));
    let held = members.flat_map(|(at, member)| {
        member.holds.iter().map(move |source| (source.clone(), (member.node.0.as_u128(), at)))
    });
    held.collect()
}
