//! `cargo dev --example accounts`: a type of entities whose processor runs here. Accounts take
//! deposits, reject what would overdraw them, and charge an external bank, whose answer comes back
//! as an event.
//!
//! It is the example of docs/entities.md.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::task::AbortOnDropHandle;
use wakeq::log::Log;
use wakeq::{CanvasId, Event, Execution, HandlerResult, Handlers, Queue, Route, Store};
use wakeq_streams::{
    Applied, Asked, BrokerBacking, BrokerConfig, BrokerError, Entities, Entity, EntityAnswer, EntityConfig,
    EntityEvent, EntityId, EntityProcessor, EntityStatus, EventBroker, Rejection,
};

use crate::screen;

/// How long the external bank takes.
const BANK: Duration = Duration::from_secs(1);
/// The interval at which an event's status is polled.
const LOOK: Duration = Duration::from_millis(20);

/// The entity type.
pub(super) struct Account;

/// The state of an account.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Balance {
    cents: i64,
    /// The amount that the bank was asked for and has not answered yet.
    asked: i64,
}

/// The events of an account.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    Deposit { cents: u32 },
    Withdraw { cents: u32 },
    TopUp { cents: u32 },
    Charged { cents: u32 },
}

impl Entity for Account {
    const TYPE: &'static str = "account";
    type State = Balance;
    type Event = Change;

    fn validate(balance: &Balance, change: &Change) -> Result<(), Rejection> {
        match change {
            Change::Withdraw { cents } if i64::from(*cents) > balance.cents => {
                Err(Rejection::new(format!("there are only {} cents", balance.cents)))
            }
            Change::Deposit { .. }
            | Change::Withdraw { .. }
            | Change::TopUp { .. }
            | Change::Charged { .. } => Ok(()),
        }
    }

    fn apply(mut balance: Balance, change: &Change) -> Applied<Balance> {
        match change {
            Change::Deposit { cents } => balance.cents += i64::from(*cents),
            Change::Withdraw { cents } => balance.cents -= i64::from(*cents),
            Change::TopUp { cents } => {
                balance.asked += i64::from(*cents);
                return Applied::new(balance).ask(Event::new("charge", cents));
            }
            Change::Charged { cents } => {
                balance.asked -= i64::from(*cents);
                balance.cents += i64::from(*cents);
            }
        }
        let cents = balance.cents;
        Applied::new(balance).result(&cents)
    }
}

/// The handlers of the example: the external bank, and a subscriber to the results.
pub(super) fn handlers(handlers: Handlers, entities: Entities) -> Handlers {
    let charge = move |execution: Execution| charge(entities.clone(), execution);
    handlers.on("charge", charge).on(Route::new("account-changed").module("ANSWER"), print_answer)
}

async fn charge(entities: Entities, execution: Execution) -> HandlerResult {
    let asked = execution.asked::<u32>()?;
    // Any client may have emitted it: nothing is charged unless the account asked for it.
    entities.verify(&asked).await?;
    tokio::time::sleep(BANK).await;
    let charged = EntityEvent::of(&Change::Charged { cents: *asked.value() })?;
    // However often this runs, the account receives the answer once.
    entities.answer(&asked, charged).await?;
    Ok(())
}

async fn print_answer(execution: Execution) -> HandlerResult {
    let answer: EntityAnswer = execution.value()?;
    let result = answer.result.as_ref().map_or("", |result| result.get());
    let about = answer.error.as_deref().unwrap_or(result);
    let what = format!("{:?} {} of {}: {about}", answer.outcome, answer.name, answer.entity);
    screen::event(execution.id, "account", &what);
    Ok(())
}

/// The processor of the accounts, which stops when this is dropped.
pub(super) struct RunningExample {
    _broker: AbortOnDropHandle<Result<(), BrokerError>>,
    _story: AbortOnDropHandle<()>,
}

/// Starts the processor, and sends an account some events.
pub(super) async fn start(store: Store, queue: Queue) -> anyhow::Result<RunningExample> {
    let log = Log::with_signals(store.clone(), queue.signals().clone());
    let accounts = EntityProcessor::<Account>::new(queue.clone(), Arc::new(log), EntityConfig::default())?;
    let broker = EventBroker::single(BrokerBacking::Postgres(store), BrokerConfig::default())?;
    broker.register(Arc::new(accounts)).await?;
    let running = tokio::spawn(async move { broker.run().await });
    let story = tokio::spawn(async move {
        if let Err(error) = story(Entities::new(queue)).await {
            screen::line(&format!("the example of accounts ends: {error}"));
        }
    });
    Ok(RunningExample { _broker: AbortOnDropHandle::new(running), _story: AbortOnDropHandle::new(story) })
}

async fn story(entities: Entities) -> Result<(), wakeq_streams::EntityError> {
    let ada = EntityId::new(CanvasId::DEFAULT, "account", "ada")?;
    for change in [
        Change::Deposit { cents: 500 },
        Change::Withdraw { cents: 100_000 },
        Change::TopUp { cents: 300 },
        Change::Withdraw { cents: 200 },
    ] {
        let event = EntityEvent::of(&change)?.reply_to("account-changed")?;
        let sent = entities.send(&ada, event).await?;
        let status = ended(&entities, sent.correlation_id).await?;
        if let Some(account) = entities.show(&ada).await? {
            let (version, state) = (account.version, account.state.unwrap_or_default());
            screen::line(&format!("account/ada is at version {version}: {state}; the event is {status}"));
        }
    }
    screen::line(
        "Try: cargo wakeq entities send account/ada withdraw '{\"cents\": 1}' --reply-to account-changed",
    );
    Ok(())
}

/// Waits until an event, and everything that followed from it, has ended.
async fn ended(
    entities: &Entities,
    correlation_id: uuid::Uuid,
) -> Result<EntityStatus, wakeq_streams::EntityError> {
    loop {
        if let Some(progress) = entities.status(CanvasId::DEFAULT, correlation_id).await?
            && matches!(progress.status, EntityStatus::Completed | EntityStatus::Failed)
        {
            return Ok(progress.status);
        }
        tokio::time::sleep(LOOK).await;
    }
}
