//! Events that are sent again: the four cases.

use uuid::Uuid;
use wakeq::machine::Link;
use wakeq::{CanvasId, EventId};
use wakeq_streams::entities::EntityOutcome;
use wakeq_streams::{EntityAnswer, EntityEvent, EntityStatus, SentToEntity};

use super::{Bank, Change, OTHER, STORED, accept, account, of, withdraw};
use crate::support::Statements;

fn with_reply(change: &Change, id: EventId) -> EntityEvent {
    EntityEvent::of(change).unwrap().reply_to("told").unwrap().id(id)
}

fn deposit(cents: u32, id: EventId) -> EntityEvent {
    with_reply(&Change::Deposit { cents }, id)
}

/// More than the account has.
fn overdraft(id: EventId) -> EntityEvent {
    with_reply(&Change::Withdraw { cents: 99 }, id)
}

impl Bank {
    async fn post(&self, event: EntityEvent) -> SentToEntity {
        self.entities.send(&account("ada"), event).await.unwrap()
    }

    /// Returns once everything that was sent to the account before has been processed.
    async fn gone_through(&self) {
        self.sent_to(&account("ada"), EntityEvent::of(&Change::PanicsInValidate).unwrap()).await;
    }

    async fn answers(&self) -> Vec<(EventId, EntityOutcome, Option<i64>, bool)> {
        let answers: Vec<EntityAnswer> = self.waiting("told").await;
        answers.iter().map(|one| (one.event_id, one.outcome, one.version, one.again)).collect()
    }
}

/// The most recent event is processed once; if it is sent again, its result is sent again, and
/// nothing else happens.
// Shows: ENT-27, ENT-28
#[tokio::test]
async fn the_latest_is_processed_once_and_answered_each_time() {
    let (bank, _processor) = Bank::owned().await;
    let id = EventId::new();
    let first = bank.post(deposit(5, id)).await;
    bank.ended(id.0).await;
    let again = bank.post(deposit(5, id)).await;
    assert_eq!((again.link, first.again, again.again), (first.link, false, true));
    bank.gone_through().await;
    let processed = |again| (id, EntityOutcome::Processed, Some(1), again);
    assert_eq!(bank.answers().await, [processed(false), processed(true)]);
    assert_eq!(bank.cents().await, Some((5, 1)));
    let answers: Vec<EntityAnswer> = bank.waiting("told").await;
    assert!(answers.iter().all(|answer| answer.result.as_ref().unwrap().get() == "5"), "{answers:?}");
}

/// The same for a rejected event: its rejection is its result.
// Shows: ENT-28
#[tokio::test]
async fn a_rejection_is_answered_again() {
    let (bank, _processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    let id = EventId::new();
    bank.post(overdraft(id)).await;
    bank.post(overdraft(id)).await;
    bank.gone_through().await;
    let rejected = |again| (id, EntityOutcome::Rejected, None, again);
    assert_eq!(bank.answers().await, [rejected(false), rejected(true)]);
}

/// An older event that is in the repository is left alone, and that is a success; even if the send
/// is no longer remembered, as long as the sender remembers it.
// Shows: ENT-29
#[tokio::test]
async fn an_older_one_that_is_stored_is_done() {
    let (bank, _processor) = Bank::owned().await;
    let id = EventId::new();
    let first = bank.post(deposit(5, id)).await;
    bank.deposited("ada", 1).await;
    bank.post(deposit(5, id)).await;
    bank.gone_through().await;
    assert_eq!(bank.ended(id.0).await.status, EntityStatus::Completed);
    let sql = "delete from wakeq.entity_events where event_id = $1";
    sqlx::query(sql).bind(id.0).execute(&bank.stage.pool).await.unwrap();
    assert!(bank.post(super::deposit(5).sent_before(id, first.link)).await.again);
    bank.gone_through().await;
    assert_eq!(bank.ended(id.0).await.status, EntityStatus::Completed);
    assert_eq!(bank.cents().await, Some((6, 2)));
    assert_eq!(bank.count(STORED).await, 2);
    let dead = "select count(*) from wakeq.consumer_dead where attempts = 1";
    assert_eq!(bank.count(dead).await, 0);
    let processed = (id, EntityOutcome::Processed, Some(1), false);
    assert_eq!(bank.answers().await, [processed], "its result came the first time");
}

/// If a group's position is moved back, it receives what it has decided already: none of it happens
/// again.
#[tokio::test]
async fn a_position_that_is_moved_back_changes_nothing() {
    let (bank, processor) = Bank::owned().await;
    for _ in 0..3 {
        bank.post(deposit(5, EventId::new())).await;
    }
    let last = bank.post(overdraft(EventId::new())).await;
    bank.ended(last.id.0).await;
    withdraw(&processor).await;
    bank.stage.execute("update wakeq.consumer_positions set position = 0").await;
    accept(&processor, 2).await;
    assert_eq!(bank.deposited("ada", 1).await.version, Some(4));
    assert_eq!(bank.shown("ada").await.map(|(balance, _)| balance.cents), Some(16));
    assert_eq!(bank.answers().await.len(), 4, "nobody is told again");
    assert_eq!(bank.count("select count(*) from wakeq.consumer_dead").await, 0);
}

/// An event that is passed over undecided fails with a message; here because the entity's row
/// claims to be further along.
#[tokio::test]
async fn an_undecided_event_that_is_passed_over_fails() {
    let (bank, processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    withdraw(&processor).await;
    bank.stage.execute("update wakeq.entities set last_link = 9000000000").await;
    accept(&processor, 2).await;
    // The same id for the same entity on another canvas was decided as usual.
    let id = EventId::new();
    bank.sent_to(&of(OTHER, "account", "ada"), deposit(1, id)).await;
    bank.post(deposit(1, id)).await;
    let ended = bank.ended(id.0).await;
    assert_eq!(ended.status, EntityStatus::Failed);
    assert!(ended.error.unwrap().contains("it was passed over"));
    // Its sender gets one answer.
    let answers: Vec<EntityAnswer> = bank.waiting("told").await;
    let outcomes: Vec<_> = answers.iter().map(|answer| (answer.event_id, answer.outcome)).collect();
    assert_eq!(outcomes, [(id, EntityOutcome::Processed), (id, EntityOutcome::Failed)]);
    assert!(answers[1].error.as_ref().unwrap().contains("send it as a new event"));
    let canvases: Vec<Uuid> =
        bank.stage.pool.values("select canvas_id from wakeq.events_v2 order by id").await;
    assert_eq!(canvases, [OTHER.0, CanvasId::DEFAULT.0]);
}

/// An older event that is not in the repository fails, at once and for good; its status stays as it
/// was decided.
// Shows: ENT-30
#[tokio::test]
async fn an_older_one_that_is_not_stored_fails() {
    let (bank, _processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    let id = EventId::new();
    bank.post(overdraft(id)).await;
    bank.deposited("ada", 100).await;
    // It would be valid by now.
    bank.post(overdraft(id)).await;
    bank.gone_through().await;
    let answers = [(EntityOutcome::Rejected, false), (EntityOutcome::Failed, true)];
    assert_eq!(bank.answers().await, answers.map(|(outcome, again)| (id, outcome, None, again)));
    assert_eq!(bank.shown("ada").await.map(|(balance, _)| balance.cents), Some(101));
    let sql = "select id, attempts, last_error from wakeq.consumer_dead where attempts = 1";
    let dead: Vec<(Uuid, i32, String)> = bank.stage.pool.table(sql).await;
    let [(dead, 1, why)] = dead.as_slice() else { panic!("{dead:?}") };
    assert!(*dead == id.0 && why.contains("older than the latest event"), "{why}");
    assert_eq!(bank.ended(id.0).await.error.as_deref(), Some("there are only 1 cents"));
}

/// An event that died is processed again when it is sent again, as long as it is the most recent
/// one; one that was never sent is not.
// Shows: ENT-30
#[tokio::test]
async fn a_dead_event_is_processed_again_and_an_unknown_one_is_refused() {
    let (bank, _processor) = Bank::owned().await;
    bank.deposited("ada", 1).await;
    let id = EventId::new();
    let panics = || EntityEvent::of(&Change::Panics).unwrap().id(id);
    bank.post(panics()).await;
    bank.post(panics()).await;
    bank.gone_through().await;
    let dead = "select count(*) from wakeq.consumer_dead where attempts = 3 and name = 'panics'";
    assert_eq!(bank.count(dead).await, 2);
    let never = EventId::new();
    let event = super::deposit(5);
    let ahead = event.clone().sent_before(never, Link { id: i64::MAX, prev: i64::MAX - 1 });
    bank.post(ahead).await;
    assert!(bank.ended(never.0).await.error.unwrap().contains("never arrived"));
    // A link that was never given out: if it were decided, every later event would be older.
    let (never, first) = (EventId::new(), Link { id: i64::MAX, prev: 0 });
    bank.post(event.clone().sent_before(never, first)).await;
    assert!(bank.ended(never.0).await.error.unwrap().contains("never arrived"));
    let (old, first) = (EventId::new(), Link { id: 1, prev: 0 });
    bank.deposited("ada", 1).await;
    bank.post(event.sent_before(old, first)).await;
    // The link belongs to another event, which was the first and was stored; this one was not.
    assert_eq!(bank.ended(old.0).await.status, EntityStatus::Failed);
    assert_eq!(bank.shown("ada").await.map(|(balance, _)| balance.cents), Some(2));
}
