//! Events and their outcomes: stored, rejected, dead; what follows from them, and who gets an
//! answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;
use wakeq::log::EventSource;
use wakeq::{CanvasId, EventId, Execution, Handlers, Queue, QueueConfig, Store, StoreConfig};
use wakeq_streams::entities::EntityOutcome;
use wakeq_streams::{Asked, EntityAnswer, EntityError, EntityEvent, EntityStatus};

use super::{Balance, Bank, Change, OTHER, STORED, account, config, deposit, of};
use crate::support::{Statements, fit, until};

/// ENT-14: a valid event is in the repository and the state, and is answered; an invalid one is
/// only answered.
// Shows: ENT-12, ENT-13, ENT-15, ENT-20
#[tokio::test]
async fn valid_events_are_stored_and_invalid_ones_are_rejected() {
    let (bank, processor) = Bank::owned().await;
    let deposit = bank.entities.send(&account("ada"), deposit(500).reply_to("told").unwrap()).await.unwrap();
    let ended = bank.ended(deposit.id.0).await;
    assert_eq!((ended.status, ended.version), (EntityStatus::Completed, Some(1)));
    assert_eq!(ended.result.as_deref(), Some("500"));
    let event = EntityEvent::of(&Change::Withdraw { cents: 501 }).unwrap().reply_to("told").unwrap();
    let overdraft = bank.entities.send(&account("ada"), event).await.unwrap();
    let ended = bank.ended(overdraft.id.0).await;
    assert_eq!((ended.status, ended.version), (EntityStatus::Failed, None));
    assert_eq!(ended.error.as_deref(), Some("there are only 500 cents"));
    // After the answer every reader sees the state.
    let state = Balance { cents: 500, changes: 1, note: String::new() };
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await, Some((state.clone(), 1)));
    assert_eq!(bank.shown("ada").await, Some((state, 1)));
    let source = EventSource::category("entities:account").unwrap();
    let repository = bank.log.read(&source, 0, 10).await.unwrap().events;
    let [stored] = repository.as_slice() else { panic!("one is stored: {repository:?}") };
    assert_eq!((stored.id, stored.name.as_str(), stored.position), (deposit.id, "deposit", 0));
    assert_eq!(stored.payload, r#"{"cents":500}"#);
    let answers: Vec<EntityAnswer> = bank.waiting("told").await;
    let answers: Vec<_> =
        answers.iter().map(|one| (one.event_id, one.outcome, one.version, one.error.as_deref())).collect();
    let processed = (deposit.id, EntityOutcome::Processed, Some(1), None);
    let rejected = (overdraft.id, EntityOutcome::Rejected, None, Some("there are only 500 cents"));
    assert_eq!(answers, [processed, rejected]);
}

// Shows: ENT-12
#[tokio::test]
async fn unreadable_events_are_rejected_with_a_reason() {
    let (bank, _processor) = Bank::owned().await;
    for (name, payload, part) in [
        ("close", json!(null), "unknown variant"),
        ("deposit", json!({"cents": "many"}), "invalid type"),
        ("deposit", json!(7), "invalid type"),
    ] {
        let event = EntityEvent::new(name, &payload).unwrap();
        let error = bank.sent_to(&account("ada"), event).await.error.unwrap();
        assert!(error.contains("is not an event of account") && error.contains(part), "{error}");
    }
    assert_eq!(bank.shown("ada").await, None, "nothing is kept of an entity that nothing was stored of");
}

/// The repository is append-only for every role.
// Shows: ENT-11
#[tokio::test]
async fn the_repository_is_append_only() {
    let (bank, _processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    for sql in [
        "update wakeq.log set payload = '{}' where category = 'entities:account'",
        "delete from wakeq.log where category = 'entities:account'",
    ] {
        let refused = sqlx::query(sql).execute(&bank.stage.pool).await.unwrap_err().to_string();
        assert!(refused.contains("never changed"), "{refused}");
    }
    assert_eq!(bank.count(STORED).await, 1);
}

/// An effect outside is requested by an event in the same transaction; its handler's answer comes
/// back with the correlation id, and counts once however often it is sent; all of it can be
/// followed by that id.
// Shows: ENT-07, ENT-08, ENT-21
#[tokio::test]
async fn effects_outside_are_answered_with_an_event() {
    let (bank, processor) = Bank::owned().await;
    let correlation_id = Uuid::new_v4();
    let event = EntityEvent::of(&Change::TopUp { cents: 300 }).unwrap().correlation_id(correlation_id);
    let sent = bank.entities.send(&account("ada"), event).await.unwrap();
    assert_eq!(bank.ended(sent.id.0).await.status, EntityStatus::Processed, "the charge waits");
    let [asked] = <[serde_json::Value; 1]>::try_from(bank.waiting("charge").await).unwrap();
    let expected = json!({
        "canvas": CanvasId::DEFAULT, "entity_type": "account", "entity": "ada", "event_id": sent.id,
        "correlation_id": correlation_id, "value": 300,
    });
    assert_eq!(asked, expected);
    let entities = bank.entities.clone();
    let charge = move |execution: Execution| {
        let entities = entities.clone();
        async move {
            let asked = execution.asked::<u32>()?;
            for again in [false, true] {
                let charged = EntityEvent::of(&Change::Deposit { cents: *asked.value() })?;
                assert_eq!(entities.answer(&asked, charged).await?.again, again);
            }
            Ok(())
        }
    };
    let worker = bank.stage.worker(Handlers::new().on("charge", charge));
    let completed = async || {
        let progress = bank.entities.status(CanvasId::DEFAULT, correlation_id).await.unwrap();
        progress.filter(|all| all.status == EntityStatus::Completed && all.events.len() == 2)
    };
    let progress = until("all of it completes", completed).await;
    let names: Vec<_> = progress.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["top_up", "deposit"]);
    worker.stop().await;
    let (balance, version) = processor.state(CanvasId::DEFAULT, "ada").await.unwrap();
    assert_eq!((balance.cents, version), (300, 2), "the answer counts once");
}

/// If a follow-up dies, the whole fails.
#[tokio::test]
async fn a_dead_follow_up_fails_its_event() {
    let (bank, _processor) = Bank::owned().await;
    let sent = bank.send("ada", &Change::Report).await;
    let ended = bank.ended(sent.id.0).await;
    assert_eq!((ended.status, ended.follow_ups.len()), (EntityStatus::Processed, 2));
    let dies = "with gone as (delete from wakeq.events_v2 where name = 'report' returning *)
         insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                        last_error, cause)
         select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0, 'no', 'retries' from gone";
    bank.stage.execute(dies).await;
    let progress = bank.entities.status(CanvasId::DEFAULT, sent.id.0).await.unwrap().unwrap();
    assert_eq!(progress.status, EntityStatus::Failed);
    assert!(progress.events[0].error.as_ref().unwrap().contains("is dead"), "{progress:?}");
}

/// A panic ends one event, after the configured attempts, and nothing else: not the batch, not the
/// entity, not the actor.
#[tokio::test]
async fn a_panic_ends_its_event_only() {
    let (bank, processor) = Bank::owned().await;
    let [panics, invalid] = [Change::Panics, Change::PanicsInValidate].map(|change| EntityEvent::of(&change));
    let events = [deposit(1), panics.unwrap(), deposit(2), invalid.unwrap(), deposit(4)];
    let events = events.map(|event| (account("ada"), event)).into();
    let sent = bank.entities.send_all(events).await.unwrap();
    let ended = join_all(sent.iter().map(|sent| bank.ended(sent.id.0))).await;
    assert!(ended[1].error.as_ref().unwrap().contains("apply panicked: apply was told to"), "{ended:?}");
    assert!(ended[3].error.as_ref().unwrap().contains("validate panicked"), "{ended:?}");
    let (balance, version) = processor.state(CanvasId::DEFAULT, "ada").await.unwrap();
    assert_eq!((balance.cents, version), (7, 3));
    let sql =
        "select id, attempts from wakeq.consumer_dead where consumer_group = 'entities.account' order by seq";
    let dead: Vec<(Uuid, i32)> = bank.stage.pool.table(sql).await;
    assert_eq!(dead, [(sent[1].id.0, 3), (sent[3].id.0, 3)]);
}

/// An event that would make the state too large dies.
#[tokio::test]
async fn a_state_has_a_limit() {
    let bank = Bank::open().await;
    let processor = bank.owner(wakeq_streams::EntityConfig { state_limit_bytes: 1000, ..config() }, 1).await;
    let changes = [Change::Deposit { cents: 1 }, Change::Note { bytes: 500 }, Change::Note { bytes: 2000 }];
    let events = changes.iter().map(|change| (account("ada"), EntityEvent::of(change).unwrap())).collect();
    let sent = bank.entities.send_all(events).await.unwrap();
    let ended = bank.ended(sent[2].id.0).await;
    assert!(ended.error.as_ref().unwrap().contains("the limit is 1000"), "{ended:?}");
    assert_eq!(bank.ended(sent[1].id.0).await.status, EntityStatus::Completed);
    let (balance, version) = processor.state(CanvasId::DEFAULT, "ada").await.unwrap();
    assert_eq!((balance.note.len(), version), (500, 2));
}

/// A processor gets the events of its type and no others, and no canvas sees another's.
// Shows: ENT-01
#[tokio::test]
async fn a_processor_gets_only_events_of_its_type() {
    let (bank, processor) = Bank::owned().await;
    let invoice = of(CanvasId::DEFAULT, "invoice", "ada");
    let sent = bank.entities.send(&invoice, deposit(5)).await.unwrap();
    bank.entities.send(&of(OTHER, "account", "ada"), deposit(3)).await.unwrap();
    bank.deposited("ada", 1).await;
    let status = bank.entities.status(CanvasId::DEFAULT, sent.id.0).await.unwrap().unwrap().status;
    assert_eq!(status, EntityStatus::Accepted, "nobody has its type");
    let cents = async |canvas| processor.state(canvas, "ada").await.map(|(balance, _)| balance.cents);
    assert_eq!((cents(CanvasId::DEFAULT).await, cents(OTHER).await), (Some(1), Some(3)));
    assert!(bank.entities.status(OTHER, sent.id.0).await.unwrap().is_none());
}

/// A send is part of the caller's transaction, and one id is one event.
#[tokio::test]
async fn a_send_is_part_of_the_callers_transaction() {
    let (bank, _processor) = Bank::owned().await;
    let events = || vec![(account("ada"), deposit(1))];
    let mut transaction = bank.stage.pool.begin().await.unwrap();
    let receipt = bank.entities.send_in(&mut transaction, events()).await.unwrap();
    transaction.rollback().await.unwrap();
    drop(receipt);
    let mut transaction = bank.stage.pool.begin().await.unwrap();
    let receipt = bank.entities.send_in(&mut transaction, events()).await.unwrap();
    transaction.commit().await.unwrap();
    let sent = receipt.notify();
    bank.ended(sent[0].id.0).await;
    assert_eq!(bank.shown("ada").await.map(|(balance, _)| balance.cents), Some(1));
    let id = EventId::new();
    bank.entities.send(&account("ada"), deposit(1).id(id)).await.unwrap();
    let taken = bank.entities.send(&account("bob"), deposit(1).id(id)).await.unwrap_err();
    assert!(matches!(taken, EntityError::Taken(taken) if taken == id), "{taken}");
    let twice = vec![(account("cyd"), deposit(1).id(EventId::default())), (account("cyd"), deposit(1))];
    assert_eq!(bank.entities.send_all(twice).await.unwrap().len(), 2);
}

/// A send that meets a transaction holding its entity waits for it, and in the end fails with what
/// to do; a send to the entity of the same name on another canvas does not wait.
#[tokio::test]
async fn a_send_to_a_locked_entity_waits_and_then_fails() {
    let bank = Bank::open().await;
    let lock_timeout = Duration::from_millis(10);
    let store = StoreConfig { lock_timeout, ..StoreConfig::default() };
    let store = Store::connect(bank.stage.database.url(), fit(store)).await.unwrap();
    let queue = Queue::new(store, bank.stage.notifier.clone(), QueueConfig::default());
    let hasty = wakeq_streams::Entities::new(queue);
    let mut transaction = bank.stage.pool.begin().await.unwrap();
    let held = bank.entities.send_in(&mut transaction, vec![(account("ada"), deposit(1))]).await.unwrap();
    let busy = hasty.send(&account("ada"), deposit(1)).await.unwrap_err();
    assert!(matches!(busy, EntityError::Busy(limit, _) if limit == 50 * lock_timeout), "{busy}");
    assert!(busy.to_string().contains("send it again"), "{busy}");
    hasty.send(&of(OTHER, "account", "ada"), deposit(1)).await.unwrap();
    let ada = account("ada");
    let (sent, ()) = tokio::join!(hasty.send(&ada, deposit(1)), async {
        transaction.commit().await.unwrap();
    });
    assert!(sent.unwrap().link.prev > 0, "behind the one that was held");
    drop(held);
    assert_eq!(bank.count("select count(*) from wakeq.entity_events").await, 3);
}

/// With many senders to one entity, no increment is lost or counted twice.
// Shows: ENT-06, ENT-09
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn ten_thousand_increments_by_eight_senders_are_ten_thousand() {
    let bank = Arc::new(Bank::open().await);
    let processor = bank.owner(wakeq_streams::EntityConfig { actors: 8, ..config() }, 1).await;
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let bank = Arc::clone(&bank);
        senders.spawn(async move {
            for _ in 0..50 {
                bank.entities.send_all(vec![(account("ada"), deposit(1)); 25]).await.unwrap();
            }
        });
    }
    senders.join_all().await;
    let counted = async || {
        let state = processor.state(CanvasId::DEFAULT, "ada").await;
        state.filter(|(_, version)| *version >= 10_000)
    };
    let (balance, _) = until("all are counted", counted).await;
    assert_eq!((balance.cents, balance.changes), (10_000, 10_000));
    assert_eq!(bank.count(STORED).await, 10_000);
}
