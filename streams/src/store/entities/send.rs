//! Sending to entities: into their inboxes, each event once; an event that is sent again keeps its
//! first link.

use std::collections::{BTreeSet, HashMap};

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::answer::{EntityQuestion, was_asked};
use super::append::{append, lock};
use crate::event::EntityId;
use crate::store::Store;
use wakeq::internals::lacks_partition;
use wakeq::log::{NewLogEvent, StreamId};
use wakeq::machine::Link;
use wakeq::{CanvasId, EventId, Name, StoreError};

/// An event to be sent to an entity.
#[derive(Clone, Debug)]
pub(crate) struct ToEntity {
    pub(crate) entity: EntityId,
    pub(crate) id: EventId,
    /// Whether the sender chose the id, so that it may have been sent before.
    pub(crate) chosen: bool,
    /// The link that it had, if the sender knows that it was sent before.
    pub(crate) link: Option<Link>,
    pub(crate) correlation_id: Uuid,
    /// It is not an event, but erases the entity.
    pub(crate) erases: bool,
    pub(crate) name: Name,
    pub(crate) payload: String,
    /// A JSON object with at least one field, to which the first link is added if the event was
    /// sent before.
    pub(crate) metadata: String,
}

/// The outcome of sending one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentEntityEvent {
    /// The link of the first time.
    pub(crate) link: Link,
    /// Whether it was sent before.
    pub(crate) again: bool,
}

/// The outcome of sending events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    Sent(Vec<SentEntityEvent>),
    /// The id belongs to an event of another entity, or to an erasure where this is an event (or
    /// the reverse), or was given twice; nothing may be committed.
    Taken(EventId),
    /// It answers a question that was not asked; nothing may be committed.
    NotAsked,
}

/// The record of an id.
struct KnownEvent {
    entity_type: String,
    entity: String,
    link: Link,
    /// Whether it is an erasure, which is never the same as an event.
    erases: bool,
}

impl Store {
    /// Sends events to entities in one transaction, all or none. If they answer a question, only if
    /// it was asked.
    pub(crate) async fn send_to_entities(
        &self,
        events: &[ToEntity],
        question: Option<&EntityQuestion<'_>>,
    ) -> Result<SendEnd, StoreError> {
        let sent = self.send_once(events, question).await;
        if !sent.as_ref().is_err_and(lacks_partition) {
            return sent;
        }
        self.add_log_partitions().await?;
        self.send_once(events, question).await
    }

    async fn send_once(
        &self,
        events: &[ToEntity],
        question: Option<&EntityQuestion<'_>>,
    ) -> Result<SendEnd, StoreError> {
        let mut session = self.session().await?.for_statements(13);
        let sent = session.limit(|connection| send(connection, events, question)).await;
        session.answered("send to entities", sent).await
    }
}

async fn send(
    connection: &mut PgConnection,
    events: &[ToEntity],
    question: Option<&EntityQuestion<'_>>,
) -> Result<SendEnd, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let is_asked = match question {
        Some(question) => was_asked(&mut transaction, question).await?,
        None => true,
    };
    let sent = if is_asked { send_to_entities(&mut transaction, events).await? } else { SendEnd::NotAsked };
    match sent {
        SendEnd::Sent(_) => transaction.commit().await?,
        SendEnd::Taken(_) | SendEnd::NotAsked => transaction.rollback().await?,
    }
    Ok(sent)
}

/// The statements of [`Store::send_to_entities`], in a transaction that the caller ends; not by a
/// commit, if an id was taken.
pub(crate) async fn send_to_entities(
    connection: &mut PgConnection,
    events: &[ToEntity],
) -> Result<SendEnd, sqlx::Error> {
    let inboxes: Vec<StreamId> = events.iter().map(|event| event.entity.inbox()).collect();
    let chosen: Vec<&ToEntity> = events.iter().filter(|event| event.chosen).collect();
    let mut known = HashMap::new();
    if !chosen.is_empty() {
        // Before the ids are looked up: a transaction that sends the same to the same entity has
        // committed by then, or waits.
        lock(&mut *connection, &inboxes.iter().collect::<BTreeSet<_>>()).await?;
        known = known_of(&mut *connection, &chosen).await?;
    }
    let mut rows = Vec::with_capacity(events.len());
    let mut firsts: HashMap<(CanvasId, EventId), usize> = HashMap::new();
    for (at, (event, stream)) in events.iter().zip(inboxes).enumerate() {
        let key = (event.entity.canvas, event.id);
        let is_same = |known: &KnownEvent| {
            known.entity == event.entity.id.as_str()
                && known.entity_type == event.entity.entity_type.as_str()
                && known.erases == event.erases
        };
        if known.get(&key).is_some_and(|known| !is_same(known)) {
            return Ok(SendEnd::Taken(event.id));
        }
        if firsts.insert(key, at).is_some() {
            // Twice in one call: the first has no link yet that the second could name.
            return Ok(SendEnd::Taken(event.id));
        }
        let link = known.get(&key).map(|known| known.link).or(event.link);
        let metadata = link.map_or_else(|| event.metadata.clone(), |link| with_link(&event.metadata, link));
        let (name, payload) = (event.name.clone(), event.payload.clone());
        rows.push((stream, NewLogEvent::of_checked(event.id, name, payload, metadata)));
    }
    let appended = append(&mut *connection, rows).await?;
    let sent: Vec<SentEntityEvent> = events
        .iter()
        .zip(&appended)
        .map(|(event, appended)| {
            let before =
                known.remove(&(event.entity.canvas, event.id)).map(|known| known.link).or(event.link);
            let link = Link { id: appended.seq, prev: appended.prev };
            SentEntityEvent { link: before.unwrap_or(link), again: before.is_some() }
        })
        .collect();
    match remember(connection, events, &sent).await? {
        None => Ok(SendEnd::Sent(sent)),
        Some(taken) => Ok(SendEnd::Taken(taken)),
    }
}

/// The metadata with the first link added.
fn with_link(metadata: &str, link: Link) -> String {
    let rest = metadata.trim_start().trim_start_matches('{');
    format!(r#"{{"repost":{{"id":{},"prev":{}}},{rest}"#, link.id, link.prev)
}

/// The records of the chosen ids.
async fn known_of(
    connection: &mut PgConnection,
    chosen: &[&ToEntity],
) -> Result<HashMap<(CanvasId, EventId), KnownEvent>, sqlx::Error> {
    let erasure = Name::erasure();
    let rows = sqlx::query!(
        r#"select e.canvas_id, e.event_id, e.entity_type::text as "entity_type!", e.entity::text as "entity!", e.link_id, e.link_prev,
                  e.name::text = $3::text as "erases!"
             from unnest($1::uuid[], $2::uuid[]) as wanted (canvas_id, event_id)
             join wakeq.entity_events e on e.canvas_id = any (array[wanted.canvas_id]) and e.event_id = wanted.event_id"#,
        &chosen.iter().map(|event| event.entity.canvas.0).collect::<Vec<_>>(),
        &chosen.iter().map(|event| event.id.0).collect::<Vec<_>>(),
        erasure.as_str()
    )
    .fetch_all(connection)
    .await?;
    let known = rows.into_iter().map(|row| {
        let link = Link { id: row.link_id, prev: row.link_prev };
        let known = KnownEvent { entity_type: row.entity_type, entity: row.entity, link, erases: row.erases };
        ((CanvasId(row.canvas_id), EventId(row.event_id)), known)
    });
    Ok(known.collect())
}

/// Records what was sent; returns an id that was sent to another entity meanwhile, if there is one.
async fn remember(
    connection: &mut PgConnection,
    events: &[ToEntity],
    sent: &[SentEntityEvent],
) -> Result<Option<EventId>, sqlx::Error> {
    let written = sqlx::query!(
        r#"insert into wakeq.entity_events
               (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev)
           select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::bigint[],
                                $8::bigint[])
                      as new (canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev)
            order by canvas_id, event_id
               on conflict (canvas_id, event_id) do nothing
        returning canvas_id, event_id"#,
        &events.iter().map(|event| event.entity.canvas.0).collect::<Vec<_>>(),
        &events.iter().map(|event| event.id.0).collect::<Vec<_>>(),
        &events.iter().map(|event| event.correlation_id).collect::<Vec<_>>(),
        &events.iter().map(|event| event.entity.entity_type.to_string()).collect::<Vec<_>>(),
        &events.iter().map(|event| event.entity.id.to_string()).collect::<Vec<_>>(),
        &events.iter().map(|event| event.name.to_string()).collect::<Vec<_>>(),
        &sent.iter().map(|sent| sent.link.id).collect::<Vec<_>>(),
        &sent.iter().map(|sent| sent.link.prev).collect::<Vec<_>>(),
    )
    .fetch_all(connection)
    .await?;
    let written: BTreeSet<(Uuid, Uuid)> =
        written.into_iter().map(|row| (row.canvas_id, row.event_id)).collect();
    let taken = events
        .iter()
        .zip(sent)
        .find(|(event, sent)| !sent.again && !written.contains(&(event.entity.canvas.0, event.id.0)));
    Ok(taken.map(|(event, _)| event.id))
}
