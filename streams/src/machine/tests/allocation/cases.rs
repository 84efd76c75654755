//! SUB-19, SUB-21, SUB-30, SUB-35: the plan for groups, case by case. A case lists what each node
//! has, such as `1=1-8 2=9-f`. Sources after `~` are being released; `!` marks an unhealthy
//! subscriber, `x` one whose lease has expired, and `/` one that requests fewer partitions than the
//! others.

use super::carry_out;
use crate::event::{NodeId, SubscriberId};
use crate::machine::{GroupMember, GroupMembers, MemberStanding, allocate};
use wakeq::Name;
use wakeq::log::{EventSource, Partition};

/// The partitions in a text like `1-8,a`; `*` is the whole category.
fn sources(category: &str, of: u16, text: &str) -> Vec<EventSource> {
    let whole = EventSource::category(category).unwrap();
    let number = |label: &str| u16::from_str_radix(label, 16).unwrap();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    if text == "*" {
        return vec![whole];
    }
    let numbers = text.split(',').filter(|part| !part.is_empty()).flat_map(range);
    numbers.map(|number| whole.partition(Partition::new(number, of).unwrap()).unwrap()).collect()
}

fn labels(sources: &[EventSource]) -> String {
    let label = |source: &EventSource| match source {
        EventSource::Category { partition: Some(partition), .. } => partition.label(),
        EventSource::Category { .. } | EventSource::Log { .. } | EventSource::Stream(_) => "*".to_owned(),
    };
    sources.iter().map(label).collect::<Vec<_>>().join(",")
}

fn node(number: u16) -> NodeId {
    NodeId::from_number(number.into())
}

fn group(name: &str, category: &str, of: u16, text: &str) -> GroupMembers {
    let member = |(at, text): (usize, &str)| {
        let (head, has) = text.split_once('=').unwrap();
        let number: u16 = head.trim_end_matches(['!', 'x', '/']).parse().unwrap();
        let (holds, releasing) = has.split_once('~').unwrap_or((has, ""));
        let standing = match head.trim_end_matches('/').chars().last() {
            Some('!') => MemberStanding::Unhealthy,
            Some('x') => MemberStanding::Lapsed,
            _ => MemberStanding::Working,
        };
        let asks = if head.ends_with('/') { of / 2 } else { of };
        GroupMember {
            id: SubscriberId::from_number((u128::from(number) << 64) | at as u128),
            node: node(number),
            standing,
            requests: sources(category, of, &if of == 1 { "*".to_owned() } else { format!("1-{asks:x}") }),
            holds: sources(category, of, holds),
            releasing: sources(category, of, releasing),
        }
    };
    let name: Name = name.parse().unwrap();
    GroupMembers { name, members: text.split_whitespace().enumerate().map(member).collect() }
}

fn show(group: &GroupMembers) -> String {
    let member = |member: &GroupMember| {
        let released = if member.releasing.is_empty() { "" } else { "~" };
        format!(
            "{}={}{released}{}",
            member.node.0.as_u128(),
            labels(&member.holds),
            labels(&member.releasing)
        )
    };
    group.members.iter().map(member).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(of: u16, before: &str, after: &str) {
    let mut groups = [group("g", "companies", of, before)];
    let plan = allocate(&groups);
    carry_out(&mut groups, &plan);
    assert_eq!(show(&groups[0]), after, "from {before}");
}

/// Confirms, plans and carries out until nothing changes; returns the number of rounds.
fn rounds(groups: &mut [GroupMembers]) -> usize {
    for round in 0..1_000 {
        for member in groups.iter_mut().flat_map(|group| &mut group.members) {
            member.releasing.clear();
        }
        let plan = allocate(groups);
        if plan.is_empty() {
            return round;
        }
        carry_out(groups, &plan);
    }
    panic!("it does not come to rest");
}

// Shows: SUB-19, SUB-21
#[test]
fn the_distribution_cases() {
    let cases = [
        // No sources to allocate, and one subscriber that gets all.
        (0, "1=", "1="),
        (1, "1=", "1=*"),
        (3, "1=", "1=1,2,3"),
        // The first allocation is in contiguous rows; earlier nodes get one more.
        (15, "1= 2=", "1=1,2,3,4,5,6,7,8 2=9,a,b,c,d,e,f"),
        (16, "1= 2= 3= 4=", "1=1,2,3,4 2=5,6,7,8 3=9,a,b,c 4=d,e,f,10"),
        (2, "1= 2= 3=", "1=1 2=2 3="),
        // An even allocation does not change.
        (4, "1=1,2 2=3,4", "1=1,2 2=3,4"),
        (3, "1=1,2 2=3", "1=1,2 2=3"),
        // A new subscriber gets one source at a time, released by the one with the most.
        (4, "1=1,2,3,4 2=", "1=1,2,3~4 2="),
        (4, "1=1,2,3~4 2=", "1=1,2,3~4 2="),
        (4, "1=1,2,3 2=", "1=1,2~3 2=4"),
        (5, "1=1,2,3 2=4,5 3=", "1=1,2~3 2=4,5 3="),
        // The sources of a subscriber that has gone go to those with the fewest.
        (4, "2=3,4", "2=3,4,1,2"),
        (6, "1=1,2 3=5,6", "1=1,2,3 3=4,5,6"),
        (6, "1=1,2 2=3 3=4", "1=1,2 2=3,5 3=4,6"),
        // A lapsed subscriber keeps its sources until its rows are removed.
        (4, "1x=1,2 2=3,4", "1=1,2 2=3,4"),
        (4, "1x=1,2~3 2=4", "1=1,2~3 2=4"),
        // An unhealthy subscriber releases everything and gets nothing.
        (4, "1!=1,2 2=3,4", "1=~1,2 2=3,4"),
        (4, "1!= 2=3,4", "1= 2=1,2,3,4"),
        (4, "1!=", "1="),
        // A subscriber that requests less does not decide the group's sources, and gets only those.
        (4, "1/= 2=", "1=1,2 2=3,4"),
        (4, "1/=", "1=1,2"),
        (8, "1/=1,2,3,4 2=", "1=1,2,3,4 2=5,6,7,8"),
        // Two subscribers on one node count as two; a source held by two is left to one.
        (4, "1= 1= 2=", "1=1,2 1=3 2=4"),
        (2, "1=1,2 2=1", "1=1,2 2=~1"),
    ];
    for (of, before, after) in cases {
        let sorted = |text: &str| {
            let mut groups = [group("g", "companies", of.max(1), text)];
            groups[0].members.iter_mut().for_each(|member| member.holds.sort());
            show(&groups[0])
        };
        if of == 0 {
            let mut none = group("g", "companies", 1, before);
            none.members[0].requests.clear();
            assert_eq!(allocate(&[none]), []);
        } else {
            let clean = after.to_owned();
            check(of, before, &sorted(&clean));
        }
    }
}

// Shows: SUB-01, SUB-30
#[test]
fn two_nodes_share_sources_as_in_the_example() {
    let mut groups = [
        group("company-projection-consumer", "companies", 15, "1= 2="),
        group("contact-projection-consumer", "contacts", 1, "1= 2="),
    ];
    let plan = allocate(&groups);
    carry_out(&mut groups, &plan);
    assert_eq!(show(&groups[0]), "1=1,2,3,4,5,6,7,8 2=9,a,b,c,d,e,f");
    assert_eq!(show(&groups[1]), "1=* 2=");
    assert_eq!(allocate(&groups), []);
}

// Shows: SUB-03
#[test]
fn sixteen_partitions_over_two_to_four_consumers() {
    let mut groups = [group("g", "companies", 16, "1= 2=")];
    for (joins, counts) in [(None, vec![8, 8]), (Some(3), vec![6, 5, 5]), (Some(4), vec![4, 4, 4, 4])] {
        if let Some(number) = joins {
            let member = group("g", "companies", 16, &format!("{number}=")).members.remove(0);
            groups[0].members.push(member);
        }
        rounds(&mut groups);
        let mut held: Vec<usize> = groups[0].members.iter().map(|member| member.holds.len()).collect();
        held.sort_by(|one, other| other.cmp(one));
        assert_eq!(held, counts);
    }
}

#[test]
fn single_sources_are_spread_over_the_nodes() {
    let all_on_one = |name: usize| group(&format!("g{name:02}"), "c", 1, "1=* 2= 3=");
    let mut groups: Vec<_> = (0..50).map(all_on_one).collect();
    let moves = allocate(&groups);
    assert_eq!(moves.len(), 33, "what stays is a third");
    rounds(&mut groups);
    let on = |number| {
        let members = groups.iter().flat_map(|group| &group.members);
        members.filter(|member| member.node == node(number) && !member.holds.is_empty()).count()
    };
    let counts = [1, 2, 3].map(on);
    assert_eq!((counts.iter().sum::<usize>(), counts.iter().max()), (50, Some(&17)), "{counts:?}");
}

#[test]
fn a_new_group_goes_to_the_node_with_the_fewest_sources() {
    let groups =
        [group("a", "a", 1, "1=* 2= 3="), group("b", "b", 1, "1= 2=* 3="), group("c", "c", 1, "1= 2= 3=")];
    let plan = allocate(&groups);
    assert_eq!(plan.iter().map(|change| change.node).collect::<Vec<_>>(), [node(3)]);
}

// A subscriber that joins late gets its share in the next round.
// Shows: SUB-50
#[test]
fn a_rolling_deployment_keeps_every_source_in_work() {
    let mut groups = [group("g", "companies", 12, "1= 2= 3=")];
    rounds(&mut groups);
    for number in 4..=6_u16 {
        groups[0].members.push(group("g", "companies", 12, &format!("{number}=")).members.remove(0));
        let joined = rounds(&mut groups);
        groups[0].members.remove(0);
        let left = rounds(&mut groups);
        assert!(joined <= 7 && left <= 3, "{joined} and {left} rounds");
        assert_eq!(groups[0].members.iter().map(|member| member.holds.len()).collect::<Vec<_>>(), [4, 4, 4]);
    }
}

/// The new release splits the category further. A new partition waits until the old partitions that
/// share its streams are released.
#[test]
fn the_longest_requests_win_and_overlapping_parts_wait() {
    let mut groups = [group("g", "companies", 2, "1= 2=")];
    rounds(&mut groups);
    groups[0].members.push(group("g", "companies", 4, "3=").members.remove(0));
    let plan = allocate(&groups);
    carry_out(&mut groups, &plan);
    assert_eq!(show(&groups[0]), "1=~1 2=~2 3=");
    groups[0].members[0].releasing.clear();
    let plan = allocate(&groups);
    carry_out(&mut groups, &plan);
    assert_eq!(show(&groups[0]), "1= 2=~2 3=1,3", "the even ones still have the streams of the old second");
    rounds(&mut groups);
    assert_eq!(show(&groups[0]), "1= 2= 3=1,2,3,4");
}
