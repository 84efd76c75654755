//! Ownership of a type: one processor at a time, whatever the others think.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use wakeq::log::EventSource;
use wakeq::{CanvasId, Name};
use wakeq_streams::brokers::SubscriberId;
use wakeq_streams::{
    BrokerBacking, BrokerConfig, BrokerError, Entity, EntityProcessor, EntityStatus, EventBroker,
    EventSubscriber, Health,
};

use super::{Bank, STORED, accept, config, deposit, like_accounts, of, withdraw};
use crate::support::{TIMEOUT, until, wait_while};

/// SUB-55 for entities: a deposed owner commits nothing, forgets what it has, and does nothing
/// until it is given the type again; its successor does what it had begun, once.
#[tokio::test]
async fn a_deposed_owner_commits_nothing() {
    let (bank, old) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    // The successor takes over; the old owner is not informed.
    let new = bank.owner(config(), 2).await;
    for _ in 0..20 {
        assert_eq!(bank.deposited("ada", 1).await.status, EntityStatus::Completed);
    }
    let forgotten = async {
        while old.is_ready() {
            bank.deposited("ada", 1).await;
        }
    };
    tokio::time::timeout(TIMEOUT, forgotten).await.expect("its commit is refused");
    assert_eq!(old.state(CanvasId::DEFAULT, "ada").await, None);
    let (balance, version) = new.state(CanvasId::DEFAULT, "ada").await.unwrap();
    assert_eq!((balance.cents, balance.changes), (version, u64::try_from(version).unwrap()));
    assert_eq!(bank.count(STORED).await, version);
    // An epoch that was refused is refused for good; a higher one is accepted.
    old.accept(old.entity_type().source(), 1);
    assert!(!old.is_ready());
    withdraw(&new).await;
    accept(&old, 3).await;
    assert_eq!(bank.deposited("ada", 1).await.version, Some(version + 1));
}

/// Withdrawn while events flow: the next owner does what was not committed, and everything is done
/// once.
// Shows: ENT-24
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_next_owner_processes_uncommitted_events() {
    let bank = Arc::new(Bank::open().await);
    let sender = Arc::clone(&bank);
    let sending = tokio::spawn(async move {
        for at in 0..400 {
            sender.deposit(&format!("a{}", at % 7), 1).await;
        }
    });
    let owners = [bank.processor(config()), bank.processor(config())];
    for epoch in 1..=20 {
        let owner = &owners[usize::try_from(epoch).unwrap() % 2];
        accept(owner, epoch).await;
        let stored = bank.count(STORED).await;
        wait_while!(!sending.is_finished() && bank.count(STORED).await == stored, "it goes on");
        withdraw(owner).await;
    }
    sending.await.unwrap();
    let last = &owners[0];
    accept(last, 21).await;
    let open = "select count(*) from wakeq.entity_events where status = 'accepted'";
    wait_while!(bank.count(open).await > 0, "all are decided upon");
    let mut cents = 0;
    for name in 0..7 {
        cents += last.state(CanvasId::DEFAULT, &format!("a{name}")).await.unwrap().0.cents;
    }
    assert_eq!(cents, 400);
}

/// An idle owner notices that its position was moved.
#[tokio::test]
async fn an_idle_owner_notices_that_its_position_was_moved() {
    let (bank, owner) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    const POSITION: &str = "select position from wakeq.consumer_positions";
    let stood = bank.count(POSITION).await;
    bank.stage.execute("update wakeq.consumer_positions set position = 0").await;
    wait_while!(bank.count(POSITION).await < stood, "it looks through the inbox again");
    assert_eq!(bank.deposited("ada", 1).await.version, Some(2), "nothing counts twice");
    withdraw(&owner).await;
}

/// Accepting the same source again under a higher epoch changes nothing; any source but its inbox
/// is ignored.
#[tokio::test]
async fn accepting_again_changes_nothing() {
    let (bank, processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    processor.accept(processor.entity_type().source(), 5);
    processor.accept("category/entities:account".parse().unwrap(), 6);
    processor.withdraw(&"category/entities:account".parse().unwrap()).await;
    assert_eq!(bank.deposited("ada", 1).await.version, Some(2));
    assert_eq!(processor.requests(), ["category/entities:account.inbox".parse().unwrap()]);
    assert_eq!(processor.name().as_str(), "entities.account");
}

like_accounts! { First "first", Second "second", Third "third" }

fn three<E: Entity>(bank: &Bank) -> [Arc<EntityProcessor<E>>; 3] {
    std::array::from_fn(|_| Arc::new(bank.processor_of(config())))
}

/// How many processors own their type at this moment.
fn owners<E: Entity>(processors: &[Arc<EntityProcessor<E>>]) -> usize {
    processors.iter().filter(|processor| processor.is_ready()).count()
}

/// Three processors for each of three types, passed from one to the next while events flow: one
/// instance at a time owns a type, and every event is applied once.
// Shows: ENT-03
#[tokio::test]
async fn each_type_has_one_owner() {
    let bank = Bank::open().await;
    let (firsts, seconds, thirds) = (three::<First>(&bank), three::<Second>(&bank), three::<Third>(&bank));
    let mut sent = 0;
    for round in 0..9_usize {
        let epoch = i64::try_from(round).unwrap() + 1;
        let (first, second, third) =
            (&firsts[round % 3], &seconds[(round + 1) % 3], &thirds[(round + 2) % 3]);
        accept(first, epoch).await;
        accept(second, epoch).await;
        accept(third, epoch).await;
        for kind in ["first", "second", "third"] {
            let decided = bank.sent_to(&of(CanvasId::DEFAULT, kind, "ada"), deposit(1)).await;
            assert_eq!(decided.version, Some(epoch), "{kind}");
            assert_eq!((owners(&firsts), owners(&seconds), owners(&thirds)), (1, 1, 1));
            sent += 1;
        }
        withdraw(first).await;
        withdraw(second).await;
        withdraw(third).await;
        assert_eq!((owners(&firsts), owners(&seconds), owners(&thirds)), (0, 0, 0));
    }
    assert_eq!(bank.count("select sum(version)::bigint from wakeq.entities").await, sent);
}

/// The broker gives each of three types to one of three processes, and to another one when that
/// ends; at every sampled moment each type has at most one owner, and every event counts once.
// Shows: ENT-03
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_broker_gives_each_type_to_one() {
    let bank = Bank::open().await;
    let (firsts, seconds, thirds) = (three::<First>(&bank), three::<Second>(&bank), three::<Third>(&bank));
    let periods = BrokerConfig {
        heartbeat: Duration::from_millis(100),
        lease: Duration::from_secs(15),
        ..BrokerConfig::default()
    };
    let mut brokers = Vec::new();
    for ((first, second), third) in firsts.iter().zip(&seconds).zip(&thirds) {
        let backing = BrokerBacking::Postgres(bank.stage.store.clone());
        let broker = EventBroker::distributed(backing, bank.stage.queue.signals().clone(), periods).unwrap();
        broker.register(Arc::clone(first) as _).await.unwrap();
        broker.register(Arc::clone(second) as _).await.unwrap();
        broker.register(Arc::clone(third) as _).await.unwrap();
        let stop = broker.stop_token();
        brokers.push((stop, tokio::spawn(async move { broker.run().await })));
    }
    let most = || owners(&firsts).max(owners(&seconds)).max(owners(&thirds));
    let mut versions = 0;
    let mut samples = 0;
    while !brokers.is_empty() {
        for _ in 0..5 {
            versions += 1;
            for kind in ["first", "second", "third"] {
                let entity = of(CanvasId::DEFAULT, kind, "ada");
                let id = bank.entities.send(&entity, deposit(1)).await.unwrap().id.0;
                let decided = async || {
                    assert!(most() <= 1, "two own a type");
                    samples += 1;
                    let progress = bank.entities.status(CanvasId::DEFAULT, id).await.unwrap().unwrap();
                    (progress.status != EntityStatus::Accepted).then(|| progress.events[0].version)
                };
                let version = until("somebody owns it", decided).await;
                assert_eq!(version, Some(versions), "{kind}");
            }
        }
        let (stop, broker) = brokers.remove(0);
        stop.cancel();
        tokio::time::timeout(TIMEOUT, broker).await.expect("it ends").unwrap().unwrap();
    }
    assert_eq!(most(), 0, "nobody is left");
    assert!(samples > 45);
}

/// A consumer under the name of a type's processors.
struct Impostor(Name, Vec<EventSource>, watch::Sender<Health>);

#[async_trait]
impl EventSubscriber for Impostor {
    fn name(&self) -> &Name {
        &self.0
    }

    fn id(&self) -> SubscriberId {
        SubscriberId::new()
    }

    fn requests(&self) -> Vec<EventSource> {
        self.1.clone()
    }

    fn accept(&self, _: EventSource, _: i64) {}

    async fn withdraw(&self, _: &EventSource) {}

    fn health(&self) -> watch::Receiver<Health> {
        self.2.subscribe()
    }
}

/// The names of processors are reserved: no other subscriber may have one.
#[tokio::test]
async fn rejects_subscriber_names_reserved_for_processors() {
    let bank = Bank::open().await;
    let backing = BrokerBacking::Postgres(bank.stage.store.clone());
    let signals = bank.stage.queue.signals().clone();
    let broker = EventBroker::distributed(backing, signals, BrokerConfig::default()).unwrap();
    for (name, source) in
        [("entities.account", "companies"), ("entities.", "companies"), ("companies", "companies")]
    {
        let requests = vec![EventSource::category(source).unwrap()];
        let impostor = Impostor(name.parse().unwrap(), requests, watch::Sender::new(Health::Healthy));
        let registered = broker.register(Arc::new(impostor)).await;
        if name == "companies" {
            registered.unwrap();
        } else {
            assert!(matches!(registered, Err(BrokerError::Reserved { .. })), "{registered:?}");
        }
    }
    broker.register(Arc::new(bank.processor(config()))).await.unwrap();
}
