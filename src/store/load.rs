//! Loading events: the state of the row, of its handler and of the clock, in one snapshot.
//! Read-only.

use uuid::Uuid;

use super::session::interval;
use super::{Store, StoreError};
use crate::event::{
    CanvasId, CopyOf, EventId, HandlerAddress, HandlerScope, InvalidName, Lane, Metadata, Name, Place,
    RuleKind, Schedule, Timestamp, Turn,
};

/// An event as the load found it.
#[derive(Clone, Debug)]
pub(crate) struct LoadedEvent {
    pub(crate) address: HandlerAddress,
    pub(crate) schedule: Schedule,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) notify_at: Option<Timestamp>,
    pub(crate) retries: i32,
    pub(crate) claims: i32,
    pub(crate) losses: i32,
    pub(crate) last_error: Option<String>,
    pub(crate) metadata: Metadata,
    /// The worker that has it, while its lease stands.
    pub(crate) worker: Option<Name>,
    pub(crate) place: Option<Place>,
    pub(crate) copy_of: Option<CopyOf>,
    /// Its queue is pulled: no worker takes it.
    pub(crate) pulled: bool,
    /// The size of its value, which is not loaded.
    pub(crate) value_bytes: i32,
}

impl LoadedEvent {
    /// Its lane, if it is on an object.
    pub(crate) fn lane(self) -> Option<Lane> {
        let (scope, queue) = (self.address.scope, self.copy_of.map(|copy| copy.queue));
        self.place.map(|place| Lane { scope, object: place.object, queue })
    }
}

impl Store {
    /// Loads events by their ids; `None` for each that is gone. Lanes and facets are queried once
    /// each.
    pub(crate) async fn load(&self, ids: &[EventId]) -> Result<Vec<Option<LoadedEvent>>, StoreError> {
        in_memory!(self, load(ids));
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let mut session = self.session().await?;
        let query = sqlx::query_as!(
            Row,
            r#"select e.id, e.canvas_id, e.module::text as "module!", e.name::text as "name!",
                      e.modifier::text as "modifier!", e.retries, e.delay_until, e.enqueued_at, e.locked_at, e.notify_at,
                      case when e.locked_at >= now() - $2::interval then e.worker::text end as worker,
                      e.claims, e.losses, e.last_error, e.traceparent::text as traceparent,
                      e.object::text as object, e.seq, e.prev, e.queue::text as queue, e.origin,
                      e.queue is not null and wakeq.is_pulled(e.queue) as "pulled!", octet_length(e.value) as "value_bytes!",
                      (select max(r.rule_type)::text from wakeq.scheduling_rules r
                        where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
                          and (r.until is null or r.until > now())
                          and (e.queue is null or wakeq.is_shown(e.queue))) as rule,
                      case when e.object is not null
                            and wakeq.lane_halts(e.canvas_id, e.object, e.queue, e.module, e.name) then 'halted'
                           when e.object is not null
                            and e.id <> all (coalesce((select wakeq.firsts_of_lanes($1)), '{}')) then 'behind'
                           when e.queue is not null and e.delay_until <= now()
                            and not coalesce(e.locked_at >= now() - $2::interval, false)
                            and e.canvas_id || '/' || e.queue = any (coalesce((select wakeq.held_facets($1, $2)), '{}'))
                           then case when wakeq.is_passed(e.queue, e.canvas_id, e.delay_until, e.id) then 'passed' else 'held' end
                      end as turn,
                      now() as "now!"
                 from wakeq.events_v2 e where e.id = any ($1)"#,
            &keys,
            interval(self.timing().lease)
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("load events", rows)?;
        let found: std::collections::HashMap<Uuid, LoadedEvent> =
            rows.into_iter().filter_map(|row| Some((row.id, row.into_event()?))).collect();
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// The value of a canvas's event, live or dead.
    pub(crate) async fn value(&self, canvas: CanvasId, id: EventId) -> Result<Option<String>, StoreError> {
        in_memory!(self, value(canvas, id));
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            r#"select value::text as "value!" from wakeq.events_v2 where id = $1 and canvas_id = $2
                union all
               select value::text from wakeq.dead_events where id = $1 and canvas_id = $2
                limit 1"#,
            id.0,
            canvas.0
        );
        let value = session.limit(|connection| query.fetch_optional(connection)).await;
        session.answered("read an event's value", value)
    }
}

struct Row {
    id: Uuid,
    canvas_id: Uuid,
    module: String,
    name: String,
    modifier: String,
    retries: i32,
    delay_until: Timestamp,
    enqueued_at: Timestamp,
    locked_at: Option<Timestamp>,
    notify_at: Option<Timestamp>,
    claims: i32,
    losses: i32,
    last_error: Option<String>,
    traceparent: Option<String>,
    worker: Option<String>,
    object: Option<String>,
    seq: Option<i64>,
    prev: Option<i64>,
    queue: Option<String>,
    origin: Option<Uuid>,
    rule: Option<String>,
    turn: Option<String>,
    pulled: bool,
    value_bytes: i32,
    now: Timestamp,
}

impl Row {
    fn into_event(self) -> Option<LoadedEvent> {
        let rule = self.rule.as_deref().and_then(|kind| kind.parse::<RuleKind>().ok());
        let turn = match Turn::parse(self.turn.as_deref()) {
            // It has to be parked however full its facet is: the scan of turns skips it.
            Turn::Held | Turn::Passed if rule.is_some() => Turn::First,
            turn @ (Turn::First | Turn::Behind | Turn::Halted | Turn::Held | Turn::Passed) => turn,
        };
        Some(LoadedEvent {
            address: address(self.canvas_id, &self.module, &self.name, &self.modifier).ok()?,
            schedule: Schedule {
                delay_until: self.delay_until,
                locked_at: self.locked_at,
                rule,
                turn,
                now: self.now,
            },
            enqueued_at: self.enqueued_at,
            notify_at: self.notify_at,
            retries: self.retries,
            claims: self.claims,
            losses: self.losses,
            last_error: self.last_error,
            metadata: Metadata { traceparent: self.traceparent.and_then(|text| text.parse().ok()) },
            worker: self.worker.and_then(|name| name.parse().ok()),
            place: Place::of(self.object.as_deref(), self.seq, self.prev),
            copy_of: CopyOf::of(self.queue.as_deref(), self.origin),
            pulled: self.pulled,
            value_bytes: self.value_bytes,
        })
    }
}

/// A handler's address from its columns, which the schema's domains hold to the same rules.
pub(super) fn address(
    canvas_id: Uuid,
    module: &str,
    name: &str,
    modifier: &str,
) -> Result<HandlerAddress, InvalidName> {
    let scope = HandlerScope { canvas: CanvasId(canvas_id), module: module.parse()?, name: name.parse()? };
    Ok(HandlerAddress { scope, modifier: modifier.parse()? })
}
