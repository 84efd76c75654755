//! How nodes end, and what they do when that fails, on a virtual clock.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::cluster::{Cluster, LEASE, Running};
use crate::broker::{BrokerError, EventSubscriberStateStore, LeaderElector, Led};

/// SUB-40, SUB-54: who ends is heard of until it has.
#[tokio::test(start_paused = true)]
async fn a_stopped_node_keeps_what_it_has_not_ended_with() {
    let mut cluster = Cluster::new();
    cluster.config.shutdown_grace = 4 * LEASE;
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 6));
    let (first, second) = (cluster.start(&[&one]).await, cluster.start(&[&two]).await);
    cluster.until(&[&one, &two], &[3, 3]).await;
    one.busy.send_replace(true);
    first.stop.cancel();
    tokio::time::sleep(3 * LEASE).await;
    assert_eq!(cluster.floor.loads("g", &[&one, &two]), [3, 3], "nobody else begins before it has ended");
    let freed = Instant::now();
    one.busy.send_replace(false);
    cluster.until(&[&one, &two], &[0, 6]).await;
    assert!(freed.elapsed() < Duration::from_secs(1), "{:?}", freed.elapsed());
    first.task.await.unwrap().unwrap();
    second.stop().await;
}

/// SUB-40: what a node that is not heard of has left of its lease is enough to end.
#[tokio::test(start_paused = true)]
async fn a_grace_beyond_a_third_of_the_lease_is_refused() {
    let cluster = Cluster::new();
    let broker = cluster.broker(&[]).await;
    let fake = cluster.fake("g", 2);
    *fake.grace.lock().unwrap() = LEASE / 3;
    broker.register(fake.clone()).await.unwrap();
    *fake.grace.lock().unwrap() = LEASE / 3 + Duration::from_millis(1);
    let refused = broker.register(fake).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a subscriber of the group g takes up to 10.001s to end with a source, more than a third of the broker's lease of \
         30s: make its grace 10s at most, or the lease 30.003s at least"
    );
}

struct Stubborn;

#[async_trait]
impl LeaderElector for Stubborn {
    async fn campaign(&mut self) -> Result<Option<Led>, BrokerError> {
        Ok(None)
    }

    async fn resign(&mut self) -> Result<(), BrokerError> {
        Err(BrokerError::Config("it keeps the lead"))
    }
}

#[tokio::test(start_paused = true)]
async fn who_cant_give_the_lead_away_ends_all_the_same() {
    let cluster = Cluster::new();
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 4));
    let broker = cluster.broker(&[&one]).await;
    *broker.node.elector.lock().await = Box::new(Stubborn);
    let (first, second) = (Running::of(broker), cluster.start(&[&two]).await);
    cluster.until(&[&one, &two], &[2, 2]).await;
    let stopped = Instant::now();
    first.stop.cancel();
    let failed = first.task.await.unwrap().unwrap_err();
    assert_eq!(failed.to_string(), "it keeps the lead");
    assert_eq!(cluster.floor.loads("g", &[&one]), [0], "it has ended with everything");
    cluster.until(&[&two], &[4]).await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    second.stop().await;
}

/// SUB-05: a lease decides what nobody can confirm.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_loses_what_it_had_with_its_lease() {
    let cluster = Cluster::new();
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 2));
    let other = cluster.fake("h", 2);
    let first = cluster.start(&[&one, &other]).await;
    cluster.until(&[&one], &[2]).await;
    one.panics.send_replace(true);
    let joined = Instant::now();
    let second = cluster.start(&[&two]).await;
    cluster.until(&[&one, &two], &[0, 2]).await;
    let took = joined.elapsed();
    assert!(took > LEASE - cluster.config.heartbeat && took < 2 * LEASE, "{took:?}");
    tokio::time::sleep(2 * LEASE).await;
    assert_eq!(cluster.floor.loads("g", &[&one, &two]), [0, 2], "it is given nothing any more");
    assert_eq!(cluster.floor.loads("h", &[&other]), [2], "the others of its node go on");
    let states = cluster.groups.states().await.unwrap();
    let shown = states.iter().find(|state| state.id == one.id).unwrap().unhealthy.clone();
    assert_eq!(shown.unwrap(), "it panicked while a source was withdrawn; start its process anew");
    let stopped = Instant::now();
    first.stop().await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    second.stop().await;
}
