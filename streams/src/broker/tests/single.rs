//! Processes that each want to work alone on the same groups, on Postgres.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::cluster::Running;
use super::fakes::{Fake, Floor, parts};
use crate::broker::{BrokerBacking, BrokerConfig, EventBroker};
use crate::consumer::Health;
use crate::store::tests::Table;
use wakeq::Name;
use wakeq::listeners::Signals;
use wakeq::log::EventSource;

const LEASE: Duration = Duration::from_secs(3);
const CONFIG: BrokerConfig = BrokerConfig {
    heartbeat: Duration::from_millis(300),
    lease: LEASE,
    shutdown_grace: Duration::from_secs(20),
};

/// How long a test waits for anything: as long as the floor's own wait.
const PATIENCE: Duration = Duration::from_secs(600);

/// A process that was started, and may be killed.
struct Process {
    fake: Arc<Fake>,
    broker: Arc<EventBroker>,
    running: Running,
}

async fn single(table: &Table, floor: &Floor, group: &str) -> Process {
    started(
        EventBroker::single(BrokerBacking::Postgres(wakeq::Store::clone(&table.store)), CONFIG).unwrap(),
        floor,
        group,
    )
    .await
}

async fn started(broker: EventBroker, floor: &Floor, group: &str) -> Process {
    let fake = Fake::new(floor, group, parts("companies", 2));
    *fake.grace.lock().unwrap() = LEASE / 3;
    broker.register(fake.clone()).await.unwrap();
    let broker = Arc::new(broker);
    let (stop, runs) = (broker.stop_token(), Arc::clone(&broker));
    let running = Running { task: tokio::spawn(async move { runs.run().await }), stop };
    Process { fake, broker, running }
}

impl Process {
    async fn end(self, floor: &Floor, kills: bool) {
        if kills {
            self.running.task.abort();
            floor.forget(&self.fake);
        } else {
            self.running.stop().await;
        }
    }

    /// It works on everything, under a higher epoch than any before.
    async fn works(&self, floor: &Floor, group: &str, before: &mut i64) {
        floor.until(group, &[&self.fake], &[2]).await;
        let epochs = self.fake.epochs.lock().unwrap().clone();
        let newest = epochs.into_iter().max().unwrap();
        assert!(newest > *before, "{group}: {newest} after {before}");
        *before = newest;
        assert_eq!(self.broker.health(), Health::Healthy);
    }

    /// It works on nothing, and reports why.
    async fn waits(&self, floor: &Floor, group: &str) {
        let begun = Instant::now();
        while self.broker.health() == Health::Healthy {
            assert!(begun.elapsed() < PATIENCE, "{group}: it says that it waits");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let Health::Unhealthy(why) = self.broker.health() else { unreachable!("it was looked at") };
        assert!(why.contains("another process owns this group") && why.starts_with(group), "{why}");
        assert!(!floor.works(group).contains_key(&self.fake.id));
    }
}

/// Two processes that each want to work alone, in every order of starts and ends: while any is
/// alive, one works.
// Shows: SUB-31
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_one_of_two_single_processes_works() {
    let table = Table::new().await;
    let mut orders = Vec::new();
    for later_ends_first in [true, false] {
        for (first_killed, then_killed) in [(false, false), (false, true), (true, false), (true, true)] {
            orders.push(ends(&table, later_ends_first, first_killed, then_killed));
        }
    }
    join_all(orders).await;
}

async fn ends(table: &Table, later_ends_first: bool, first_killed: bool, then_killed: bool) {
    let (floor, group) = (Floor::default(), format!("g-{later_ends_first}-{first_killed}-{then_killed}"));
    let (group, mut epoch) = (group.as_str(), 0);
    let earlier = single(table, &floor, group).await;
    earlier.works(&floor, group, &mut epoch).await;
    let later = single(table, &floor, group).await;
    later.works(&floor, group, &mut epoch).await;
    earlier.waits(&floor, group).await;
    let last = if later_ends_first {
        later.end(&floor, first_killed).await;
        earlier.works(&floor, group, &mut epoch).await;
        earlier
    } else {
        earlier.end(&floor, first_killed).await;
        later
    };
    assert_eq!(floor.loads(group, &[&last.fake]), [2]);
    last.end(&floor, then_killed).await;
    let again = single(table, &floor, group).await;
    again.works(&floor, group, &mut epoch).await;
    again.end(&floor, false).await;
}

/// A process that works alone leaves the work to members of the group, and resumes when they have
/// gone. It takes back a position that was opened elsewhere meanwhile.
// Shows: SUB-31
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_process_waits_for_group_members() {
    let table = Table::new().await;
    let (floor, mut epoch) = (Floor::default(), 0);
    let alone = single(&table, &floor, "g").await;
    let other = single(&table, &floor, "h").await;
    alone.works(&floor, "g", &mut epoch).await;
    let backing = BrokerBacking::Postgres(wakeq::Store::clone(&table.store));
    let member = EventBroker::distributed(backing, Signals::alone(), CONFIG).unwrap();
    let member = started(member, &floor, "g").await;
    alone.waits(&floor, "g").await;
    member.works(&floor, "g", &mut epoch).await;
    member.end(&floor, false).await;
    alone.works(&floor, "g", &mut epoch).await;

    let (group, source): (Name, EventSource) = ("g".parse().unwrap(), parts("companies", 2).remove(0));
    epoch = table.store.next_epochs(1).await.unwrap()[0];
    table.store.open_position(&group, &source, epoch).await.unwrap().unwrap();
    let begun = Instant::now();
    while alone.fake.epochs.lock().unwrap().iter().all(|own| *own < epoch) {
        assert!(begun.elapsed() < PATIENCE, "it begins anew");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    alone.works(&floor, "g", &mut epoch).await;
    assert_eq!(other.fake.epochs.lock().unwrap().len(), 2, "the other group has never stopped");
    alone.end(&floor, false).await;
    other.end(&floor, false).await;
}
