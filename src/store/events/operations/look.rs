//! Which of the next events an operation is about. Changes nothing, and holds nothing.

use uuid::Uuid;

use crate::event::{CanvasId, EventFilter, EventId, Name, OperationKind, Timestamp};
use crate::store::kernel::{Sql, StoreError, interval};

/// The events of an operation, or of one that may be begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationEvents<'o> {
    pub(crate) canvas: CanvasId,
    pub(crate) kind: &'o OperationKind,
    pub(crate) filter: &'o EventFilter,
    /// Those that are named, sorted, in place of a filter.
    pub(crate) ids: Option<&'o [EventId]>,
    /// Only those that were emitted or, of dead ones, died before this.
    pub(crate) before: Timestamp,
    /// Whether copies are meant that their queue does not show.
    pub(crate) copies: bool,
}

/// Where a look ended: the key of the last event in the order of the index that it reads, which of
/// dead events has no handler in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperationPosition {
    pub(crate) module: String,
    pub(crate) name: String,
    pub(crate) at: Timestamp,
    pub(crate) id: Uuid,
}

/// What a look found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looked {
    /// How many events it looked at: fewer than it may if there are no more.
    pub(crate) looked_at: u64,
    /// How many of them match.
    pub(crate) matched: u64,
    /// Those that match, in their order, if they were asked for.
    pub(crate) ids: Vec<EventId>,
    /// Where it ended; `None` if there was nothing.
    pub(crate) last: Option<OperationPosition>,
}

/// What a look reads: at most this many of the events, after where the last one ended.
#[derive(Clone, Copy)]
struct Look<'l> {
    events: OperationEvents<'l>,
    after: Option<&'l OperationPosition>,
    limit: u64,
    wants_ids: bool,
}

struct LookedRow {
    looked_at: i64,
    ids: Vec<Uuid>,
    matched: i64,
    last_module: Option<String>,
    last_name: Option<String>,
    last_at: Option<Timestamp>,
    last_id: Option<Uuid>,
}

impl LookedRow {
    fn into_looked(self) -> Looked {
        let last = self.last_at.zip(self.last_id).map(|(at, id)| OperationPosition {
            module: self.last_module.unwrap_or_default(),
            name: self.last_name.unwrap_or_default(),
            at,
            id,
        });
        Looked {
            looked_at: self.looked_at.unsigned_abs(),
            matched: self.matched.unsigned_abs(),
            ids: self.ids.into_iter().map(EventId).collect(),
            last,
        }
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn look_for_operation(
        &self,
        events: OperationEvents<'_>,
        after: Option<&OperationPosition>,
        limit: u64,
        wants_ids: bool,
    ) -> Result<Looked, StoreError> {
        let look = Look { events, after, limit, wants_ids };
        let looked = match (events.ids, events.kind.of_dead()) {
            (Some(ids), true) => self.look_at_named_dead(look, ids).await?,
            (Some(ids), false) => self.look_at_named_live(look, ids).await?,
            (None, true) => self.look_at_dead(look).await?,
            (None, false) => self.look_at_live(look).await?,
        };
        Ok(looked.into_looked())
    }

    /// The next events that have not ended, in the order of the index of handlers. As in a list,
    /// the last handler is looked up first, so that they are a range of the index whatever the
    /// planner knows. State and value are only read if the filter asks for them.
    async fn look_at_live(&self, look: Look<'_>) -> Result<LookedRow, StoreError> {
        let Look { events, after, limit, wants_ids } = look;
        let (module, name) = events.filter.range();
        let (module, name) = (module.as_ref().map(Name::as_str), name.as_ref().map(Name::as_str));
        let query = sqlx::query_as!(
            LookedRow,
            r#"with module as (
                   select coalesce($2::text, (select module::text from wakeq.events_v2 where canvas_id = $1 and delay_until > '-infinity'
                                               order by canvas_id desc, module desc limit 1)) as last
               ), name as (
                   select coalesce($3::text, (select name::text from wakeq.events_v2 where canvas_id = $1 and module = (select last from module)
                                                 and delay_until > '-infinity' order by canvas_id desc, module desc, name desc limit 1)) as last
               ), asked as materialized (
                   select $10::text::jsonb as filter, $10::text::jsonb ?| array['value', 'value_text'] as reads_value
               ), page as materialized (
                   select e.*, row_number() over () as number from (
                       select e.id, e.canvas_id, e.module, e.name, e.modifier, e.delay_until, e.enqueued_at, e.queue, e.object, e.options,
                              e.last_error, e.worker, e.starts_at, coalesce(e.locked_at >= now() - $9::interval, false) as runs,
                              case when (select reads_value from asked) then e.value end as value
                         from wakeq.events_v2 e where e.canvas_id = $1 and e.delay_until > '-infinity'
                          and (e.module, e.name, e.delay_until, e.id) > ($4::text, $5::text, coalesce($6::timestamptz, '-infinity'), $7::uuid)
                          and (e.module, e.name) <= ((select last from module), (select last from name))
                        order by e.canvas_id, e.module, e.name, e.delay_until, e.id limit $8) as e
               ), looked as (
                   select p.id, p.number,
                          case when p.queue is null and p.enqueued_at < $11 and ($12 or not p.runs) then wakeq.matches((select filter from asked), p.module, p.name, p.modifier,
                              case when (select filter ? 'states' from asked) then (select case
                                  when p.object is not null
                                   and wakeq.lane_halts(p.canvas_id, p.object, null, p.module, p.name) then 'halted'
                                  when p.object is not null
                                   and p.id <> wakeq.first_of_lane(p.canvas_id, p.object, null, p.module, p.name) then 'behind'
                                  when p.delay_until > now() then 'delayed'
                                  when p.runs then 'running'
                                  else coalesce((
                                      select case greatest(max(r.rule_type), (select wakeq.switch_on($1, null, now())))
                                             when 'block' then 'blocked' when 'pause' then 'paused' end
                                        from wakeq.scheduling_rules r
                                       where r.canvas_id = p.canvas_id and r.event_space = p.module and r.handler_name = p.name
                                         and (r.until is null or r.until > now())),
                                      case when p.starts_at is not null and (
                                               select w.woken_at is null from wakeq.limit_waits w where w.event_id = p.id)
                                           then 'limited' else 'ready' end) end) end,
                              case when p.runs then p.worker end, p.options->'tags', p.enqueued_at, p.delay_until, null, null,
                              p.last_error, p.value, p.object, p.options ->> 'batch',
                              case when (select filter ? 'waits_for' from asked) and p.starts_at is not null
                                   then (select w.name from wakeq.limit_waits w where w.event_id = p.id) end)
                          else false end as matches
                     from page p
               )
               select (select count(*) from page) as "looked_at!", count(m.id) as "matched!",
                      case when $13 then coalesce(array_agg(m.id order by m.number) filter (where m.id is not null), '{}') else '{}' end as "ids!",
                      max(l.module::text) as last_module, max(l.name::text) as last_name, max(l.delay_until) as last_at, (array_agg(l.id))[1] as last_id
                 from (values (1)) as one left join (select * from page order by number desc limit 1) as l on true left join looked m on m.matches"#,
            events.canvas.0,
            module,
            name,
            after.map_or(module.unwrap_or_default(), |after| &after.module),
            after.map_or(name.unwrap_or_default(), |after| &after.name),
            after.map(|after| after.at),
            after.map_or(Uuid::nil(), |after| after.id),
            limit.cast_signed(),
            interval(self.timing().lease),
            events.filter.json(),
            events.before,
            events.kind.of_running(),
            wants_ids
        );
        self.session().await?.one("look for the events of an operation", query).await
    }

    /// The next dead events, the oldest first, whatever their handler.
    async fn look_at_dead(&self, look: Look<'_>) -> Result<LookedRow, StoreError> {
        let Look { events, after, limit, wants_ids } = look;
        let query = sqlx::query_as!(
            LookedRow,
            r#"with asked as materialized (
                   select $6::text::jsonb as filter, $6::text::jsonb ?| array['value', 'value_text'] as reads_value
               ), page as materialized (
                   select d.*, row_number() over () as number from (
                       select d.id, d.canvas_id, d.module, d.name, d.modifier, d.died_at, d.enqueued_at, d.queue, d.object, d.options, d.error_group, d.last_error,
                              case when (select reads_value from asked) then d.value end as value
                         from wakeq.dead_events d where d.canvas_id = $1 and d.died_at > '-infinity' and d.died_at < $4
                          and (d.died_at, d.id) > (coalesce($2::timestamptz, '-infinity'), $3::uuid)
                        order by d.died_at, d.id limit $5) as d
               ), looked as (
                   select p.id, p.number,
                          case when ($7 or p.queue is null or wakeq.is_shown(p.queue))
                                and not ($8 and exists (select from wakeq.events_v2 e where e.id = p.id and e.canvas_id = $1 offset 0))
                          then wakeq.matches((select filter from asked), p.module, p.name, p.modifier, 'dead', null,
                                             p.options->'tags', p.enqueued_at, null, p.died_at, p.error_group, p.last_error, p.value, p.object,
                                             p.options ->> 'batch')
                          else false end as matches
                     from page p
               )
               select (select count(*) from page) as "looked_at!", count(m.id) as "matched!",
                      case when $9 then coalesce(array_agg(m.id order by m.number) filter (where m.id is not null), '{}') else '{}' end as "ids!",
                      null::text as last_module, null::text as last_name, max(l.died_at) as last_at, (array_agg(l.id))[1] as last_id
                 from (values (1)) as one
                 left join (select * from page order by number desc limit 1) as l on true
                 left join looked m on m.matches"#,
            events.canvas.0,
            after.map(|after| after.at),
            after.map_or(Uuid::nil(), |after| after.id),
            events.before,
            limit.cast_signed(),
            events.filter.json(),
            events.copies,
            *events.kind == OperationKind::Redrive,
            wants_ids
        );
        self.session().await?.one("look for the dead events of an operation", query).await
    }

    /// The next of the events that are named and have not ended, in the order of what they are
    /// named by: each by its own id or, if there is none, by the one that its caller chose.
    async fn look_at_named_live(&self, look: Look<'_>, ids: &[EventId]) -> Result<LookedRow, StoreError> {
        let Look { events, after, limit, wants_ids } = look;
        let (ids, chosen) = named(events.canvas, ids);
        let query = sqlx::query_as!(
            LookedRow,
            r#"with page as materialized (
                   select a.id, a.chosen from unnest($2::uuid[], $3::uuid[]) as a (id, chosen)
                    where a.id >= $4 and a.id is distinct from $5::uuid order by a.id limit $6
               ), looked as (
                   select p.id as asked, e.id
                     from page p left join lateral (
                          select e.id from unnest(array[p.id, p.chosen]) with ordinality as one (id, place)
                           cross join lateral (
                                 select x.id from wakeq.events_v2 x
                                  where x.id = one.id and x.canvas_id is not distinct from $1 and x.queue is null
                                    and x.enqueued_at < $7
                                    and ($8 or not coalesce(x.locked_at >= now() - $9::interval, false)) offset 0) as e
                           order by one.place limit 1) as e on true
               )
               select count(*) as "looked_at!", count(l.id) as "matched!",
                      case when $10 then coalesce(array_agg(l.id order by l.asked) filter (where l.id is not null), '{}')
                           else '{}' end as "ids!",
                      null::text as last_module, null::text as last_name,
                      case when count(*) > 0 then 'epoch'::timestamptz end as last_at,
                      (array_agg(l.asked order by l.asked desc))[1] as last_id
                 from looked l"#,
            events.canvas.0,
            &ids,
            &chosen,
            after.map_or(Uuid::nil(), |after| after.id),
            after.map(|after| after.id),
            limit.cast_signed(),
            events.before,
            events.kind.of_running(),
            interval(self.timing().lease),
            wants_ids
        );
        self.session().await?.one("look for the named events of an operation", query).await
    }

    /// The same of dead events.
    async fn look_at_named_dead(&self, look: Look<'_>, ids: &[EventId]) -> Result<LookedRow, StoreError> {
        let Look { events, after, limit, wants_ids } = look;
        let (ids, chosen) = named(events.canvas, ids);
        let query = sqlx::query_as!(
            LookedRow,
            r#"with page as materialized (
                   select a.id, a.chosen from unnest($2::uuid[], $3::uuid[]) as a (id, chosen)
                    where a.id >= $4 and a.id is distinct from $5::uuid order by a.id limit $6
               ), looked as (
                   select p.id as asked, d.id
                     from page p left join lateral (
                          select d.id from unnest(array[p.id, p.chosen]) with ordinality as one (id, place)
                           cross join lateral (
                                 select x.id from wakeq.dead_events x
                                  where x.canvas_id = $1 and x.id = one.id and x.died_at < $7
                                    and ($8 or x.queue is null or wakeq.is_shown(x.queue))
                                    and not ($9 and exists (
                                        select from wakeq.events_v2 e
                                         where e.id = x.id and e.canvas_id = $1 offset 0)) offset 0) as d
                           order by one.place limit 1) as d on true
               )
               select count(*) as "looked_at!", count(l.id) as "matched!",
                      case when $10 then coalesce(array_agg(l.id order by l.asked) filter (where l.id is not null), '{}')
                           else '{}' end as "ids!",
                      null::text as last_module, null::text as last_name,
                      case when count(*) > 0 then 'epoch'::timestamptz end as last_at,
                      (array_agg(l.asked order by l.asked desc))[1] as last_id
                 from looked l"#,
            events.canvas.0,
            &ids,
            &chosen,
            after.map_or(Uuid::nil(), |after| after.id),
            after.map(|after| after.id),
            limit.cast_signed(),
            events.before,
            events.copies,
            *events.kind == OperationKind::Redrive,
            wants_ids
        );
        self.session().await?.one("look for the named dead events of an operation", query).await
    }
}

/// The ids that events are named by, and what each would be as a chosen one.
fn named(canvas: CanvasId, ids: &[EventId]) -> (Vec<Uuid>, Vec<Uuid>) {
    ids.iter().map(|id| (id.0, EventId::chosen(canvas, *id).0)).unzip()
}
