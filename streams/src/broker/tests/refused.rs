//! Members of one group that ask for different sources and start at the same time, on a virtual
//! clock.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, LEASE, Running};
use super::fakes::{Fake, parts};
use crate::broker::{BrokerError, EventBroker, EventSubscriberStateStore};
use crate::consumer::Health;

struct Node {
    broker: Arc<EventBroker>,
    running: Running,
}

fn run(broker: EventBroker) -> Node {
    let broker = Arc::new(broker);
    let (stop, runs) = (broker.stop_token(), Arc::clone(&broker));
    let running = Running { task: tokio::spawn(async move { runs.run().await }), stop };
    Node { broker, running }
}

/// Both are accepted when they are added, since neither runs yet. Then one of them works, and the
/// other reports why it does not, until the first has gone. Another group of the same nodes is not
/// affected.
// Shows: SUB-20
#[tokio::test(start_paused = true)]
async fn of_two_conflicting_subscribers_one_is_refused_until_the_other_leaves() {
    let cluster = Cluster::new();
    let fake = |requests| Fake::new(&cluster.floor, "g", requests);
    let fakes = [fake(parts("companies", 4)), fake(parts("contacts", 8))];
    let beside = [cluster.fake("h", 4), cluster.fake("h", 4)];
    let brokers =
        [cluster.broker(&[&fakes[0], &beside[0]]).await, cluster.broker(&[&fakes[1], &beside[1]]).await];
    let mut nodes = brokers.map(run).into_iter().map(Some).collect::<Vec<_>>();
    let mut changes = cluster.config.heartbeat;
    while cluster.floor.works("g").is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        changes = changes.saturating_sub(Duration::from_millis(10));
        assert!(changes > Duration::ZERO, "one of them works");
    }
    cluster.floor.until("h", &[&beside[0], &beside[1]], &[2, 2]).await;
    let first = usize::from(!cluster.floor.works("g").contains_key(&fakes[0].id));
    let (worker, other) = (&fakes[first], &fakes[1 - first]);
    for _ in 0..3 {
        let Health::Unhealthy(why) = nodes[1 - first].as_ref().unwrap().broker.health() else {
            panic!("it does not say that it is refused")
        };
        let [known, asked] = if first == 0 { ["companies", "contacts"] } else { ["contacts", "companies"] };
        let words = format!("a current member of the group g requests category/{known}/1-of-");
        assert!(why.starts_with("g: ") && why.contains(&words), "{why}");
        assert!(why.contains(&format!("and this one requests category/{asked}/1-of-")), "{why}");
        assert_eq!(nodes[first].as_ref().unwrap().broker.health(), Health::Healthy);
        assert!(cluster.floor.loads("g", &[worker])[0] >= 4, "it keeps all that it has");
        assert_eq!(cluster.floor.loads("g", &[other]), [0]);
        assert_eq!(cluster.floor.loads("h", &[&beside[0], &beside[1]]), [2, 2], "the group beside goes on");
        // All of this still holds after one lease, and after two.
        tokio::time::sleep(LEASE).await;
    }
    let members = cluster.groups.states().await.unwrap();
    assert_eq!(members.iter().filter(|state| state.group.as_str() == "g").count(), 1);

    nodes[first].take().unwrap().running.stop().await;
    // The other one tries again with its next heartbeat, on the virtual clock.
    tokio::time::sleep(cluster.config.heartbeat + Duration::from_secs(1)).await;
    let all = if first == 0 { 8 } else { 4 };
    assert_eq!(cluster.floor.loads("g", &[worker, other]), [0, all]);
    let last = nodes[1 - first].take().unwrap();
    assert_eq!(last.broker.health(), Health::Healthy);
    last.running.stop().await;
}

/// Within one process the second is refused at once.
#[tokio::test(start_paused = true)]
async fn subscribers_of_one_process_that_ask_for_different_sources_are_refused() {
    let cluster = Cluster::new();
    let fake = |group, requests| Fake::new(&cluster.floor, group, requests);
    let broker = cluster.broker(&[&fake("g", parts("companies", 4))]).await;
    let refused = broker.register(fake("g", parts("contacts", 8))).await.unwrap_err();
    assert!(matches!(refused, BrokerError::Sources { .. }), "{refused}");
    broker.register(fake("h", parts("contacts", 8))).await.unwrap();
    broker.register(fake("g", parts("companies", 4))).await.unwrap();
}
