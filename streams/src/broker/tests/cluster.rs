//! Clusters of brokers in one process, on a virtual clock.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fakes::{Fake, Floor, parts};
use crate::broker::{
    BrokerBacking, BrokerConfig, BrokerError, EventBroker, EventSubscriptionStateStore, LockManager,
    MemoryGroups,
};
use crate::consumer::Health;
use crate::event::Subscription;
use crate::store::tests::Table;
use wakeq::Name;
use wakeq::listeners::Signals;
use wakeq::log::{EventSource, SourceList};
use wakeq_testbed::TestTime;

pub(super) const LEASE: Duration = Duration::from_secs(30);

pub(super) struct Cluster {
    pub(super) groups: MemoryGroups,
    pub(super) floor: Floor,
    signals: Signals,
    pub(super) config: BrokerConfig,
    _time: TestTime,
}

pub(super) struct Running {
    pub(super) task: JoinHandle<Result<(), BrokerError>>,
    pub(super) stop: CancellationToken,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let config = BrokerConfig::default();
        let (groups, floor, signals) = (MemoryGroups::default(), Floor::default(), Signals::alone());
        Self { groups, floor, signals, config, _time: TestTime::begin() }
    }

    pub(super) fn fake(&self, group: &str, of: u16) -> Arc<Fake> {
        Fake::new(&self.floor, group, parts("companies", of))
    }

    /// Starts a node with these subscribers.
    pub(super) async fn start(&self, fakes: &[&Arc<Fake>]) -> Running {
        Running::of(self.broker(fakes).await)
    }

    /// Starts a node that receives no signals of the others.
    async fn alone(&self, fake: &Arc<Fake>) -> Running {
        Running::of(self.broker_with(Signals::alone(), &[fake]).await)
    }

    pub(super) async fn broker(&self, fakes: &[&Arc<Fake>]) -> EventBroker {
        self.broker_with(self.signals.clone(), fakes).await
    }

    async fn broker_with(&self, signals: Signals, fakes: &[&Arc<Fake>]) -> EventBroker {
        let backing = BrokerBacking::Memory(self.groups.clone());
        let broker = EventBroker::distributed(backing, signals, self.config).unwrap();
        for fake in fakes {
            broker.register((*fake).clone()).await.unwrap();
        }
        broker
    }

    pub(super) async fn until(&self, of: &[&Arc<Fake>], loads: &[usize]) {
        self.floor.until("g", of, loads).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.floor.doubles(), 0, "a source was worked on twice");
        }
    }
}

impl Running {
    pub(super) fn of(broker: EventBroker) -> Self {
        let stop = broker.stop_token();
        Self { task: tokio::spawn(async move { broker.run().await }), stop }
    }

    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Ends it as if its process were killed.
    async fn kill(self, floor: &Floor, fakes: &[&Arc<Fake>]) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
        fakes.iter().for_each(|fake| floor.forget(fake));
    }
}

/// Single or distributed, with groups in memory; for Postgres see below and
/// `tests/it/streams/groups/`.
// Shows: SUB-31, SUB-43
#[tokio::test(start_paused = true)]
async fn one_process_works_on_everything() {
    let floor = Floor::default();
    let fake = Fake::new(&floor, "g", parts("companies", 4));
    let backing = BrokerBacking::Memory(MemoryGroups::default());
    let broker = EventBroker::single(backing, BrokerConfig::default()).unwrap();
    broker.register(fake.clone()).await.unwrap();
    let stop = broker.stop_token();
    let task = tokio::spawn(async move { broker.run().await });
    floor.until("g", &[&fake], &[4]).await;
    stop.cancel();
    task.await.unwrap().unwrap();
    assert_eq!(floor.loads("g", &[&fake]), [0], "it has ended with everything");
}

/// A process that works alone, with its positions in Postgres, has higher epochs with each start.
// Shows: SUB-31
#[tokio::test]
async fn epochs_of_one_process_with_postgres_grow_from_start_to_start() {
    let table = Table::new().await;
    let mut before = 0;
    for _ in 0..3 {
        let floor = Floor::default();
        let fake = Fake::new(&floor, "g", parts("companies", 2));
        let backing = BrokerBacking::Postgres(wakeq::Store::clone(&table.store));
        let broker = EventBroker::single(backing, BrokerConfig::default()).unwrap();
        broker.register(fake.clone()).await.unwrap();
        let stop = broker.stop_token();
        let task = tokio::spawn(async move { broker.run().await });
        floor.until("g", &[&fake], &[2]).await;
        stop.cancel();
        task.await.unwrap().unwrap();
        let epochs = fake.epochs.lock().unwrap().clone();
        assert!(epochs.iter().all(|epoch| *epoch > before), "{epochs:?} after {before}");
        before = epochs.into_iter().max().unwrap();
    }
}

// Shows: SUB-01, SUB-13, SUB-30, SUB-37, SUB-39, SUB-52
#[tokio::test(start_paused = true)]
async fn two_nodes_share_sources_as_in_the_example() {
    let cluster = Cluster::new();
    let contacts = || {
        Fake::new(
            &cluster.floor,
            "contact-projection-consumer",
            vec![EventSource::category("contacts").unwrap()],
        )
    };
    let companies = || Fake::new(&cluster.floor, "company-projection-consumer", parts("companies", 15));
    let (one, other) = ([companies(), contacts()], [companies(), contacts()]);
    let first = cluster.start(&one.each_ref()).await;
    let second = cluster.start(&other.each_ref()).await;
    cluster.floor.until("company-projection-consumer", &[&one[0], &other[0]], &[8, 7]).await;
    cluster.floor.until("contact-projection-consumer", &[&one[1], &other[1]], &[1, 0]).await;
    let rows = cluster.groups.allocations().await.unwrap();
    let json: Vec<String> = rows.into_iter().map(|row| SourceList(row.sources).to_json()).collect();
    assert_eq!(
        json[..2],
        [
            r#"[{"type":"category","category":"companies","partitions":["1","2","3","4","5","6","7","8"],"of":15}]"#,
            r#"[{"type":"category","category":"companies","partitions":["9","a","b","c","d","e","f"],"of":15}]"#
        ]
    );
    assert_eq!(other[1].health.borrow().clone(), Health::Healthy, "a broker without sources is healthy");
    first.stop().await;
    second.stop().await;
}

// See also SUB-05.
// Shows: SUB-06
#[tokio::test(start_paused = true)]
async fn sources_of_a_killed_node_move_within_two_leases() {
    let cluster = Cluster::new();
    let [one, two, three] = [(); 3].map(|()| cluster.fake("g", 9));
    let first = cluster.start(&[&one]).await;
    cluster.until(&[&one], &[9]).await;
    let (second, third) = (cluster.start(&[&two]).await, cluster.start(&[&three]).await);
    cluster.until(&[&one, &two, &three], &[3, 3, 3]).await;
    // The first node leads: its term has to run out as well.
    let killed = Instant::now();
    first.kill(&cluster.floor, &[&one]).await;
    loop {
        let loads = cluster.floor.loads("g", &[&two, &three]);
        if loads.iter().sum::<usize>() == 9 {
            assert_eq!(loads.iter().max(), Some(&5));
            break;
        }
        // On the virtual clock. Which of the two gets five is not known.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(killed.elapsed() <= 2 * LEASE, "{:?}", killed.elapsed());
    second.stop().await;
    cluster.until(&[&three], &[9]).await;
    third.stop().await;
}

// A graceful stop does not cost a lease.
// Shows: SUB-09, SUB-25, SUB-54
#[tokio::test(start_paused = true)]
async fn sources_of_a_stopped_node_move_at_once() {
    let cluster = Cluster::new();
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 6));
    let (first, second) = (cluster.start(&[&one]).await, cluster.start(&[&two]).await);
    cluster.until(&[&one, &two], &[3, 3]).await;
    let stopped = Instant::now();
    first.stop().await;
    cluster.until(&[&two], &[6]).await;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    let term = cluster.groups.holder(&Name::coordinator()).await.unwrap().unwrap().term;
    assert_eq!(term, 2, "somebody else leads");
    second.stop().await;
    assert_eq!(cluster.groups.holder(&Name::coordinator()).await.unwrap(), None);
}

// Shows: SUB-33, SUB-41
#[tokio::test(start_paused = true)]
async fn sources_of_the_unhealthy_move_and_come_back() {
    let cluster = Cluster::new();
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 4));
    let (first, second) = (cluster.start(&[&one]).await, cluster.start(&[&two]).await);
    cluster.until(&[&one, &two], &[2, 2]).await;
    let sick = Instant::now();
    one.health.send_replace(Health::Unhealthy("the disk is full".to_owned()));
    cluster.until(&[&one, &two], &[0, 4]).await;
    assert!(sick.elapsed() < Duration::from_secs(1), "{:?}", sick.elapsed());
    // As long as it is unhealthy, nothing comes back.
    tokio::time::sleep(2 * LEASE).await;
    cluster.until(&[&one, &two], &[0, 4]).await;
    one.health.send_replace(Health::Healthy);
    cluster.until(&[&one, &two], &[2, 2]).await;
    first.stop().await;
    second.stop().await;
}

// Shows: SUB-40, SUB-55
#[tokio::test(start_paused = true)]
async fn a_source_moves_only_once_its_owner_has_released_it() {
    let cluster = Cluster::new();
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 2));
    let first = cluster.start(&[&one]).await;
    cluster.until(&[&one], &[2]).await;
    one.busy.send_replace(true);
    let second = cluster.start(&[&two]).await;
    tokio::time::sleep(4 * LEASE).await;
    assert_eq!(cluster.floor.loads("g", &[&one, &two]), [2, 0], "what is being handled is waited for");
    one.busy.send_replace(false);
    cluster.until(&[&one, &two], &[1, 1]).await;
    first.stop().await;
    second.stop().await;
}

/// Without signals everything happens within the periods.
// Shows: SUB-37
#[tokio::test(start_paused = true)]
async fn without_signals_polling_periods_suffice() {
    let mut cluster = Cluster::new();
    let [one, two] = [(); 2].map(|()| cluster.fake("g", 2));
    let first = cluster.start(&[&one]).await;
    cluster.signals = Signals::alone();
    let second = cluster.start(&[&two]).await;
    let begun = Instant::now();
    cluster.until(&[&one, &two], &[1, 1]).await;
    assert!(begun.elapsed() <= 2 * LEASE, "{:?}", begun.elapsed());
    first.stop().await;
    second.stop().await;
}

/// What docs/groups.md says of rebalancing: one source of a group moves at a time, which takes up
/// to two heartbeats if its owner and the coordinator receive no signals; if they do, all have
/// moved at once.
// Shows: SUB-37
#[tokio::test(start_paused = true)]
async fn evening_out_takes_two_heartbeats_a_source_without_signals() {
    for with_signals in [false, true] {
        let cluster = Cluster::new();
        let (other, [one, two]) = (cluster.fake("h", 1), [(); 2].map(|()| cluster.fake("g", 16)));
        let start =
            async |fake| if with_signals { cluster.start(&[fake]).await } else { cluster.alone(fake).await };
        let coordinator = cluster.start(&[&other]).await;
        cluster.floor.until("h", &[&other], &[1]).await;
        let first = start(&one).await;
        cluster.until(&[&one], &[16]).await;
        let joined = Instant::now();
        let second = start(&two).await;
        cluster.until(&[&one, &two], &[8, 8]).await;
        let (took, heartbeat) = (joined.elapsed(), cluster.config.heartbeat);
        let bounds = if with_signals { 0..1 } else { 8..2 * 8 + 2 };
        assert!(
            (bounds.start * heartbeat..bounds.end * heartbeat).contains(&took),
            "{took:?}, with signals: {with_signals}"
        );
        for node in [first, second, coordinator] {
            node.stop().await;
        }
    }
}

/// A node that receives no signals stops working on a source that it lost, and starts working on
/// one that it got, within one heartbeat each.
// Shows: SUB-37
#[tokio::test(start_paused = true)]
async fn a_change_of_sources_takes_a_heartbeat_without_signals() {
    let cluster = Cluster::new();
    let [leader, one, two] = [(); 3].map(|()| cluster.fake("g", 6));
    let mut nodes = vec![cluster.start(&[&leader]).await];
    cluster.until(&[&leader], &[6]).await;
    let look = Duration::from_millis(10);
    let until = async |changed: &dyn Fn(&Subscription) -> bool| {
        while !cluster.groups.allocations().await.unwrap().iter().any(changed) {
            // On the virtual clock; there is no signal of a written row.
            tokio::time::sleep(look).await;
        }
        Instant::now()
    };
    let (of_one, of_two) = (one.id, two.id);
    let within_a_heartbeat = |written: Instant| {
        let limit = cluster.config.heartbeat + look;
        assert!((look..=limit).contains(&written.elapsed()), "{:?}", written.elapsed());
    };
    nodes.push(cluster.alone(&one).await);
    let written = until(&|row| row.subscriber == of_one && row.sources.len() == 3).await;
    cluster.until(&[&leader, &one], &[3, 3]).await;
    within_a_heartbeat(written);
    nodes.push(cluster.alone(&two).await);
    let written = until(&|row| row.subscriber == of_one && !row.releasing.is_empty()).await;
    assert_eq!(cluster.floor.loads("g", &[&one]), [3], "it has not heard of it");
    cluster.floor.until("g", &[&one], &[2]).await;
    within_a_heartbeat(written);
    let written = until(&|row| row.subscriber == of_two && row.sources.len() == 2).await;
    cluster.until(&[&leader, &one, &two], &[2, 2, 2]).await;
    within_a_heartbeat(written);
    for node in nodes {
        node.stop().await;
    }
}

// Shows: SUB-50
#[tokio::test(start_paused = true)]
async fn nodes_are_replaced_one_by_one() {
    let cluster = Cluster::new();
    let fakes: Vec<_> = (0..6).map(|_| cluster.fake("g", 12)).collect();
    let mut running = Vec::new();
    for fake in &fakes[..3] {
        running.push(cluster.start(&[fake]).await);
    }
    cluster.until(&[&fakes[0], &fakes[1], &fakes[2]], &[4, 4, 4]).await;
    for at in 3..6 {
        running.push(cluster.start(&[&fakes[at]]).await);
        cluster.until(&[&fakes[at]], &[3]).await;
        running.remove(0).stop().await;
        cluster.until(&[&fakes[at - 2], &fakes[at - 1], &fakes[at]], &[4, 4, 4]).await;
    }
    for one in running {
        one.stop().await;
    }
}

/// Two kinds of work in one group would take sources from one another. A deployment that is rolled
/// out adds sources, or leaves some out.
#[tokio::test(start_paused = true)]
async fn a_subscriber_with_other_sources_is_not_a_member() {
    let cluster = Cluster::new();
    let whole = |category: &str| EventSource::category(category).unwrap();
    let fake = |requests| Fake::new(&cluster.floor, "g", requests);
    let companies = fake(parts("companies", 4));
    let node = cluster.start(&[&companies]).await;
    cluster.until(&[&companies], &[4]).await;
    let broker = cluster.broker(&[]).await;
    for other in [vec![whole("contacts")], parts("contacts", 8)] {
        let refused = broker.register(fake(other)).await.unwrap_err();
        assert!(matches!(refused, BrokerError::Sources { .. }));
        let words = refused.to_string();
        assert!(
            words.contains("requests category/companies/1-of-4, and this one requests category/contacts"),
            "{words}"
        );
    }
    let more = fake([parts("companies", 4), vec![whole("contacts")]].concat());
    broker.register(more.clone()).await.unwrap();
    broker.register(fake(parts("companies", 4)[..2].to_vec())).await.unwrap();
    broker.register(Fake::new(&cluster.floor, "h", vec![whole("contacts")])).await.unwrap();
    node.stop().await;
    let other = cluster.broker(&[]).await;
    other.register(fake(vec![whole("contacts")])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rejects_invalid_arguments() {
    let cluster = Cluster::new();
    let of_four = cluster.fake("g", 4);
    let node = cluster.start(&[&of_four]).await;
    cluster.until(&[&of_four], &[4]).await;
    let backing = || BrokerBacking::Memory(cluster.groups.clone());
    let broker = EventBroker::distributed(backing(), Signals::alone(), cluster.config).unwrap();
    let refused = broker.register(cluster.fake("g", 8)).await.unwrap_err();
    assert!(refused.to_string().contains("keep the former number of partitions"), "{refused}");
    broker.register(cluster.fake("h", 8)).await.unwrap();
    let nothing = Fake::new(&cluster.floor, "h", Vec::new());
    assert!(matches!(broker.register(nothing).await, Err(BrokerError::Requests { count: 0, .. })));
    for (heartbeat, lease) in [(0, 30_000), (11_000, 30_000), (10, 200), (10, 100_000_000)] {
        let (heartbeat, lease) = (Duration::from_millis(heartbeat), Duration::from_millis(lease));
        let config = BrokerConfig { heartbeat, lease, ..cluster.config };
        assert!(EventBroker::single(backing(), config).is_err(), "{config:?}");
    }
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_runs_once_with_those_that_were_registered_before() {
    let cluster = Cluster::new();
    let backing = BrokerBacking::Memory(cluster.groups.clone());
    let broker = EventBroker::single(backing, cluster.config).unwrap();
    broker.stop_token().cancel();
    broker.run().await.unwrap();
    assert!(matches!(broker.register(cluster.fake("g", 1)).await, Err(BrokerError::Config(_))));
    assert!(matches!(broker.run().await, Err(BrokerError::Config(_))));
}
