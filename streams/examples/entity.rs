//! An entity whose state changes only by events that are valid for it:
//! `DATABASE_URL=… cargo run -p wakeq-streams --example entity`.
#![allow(clippy::print_stdout, reason = "it is to be watched")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wakeq::log::Log;
use wakeq::notify::LocalNotifier;
use wakeq::{CanvasId, Queue, QueueConfig, Store, StoreConfig};
use wakeq_streams::{
    Applied, BrokerBacking, BrokerConfig, Entities, Entity, EntityConfig, EntityEvent, EntityId,
    EntityProcessor, EventBroker, Rejection,
};

struct Account;

#[derive(Clone, Default, Serialize, Deserialize)]
struct Balance {
    cents: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Deposit { cents: u32 },
    Withdraw { cents: u32 },
}

impl Entity for Account {
    const TYPE: &'static str = "account";
    type State = Balance;
    type Event = Change;

    fn validate(balance: &Balance, change: &Change) -> Result<(), Rejection> {
        match change {
            Change::Withdraw { cents } if *cents > balance.cents => {
                Err(Rejection::new(format!("there are only {} cents", balance.cents)))
            }
            Change::Deposit { .. } | Change::Withdraw { .. } => Ok(()),
        }
    }

    fn apply(mut balance: Balance, change: &Change) -> Applied<Balance> {
        match change {
            Change::Deposit { cents } => balance.cents += cents,
            Change::Withdraw { cents } => balance.cents -= cents,
        }
        Applied::new(balance)
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to postgres://…")?;
    Store::migrate(&url, false).await?;
    let store = Store::connect(&url, StoreConfig::default()).await?;
    let queue = Queue::new(store.clone(), Arc::new(LocalNotifier::new()), QueueConfig::default());

    // One process of many owns the type; here it is this one.
    let log = Arc::new(Log::with_signals(store.clone(), queue.signals().clone()));
    let accounts = EntityProcessor::<Account>::new(queue.clone(), log, EntityConfig::default())?;
    let backing = BrokerBacking::Postgres(store);
    let broker = EventBroker::distributed(backing, queue.signals().clone(), BrokerConfig::default())?;
    broker.register(Arc::new(accounts)).await?;
    let (stop, running) = (broker.stop_token(), tokio::spawn(async move { broker.run().await }));

    let entities = Entities::new(queue);
    let ada = EntityId::new(CanvasId::DEFAULT, "account", "ada")?;
    for change in
        [Change::Deposit { cents: 500 }, Change::Withdraw { cents: 900 }, Change::Withdraw { cents: 200 }]
    {
        let sent = entities.send(&ada, EntityEvent::of(&change)?).await?;
        let ended = loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let progress = entities.status(CanvasId::DEFAULT, sent.id.0).await?.ok_or("it was sent")?;
            let ended = progress.events.into_iter().find(|event| event.ended_at.is_some());
            if let Some(ended) = ended {
                break ended;
            }
        };
        println!("{}: {} {}", ended.name, ended.status, ended.error.unwrap_or_default());
    }
    let account = entities.show(&ada).await?.ok_or("it has events")?;
    println!("version {}: {}", account.version, account.state.unwrap_or_default());
    stop.cancel();
    Ok(running.await??)
}
