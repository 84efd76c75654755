//! Turns: the copies of a queue, taken in the rotation of its facets.

use std::collections::HashMap;

use uuid::Uuid;

use crate::event::{CanvasId, Claim, CopyOf, EventId, Name, Notification, Place, Timestamp};
use crate::store::claims::ClaimedEvent;
use crate::store::load::address;
use crate::store::session::interval;
use crate::store::{Store, StoreError};

/// A notification that asks for a turn of the queue that its event is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TakenTurn {
    pub(crate) queue: Name,
    pub(crate) asks: EventId,
}

struct Row {
    id: Uuid,
    canvas_id: Uuid,
    module: String,
    name: String,
    modifier: String,
    value: String,
    retries: i32,
    delay_until: Timestamp,
    enqueued_at: Timestamp,
    locked_at: Timestamp,
    claims: i32,
    losses: i32,
    took_over: bool,
    traceparent: Option<String>,
    object: Option<String>,
    seq: Option<i64>,
    prev: Option<i64>,
    origin: Option<Uuid>,
    is_limited: bool,
}

impl Store {
    /// Takes as many turns as there are askers: for each the event that it claims, which need not be its own; `None`: the
    /// rotation gave no more. Only events with fewer losses than `losses_below`.
    pub(crate) async fn take_turns(
        &self,
        turns: &[TakenTurn],
        losses_below: i32,
    ) -> Result<Vec<Option<ClaimedEvent>>, StoreError> {
        let mut asked: HashMap<&Name, Vec<EventId>> = HashMap::new();
        for turn in turns {
            asked.entry(&turn.queue).or_default().push(turn.asks);
        }
        let mut taken: HashMap<&Name, Vec<ClaimedEvent>> = HashMap::new();
        for (queue, asks) in asked {
            let mut events = self.take(queue, &asks, false, losses_below).await?;
            events.reverse();
            taken.insert(queue, events);
        }
        Ok(turns.iter().map(|turn| taken.get_mut(&turn.queue).and_then(Vec::pop)).collect())
    }

    /// Claims this copy whatever the rotation says, if its canvas may have one more in flight.
    pub(crate) async fn take_alone(
        &self,
        queue: &Name,
        id: EventId,
        losses_below: i32,
    ) -> Result<Option<ClaimedEvent>, StoreError> {
        Ok(self.take(queue, &[id], true, losses_below).await?.pop())
    }

    /// In the order of the rotation.
    async fn take(
        &self,
        queue: &Name,
        asked: &[EventId],
        alone: bool,
        losses_below: i32,
    ) -> Result<Vec<ClaimedEvent>, StoreError> {
        let ids: Vec<Uuid> = asked.iter().map(|id| id.0).collect();
        let mut session = self.session().await?;
        let query = sqlx::query_as!(
            Row,
            r#"select id as "id!", canvas_id as "canvas_id!", module as "module!", name as "name!",
                      modifier as "modifier!", value as "value!", retries as "retries!", delay_until as "delay_until!",
                      enqueued_at as "enqueued_at!", locked_at as "locked_at!", claims as "claims!",
                      losses as "losses!", took_over as "took_over!", traceparent, object, seq, prev, origin,
                      is_limited as "is_limited!"
                 from wakeq.take_turns($1, $2, $3, $4, $5, $6)"#,
            queue.as_str(),
            &ids,
            i32::try_from(ids.len()).unwrap_or(i32::MAX),
            alone,
            interval(self.timing().lease),
            losses_below
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("take turns of a queue", rows)?;
        Ok(rows.into_iter().filter_map(|row| row.into_event(queue)).collect())
    }

    /// Puts the facets of copies that were just committed into the rotation.
    pub(crate) async fn announce(&self, copies: &[EventId]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = copies.iter().map(|id| id.0).collect();
        let mut session = self.session().await?;
        let query = sqlx::query!(r#"select true as "done!" from wakeq.announce($1)"#, &ids);
        let announced = session.limit(|connection| query.fetch_all(connection)).await;
        session.answered("announce copies", announced).map(drop)
    }

    /// The copy of a canvas that stands next in a queue: for whoever made room for it there.
    pub(crate) async fn next_of_facet(
        &self,
        queue: &Name,
        canvas: CanvasId,
    ) -> Result<Option<Notification>, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            r#"select coalesce(f.recalled[1], (
                      select e.id from wakeq.events_v2 e
                       where e.queue = f.queue and e.canvas_id = f.canvas_id and e.notify_at is not null
                         and e.delay_until <= now() and (e.delay_until, e.id) > (f.head_at, f.head_id)
                       order by e.delay_until, e.id limit 1)) as id
                 from wakeq.facets f where f.queue = $1 and f.canvas_id = $2"#,
            queue.as_str() as _,
            canvas.0
        );
        let id = session.limit(|connection| query.fetch_optional(connection)).await;
        let id = session.answered("look for the next of a facet", id)?.flatten();
        Ok(id.map(|id| Notification { id: EventId(id), canvas }))
    }
}

impl Row {
    fn into_event(self, queue: &Name) -> Option<ClaimedEvent> {
        Some(ClaimedEvent {
            claim: Claim { id: EventId(self.id), claims: self.claims },
            address: address(self.canvas_id, &self.module, &self.name, &self.modifier).ok()?,
            value: self.value,
            retries: self.retries,
            losses: self.losses,
            took_over: self.took_over,
            delay_until: self.delay_until,
            enqueued_at: self.enqueued_at,
            locked_at: self.locked_at,
            traceparent: self.traceparent.and_then(|text| text.parse().ok()),
            place: Place::of(self.object.as_deref(), self.seq, self.prev),
            copy_of: Some(CopyOf { queue: queue.clone(), origin: EventId(self.origin?) }),
            is_limited: self.is_limited,
        })
    }
}
