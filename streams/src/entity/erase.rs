//! Erasures: an entity is erased through its inbox, so that it happens in order, and its owner
//! carries it out.
//!
//! Only the owner erases, and nothing that was sent after the erasure. Data is erased page by page,
//! each under the epoch of the owner; the position moves past the erasure when nothing is left, so
//! that a later owner finishes it.

use tokio_util::sync::CancellationToken;

use super::cache::Key;
use super::define::Entity;
use super::envelope::{Envelope, InboxEvent};
use super::halt::Halt;
use super::handle::{Entities, EntityError, SentToEntity};
use super::parts::Parts;
use super::run::Decision;
use super::shard::WorkOutput;
use crate::event::EntityId;
use crate::machine::{EntityDecision, decide_event};
use crate::store::{PositionMove, RecordedOutcome, ToEntity};
use wakeq::internals::telemetry;
use wakeq::{Actor, EventId, Name};

impl Entities {
    /// Asks for an entity to be erased: everything that is stored of it so far.
    ///
    /// When this returns, the erasure is in the inbox, behind the events that were sent before;
    /// [`status`](Self::status) with its id says `completed` once it is done. Events that are sent
    /// after it start the entity anew, at version 1. The entity need not exist.
    ///
    /// A request that is repeated with the same chosen id erases nothing that was sent since, for 7
    /// days after it was done. [docs/entities.md](https://docs.rs/wakeq) says what is erased and
    /// what is not.
    ///
    /// ```no_run
    /// # async fn example(entities: wakeq_streams::Entities) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, CanvasId};
    /// use wakeq_streams::EntityId;
    ///
    /// let ada = EntityId::new(CanvasId::DEFAULT, "account", "ada")?;
    /// let erasure = entities.erase(&ada, None, &Actor::user("grace")).await?;
    /// println!("ask for the status of {}", erasure.id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn erase(
        &self,
        entity: &EntityId,
        id: Option<EventId>,
        actor: &Actor,
    ) -> Result<SentToEntity, EntityError> {
        self.sent_erasure(erasure(entity, id), actor).await
    }
}

/// An erasure for the inbox of an entity. Its metadata marks it as one, which no sender of an event
/// can write.
fn erasure(entity: &EntityId, chosen: Option<EventId>) -> ToEntity {
    let id = chosen.unwrap_or_default();
    let traceparent = Some(telemetry::trace_of_emit(None).to_string());
    let envelope = Envelope { correlation_id: id.0, reply_to: None, repost: None, traceparent, erases: true };
    ToEntity {
        entity: entity.clone(),
        id,
        chosen: chosen.is_some(),
        link: None,
        correlation_id: id.0,
        erases: true,
        name: Name::erasure(),
        payload: "null".to_owned(),
        metadata: envelope.json(),
    }
}

/// Carries out an erasure, unless it is too late for that. Returns what there is to commit, and
/// what is recorded of the erasure.
pub(super) async fn carry_out<E: Entity>(
    parts: &Parts<E>,
    held: &PositionMove<'_>,
    erasure: &InboxEvent,
    most: usize,
    cancel: &CancellationToken,
) -> Result<(WorkOutput, Option<RecordedOutcome>), Halt> {
    let entity = parts.entity_id(erasure.canvas, &erasure.entity);
    let recorded = parts.recorded(std::slice::from_ref(erasure)).await?;
    let is_done = recorded.as_ref().is_some_and(|recorded| recorded.stored);
    let last = parts.store.entity_last_link(&entity).await?;
    let decision = decide(erasure, last, is_done);
    if matches!(decision, Decision::Erased) {
        erase_pages(parts, held, &entity, erasure.seq, most, cancel).await?;
    }
    Ok((WorkOutput { decisions: vec![(0, decision)], changed: Vec::new() }, recorded))
}

/// Erases page after page of at most this many rows, until nothing is left. The entity leaves
/// memory with the first one.
async fn erase_pages<E: Entity>(
    parts: &Parts<E>,
    held: &PositionMove<'_>,
    entity: &EntityId,
    erasure: i64,
    most: usize,
    cancel: &CancellationToken,
) -> Result<(), Halt> {
    let Parts { store, actors, committing, .. } = parts;
    let mut after = 0;
    loop {
        if cancel.is_cancelled() {
            return Err(Halt::Withdrawn);
        }
        let following = committing.write().await;
        let gone = store.erase_entity(held, entity, (erasure, after), most).await?;
        let key = Key { canvas: entity.canvas, id: entity.id.clone() };
        actors.ask(actors.of(&key), move |shard| shard.forget_one(&key)).await?;
        drop(following);
        match gone {
            Some(Some(through)) => after = through,
            Some(None) => return Ok(()),
            None => return Err(Halt::Elsewhere),
        }
        wakeq::internals::fault::point("entity.erased");
    }
}

/// Decides about an erasure, given the link of the last event of the entity that was decided. It is
/// decided like an event: once, in its turn, and never after later events.
fn decide(erasure: &InboxEvent, last: i64, is_done: bool) -> Decision {
    match decide_event(last, erasure.seq - 1, erasure.link, is_done) {
        _ if is_done => Decision::Done,
        EntityDecision::Process => Decision::Erased,
        EntityDecision::AnswerAgain | EntityDecision::Done | EntityDecision::Refuse
            if !erasure.is_repost() =>
        {
            Decision::Passed
        }
        EntityDecision::AnswerAgain
        | EntityDecision::Done
        | EntityDecision::Refuse
        | EntityDecision::Delay => {
            let why =
                "it is older than the latest event of the entity, and was not carried out: ask for a new one";
            Decision::Dead { why: why.to_owned(), attempts: 1 }
        }
    }
}
