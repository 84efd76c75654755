//! How nodes end, and what they do when that fails, on a virtual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use super::cluster::{Cluster, LEASE, Running};
use crate::broker::{
    BrokerError, EventSubscriberStateStore, LeaderElector, Leadership, LockElector, LockManager, MemoryGroups,
};
use crate::consumer::Health;
use crate::event::Term;
use wakeq::{Name, StoreError};

/// SUB-40, SUB-54: a node that is ending heartbeats until it has ended.
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

/// SUB-40: the rest of its lease is long enough for a node that can't heartbeat to end its work.
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
        "a subscriber of the group g takes up to 10.001s to release a source, more than a third of \
         the broker's lease of 30s: make its grace at most 10s, or the lease at least 30.003s"
    );
}

struct Stubborn;

#[async_trait]
impl LeaderElector for Stubborn {
    async fn campaign(&mut self) -> Result<Option<Leadership>, BrokerError> {
        Ok(None)
    }

    async fn resign(&mut self) -> Result<(), BrokerError> {
        Err(BrokerError::Config("it keeps the lead"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_resign_still_stops() {
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

/// SUB-05: what no one can confirm is decided by the lease.
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
    assert_eq!(shown.unwrap(), "it panicked while a source was withdrawn; restart its process");
    let stopped = Instant::now();
    first.stop().await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    second.stop().await;
}

/// SUB-05: the same if it panics when it is given a source.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_when_it_is_given_a_source_is_lost() {
    let cluster = Cluster::new();
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 2));
    let other = cluster.fake("h", 2);
    one.panics_at_first.send_replace(true);
    let broker = Arc::new(cluster.broker(&[&one, &other]).await);
    let (stop, runs) = (broker.stop_token(), Arc::clone(&broker));
    let first = Running { task: tokio::spawn(async move { runs.run().await }), stop };
    let began = Instant::now();
    while broker.health() == Health::Healthy {
        assert!(began.elapsed() < LEASE, "nothing is said of it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let why = "it panicked when it was assigned a source; restart its process";
    assert_eq!(broker.health(), Health::Unhealthy(format!("g: {why}")));
    let second = cluster.start(&[&two]).await;
    cluster.until(&[&two], &[2]).await;
    assert!(began.elapsed() < 2 * LEASE, "{:?}", began.elapsed());
    tokio::time::sleep(2 * LEASE).await;
    assert_eq!(cluster.floor.loads("g", &[&one, &two]), [0, 2], "it is given nothing any more");
    assert_eq!(cluster.floor.loads("h", &[&other]), [2], "the others of its node go on");
    let states = cluster.groups.states().await.unwrap();
    let shown = states.iter().find(|state| state.id == one.id).unwrap().unhealthy.clone();
    assert_eq!(shown.as_deref(), Some(why));
    first.stop().await;
    second.stop().await;
}

/// Locks whose first answer is lost: the lock is taken, and its candidate does not know.
struct Lossy(MemoryGroups, AtomicBool);

#[async_trait]
impl LockManager for Lossy {
    async fn try_lock(&self, name: &Name, owner: Uuid, lease: Duration) -> Result<Option<Term>, BrokerError> {
        let taken = self.0.try_lock(name, owner, lease).await?;
        if self.1.swap(true, Ordering::Relaxed) {
            return Ok(taken);
        }
        Err(BrokerError::unavailable("the answer got lost")(StoreError::Config("cut off")))
    }

    async fn renew(&self, lead: &Term, lease: Duration) -> Result<bool, BrokerError> {
        self.0.renew(lead, lease).await
    }

    async fn release(&self, lead: &Term) -> Result<bool, BrokerError> {
        self.0.release(lead).await
    }

    async fn holder(&self, name: &Name) -> Result<Option<Term>, BrokerError> {
        self.0.holder(name).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_resumes_at_once_after_a_lost_answer() {
    let groups = MemoryGroups::default();
    let locks = Arc::new(Lossy(groups.clone(), AtomicBool::new(false)));
    let elector =
        |locks: Arc<dyn LockManager>| LockElector::new(locks, Name::coordinator(), Uuid::now_v7(), LEASE);
    let (mut one, mut other) = (elector(locks), elector(Arc::new(groups)));
    one.campaign().await.unwrap_err();
    assert_eq!(other.campaign().await.unwrap(), None, "it is held");
    let leadership = one.campaign().await.unwrap().expect("it is its own");
    assert_eq!((leadership.lead.term, leadership.until), (2, Instant::now() + LEASE));
    assert_eq!(one.campaign().await.unwrap().unwrap().lead.term, 2, "from then on it is renewed");
    one.resign().await.unwrap();
    assert_eq!(other.campaign().await.unwrap().unwrap().lead.term, 3);
}
