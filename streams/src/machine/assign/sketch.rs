//! The part of a plan that concerns one group, while it is being made.

use std::collections::BTreeSet;

use super::members::{GroupMember, GroupMembers, MemberStanding, Reallocation, Served, wanted_sources};
use crate::event::NodeId;
use wakeq::Name;
use wakeq::log::EventSource;

type Sources<'a> = BTreeSet<&'a EventSource>;

/// A subscriber and its planned sources.
#[derive(Clone)]
pub(super) struct Slot<'a> {
    pub(super) member: &'a GroupMember,
    requests: Sources<'a>,
    pub(super) kept: Sources<'a>,
    pub(super) leaving: Sources<'a>,
}

impl<'a> Slot<'a> {
    fn is_working(&self) -> bool {
        self.member.standing == MemberStanding::Working
    }

    /// Whether it can be allocated the source.
    pub(super) fn accepts(&self, source: &EventSource) -> bool {
        self.is_working() && self.requests.contains(source)
    }

    /// The last source that it had before this round and that `other` could take over.
    fn last_for(&self, other: &Self) -> Option<&'a EventSource> {
        let held = self.kept.iter().rev().find(|source| self.had(source) && other.accepts(source));
        held.copied()
    }

    /// Whether it had the source before this round.
    pub(super) fn had(&self, source: &EventSource) -> bool {
        self.member.holds.contains(source)
    }

    pub(super) fn release(&mut self, source: &'a EventSource) {
        self.kept.remove(source);
        self.leaving.insert(source);
    }
}

#[derive(Clone)]
pub(super) struct Sketch<'a> {
    pub(super) name: &'a Name,
    wanted: Vec<EventSource>,
    pub(super) slots: Vec<Slot<'a>>,
    sources: Sources<'a>,
}

impl<'a> Sketch<'a> {
    /// Starts from the current allocation, without sources that are unwanted or held twice.
    pub(super) fn new(group: &'a GroupMembers) -> Self {
        let wanted = wanted_sources(&group.members);
        let mut members: Vec<&GroupMember> = group.members.iter().collect();
        members.sort_by_key(|member| (member.node, member.id));
        let mut taken = Sources::new();
        let slots = members.into_iter().map(|member| slot(member, &wanted, &mut taken)).collect();
        let requested = group.members.iter().flat_map(|member| &member.requests);
        let sources = requested.filter(|source| wanted.binary_search(source).is_ok()).collect();
        Self { name: &group.name, wanted, slots, sources }
    }

    /// Whether a move within the group is pending.
    pub(super) fn is_moving(&self) -> bool {
        self.slots.iter().any(|slot| !slot.leaving.is_empty())
    }

    /// The nodes that serve the group.
    pub(super) fn serving(&self) -> BTreeSet<NodeId> {
        let slots = self.slots.iter().filter(|slot| !slot.kept.is_empty());
        slots.map(|slot| slot.member.node).collect()
    }

    /// Adds `by` for this group to the counts of the nodes that serve it.
    pub(super) fn count_served(&self, served: &mut Served, by: isize) {
        for node in self.serving() {
            let count = served.entry(node).or_default();
            *count = count.saturating_add_signed(by);
        }
    }

    /// Allocates sources that no one has, unless they overlap with an unwanted one that is still
    /// held, to the subscribers with the fewest.
    pub(super) fn give_free(&mut self, served: &mut Served) {
        let had: Sources =
            self.slots.iter().flat_map(|slot| slot.kept.union(&slot.leaving).copied()).collect();
        let foreign: Vec<_> =
            had.iter().filter(|source| self.wanted.binary_search(source).is_err()).collect();
        let is_free = |source: &&&EventSource| {
            !had.contains(*source) && !foreign.iter().any(|other| other.overlaps(source))
        };
        let free: Vec<&EventSource> = self.sources.iter().filter(is_free).copied().collect();
        if free.is_empty() {
            return;
        }
        self.count_served(served, -1);
        self.give(&free, served);
        self.count_served(served, 1);
    }

    /// First counts how many sources each subscriber will have, then allocates that many in a row.
    fn give(&mut self, free: &[&'a EventSource], served: &Served) {
        let mut loads: Vec<usize> = self.slots.iter().map(|slot| slot.kept.len()).collect();
        let mut quotas = vec![0_usize; self.slots.len()];
        let mut serving = self.serving();
        // Sources that few subscribers can take are counted first; the others balance the loads.
        let mut hardest_first = free.to_vec();
        hardest_first.sort_by_key(|source| self.slots.iter().filter(|slot| slot.accepts(source)).count());
        for source in hardest_first {
            if let Some(at) = self.lightest(source, &loads, &serving, served) {
                loads[at] += 1;
                quotas[at] += 1;
                serving.insert(self.slots[at].member.node);
            }
        }
        let order = self.in_order_of_ties(served);
        let mut rest = Vec::new();
        for source in free {
            let next = order.iter().find(|at| quotas[**at] > 0 && self.slots[**at].accepts(source));
            match next {
                Some(at) => {
                    quotas[*at] -= 1;
                    self.slots[*at].kept.insert(source);
                }
                None => rest.push(*source),
            }
        }
        // If requests differ, the rows may not work out. The rest is allocated one by one.
        for source in rest {
            let loads: Vec<usize> = self.slots.iter().map(|slot| slot.kept.len()).collect();
            if let Some(at) = self.lightest(source, &loads, &self.serving(), served) {
                self.slots[at].kept.insert(source);
            }
        }
    }

    fn lightest(
        &self,
        source: &EventSource,
        loads: &[usize],
        serving: &BTreeSet<NodeId>,
        served: &Served,
    ) -> Option<usize> {
        let takers = (0..self.slots.len()).filter(|at| self.slots[*at].accepts(source));
        takers.min_by_key(|at| {
            let node = self.slots[*at].member.node;
            let groups =
                served.get(&node).copied().unwrap_or_default() + usize::from(serving.contains(&node));
            (loads[*at], groups, *at)
        })
    }

    /// The order in which ties are broken: first the node that serves the fewest groups, then the
    /// order of the slots, which are sorted by node and id.
    fn in_order_of_ties(&self, served: &Served) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|at| (served.get(&self.slots[*at].member.node).copied().unwrap_or_default(), *at));
        order
    }

    /// Has the subscriber with the most sources release one for the subscriber with the fewest, if
    /// that evens them out and no other move within the group is pending.
    pub(super) fn even_within(&mut self, served: &Served) {
        if self.is_moving() {
            return;
        }
        let mut order: Vec<usize> = (0..self.slots.len()).filter(|at| self.slots[*at].is_working()).collect();
        order.sort_by_key(|at| {
            let slot = &self.slots[*at];
            (slot.kept.len(), served.get(&slot.member.node).copied().unwrap_or_default(), *at)
        });
        for most in order.iter().rev() {
            for least in &order {
                let (from, to) = (&self.slots[*most], &self.slots[*least]);
                if from.kept.len() <= to.kept.len() + 1 {
                    break;
                }
                if let Some(source) = from.last_for(to) {
                    self.slots[*most].release(source);
                    return;
                }
            }
        }
    }

    /// The slots that change.
    pub(super) fn changes(&self) -> Vec<Reallocation> {
        let changed = self.slots.iter().filter(|slot| {
            slot.member.standing != MemberStanding::Lapsed
                && (slot.kept != slot.member.holds.iter().collect()
                    || slot.leaving != slot.member.releasing.iter().collect())
        });
        let list = |sources: &Sources| sources.iter().map(|source| (*source).clone()).collect();
        let change = |slot: &Slot| Reallocation {
            group: self.name.clone(),
            subscriber: slot.member.id,
            node: slot.member.node,
            sources: list(&slot.kept),
            releasing: list(&slot.leaving),
        };
        changed.map(change).collect()
    }
}

/// Divides a subscriber's sources into those it keeps and those it has to release.
fn slot<'a>(member: &'a GroupMember, wanted: &[EventSource], taken: &mut Sources<'a>) -> Slot<'a> {
    let mut slot = Slot {
        member,
        requests: member.requests.iter().collect(),
        kept: Sources::new(),
        leaving: member.releasing.iter().collect(),
    };
    for source in &member.holds {
        let stays = match member.standing {
            MemberStanding::Lapsed => true,
            MemberStanding::Unhealthy => false,
            MemberStanding::Working => {
                wanted.binary_search(source).is_ok()
                    && slot.requests.contains(source)
                    && !slot.leaving.contains(source)
            }
        };
        if stays && taken.insert(source) {
            slot.kept.insert(source);
        } else {
            slot.leaving.insert(source);
        }
    }
    slot
}
