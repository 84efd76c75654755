//! Owners with nothing to do, and processors that have stopped until an operator makes them try
//! again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wakeq::log::{AppendCondition, NewLogEvent, StreamId};
use wakeq::{Actor, CanvasId, Name};
use wakeq_streams::{BrokerBacking, BrokerConfig, EntityProcessor, EventBroker, EventSubscriber};

use super::{Account, Bank, OTHER, config, like_accounts, unhealthy, withdraw};
use crate::support::spy_log::SpyLog;
use crate::support::{TIMEOUT, wait_while};

/// An idle type does not lag: events for others are passed over within a poll interval or two.
// Shows: SUB-49
#[tokio::test]
async fn an_owner_with_nothing_to_do_is_not_behind() {
    let (bank, owner) = Bank::owned().await;
    let group = owner.name().clone();
    bank.deposited("ada", 1).await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let stream = StreamId::new(canvas, "companies", "acme").unwrap();
        let event = NewLogEvent::new("changed", &1).unwrap();
        let appended = bank.log.append(&stream, vec![event], AppendCondition::None).await.unwrap();
        wait_while!(bank.stage.groups().group(&group).await.unwrap().lag() > 0, "it lags for ever");
        let position = bank.stage.groups().group(&group).await.unwrap().sources[0].position;
        assert!(position >= appended[0].seq);
    }
    assert_eq!(bank.deposited("ada", 1).await.version, Some(2), "nothing was passed over that is its own");
    withdraw(&owner).await;
}

// Another type.
like_accounts! { Other "other" }

/// An operator's request to recover reaches the processors of a type through their brokers, and no
/// other type's.
// Shows: SUB-41
#[tokio::test]
async fn a_stopped_processor_resumes_on_an_operators_request() {
    let bank = Bank::open().await;
    let mended = Arc::new(AtomicBool::new(false));
    let log = || {
        let mended = Arc::clone(&mended);
        SpyLog::new(Arc::new(bank.log.clone()), move |_| {
            assert!(mended.load(Ordering::Relaxed), "a read that panics");
            Ok(())
        })
    };
    let queue = || bank.stage.queue.clone();
    let processor = Arc::new(EntityProcessor::<Account>::new(queue(), log(), config()).unwrap());
    let other = Arc::new(EntityProcessor::<Other>::new(queue(), log(), config()).unwrap());
    let periods = BrokerConfig { heartbeat: Duration::from_millis(100), ..BrokerConfig::default() };
    let backing = BrokerBacking::Postgres(bank.stage.store.clone());
    let broker = EventBroker::distributed(backing, queue().signals().clone(), periods).unwrap();
    broker.register(processor.clone()).await.unwrap();
    broker.register(other.clone()).await.unwrap();
    let stop = broker.stop_token();
    let running = tokio::spawn(async move { broker.run().await });
    for why in [unhealthy(&processor).await, unhealthy(&other).await] {
        assert!(why.contains("was cut short"), "{why}");
    }
    mended.store(true, Ordering::Relaxed);
    let group: Name = "entities.account".parse().unwrap();
    let recovered = async {
        while !processor.is_ready() {
            bank.stage.groups().recover_group(&group, &Actor::user("ada")).await.unwrap();
            // A member checks with each heartbeat, and only then.
            tokio::time::sleep(periods.heartbeat).await;
        }
    };
    tokio::time::timeout(TIMEOUT, recovered).await.expect("it does not go on");
    assert_eq!(bank.deposited("ada", 1).await.version, Some(1));
    assert!(!unhealthy(&other).await.is_empty(), "nobody has said that of the other type");
    stop.cancel();
    running.await.unwrap().unwrap();
}
