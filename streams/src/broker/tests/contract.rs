//! The contract of every store of groups: the same tests on memory and on Postgres.

use std::time::Duration;

use uuid::Uuid;

use super::fakes::parts;
use crate::broker::{
    BrokerError, EventSubscriberStateStore, EventSubscriptionSourceMappingStore, EventSubscriptionStateStore,
    LockManager, MemoryGroups, NodeHeartbeat,
};
use crate::event::{NewSubscription, NodeId, SubscriberId, SubscriberState, Term};
use crate::store::tests::Table;
use wakeq::Name;
use wakeq::log::EventSource;

const LEASE: Duration = Duration::from_secs(600);
/// Runs out at once.
const NO_LEASE: Duration = Duration::from_micros(1);

trait Groups:
    NodeHeartbeat
    + EventSubscriberStateStore
    + EventSubscriptionStateStore
    + EventSubscriptionSourceMappingStore
    + LockManager
{
}

impl<T> Groups for T where
    T: NodeHeartbeat
        + EventSubscriberStateStore
        + EventSubscriptionStateStore
        + EventSubscriptionSourceMappingStore
        + LockManager
{
}

macro_rules! on_both {
    ($($(#[$meta:meta])* $test:ident;)*) => {$(
        mod $test {
            use super::*;

            $(#[$meta])*
            #[tokio::test]
            async fn in_memory() {
                super::$test(&MemoryGroups::default()).await;
            }

            $(#[$meta])*
            #[tokio::test]
            async fn in_postgres() {
                super::$test(&*Table::new().await.store).await;
            }
        }
    )*};
}

on_both! {
    nodes_appear_with_their_heartbeats_and_drop_out;
    subscribers_register_heartbeat_and_unregister;
    heartbeats_of_an_unhealthy_subscriber_do_not_count;
    // See also SUB-44.
    members_of_a_group_ask_for_the_same;
    subscriptions_are_written_by_the_coordinator_alone;
    // See also SUB-45, SUB-55.
    allocations_with_an_outdated_epoch_are_not_written;
    // See also SUB-45.
    subscribers_without_heartbeats_are_removed;
    the_longest_requests_are_the_sources_of_a_group;
    a_lock_is_held_by_one;
    a_lock_is_waited_for;
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Returns when its lease of a microsecond has run out, by the clock of the store.
async fn until_lapsed(groups: &impl Groups, id: SubscriberId) {
    wakeq_testbed::wait_while!(
        !groups.states().await.unwrap().iter().any(|state| state.id == id && state.lapsed),
        "its lease does not run out"
    );
}

async fn lead(groups: &impl Groups) -> Term {
    groups.try_lock(&name("coordinator"), Uuid::now_v7(), LEASE).await.unwrap().unwrap()
}

async fn registered(groups: &impl Groups, group: &str, lease: Duration) -> (SubscriberId, NodeId) {
    let (id, node) = (SubscriberId::new(), NodeId::new());
    groups.register(&name(group), id, node, &parts("companies", 4), lease).await.unwrap();
    (id, node)
}

fn gives(
    (subscriber, node): (SubscriberId, NodeId),
    sources: &[EventSource],
    seen_epoch: i64,
) -> NewSubscription {
    let (sources, releasing) = (sources.to_vec(), Vec::new());
    NewSubscription { group: name("g"), subscriber, node, sources, releasing, seen_epoch }
}

// Shows: SUB-26, SUB-48, SUB-54 as *::in_memory, *::in_postgres
async fn nodes_appear_with_their_heartbeats_and_drop_out(groups: &impl Groups) {
    let (first, second) = (NodeId::new(), NodeId::new());
    groups.beat(first, LEASE).await.unwrap();
    groups.beat(second, NO_LEASE).await.unwrap();
    let before = groups.all_nodes().await.unwrap();
    assert_eq!(before.iter().map(|node| node.id).collect::<Vec<_>>(), [first, second]);
    groups.beat(first, LEASE).await.unwrap();
    let after = groups.all_nodes().await.unwrap();
    assert!(after[0].heartbeat_at > before[0].heartbeat_at && !after[0].lapsed);
    let mut nodes = after;
    while !nodes[1].lapsed {
        nodes = groups.all_nodes().await.unwrap();
    }
    groups.remove_lapsed(&lead(groups).await).await.unwrap().unwrap();
    assert_eq!(groups.all_nodes().await.unwrap().len(), 1, "a stale node drops out");
    groups.leave(first).await.unwrap();
    assert_eq!(groups.all_nodes().await.unwrap(), []);
}

// Shows: SUB-27, SUB-42, SUB-44 as *::in_memory, *::in_postgres
async fn subscribers_register_heartbeat_and_unregister(groups: &impl Groups) {
    let (one, node) = registered(groups, "b", LEASE).await;
    let (two, _) = registered(groups, "a", LEASE).await;
    let states = groups.states().await.unwrap();
    assert_eq!(states.iter().map(|state| state.id).collect::<Vec<_>>(), [two, one], "by group");
    assert_eq!((&states[1].group, states[1].node, states[1].confirmed_epoch), (&name("b"), node, 0));
    assert_eq!(states[1].requests, parts("companies", 4));
    let live = groups.record_heartbeats(&[(one, 7), (SubscriberId::new(), 9)], LEASE).await.unwrap();
    assert_eq!(live, [one], "a subscriber that is not registered is not heard of");
    groups.record_heartbeats(&[(one, 5)], LEASE).await.unwrap();
    let after = groups.states().await.unwrap();
    assert_eq!(after[1].confirmed_epoch, 7, "it grows only");
    assert!(after[1].heartbeat_at > states[1].heartbeat_at);
    assert_eq!(after[0].heartbeat_at, states[0].heartbeat_at);
    groups.register(&name("b"), one, node, &parts("companies", 2), LEASE).await.unwrap();
    assert_eq!(groups.states().await.unwrap()[1].requests, parts("companies", 2));
    groups.unregister(&[one, two]).await.unwrap();
    assert_eq!(groups.states().await.unwrap(), []);
}

// Shows: SUB-44 as *::in_memory, *::in_postgres
async fn heartbeats_of_an_unhealthy_subscriber_do_not_count(groups: &impl Groups) {
    let (id, node) = registered(groups, "g", LEASE).await;
    let before = groups.states().await.unwrap().remove(0);
    groups.unhealthy(id, "the disk is full").await.unwrap();
    assert_eq!(groups.record_heartbeats(&[(id, 3)], LEASE).await.unwrap(), []);
    groups.confirm(id, 2).await.unwrap();
    let state = groups.states().await.unwrap().remove(0);
    assert_eq!(state.unhealthy.as_deref(), Some("the disk is full"));
    assert_eq!((state.confirmed_epoch, state.heartbeat_at), (2, before.heartbeat_at));
    groups.register(&name("g"), id, node, &parts("companies", 4), LEASE).await.unwrap();
    let state = groups.states().await.unwrap().remove(0);
    assert_eq!((state.unhealthy, state.confirmed_epoch), (None, 2));
}

/// Also for two that start at the same time, and for one that registers again.
// Shows: SUB-20 as *::in_memory, *::in_postgres
async fn members_of_a_group_ask_for_the_same(groups: &impl Groups) {
    let register = async |group: &str, id, requests: &[EventSource], lease| {
        groups.register(&name(group), id, NodeId::new(), requests, lease).await
    };
    let [one, two, other] = [(); 3].map(|()| SubscriberId::new());
    let (companies, contacts) = (parts("companies", 4), [EventSource::category("contacts").unwrap()]);
    let both = [companies.clone(), contacts.to_vec()].concat();
    let (first, second) =
        tokio::join!(register("g", one, &companies, LEASE), register("g", two, &contacts, LEASE));
    let (member, refused, asked) = match (first, second) {
        (Ok(()), Err(refused)) => (one, refused, &contacts[..]),
        (Err(refused), Ok(())) => (two, refused, &companies[..]),
        both => panic!("one of them is a member: {both:?}"),
    };
    assert!(matches!(refused, BrokerError::Sources { .. }), "{refused}");
    assert_eq!(groups.states().await.unwrap().iter().map(|state| state.id).collect::<Vec<_>>(), [member]);
    register("h", other, asked, LEASE).await.unwrap();
    groups.unregister(&[member]).await.unwrap();

    // A part of the sources, or more than them, is not other work.
    register("g", one, &companies[..2], LEASE).await.unwrap();
    register("g", two, &companies, LEASE).await.unwrap();
    register("g", one, &both, LEASE).await.unwrap();
    let else_besides = [companies[0].clone(), EventSource::category("people").unwrap()];
    let refused = register("g", two, &else_besides, LEASE).await.unwrap_err();
    assert!(matches!(refused, BrokerError::Sources { .. }), "{refused}");
    let requests = |states: Vec<SubscriberState>, id| {
        states.into_iter().find(|state| state.id == id).map(|state| state.requests)
    };
    assert_eq!(requests(groups.states().await.unwrap(), two), Some(companies), "it is as it was");

    // One whose lease has run out is not a member, and a heartbeat does not make it one.
    groups.unregister(&[two]).await.unwrap();
    register("g", one, &both, NO_LEASE).await.unwrap();
    until_lapsed(groups, one).await;
    register("g", two, &else_besides, LEASE).await.unwrap();
    assert_eq!(groups.record_heartbeats(&[(one, 1), (two, 1)], LEASE).await.unwrap(), [two]);
    let refused = register("g", one, &both, LEASE).await.unwrap_err();
    assert!(matches!(refused, BrokerError::Sources { .. }), "{refused}");
}

// Shows: SUB-23, SUB-45 as *::in_memory, *::in_postgres
async fn subscriptions_are_written_by_the_coordinator_alone(groups: &impl Groups) {
    let (one, two) = (registered(groups, "g", LEASE).await, registered(groups, "g", LEASE).await);
    let sources = parts("companies", 4);
    let first = lead(groups).await;
    let new = [gives(one, &sources[..2], 0), gives(two, &sources[2..], 0)];
    let mut written = groups.allocate(&first, &new).await.unwrap().unwrap();
    written.sort();
    assert_eq!(written, [one.0, two.0]);
    let allocations = groups.allocations().await.unwrap();
    assert_eq!(allocations[0].sources, sources[..2]);
    assert_eq!((allocations[1].node, allocations[1].term), (two.1, first.term), "where the subscriber is");
    assert_ne!(allocations[0].epoch, allocations[1].epoch);
    assert_eq!(groups.allocations_of(two.1).await.unwrap(), allocations[1..]);
    assert!(groups.release(&first).await.unwrap());
    let second = lead(groups).await;
    assert!(second.term > first.term);
    let late = [gives(one, &sources, allocations[0].epoch)];
    assert_eq!(groups.allocate(&first, &late).await.unwrap(), None, "its term is over");
    assert_eq!(groups.remove_lapsed(&first).await.unwrap(), None);
    assert_eq!(groups.allocations().await.unwrap(), allocations);
    let again = groups.allocate(&second, &late).await.unwrap().unwrap();
    assert_eq!(again, [one.0]);
    let after = groups.allocations().await.unwrap();
    assert!(after[0].epoch > allocations[1].epoch && after[0].epoch > allocations[0].epoch);
    assert_eq!(after[0].sources, sources);
}

// Shows: SUB-24, SUB-28 as *::in_memory, *::in_postgres
async fn allocations_with_an_outdated_epoch_are_not_written(groups: &impl Groups) {
    let one = registered(groups, "g", LEASE).await;
    let lead = lead(groups).await;
    let sources = parts("companies", 4);
    groups.allocate(&lead, &[gives(one, &sources[..1], 0)]).await.unwrap().unwrap();
    let standing = groups.allocations().await.unwrap();
    for seen in [0, standing[0].epoch - 1, standing[0].epoch + 1] {
        let written = groups.allocate(&lead, &[gives(one, &sources, seen)]).await.unwrap();
        assert_eq!(written, Some(Vec::new()), "seen under {seen}");
    }
    assert_eq!(groups.allocations().await.unwrap(), standing);
    let nobody = (SubscriberId::new(), NodeId::new());
    let elsewhere = (one.0, NodeId::new());
    for who in [nobody, elsewhere] {
        let written = groups.allocate(&lead, &[gives(who, &sources, standing[0].epoch)]).await.unwrap();
        assert_eq!(written, Some(Vec::new()), "a subscriber is given nothing where it is not registered");
    }
    groups.unregister(&[one.0]).await.unwrap();
    assert_eq!(groups.allocations().await.unwrap(), [], "what it had goes with it");
}

// Shows: SUB-33, SUB-53 as *::in_memory, *::in_postgres
async fn subscribers_without_heartbeats_are_removed(groups: &impl Groups) {
    let (here, gone) = (registered(groups, "g", LEASE).await, registered(groups, "g", NO_LEASE).await);
    let sick = registered(groups, "g", NO_LEASE).await;
    groups.beat(sick.1, LEASE).await.unwrap();
    groups.unhealthy(sick.0, "why").await.unwrap();
    let lead = lead(groups).await;
    let sources = parts("companies", 4);
    let new = [gives(here, &sources[..1], 0), gives(gone, &sources[1..2], 0), gives(sick, &sources[2..], 0)];
    groups.allocate(&lead, &new).await.unwrap().unwrap();
    until_lapsed(groups, gone.0).await;
    until_lapsed(groups, sick.0).await;
    let mut removed = groups.remove_lapsed(&lead).await.unwrap().unwrap();
    removed.sort();
    assert_eq!(removed, [gone.0, sick.0]);
    assert_eq!(groups.allocations().await.unwrap().len(), 1);
    let left: Vec<_> = groups.states().await.unwrap().into_iter().map(|state| state.id).collect();
    assert_eq!(left, [here.0, sick.0], "an unhealthy subscriber is shown while its node is there");
    assert_eq!(
        groups.record_heartbeats(&[(gone.0, 1)], LEASE).await.unwrap(),
        [],
        "it has to register again"
    );
    assert_eq!(groups.remove_lapsed(&lead).await.unwrap(), Some(Vec::new()), "nobody is removed twice");
}

// Shows: SUB-20, SUB-46, SUB-51 as *::in_memory, *::in_postgres
async fn the_longest_requests_are_the_sources_of_a_group(groups: &impl Groups) {
    let long = parts("companies", 3);
    let short = long[..2].to_vec();
    let other = [EventSource::category("contacts").unwrap()];
    let node = NodeId::new();
    let ids: Vec<SubscriberId> = (0..4).map(|_| SubscriberId::new()).collect();
    groups.register(&name("g"), ids[0], node, &long, LEASE).await.unwrap();
    groups.register(&name("g"), ids[1], node, &short, LEASE).await.unwrap();
    groups.register(&name("h"), ids[2], node, &other, LEASE).await.unwrap();
    groups.register(&name("i"), ids[3], node, &other, LEASE).await.unwrap();
    groups.unhealthy(ids[3], "why").await.unwrap();
    let sources = groups.sources().await.unwrap();
    assert_eq!(sources, [(name("g"), long), (name("h"), other.to_vec())]);
    assert_eq!(groups.opened(&name("g")).await.unwrap(), []);
}

// Shows: SUB-07, SUB-47 as *::in_memory, *::in_postgres
async fn a_lock_is_held_by_one(groups: &impl Groups) {
    let (one, two, lock) = (Uuid::now_v7(), Uuid::now_v7(), name("l"));
    let held = groups.try_lock(&lock, one, LEASE).await.unwrap().unwrap();
    assert_eq!(groups.try_lock(&lock, two, LEASE).await.unwrap(), None);
    let again = groups.try_lock(&lock, one, LEASE).await.unwrap().unwrap();
    assert_eq!(again.term, held.term + 1, "the answer to the first time may have got lost");
    assert!(!groups.renew(&held, LEASE).await.unwrap() && !groups.release(&held).await.unwrap());
    let held = again;
    assert!(groups.try_lock(&name("other"), two, LEASE).await.unwrap().is_some());
    assert_eq!(groups.holder(&lock).await.unwrap(), Some(held.clone()));
    assert!(groups.renew(&held, NO_LEASE).await.unwrap());
    wakeq_testbed::wait_while!(groups.holder(&lock).await.unwrap().is_some(), "its lease does not end");
    assert!(groups.renew(&held, NO_LEASE).await.unwrap(), "nobody has taken it");
    let taken = loop {
        if let Some(taken) = groups.try_lock(&lock, two, LEASE).await.unwrap() {
            break taken;
        }
    };
    assert_eq!(taken.term, held.term + 1);
    assert!(!groups.renew(&held, LEASE).await.unwrap() && !groups.release(&held).await.unwrap());
    assert_eq!(groups.holder(&lock).await.unwrap(), Some(taken));
}

// Shows: SUB-47 as *::in_memory, *::in_postgres
async fn a_lock_is_waited_for(groups: &impl Groups) {
    let (one, two, lock) = (Uuid::now_v7(), Uuid::now_v7(), name("l"));
    let held = groups.try_lock(&lock, one, LEASE).await.unwrap().unwrap();
    let short = Duration::from_millis(20);
    assert_eq!(groups.wait_for_lock(&lock, two, LEASE, short).await.unwrap(), None, "in vain");
    let patience = Duration::from_secs(20);
    let (taken, released) =
        tokio::join!(groups.wait_for_lock(&lock, two, LEASE, patience), groups.release(&held));
    assert!(released.unwrap());
    assert_eq!(taken.unwrap().unwrap().term, held.term + 1);
}

/// An observer only needs the right to read, and can't do anything else with it.
// Shows: SUB-38
#[tokio::test]
async fn an_observer_needs_no_right_to_write() {
    let table = Table::new().await;
    let (one, lead) = (registered(&*table.store, "g", LEASE).await, lead(&*table.store).await);
    let sources = parts("companies", 4);
    table.store.allocate(&lead, &[gives(one, &sources, 0)]).await.unwrap().unwrap();
    let reader = table.reader(&["wakeq.subscriptions"]).await;
    assert_eq!(reader.allocations_of(one.1).await.unwrap()[0].sources, sources);
    let refused = reader.record_heartbeats(&[(one.0, 1)], LEASE).await.unwrap_err();
    assert!(format!("{refused:?}").contains("permission denied"), "{refused:?}");
}
