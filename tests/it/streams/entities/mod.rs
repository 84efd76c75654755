//! Entities, from sending an event to the answer that comes back: on a real Postgres, with
//! processors that the test tells what they own.

mod bytes;
mod calls;
mod crashes;
mod erasure;
mod forged;
mod http;
mod isolated;
mod life;
mod listed;
mod lost;
pub(crate) mod measured;
mod memory;
mod owners;
mod poison;
mod replays;
mod reposts;
mod resting;
mod stored;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use wakeq::log::Log;
use wakeq::{CanvasId, Event, Queue, Store};
use wakeq_streams::entities::EntityEventStatus;
use wakeq_streams::{
    Applied, Entities, Entity, EntityConfig, EntityEvent, EntityId, EntityProcessor, EntityStatus,
    EventSubscriber, Health, Rejection, SentToEntity,
};

use crate::support::{OTHER, Stage, Statements, TIMEOUT, until};

/// An account that rejects an overdraft, and whose events can misbehave.
pub(crate) struct Account;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Balance {
    pub(crate) cents: i64,
    pub(crate) changes: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Deposit {
        cents: u32,
    },
    Withdraw {
        cents: u32,
    },
    /// Asks a handler outside for a payment.
    TopUp {
        cents: u32,
    },
    /// Emits two follow-up events.
    Report,
    /// Makes the state this large.
    Note {
        bytes: usize,
    },
    Panics,
    PanicsInValidate,
    /// Is applied only together with another entity.
    Meet,
    /// Ends its process.
    Kills,
}

impl Entity for Account {
    const TYPE: &'static str = "account";
    type State = Balance;
    type Event = Change;

    fn validate(balance: &Balance, change: &Change) -> Result<(), Rejection> {
        if let Change::Withdraw { cents } = change
            && i64::from(*cents) > balance.cents
        {
            return Err(Rejection::new(format!("there are only {} cents", balance.cents)));
        }
        assert!(!matches!(change, Change::PanicsInValidate), "validate was told to");
        Ok(())
    }

    fn apply(balance: Balance, change: &Change) -> Applied<Balance> {
        let mut new = Balance { changes: balance.changes + 1, ..balance };
        match change {
            Change::Deposit { cents } => new.cents += i64::from(*cents),
            Change::Withdraw { cents } => new.cents -= i64::from(*cents),
            Change::TopUp { cents } => return Applied::new(new).ask(Event::new("charge", cents)),
            Change::Report => {
                let event = |name| Event::new(name, &new.cents);
                let (one, other) = (event("report"), event("print"));
                return Applied::new(new).emit(one).emit(other);
            }
            Change::Note { bytes } => new.note = "x".repeat(*bytes),
            Change::Panics => panic!("apply was told to"),
            Change::PanicsInValidate => {}
            Change::Meet => life::meet(),
            Change::Kills => std::process::abort(),
        }
        let cents = new.cents;
        Applied::new(new).result(&cents)
    }
}

/// Other types, with the behavior of accounts.
macro_rules! like_accounts {
    ($($kind:ident $name:literal),*) => {$(
        struct $kind;

        impl wakeq_streams::Entity for $kind {
            const TYPE: &'static str = $name;
            type State = $crate::streams::entities::Balance;
            type Event = $crate::streams::entities::Change;

            fn validate(balance: &Self::State, change: &Self::Event) -> Result<(), wakeq_streams::Rejection> {
                <$crate::streams::entities::Account as wakeq_streams::Entity>::validate(balance, change)
            }

            fn apply(balance: Self::State, change: &Self::Event) -> wakeq_streams::Applied<Self::State> {
                <$crate::streams::entities::Account as wakeq_streams::Entity>::apply(balance, change)
            }
        }
    )*};
}
use like_accounts;

/// A stage with the log and a sender.
pub(crate) struct Bank {
    pub(crate) stage: Stage,
    pub(crate) log: Log,
    pub(crate) entities: Entities,
}

impl Bank {
    pub(crate) async fn open() -> Self {
        Self::on(Stage::memory().await.0)
    }

    pub(crate) fn on(stage: Stage) -> Self {
        let log = Log::new(stage.store.clone(), &*stage.notifier);
        let entities = Entities::new(stage.queue.clone());
        Self { stage, log, entities }
    }

    /// With a processor that owns the accounts.
    pub(crate) async fn owned() -> (Self, EntityProcessor<Account>) {
        let bank = Self::open().await;
        let processor = bank.owner(config(), 1).await;
        (bank, processor)
    }

    /// A processor that owns nothing yet.
    pub(crate) fn processor(&self, config: EntityConfig) -> EntityProcessor<Account> {
        self.processor_of(config)
    }

    pub(crate) fn processor_of<E: Entity>(&self, config: EntityConfig) -> EntityProcessor<E> {
        EntityProcessor::new(self.stage.queue.clone(), Arc::new(self.log.clone()), config).unwrap()
    }

    /// A processor that owns its type under this epoch and has warmed up.
    pub(crate) async fn owner(&self, config: EntityConfig, epoch: i64) -> EntityProcessor<Account> {
        let processor = self.processor(config);
        accept(&processor, epoch).await;
        processor
    }

    pub(crate) async fn send(&self, id: &str, change: &Change) -> SentToEntity {
        self.entities.send(&account(id), EntityEvent::of(change).unwrap()).await.unwrap()
    }

    pub(crate) async fn deposit(&self, id: &str, cents: u32) -> SentToEntity {
        self.send(id, &Change::Deposit { cents }).await
    }

    /// The outcome of an event, once it is decided.
    pub(crate) async fn ended(&self, id: Uuid) -> EntityEventStatus {
        self.ended_on(CanvasId::DEFAULT, id).await
    }

    pub(crate) async fn ended_on(&self, canvas: CanvasId, id: Uuid) -> EntityEventStatus {
        let decided = async || {
            let progress = self.entities.status(canvas, id).await.unwrap()?;
            progress.events.into_iter().next().filter(|event| event.status != EntityStatus::Accepted)
        };
        until("it is decided", decided).await
    }

    /// Sends an event to any entity, and waits for its outcome.
    pub(crate) async fn sent_to(&self, entity: &EntityId, event: EntityEvent) -> EntityEventStatus {
        let sent = self.entities.send(entity, event).await.unwrap();
        self.ended_on(entity.canvas, sent.id.0).await
    }

    pub(crate) async fn deposited(&self, id: &str, cents: u32) -> EntityEventStatus {
        self.sent_to(&account(id), deposit(cents)).await
    }

    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        self.stage.pool.value(query).await
    }

    /// The values of the events that wait for a handler.
    pub(crate) async fn waiting<T: serde::de::DeserializeOwned>(&self, handler: &str) -> Vec<T> {
        let sql = "select value::text from wakeq.events_v2 where name = $1 order by id";
        let values: Vec<String> =
            sqlx::query_scalar(sql).bind(handler).fetch_all(&self.stage.pool).await.unwrap();
        values.iter().map(|value| serde_json::from_str(value).unwrap()).collect()
    }

    /// The state and the version of an account, from the database.
    pub(crate) async fn shown(&self, id: &str) -> Option<(Balance, i64)> {
        let shown = self.entities.show(&account(id)).await.unwrap()?;
        Some((serde_json::from_str(&shown.state.unwrap()).unwrap(), shown.version))
    }

    /// The cents and the version of ada, from the database.
    pub(crate) async fn cents(&self) -> Option<(i64, i64)> {
        self.shown("ada").await.map(|(balance, version)| (balance.cents, version))
    }
}

/// Counts the stored events of accounts.
const STORED: &str = "select count(*) from wakeq.log where category = 'entities:account'";

pub(crate) fn account(id: &str) -> EntityId {
    of(CanvasId::DEFAULT, "account", id)
}

pub(crate) fn of(canvas: CanvasId, entity_type: &str, id: &str) -> EntityId {
    EntityId::new(canvas, entity_type, id).unwrap()
}

pub(crate) fn deposit(cents: u32) -> EntityEvent {
    EntityEvent::of(&Change::Deposit { cents }).unwrap()
}

/// A configuration with a short poll interval.
pub(crate) fn config() -> EntityConfig {
    EntityConfig { poll_interval: Duration::from_millis(50), ..EntityConfig::default() }
}

/// Gives a processor its inbox, and waits until its entities are in memory.
pub(crate) async fn accept<E: Entity>(processor: &EntityProcessor<E>, epoch: i64) -> (usize, u64) {
    processor.accept(processor.entity_type().source(), epoch);
    tokio::time::timeout(TIMEOUT, processor.ready()).await.expect("it has its entities in memory")
}

pub(crate) async fn withdraw<E: Entity>(processor: &EntityProcessor<E>) {
    let source = processor.entity_type().source();
    tokio::time::timeout(TIMEOUT, processor.withdraw(&source)).await.expect("it ends");
}

/// Why a processor is unhealthy, once it is.
pub(crate) async fn unhealthy<E: Entity>(processor: &EntityProcessor<E>) -> String {
    let mut health = processor.health();
    let is_unhealthy = health.wait_for(|health| *health != Health::Healthy);
    let health = tokio::time::timeout(TIMEOUT, is_unhealthy).await.expect("it says so").unwrap().clone();
    match health {
        Health::Unhealthy(why) => why,
        Health::Healthy => unreachable!("it was waited for"),
    }
}

/// The work of a child process that owns the accounts.
pub(crate) async fn own_accounts(
    store: Store,
    queue: Queue,
    epoch: i64,
    snapshot_every: u32,
    say: impl Fn(&str),
) {
    let log = Log::with_signals(store, queue.signals().clone());
    let config = EntityConfig { snapshot_every, ..config() };
    let processor = EntityProcessor::<Account>::new(queue, Arc::new(log), config).unwrap();
    processor.accept(processor.entity_type().source(), epoch);
    say("accepted");
    let (_, replayed) = processor.ready().await;
    let mut memory = BTreeMap::new();
    for number in 0..100 {
        let name = format!("a{number}");
        if let Some((balance, version)) = processor.state(CanvasId::DEFAULT, &name).await {
            memory.insert(name, (version, balance));
        }
    }
    say(&format!("memory {replayed} {}", serde_json::to_string(&memory).unwrap()));
    std::future::pending::<()>().await;
}
