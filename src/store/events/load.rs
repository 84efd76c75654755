//! Reads an event's row: by a load (with the state of its handler and of the clock, in one
//! snapshot), by a claim and from the dead events. Nothing here writes.

use uuid::Uuid;

use crate::event::{
    BatchName, CanvasId, Claim, CopyOf, ErrorGroupId, EventId, EventOptions, HandlerAddress, HandlerScope,
    HeldLimit, Lane, Metadata, Name, Place, RuleKind, Schedule, Timestamp, Turn,
};
use crate::store::kernel::{Sql, StoreError, address, interval};

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
    pub(crate) options: Option<Box<EventOptions>>,
    /// The worker or program that has it, while its lease stands.
    pub(crate) worker: Option<Name>,
    /// A program has leased it over HTTP, at this attempt or before. Its `worker` may be a name
    /// that the program chose.
    pub(crate) was_leased: bool,
    pub(crate) place: Option<Place>,
    pub(crate) copy_of: Option<CopyOf>,
    /// Its queue or its handler is pulled: no worker takes it.
    pub(crate) pulled: bool,
    /// The size of its value, which is not loaded.
    pub(crate) value_bytes: i32,
    /// It has limits, so that only `claim_limited` claims it.
    pub(crate) is_limited: bool,
    /// It waits for a place of one of them.
    pub(crate) waits: bool,
}

impl LoadedEvent {
    /// Its lane, if it is on an object.
    pub(crate) fn lane(self) -> Option<Lane> {
        let (scope, queue) = (self.address.scope, self.copy_of.map(|copy| copy.queue));
        self.place.map(|place| Lane { scope, object: place.object, queue })
    }

    /// The batch that it is a member of.
    pub(crate) fn batch(&self) -> Option<(CanvasId, BatchName)> {
        let name = self.options.as_deref()?.batch()?;
        Some((self.address.scope.canvas, name.clone()))
    }
}

/// A claimed event, with everything that its handler needs.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedEvent {
    pub(crate) claim: Claim,
    pub(crate) address: HandlerAddress,
    pub(crate) value: String,
    pub(crate) retries: i32,
    pub(crate) losses: i32,
    /// When its handler first said that it is too early.
    pub(crate) postponed_since: Option<Timestamp>,
    pub(crate) took_over: bool,
    pub(crate) delay_until: Timestamp,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) locked_at: Timestamp,
    pub(crate) metadata: Metadata,
    pub(crate) options: Option<Box<EventOptions>>,
    pub(crate) place: Option<Place>,
    pub(crate) copy_of: Option<CopyOf>,
    /// It counts towards what its canvas may have in flight in its queue.
    pub(crate) is_limited: bool,
    /// Somebody cancelled it while it ran before.
    pub(crate) is_cancelled: bool,
    /// The limits whose places it has; `None` if it was not claimed through limits.
    pub(crate) held: Option<Box<[HeldLimit]>>,
}

impl Sql<'_> {
    /// Lanes and facets are queried once each. If no canvas and no handler has a limit, none is
    /// looked up.
    pub(in crate::store) async fn load(
        &self,
        ids: &[EventId],
    ) -> Result<Vec<Option<LoadedEvent>>, StoreError> {
        let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let query = sqlx::query_as!(
            EventRow,
            r#"select e.id, e.canvas_id, e.module::text as "module!", e.name::text as "name!",
                      e.modifier::text as "modifier!", e.retries, e.delay_until, e.enqueued_at, e.locked_at, e.notify_at,
                      case when e.locked_at >= now() - $2::interval then e.worker::text end as worker,
                      e.leased_at is not null as "was_leased!",
                      e.claims, e.losses, e.last_error, e.traceparent::text as traceparent, e.options::text as options,
                      e.object::text as object, e.seq, e.prev, e.queue::text as queue, e.origin,
                      case when e.queue is not null then wakeq.is_pulled(e.queue)
                           when (select exists (select from wakeq.pulled_handlers))
                           then wakeq.is_pulled_handler(e.canvas_id, e.module, e.name) else false end as "pulled!",
                      octet_length(e.value) as "value_bytes!",
                      case when e.queue is not null then false when e.options ? 'limits' then true
                           when (select exists (select from wakeq.limits where name = 'canvas' or name like 'handler:%'))
                           then wakeq.is_limited(e.canvas_id, e.module, e.name, e.options) else false end as "is_limited!",
                      (e.starts_at is not null and (
                          select w.woken_at is null from wakeq.limit_waits w where w.event_id = e.id) is true) as "waits!",
                      greatest((select max(r.rule_type) from wakeq.scheduling_rules r
                                 where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
                                   and (r.until is null or r.until > now())
                                   and (e.queue is null or wakeq.is_shown(e.queue))),
                               case when (select exists (select from wakeq.scheduling_rules where event_space = 'CANVAS'))
                                    then wakeq.switch_on(e.canvas_id, e.queue, now()) end)::text as rule,
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
                 from wakeq.events_v2 e where e.id = any ((select $1::uuid[])::uuid[])"#,
            &keys,
            interval(self.timing().lease)
        );
        let rows = self.session().await?.all("load events", query).await?;
        let found: std::collections::HashMap<Uuid, LoadedEvent> =
            rows.into_iter().filter_map(|row| Some((row.id, row.into_event()?))).collect();
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    pub(in crate::store) async fn value(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select value::text as "value!" from wakeq.events_v2 where id = $1 and canvas_id = $2
                union all
               select value::text from wakeq.dead_events where id = $1 and canvas_id = $2
                limit 1"#,
            id.0,
            canvas.0
        );
        self.session().await?.optional("read an event's value", query).await
    }
}

struct EventRow {
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
    options: Option<String>,
    worker: Option<String>,
    was_leased: bool,
    object: Option<String>,
    seq: Option<i64>,
    prev: Option<i64>,
    queue: Option<String>,
    origin: Option<Uuid>,
    rule: Option<String>,
    turn: Option<String>,
    pulled: bool,
    value_bytes: i32,
    is_limited: bool,
    waits: bool,
    now: Timestamp,
}

impl EventRow {
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
            metadata: Metadata::of(self.traceparent.as_deref()),
            options: EventOptions::of(self.options.as_deref()),
            worker: self.worker.and_then(|name| name.parse().ok()),
            was_leased: self.was_leased,
            place: Place::of(self.object.as_deref(), self.seq, self.prev),
            copy_of: CopyOf::of(self.queue.as_deref(), self.origin),
            pulled: self.pulled,
            value_bytes: self.value_bytes,
            is_limited: self.is_limited,
            waits: self.waits,
        })
    }
}

/// A row that a claim returned.
pub(in crate::store) struct ClaimedRow {
    pub(in crate::store) id: Uuid,
    pub(in crate::store) canvas_id: Uuid,
    pub(in crate::store) module: String,
    pub(in crate::store) name: String,
    pub(in crate::store) modifier: String,
    /// `None`: it is too long for the answer.
    pub(in crate::store) value: Option<String>,
    pub(in crate::store) retries: i32,
    pub(in crate::store) delay_until: Timestamp,
    pub(in crate::store) enqueued_at: Timestamp,
    pub(in crate::store) locked_at: Timestamp,
    pub(in crate::store) claims: i32,
    pub(in crate::store) nonce: i32,
    pub(in crate::store) losses: i32,
    pub(in crate::store) postponed_since: Option<Timestamp>,
    pub(in crate::store) took_over: bool,
    pub(in crate::store) traceparent: Option<String>,
    /// `None` for copies.
    pub(in crate::store) options: Option<String>,
    pub(in crate::store) object: Option<String>,
    pub(in crate::store) seq: Option<i64>,
    pub(in crate::store) prev: Option<i64>,
    /// Of copies only.
    pub(in crate::store) origin: Option<Uuid>,
    pub(in crate::store) is_limited: bool,
    pub(in crate::store) is_cancelled: bool,
    /// Of what is leased only.
    pub(in crate::store) token: Option<String>,
}

/// A query for [`ClaimedRow`]s: with what only copies or only events have, from a function that
/// claims.
macro_rules! claimed_rows {
    ($of_copies:literal, $function:literal, $($argument:tt)*) => {
        sqlx::query_as!(
            $crate::store::events::ClaimedRow,
            r#"select id as "id!", canvas_id as "canvas_id!", module as "module!", name as "name!",
                      modifier as "modifier!", case when octet_length(value) <= 4096 then value end as value,
                      retries as "retries!", delay_until as "delay_until!", enqueued_at as "enqueued_at!",
                      locked_at as "locked_at!", claims as "claims!", nonce as "nonce!", losses as "losses!",
                      postponed_since, took_over as "took_over!", traceparent, object, seq, prev, "# + $of_copies + " from " + $function,
            $($argument)*
        )
    };
}
pub(in crate::store) use claimed_rows;

impl ClaimedRow {
    /// The events of these rows, which are copies if they are of a queue, and the claims of those
    /// whose values the answer left out.
    pub(in crate::store) fn into_events(
        rows: Vec<Self>,
        queue: Option<&Name>,
    ) -> (Vec<ClaimedEvent>, Vec<Claim>) {
        let left = rows.iter().filter(|row| row.value.is_none()).map(Self::claim).collect();
        (rows.into_iter().filter_map(|row| row.into_event(queue)).collect(), left)
    }

    fn claim(&self) -> Claim {
        Claim { id: EventId(self.id), claims: self.claims, nonce: self.nonce }
    }

    fn into_event(self, queue: Option<&Name>) -> Option<ClaimedEvent> {
        let copy_of = match queue {
            Some(queue) => Some(CopyOf { queue: queue.clone(), origin: EventId(self.origin?) }),
            None => None,
        };
        Some(ClaimedEvent {
            claim: self.claim(),
            address: address(self.canvas_id, &self.module, &self.name, &self.modifier).ok()?,
            value: self.value.unwrap_or_default(),
            retries: self.retries,
            losses: self.losses,
            postponed_since: self.postponed_since,
            took_over: self.took_over,
            delay_until: self.delay_until,
            enqueued_at: self.enqueued_at,
            locked_at: self.locked_at,
            metadata: Metadata::of(self.traceparent.as_deref()),
            options: EventOptions::of(self.options.as_deref()),
            place: Place::of(self.object.as_deref(), self.seq, self.prev),
            copy_of,
            is_limited: self.is_limited,
            is_cancelled: self.is_cancelled,
            held: None,
        })
    }
}

/// An event that died.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadEvent {
    /// Its id; a redriven event keeps it.
    pub id: EventId,
    /// The handler it was for.
    pub address: HandlerAddress,
    /// Why it died: `retries`, `poison`, `rejected` or `expired`.
    pub cause: String,
    /// How many retries it had.
    pub retries: i32,
    /// How many of its claims ran out, because their owners died or stalled.
    pub losses: i32,
    /// The last error of its handler.
    pub last_error: Option<String>,
    /// The group of those that died of the same error.
    pub error_group: ErrorGroupId,
    /// When it was emitted.
    pub enqueued_at: Timestamp,
    /// When it died.
    pub died_at: Timestamp,
    /// Its metadata.
    pub metadata: Metadata,
    /// What its emit asked for beside it.
    pub options: Option<Box<EventOptions>>,
    /// The object that it was on, and its link there.
    pub place: Option<Place>,
    /// The queue that it was in and the event that it was a copy of, if it was a copy.
    pub copy_of: Option<CopyOf>,
    /// Whether its lane has been halted since it died.
    pub halts: bool,
}

/// Which dead events to select: all of the canvas, if nothing else is set.
#[derive(Clone, Debug, Default)]
pub struct DeadFilter {
    /// The tenant.
    pub canvas: CanvasId,
    /// Only those of this handler.
    pub scope: Option<HandlerScope>,
    /// Only this event.
    pub id: Option<EventId>,
    /// Only those that died at or after this.
    pub since: Option<Timestamp>,
    /// Only those that died before this.
    pub before: Option<Timestamp>,
}

/// A dead event as its row has it.
pub(super) struct DeadRow {
    pub(super) id: Uuid,
    pub(super) canvas_id: Uuid,
    pub(super) module: String,
    pub(super) name: String,
    pub(super) modifier: String,
    pub(super) cause: String,
    pub(super) retries: i32,
    pub(super) losses: i32,
    pub(super) last_error: Option<String>,
    pub(super) error_group: Uuid,
    pub(super) enqueued_at: Timestamp,
    pub(super) died_at: Timestamp,
    pub(super) traceparent: Option<String>,
    pub(super) options: Option<String>,
    pub(super) object: Option<String>,
    pub(super) seq: Option<i64>,
    pub(super) prev: Option<i64>,
    pub(super) queue: Option<String>,
    pub(super) origin: Option<Uuid>,
    pub(super) halts: bool,
}

/// A query for [`DeadRow`]s: those with this condition.
macro_rules! dead_rows {
    ($condition:literal, $($argument:tt)*) => {
        sqlx::query_as!(
            $crate::store::events::load::DeadRow,
            r#"select id, canvas_id, module::text as "module!", name::text as "name!", modifier::text as "modifier!",
                      cause, retries, losses, last_error, error_group as "error_group!", enqueued_at, died_at, traceparent::text as traceparent,
                      options::text as options,
                      object::text as object, seq, prev, queue::text as queue, origin,
                      exists (select from wakeq.halted_lanes h
                               where h.canvas_id = dead_events.canvas_id and h.event_id = dead_events.id offset 0) as "halts!"
                 from wakeq.dead_events"# + $condition,
            $($argument)*
        )
    };
}
pub(super) use dead_rows;

impl DeadRow {
    pub(super) fn into_event(self) -> Option<DeadEvent> {
        Some(DeadEvent {
            id: EventId(self.id),
            address: address(self.canvas_id, &self.module, &self.name, &self.modifier).ok()?,
            cause: self.cause,
            retries: self.retries,
            losses: self.losses,
            last_error: self.last_error,
            error_group: ErrorGroupId(self.error_group),
            enqueued_at: self.enqueued_at,
            died_at: self.died_at,
            metadata: Metadata::of(self.traceparent.as_deref()),
            options: EventOptions::of(self.options.as_deref()),
            place: Place::of(self.object.as_deref(), self.seq, self.prev),
            copy_of: CopyOf::of(self.queue.as_deref(), self.origin),
            halts: self.halts,
        })
    }
}
