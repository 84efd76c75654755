//! Emits that are answered once: events and answer are stored in one transaction, under a key.

use tracing::Instrument;

use super::byte_budget::CheckedEvents;
use super::{EmitError, Emitted, Queue, emitted, refused};
use crate::event::{Event, IdempotencyKey};
use crate::store::{IdempotencyOutcome, InsertOutcome, NewState};

/// The result of an emit with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idempotent {
    /// The events were emitted, and the answer was stored.
    First {
        /// The events, in the order of the call.
        emitted: Vec<Emitted>,
        /// The stored answer.
        answer: String,
    },
    /// The events had been emitted before: nothing was added.
    Replayed {
        /// The stored answer.
        answer: String,
    },
}

impl Queue {
    /// Emits up to 10,000 events in one transaction, and stores the answer in it for 24 hours: a
    /// call with the same key and fingerprint returns that answer and adds nothing. A call that did
    /// not complete leaves nothing behind, so it can be repeated until it is answered.
    ///
    /// `answer` makes the answer from what was emitted. It runs inside the transaction, so it
    /// should do nothing else; `notified` is not known at that point, and false.
    ///
    /// ```no_run
    /// # async fn example(queue: wakeq::Queue) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::events::{IdempotencyKey, Idempotent};
    /// use wakeq::{CanvasId, Event};
    ///
    /// let key = IdempotencyKey::new(CanvasId::DEFAULT, "billing", "order-17", b"a hash of the request")?;
    /// let events = vec![Event::new("send-email", &"ada@example.com")?];
    /// match queue.emit_idempotent(&key, events, |emitted| emitted[0].id.to_string()).await? {
    ///     Idempotent::First { answer, .. } | Idempotent::Replayed { answer } => println!("event {answer}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn emit_idempotent(
        &self,
        key: &IdempotencyKey,
        events: Vec<Event>,
        answer: impl FnOnce(&[Emitted]) -> String + Send,
    ) -> Result<Idempotent, EmitError> {
        let span = self.sending(&events, events.len() != 1);
        self.emit_once(key, events, None, answer).instrument(span).await
    }

    pub(super) async fn emit_once(
        &self,
        key: &IdempotencyKey,
        events: Vec<Event>,
        state: Option<NewState<'_>>,
        answer: impl FnOnce(&[Emitted]) -> String + Send,
    ) -> Result<Idempotent, EmitError> {
        let CheckedEvents { events, chosen, permit: _permit } = self.all_checked(events)?;
        if let Err(full) = self.admit_with(&events, state, Some(key.canvas)).await {
            // A request that was answered before needs no quota.
            let replayed = self.store.replayed(key).await?;
            return replayed.map(|answer| Idempotent::Replayed { answer }).ok_or(full.into());
        }
        let mut answered = String::new();
        let answer = |inserted: &[InsertOutcome]| {
            let pairs = events.iter().zip(inserted);
            let all: Vec<Emitted> = pairs.map(|(event, inserted)| emitted(event, inserted)).collect();
            answered = answer(&all);
            answered.clone()
        };
        let keyed = self.store.insert_once(key, &events, &chosen, state, answer).await;
        if let Err(error) = &keyed {
            self.not_sent(&events, error);
        }
        match keyed.map_err(|error| refused(&events, error))? {
            IdempotencyOutcome::First(inserted) => {
                self.sent(&events);
                let emitted = self.after_commit(&events, inserted).await?;
                Ok(Idempotent::First { emitted, answer: answered })
            }
            IdempotencyOutcome::Replayed(answer) => Ok(Idempotent::Replayed { answer }),
            IdempotencyOutcome::Mismatch => Err(EmitError::IdempotencyMismatch),
            IdempotencyOutcome::InProgress => Err(EmitError::IdempotencyInProgress),
        }
    }
}
