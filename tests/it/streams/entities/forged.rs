//! Answers are accepted only if the entity has asked: whatever the value of an event says, and on
//! whatever canvas it was emitted.

use serde_json::{Value, json};
use wakeq::{CanvasId, Event, EventId, Execution, Handlers};
use wakeq_streams::{Asked, EntityError, EntityStatus, SentToEntity};

use super::{Bank, Change, OTHER, account, deposit, of};
use crate::support::RunningWorker;
use crate::support::handlers::{Recording, reporting};

/// The event that asked, and the answer that its handler got.
type Heard = (EventId, Result<SentToEntity, String>);

impl Bank {
    /// A handler that answers every question, on every canvas, with a deposit.
    fn desk(&self) -> (RunningWorker, Recording<Heard>) {
        let entities = self.entities.clone();
        let (charge, heard) = reporting(move |execution: Execution| {
            let entities = entities.clone();
            async move {
                let asked = execution.asked::<u32>()?;
                let verified = entities.verify(&asked).await;
                let answered = entities.answer(&asked, deposit(*asked.value())).await;
                let is_refused =
                    matches!(answered, Err(EntityError::NotAsked { asking, .. }) if asking == execution.id);
                assert!(is_refused || answered.is_ok(), "{answered:?}");
                assert_eq!(verified.is_ok(), answered.is_ok(), "{verified:?}");
                Ok((execution.id, answered.map_err(|error| error.to_string())))
            }
        });
        (self.stage.worker(Handlers::new().on("charge", charge)), heard)
    }

    /// Makes ada ask for a payment; returns the event that waits for its handler, and its value.
    async fn asks(&self) -> (EventId, Value) {
        let sent = self.send("ada", &Change::TopUp { cents: 300 }).await;
        let ended = self.ended(sent.id.0).await;
        let [value] = <[Value; 1]>::try_from(self.waiting("charge").await).unwrap();
        (ended.follow_ups[0], value)
    }

    /// Changes the value of an event that waits.
    async fn tamper(&self, id: EventId, value: &Value) {
        let sql = "update wakeq.events_v2 set value = $1 where id = $2";
        sqlx::query(sql).bind(value.to_string()).bind(id.0).execute(&self.stage.pool).await.unwrap();
    }

    async fn forge(&self, canvas: CanvasId, value: &Value) -> EventId {
        let event = Event::new("charge", value).unwrap().canvas(canvas);
        self.stage.queue.emit(event).await.unwrap().id
    }
}

/// Another canvas, and another user of the same one, know everything in a question, and emit it.
#[tokio::test]
async fn a_forged_question_is_not_answered() {
    let (bank, processor) = Bank::owned().await;
    bank.sent_to(&of(OTHER, "account", "ada"), deposit(1)).await;
    let (true_one, value) = bank.asks().await;
    let mut forged = vec![bank.forge(OTHER, &value).await, bank.forge(CanvasId::DEFAULT, &value).await];
    // Also with an event that never was.
    let mut made_up = value.clone();
    made_up["event_id"] = json!(EventId::new());
    forged.push(bank.forge(CanvasId::DEFAULT, &made_up).await);
    let (worker, mut heard) = bank.desk();
    for _ in 0..4 {
        let (id, answered) = heard.next().await;
        assert!(id == true_one || forged.contains(&id));
        match answered {
            Ok(_) => assert_eq!(id, true_one),
            Err(why) => {
                assert_ne!(id, true_one);
                assert!(why.contains("is not a question of the entity account/ada"), "{why}");
            }
        }
    }
    worker.stop().await;
    let answers = bank.count("select count(*) from wakeq.entity_events where name = 'deposit'").await;
    assert_eq!(answers, 2, "the first deposit, and the true answer");
    let last = bank.deposited("ada", 1).await;
    assert_eq!((last.status, last.version), (EntityStatus::Completed, Some(3)));
    let (balance, _) = processor.state(CanvasId::DEFAULT, "ada").await.unwrap();
    let (other, version) = processor.state(OTHER, "ada").await.unwrap();
    assert_eq!((balance.cents, other.cents, version), (301, 1, 1));
}

/// A genuine question whose value was tampered with in the database is not accepted either.
#[tokio::test]
async fn a_question_is_answered_as_it_was_asked() {
    for (part, value) in [
        ("entity", json!("bob")),
        ("entity_type", json!("order")),
        ("correlation_id", json!(EventId::new())),
        ("event_id", json!(EventId::new())),
    ] {
        let (bank, _processor) = Bank::owned().await;
        bank.deposited("bob", 1).await;
        let (asking, mut question) = bank.asks().await;
        question[part] = value;
        bank.tamper(asking, &question).await;
        let (worker, mut heard) = bank.desk();
        let (id, answered) = heard.next().await;
        assert_eq!(id, asking);
        assert!(answered.is_err(), "{part}");
        worker.stop().await;
        assert_eq!(bank.count("select count(*) from wakeq.entity_events").await, 2, "{part}");
    }
}

/// The canvas in the value is ignored: the execution's canvas counts.
#[tokio::test]
async fn the_canvas_of_an_answer_is_that_of_the_execution() {
    let (bank, processor) = Bank::owned().await;
    let (asking, mut question) = bank.asks().await;
    question["canvas"] = json!(OTHER);
    bank.tamper(asking, &question).await;
    let (worker, mut heard) = bank.desk();
    let (_, answered) = heard.next().await;
    bank.ended(answered.unwrap().id.0).await;
    worker.stop().await;
    assert_eq!(processor.state(OTHER, "ada").await, None);
    assert_eq!(processor.state(CanvasId::DEFAULT, "ada").await.unwrap().0.cents, 300);
    assert_eq!(bank.shown("ada").await.unwrap().1, 2);
    assert_eq!(account("ada").canvas, CanvasId::DEFAULT);
}
