//! Lanes: the events of an object in one queue, of which only the first may run. The process that
//! removes one wakes the next.
//!
//! The removal commits first; only a later statement, with a snapshot of its own, looks for the new
//! first. The same statement or transaction would miss a successor that was committed after its
//! snapshot and whose own notification had found that it was not its turn: nothing would wake that
//! one.

use uuid::Uuid;

use crate::event::{
    Actor, CanvasId, Claim, EventId, HandlerScope, Lane, Link, Name, Notification, ObjectKey, Timestamp,
};
use crate::store::events::{fences, happened};
use crate::store::kernel::{Sql, StoreError, address, interval};

/// A halted lane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HaltedLane {
    /// The object, and the handler whose events on it wait.
    pub lane: Lane,
    /// The event that died.
    pub event: EventId,
    /// Its link id in the chain.
    pub event_seq: i64,
    /// Since when the lane has been halted.
    pub halted_at: Timestamp,
}

/// Where a page of halted lanes ended: since when the last one has been halted, and the event that
/// died.
pub(crate) type HaltedPosition = (Timestamp, EventId);

/// An event of an object that is being processed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InHand {
    /// The object, and the handler or queue that has it in hand.
    pub lane: Lane,
    /// The event.
    pub event: EventId,
    /// Its link in the chain.
    pub link: Link,
    /// The worker that has it, or the program that has leased it; `None` for a copy that is leased
    /// over HTTP, and for a program that gave no name.
    pub worker: Option<Name>,
}

impl Sql<'_> {
    /// Successors that this statement can't see were emitted just now and have a fresh promise
    /// anyway. One whose row is locked keeps its promise: the completion must not fail on that row,
    /// or an event that has run would run again.
    pub(in crate::store) async fn complete_links(&self, claims: &[Claim]) -> Result<Vec<bool>, StoreError> {
        let (ids, fences) = fences(claims);
        let query = sqlx::query_scalar!(
            "with gone as (
                 delete from wakeq.events_v2
                  where id = any ((select $1::uuid[])::uuid[])
                    and claims::bigint << 32 | nonce = ($2::bigint[])[width_bucket(id, $1::uuid[])] and locked_at is not null
              returning id, canvas_id, object, queue, module, name, seq
             ), armed as (
                 update wakeq.events_v2 e
                    set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $3, $4), probes = 0
                  where e.id = any (array(
                      select x.id from wakeq.events_v2 x
                       where x.id = any (array(
                           select wakeq.next_in_lane(canvas_id, object, queue, module, name, seq) from gone))
                         for update skip locked))
             )
             select id from gone",
            &ids,
            &fences,
            interval(self.timing().horizon),
            interval(self.timing().grace)
        );
        Ok(happened(claims, self.session().await?.all("complete events on objects", query).await?))
    }

    pub(in crate::store) async fn firsts(
        &self,
        lanes: &[Lane],
    ) -> Result<Vec<Option<Notification>>, StoreError> {
        let columns = LaneColumns::of(lanes);
        let query = sqlx::query!(
            r#"select lane.position as "position!", first.id, first.canvas_id, first.is_urgent as "is_urgent!"
                 from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $7::text[]) with ordinality
                          as lane (canvas_id, object, module, name, queue, position)
                cross join lateral (
                      select e.id, e.canvas_id, e.locked_at, e.delay_until,
                             (e.options @> '{"urgent": true}') is true as is_urgent
                        from wakeq.events_v2 e
                       where e.id = wakeq.first_of_lane(
                                 lane.canvas_id, lane.object, lane.queue, lane.module, lane.name) offset 0) as first
                where (first.locked_at is null or first.locked_at < clock_timestamp() - $6::interval)
                  and first.delay_until <= clock_timestamp() + $5::interval
                  and not wakeq.lane_halts(lane.canvas_id, lane.object, lane.queue, lane.module, lane.name)"#,
            &columns.canvases,
            &columns.objects,
            &columns.modules,
            &columns.names,
            interval(self.timing().horizon),
            interval(self.timing().lease),
            columns.queues.as_slice() as &[Option<String>]
        );
        let mut firsts = vec![None; lanes.len()];
        for row in self.session().await?.all("look for the first of lanes", query).await? {
            let at = usize::try_from(row.position - 1).unwrap_or(usize::MAX);
            if let Some(first) = firsts.get_mut(at) {
                let told = Notification::new(EventId(row.id), CanvasId(row.canvas_id));
                *first = Some(told.urgent_if(row.is_urgent));
            }
        }
        Ok(firsts)
    }

    pub(in crate::store) async fn arm_firsts(&self, lanes: &[Lane]) -> Result<Vec<Notification>, StoreError> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let columns = LaneColumns::of(lanes);
        let query = sqlx::query!(
            r#"update wakeq.events_v2 e
                  set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $5, $6), probes = 0
                where e.id = any (array(
                          select wakeq.first_of_lane(lane.canvas_id, lane.object, lane.queue, lane.module, lane.name)
                            from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $8::text[])
                                     as lane (canvas_id, object, module, name, queue)))
                  and (e.locked_at is null or e.locked_at < clock_timestamp() - $7::interval)
            returning e.id, e.canvas_id, e.delay_until <= clock_timestamp() + $5 as "due_soon!""#,
            &columns.canvases,
            &columns.objects,
            &columns.modules,
            &columns.names,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            interval(self.timing().lease),
            columns.queues.as_slice() as &[Option<String>]
        );
        let rows = self.session().await?.all("wake the first of lanes", query).await?;
        let due_soon = rows.into_iter().filter(|row| row.due_soon);
        Ok(due_soon.map(|row| Notification::new(EventId(row.id), CanvasId(row.canvas_id))).collect())
    }

    pub(in crate::store) async fn first(&self, lane: &Lane) -> Result<Option<(EventId, Link)>, StoreError> {
        let query = sqlx::query!(
            r#"select id, seq as "seq!", prev as "prev!" from wakeq.events_v2
                where id = wakeq.first_of_lane($1, $2, $5, $3, $4)"#,
            lane.canvas().0,
            lane.object.as_str(),
            lane.scope.module.as_str(),
            lane.scope.name.as_str(),
            lane.queue.as_ref().map(Name::as_str)
        );
        let row = self.session().await?.optional("look for the first of a lane", query).await?;
        Ok(row.map(|row| (EventId(row.id), Link { id: row.seq, prev: row.prev })))
    }

    pub(in crate::store) async fn halted_lanes(
        &self,
        canvas: CanvasId,
        object: Option<&ObjectKey>,
        copies: bool,
        after: Option<HaltedPosition>,
        limit: i64,
    ) -> Result<Vec<(HaltedLane, bool)>, StoreError> {
        let query = sqlx::query!(
            r#"select object::text as "object!", module::text as "module!", name::text as "name!", queue::text as queue,
                      event_id, seq, halted_at, $4 or queue is null or wakeq.is_shown(queue) as "is_shown!"
                 from wakeq.halted_lanes
                where canvas_id = $1 and halted_at > '-infinity' and ($2::text is null or object = $2)
                  and (halted_at, event_id) > (coalesce($5::timestamptz, '-infinity'), $6::uuid)
                order by canvas_id, halted_at, event_id limit $3"#,
            canvas.0,
            object.map(ObjectKey::as_str),
            limit,
            copies,
            after.map(|(halted_at, _)| halted_at),
            after.map_or(Uuid::nil(), |(_, event)| event.0)
        );
        let rows = self.session().await?.all("list halted lanes", query).await?;
        let lanes = rows.into_iter().filter_map(|row| {
            let scope = address(canvas.0, &row.module, &row.name, "_").ok()?.scope;
            let lane = HaltedLane {
                lane: Lane {
                    scope,
                    object: row.object.parse().ok()?,
                    queue: row.queue.and_then(|queue| queue.parse().ok()),
                },
                event: EventId(row.event_id),
                event_seq: row.seq,
                halted_at: row.halted_at,
            };
            Some((lane, row.is_shown))
        });
        Ok(lanes.collect())
    }

    pub(in crate::store) async fn running(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        copies: bool,
        limit: i64,
    ) -> Result<Vec<InHand>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive own as (
                   (select e.id, e.module, e.name from wakeq.events_v2 e
                     where e.canvas_id = $1 and e.object = $2 and e.queue is null
                     order by e.module, e.name, e.seq limit 1)
                    union all
                   select next.* from own, lateral (
                       select e.id, e.module, e.name from wakeq.events_v2 e
                        where e.canvas_id = $1 and e.object = $2 and e.queue is null
                          and (e.module, e.name) > (own.module, own.name)
                        order by e.module, e.name, e.seq limit 1) as next
               ), copied as (
                   (select e.id, e.queue from wakeq.events_v2 e
                     where e.canvas_id = $1 and e.object = $2 and e.queue is not null order by e.queue, e.seq limit 1)
                    union all
                   select next.* from copied, lateral (
                       select e.id, e.queue from wakeq.events_v2 e
                        where e.canvas_id = $1 and e.object = $2 and e.queue > copied.queue
                        order by e.queue, e.seq limit 1) as next
               )
               select e.id, e.module::text as "module!", e.name::text as "name!", e.queue::text as queue, e.seq as "seq!",
                      e.prev as "prev!", e.worker::text as worker
                 from wakeq.events_v2 e
                where e.id = any (array(select id from own union all
                                        select id from copied where $4 or wakeq.is_shown(queue)))
                  and e.locked_at >= now() - $3::interval
                order by e.queue nulls first, e.module, e.name limit $5"#,
            canvas.0,
            object.as_str() as _,
            interval(self.timing().lease),
            copies,
            limit
        );
        let rows = self.session().await?.all("find the workers of an object", query).await?;
        let hands = rows.into_iter().filter_map(|row| {
            let scope = address(canvas.0, &row.module, &row.name, "_").ok()?.scope;
            let queue = row.queue.and_then(|queue| queue.parse().ok());
            Some(InHand {
                lane: Lane { scope, object: object.clone(), queue },
                event: EventId(row.id),
                link: Link { id: row.seq, prev: row.prev },
                worker: row.worker.and_then(|name| name.parse().ok()),
            })
        });
        Ok(hands.collect())
    }

    pub(in crate::store) async fn skip_lane(
        &self,
        lane: &Lane,
        copies: bool,
        actor: &Actor,
    ) -> Result<Vec<Lane>, StoreError> {
        let HandlerScope { canvas, module, name } = &lane.scope;
        let query = sqlx::query!(
            "with gone as (
                 delete from wakeq.halted_lanes
                  where canvas_id = $1 and object = $2 and module = $3 and name = $4 and module <> ''
                    and ($8 or queue is null or wakeq.is_shown(queue))
              returning event_id, queue, seq, prev
             ), passed_over as (
                 insert into wakeq.tombstones (canvas_id, object, seq, queue, prev, cause)
                 select $1, $2, seq, coalesce(queue, ''), prev, 'dead' from gone
                     on conflict do nothing
             ), logged as (
             insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
             select $1, $5, 'skip', $3, $4, event_id, 'done', $6, $7 from gone
             ), armed as (
                 update wakeq.events_v2 e
                    set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $9, $10), probes = 0
                  where e.id = any (array(
                      select x.id from wakeq.events_v2 x
                       where x.id = any (array(select wakeq.first_of_lane($1, $2, queue, $3, $4) from gone))
                         and (x.locked_at is null or x.locked_at < clock_timestamp() - $11::interval) for update skip locked))
             )
             select queue::text as queue from gone",
            canvas.0,
            lane.object.as_str() as _,
            module.as_str() as _,
            name.as_str() as _,
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            copies,
            interval(self.timing().horizon),
            interval(self.timing().grace),
            interval(self.timing().lease)
        );
        let queues = self.session().await?.all("resume an object", query).await?;
        let lanes = queues
            .into_iter()
            .map(|row| Lane { queue: row.queue.and_then(|queue| queue.parse().ok()), ..lane.clone() });
        Ok(lanes.collect())
    }
}

/// Lanes as columns, for `unnest`.
#[derive(Default)]
struct LaneColumns {
    canvases: Vec<Uuid>,
    objects: Vec<String>,
    modules: Vec<String>,
    names: Vec<String>,
    queues: Vec<Option<String>>,
}

impl LaneColumns {
    fn of(lanes: &[Lane]) -> Self {
        let mut columns = Self::default();
        for Lane { scope, object, queue } in lanes {
            columns.canvases.push(scope.canvas.0);
            columns.objects.push(object.to_string());
            columns.modules.push(scope.module.to_string());
            columns.names.push(scope.name.to_string());
            columns.queues.push(queue.as_ref().map(Name::to_string));
        }
        columns
    }
}
