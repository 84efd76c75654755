//! Turns the decisions of the actors into a batch to commit: rows, follow-ups and answers.

use std::collections::HashSet;

use super::define::Entity;
use super::envelope::{AnswerContent, EntityOutcome, InboxEvent};
use super::run::Decision;
use super::shard::{ChangedEntity, WorkOutput};
use crate::event::EntityType;
use crate::store::{
    DecidedEvent, EntityBatch, EntityRow, PASSED_OVER, PositionMove, RecordedOutcome, StoredEvent,
};
use wakeq::internals::NewEvent;
use wakeq::{Event, EventError, Queue};

/// An event that must not be stored, for instance because a follow-up can't be emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unstorable {
    /// Its index in the batch.
    pub(super) place: usize,
    pub(super) why: String,
}

/// Makes a batch, or returns the events that must not be in it. `recorded` is the record of an
/// event that was sent before, which is a batch of its own.
pub(super) fn batch<'a, E: Entity>(
    entity_type: &'a EntityType,
    position: PositionMove<'a>,
    events: &[InboxEvent],
    worked: WorkOutput,
    recorded: Option<&RecordedOutcome>,
    queue: &Queue,
) -> Result<EntityBatch<'a>, Vec<Unstorable>> {
    let mut batch = EntityBatch {
        entity_type,
        shape: shape::<E>(),
        position,
        stored: Vec::new(),
        entities: worked.changed.into_iter().map(row).collect(),
        decided: Vec::new(),
        passed: Vec::new(),
        isolated: None,
        events: Vec::new(),
    };
    let mut unstorable = Vec::new();
    let mut known = HashSet::new();
    for (place, decision) in worked.decisions {
        let Some(event) = events.get(place) else { continue };
        let end = match ended::<E>(event, decision, recorded, &mut batch, queue) {
            Ok(Some(end)) => end,
            Ok(None) => continue,
            Err(error) => {
                let why = format!("an event that follows from it can't be emitted: {error}");
                unstorable.push(Unstorable { place, why });
                continue;
            }
        };
        // The same id twice can only have been appended to the inbox by other means: the first
        // counts.
        if known.insert((event.canvas, event.id)) {
            batch.decided.push(end);
        }
    }
    if unstorable.is_empty() { Ok(batch) } else { Err(unstorable) }
}

/// The shape as it is stored.
pub(super) fn shape<E: Entity>() -> i32 {
    i32::try_from(E::SHAPE).unwrap_or(i32::MAX)
}

fn row(changed: ChangedEntity) -> EntityRow {
    let ChangedEntity { key, version, last, snapshot } = changed;
    EntityRow { canvas: key.canvas, id: key.id, version, last_link: last, snapshot }
}

/// The outcome of one event, unless it is known already. Adds the rows, events and answers that
/// follow from the event to the batch.
fn ended<E: Entity>(
    event: &InboxEvent,
    decision: Decision,
    recorded: Option<&RecordedOutcome>,
    batch: &mut EntityBatch<'_>,
    queue: &Queue,
) -> Result<Option<DecidedEvent>, EventError> {
    let mut end = DecidedEvent {
        canvas: event.canvas,
        entity: event.entity.clone(),
        event: event.id,
        correlation_id: event.envelope.correlation_id,
        name: event.name.clone(),
        link: event.link,
        stored: matches!(decision, Decision::Erased),
        version: None,
        result: None,
        error: None,
        follow_ups: Vec::new(),
        dead: None,
    };
    let tells = !matches!(decision, Decision::Done);
    let outcome = match decision {
        Decision::Passed => {
            end.error = Some(PASSED_OVER.to_owned());
            let reply = answer::<E>(event, EntityOutcome::Failed, &end, queue);
            batch.passed.push((event.canvas, event.id, reply));
            return Ok(None);
        }
        Decision::Stored { version, result, follow_ups } => {
            batch.stored.push(stored(event, version));
            let follow_ups = follow_ups.into_iter().map(|follow_up| event.follow_up(E::TYPE, follow_up));
            let new = prepared(queue, follow_ups.collect::<Result<Vec<_>, EventError>>()?)?;
            end.follow_ups = new.iter().map(|event| event.id.0).collect();
            batch.events.extend(new);
            (end.stored, end.version, end.result) = (true, Some(version), result);
            EntityOutcome::Processed
        }
        Decision::Rejected(reason) => {
            end.error = Some(reason);
            EntityOutcome::Rejected
        }
        Decision::Erased => EntityOutcome::Processed,
        Decision::Again | Decision::Done if recorded.is_some_and(|recorded| recorded.stored) => {
            end.stored = true;
            (end.version, end.result) =
                recorded.map(|recorded| (recorded.version, recorded.result.clone())).unwrap_or_default();
            EntityOutcome::Processed
        }
        Decision::Again | Decision::Done => {
            let error = recorded.and_then(|recorded| recorded.error.clone());
            end.error = error.or_else(|| Some("it was rejected; the reason is no longer kept".to_owned()));
            EntityOutcome::Rejected
        }
        Decision::Dead { why, attempts } => {
            let attempts = i32::try_from(attempts).unwrap_or(i32::MAX);
            tracing::warn!(
                entity_type = E::TYPE, canvas = %event.canvas, entity = %event.entity, event = %event.id, attempts,
                error = why, "an event of an entity is dead"
            );
            end.dead = Some((attempts, event.seq, event.payload.clone()));
            end.error = Some(why);
            EntityOutcome::Failed
        }
    };
    if tells {
        batch.events.extend(answer::<E>(event, outcome, &end, queue));
    }
    Ok(Some(end))
}

fn stored(event: &InboxEvent, version: i64) -> StoredEvent {
    StoredEvent {
        canvas: event.canvas,
        entity: event.entity.clone(),
        version,
        id: event.id,
        name: event.name.clone(),
        payload: event.payload.clone(),
        metadata: event.stored_metadata(),
    }
}

/// The answer to the sender. `None` if it can't be made: the outcome does not depend on that.
fn answer<E: Entity>(
    event: &InboxEvent,
    outcome: EntityOutcome,
    end: &DecidedEvent,
    queue: &Queue,
) -> Option<NewEvent> {
    let again = event.is_repost();
    let content = |result, error| AnswerContent { outcome, version: end.version, result, error, again };
    let whole = event.answer(E::TYPE, content(end.result.clone(), end.error.clone()));
    let made = whole.map(|answer| queue.checked(answer))?.or_else(|error| {
        // The limit may be lower now than when the result was stored.
        let why = format!("its outcome can't be reported in full: {error}");
        let short = event.answer(E::TYPE, content(None, Some(why)));
        short.map_or(Err(error), |answer| queue.checked(answer))
    });
    made.inspect_err(|error| {
        tracing::error!(
            entity_type = E::TYPE, canvas = %event.canvas, entity = %event.entity, event = %event.id,
            error = error as &dyn std::error::Error,
            "the outcome of an event can't be reported to its sender; its status shows it"
        );
    })
    .ok()
}

fn prepared(queue: &Queue, events: Vec<Event>) -> Result<Vec<NewEvent>, EventError> {
    events.into_iter().map(|event| queue.checked(event)).collect()
}
