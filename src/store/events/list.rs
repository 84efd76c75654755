//! The events of a canvas, page by page, in the order of the index of handlers.

use uuid::Uuid;

use crate::event::{
    BatchName, CanvasId, CopyOf, EventFilter, EventId, HandlerAddress, LimitName, Name, ObjectKey, Place,
    RuleKind, Schedule, Tag, Timestamp, Turn,
};
use crate::store::kernel::{Sql, StoreError, address, interval};

/// Where a page ended: the key of the last event that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) module: String,
    pub(crate) name: String,
    pub(crate) delay_until: Timestamp,
    pub(crate) id: EventId,
    /// Of an event on an object: the link before its own.
    pub(crate) prev: Option<i64>,
}

/// An event in a list.
#[derive(Clone, Debug)]
pub(crate) struct ListedEvent {
    pub(crate) id: EventId,
    pub(crate) address: HandlerAddress,
    pub(crate) schedule: Schedule,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) retries: i32,
    pub(crate) losses: i32,
    pub(crate) place: Option<Place>,
    /// It waits for a place of a limit.
    pub(crate) waits: bool,
    /// The worker that has it, while its lease stands.
    pub(crate) worker: Option<Name>,
    pub(crate) copy_of: Option<CopyOf>,
    pub(crate) tags: Vec<Tag>,
    /// Whether it meets the filter and may be shown, as a copy may whose queue shows it. If not, it
    /// only marks the end of what was looked at.
    pub(crate) is_meant: bool,
    /// Its number among the rows that were looked at, from 1.
    pub(crate) number: i64,
    /// Whether it is the last row that was looked at, and if so, whether there may be others.
    pub(crate) last: Option<bool>,
}

impl ListedEvent {
    /// Its place in the list.
    pub(crate) fn position(&self) -> Position {
        let scope = &self.address.scope;
        let (module, name) = (scope.module.to_string(), scope.name.to_string());
        let prev = self.place.as_ref().map(|place| place.link.prev);
        Position { module, name, delay_until: self.schedule.delay_until, id: self.id, prev }
    }
}

/// A query for [`ListedRow`]s: those that a filter selects among the rows of a source, which is the
/// end of a select of up to `$2` events, in their order.
///
/// The last handler is looked up first, so that the source is a range of an index whatever the
/// planner knows. Values are read only if the filter asks for what is in them, and then up to 32
/// MiB of them.
macro_rules! listed_rows {
    ($source:literal, $($argument:tt)*) => {
        sqlx::query_as!(
            ListedRow,
            r#"with module as (
                   select coalesce($8::text, (select module::text from wakeq.events_v2 where canvas_id = $1
                             and delay_until > '-infinity' order by canvas_id desc, module desc limit 1)) as last
               ), name as (
                   select coalesce($9::text, (select name::text from wakeq.events_v2 where canvas_id = $1
                             and module = (select last from module) and delay_until > '-infinity'
                           order by canvas_id desc, module desc, name desc limit 1)) as last
               ), looked as (
                   select e.*, row_number() over seen as number, sum(e.value_bytes) over seen as bytes,
                          lead(e.value_bytes) over seen as next_bytes
                     from (
                       select e.id, e.canvas_id, e.module, e.name, e.modifier, e.delay_until, e.enqueued_at,
                              e.locked_at, e.retries, e.losses, e.object, e.seq, e.prev, e.queue, e.origin,
                              e.last_error, e.options->'tags' as tags, e.options ->> 'batch' as batch, e.starts_at, case when $7 then e.value end as value,
                              case when $7 then octet_length(e.value) else 0 end as value_bytes,
                              case when e.locked_at >= now() - $3::interval then e.worker end as worker,
                              $6 or e.queue is null or wakeq.is_shown(e.queue) as is_shown "# + $source + r#") as e
                   window seen as (rows between unbounded preceding and current row)
               )
               select e.id as "id!", e.canvas_id as "canvas_id!", e.module::text as "module!", e.name::text as "name!",
                      e.modifier::text as "modifier!", e.delay_until as "delay_until!",
                      e.enqueued_at as "enqueued_at!", e.locked_at, e.retries as "retries!", e.losses as "losses!",
                      e.object::text as object, e.seq, e.prev, e.queue::text as queue, e.origin, e.tags::text as tags,
                      turn.word as turn, e.worker::text as worker, e.number as "number!",
                      limited.waits as "waits!", meant.is_meant as "is_meant!", rule.kind as rule, now() as "now!",
                      case when ends.is_last then e.number = $2 or e.next_bytes is not null end as last
                 from looked e, lateral (select greatest(max(r.rule_type), case
                                    when e.queue is null then (select wakeq.switch_on($1, null, now()))
                                    when (select exists (
                                        select from wakeq.scheduling_rules where event_space = 'CANVAS'))
                                    then wakeq.switch_on(e.canvas_id, e.queue, now()) end)::text as kind
                                 from wakeq.scheduling_rules r
                                where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
                                  and (r.until is null or r.until > now())
                                  and (e.queue is null or wakeq.is_shown(e.queue))) as rule,
                      lateral (select case
                           when e.object is not null
                            and wakeq.lane_halts(e.canvas_id, e.object, e.queue, e.module, e.name) then 'halted'
                           when e.object is not null
                            and e.id <> wakeq.first_of_lane(e.canvas_id, e.object, e.queue, e.module, e.name) then 'behind'
                           when e.queue is not null and e.delay_until <= now()
                            and not coalesce(e.locked_at >= now() - $3::interval, false)
                            and wakeq.facet_holds(e.queue, e.canvas_id, $3::interval) then 'held' end as word) as turn,
                      lateral (select coalesce(bool_or(w.woken_at is null), false) as waits, max(w.name) as name
                                 from wakeq.limit_waits w where e.starts_at is not null and w.event_id = e.id) as limited,
                      lateral (select case when turn.word is not null then turn.word
                                           when e.delay_until > now() then 'delayed'
                                           when e.locked_at >= now() - $3::interval then 'running'
                                           when rule.kind = 'block' then 'blocked'
                                           when rule.kind = 'pause' then 'paused'
                                           when limited.waits then 'limited'
                                           else 'ready' end as state) as stands,
                      lateral (select e.is_shown and ($4::text is null or wakeq.matches((select $4::text::jsonb),
                                  e.module, e.name, e.modifier, stands.state, e.worker, e.tags, e.enqueued_at,
                                  e.delay_until, null, null, e.last_error, e.value, e.object, e.batch, limited.name)) as is_meant) as meant,
                      lateral (select coalesce(e.bytes + e.next_bytes > 33554432, true) as is_last) as ends
                where (e.bytes <= 33554432 or e.number = 1) and (meant.is_meant or ends.is_last)
                order by e.number limit $5"#,
            $($argument)*
        )
    };
}

impl Sql<'_> {
    /// The object of a filter finds the events, if it has one; else its batch, the limit that they
    /// wait for, or its first tag.
    pub(in crate::store) async fn events(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        looks: (i64, i64),
    ) -> Result<Vec<ListedEvent>, StoreError> {
        let rows = match (&filter.object, &filter.batch, filter.limit_in_index(), filter.tags.first()) {
            (Some(object), ..) => self.rows_of_object(canvas, (filter, object), copies, after, looks).await?,
            (None, Some(batch), ..) => {
                self.rows_of_batch(canvas, (filter, batch), copies, after, looks).await?
            }
            (None, None, Some(limit), _) => {
                self.rows_at_limit(canvas, (filter, limit), copies, after, looks).await?
            }
            (None, None, None, Some(tag)) => {
                self.tagged_rows(canvas, (filter, tag), copies, after, looks).await?
            }
            (None, None, None, None) => self.rows_by_handler(canvas, filter, copies, after, looks).await?,
        };
        Ok(rows.into_iter().filter_map(ListedRow::into_listed).collect())
    }

    async fn rows_by_handler(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        copies: bool,
        after: Option<&Position>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<ListedRow>, StoreError> {
        let (module, name) = filter.range();
        let (module, name) = (module.as_ref().map(Name::as_str), name.as_ref().map(Name::as_str));
        let query = listed_rows!(
            r#" from wakeq.events_v2 e where e.canvas_id = $1 and e.delay_until > '-infinity'
                 and (e.module, e.name, e.delay_until, e.id)
                     > ($10::text, $11::text, coalesce($12::timestamptz, '-infinity'), $13::uuid)
                 and (e.module, e.name) <= ((select last from module), (select last from name))
               order by e.canvas_id, e.module, e.name, e.delay_until, e.id limit $2"#,
            canvas.0,
            look,
            interval(self.timing().lease),
            filter.asks_more().then(|| filter.json()),
            limit,
            copies,
            filter.looks_inside(),
            module,
            name,
            after.map_or(module.unwrap_or_default(), |after| &after.module),
            after.map_or(name.unwrap_or_default(), |after| &after.name),
            after.map(|after| after.delay_until),
            after.map_or(Uuid::nil(), |after| after.id.0)
        );
        self.session().await?.all("list events", query).await
    }

    /// In the order of the object's chain.
    async fn rows_of_object(
        &self,
        canvas: CanvasId,
        (filter, object): (&EventFilter, &ObjectKey),
        copies: bool,
        after: Option<&Position>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<ListedRow>, StoreError> {
        let (module, name) = filter.handler();
        let query = listed_rows!(
            r#" from wakeq.events_of_object($1, $10::text, $11::bigint, $2) with ordinality as t (id, place)
               cross join lateral (
                     select x.* from wakeq.events_v2 x where x.id = t.id and x.canvas_id is not distinct from $1
                     offset 0) as e
               order by t.place"#,
            canvas.0,
            look,
            interval(self.timing().lease),
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            module.as_ref().map(Name::as_str),
            name.as_ref().map(Name::as_str),
            object.as_str(),
            after.and_then(|after| after.prev).unwrap_or(-1)
        );
        self.session().await?.all("list the events on an object", query).await
    }

    /// In the order of the members' ids.
    async fn rows_of_batch(
        &self,
        canvas: CanvasId,
        (filter, batch): (&EventFilter, &BatchName),
        copies: bool,
        after: Option<&Position>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<ListedRow>, StoreError> {
        let (module, name) = filter.handler();
        let query = listed_rows!(
            r#" from wakeq.events_of_batch($1, $10::text, $11::uuid, $2) with ordinality as t (id, place)
               cross join lateral (
                     select x.* from wakeq.events_v2 x where x.id = t.id and x.canvas_id is not distinct from $1
                     offset 0) as e
               order by t.place"#,
            canvas.0,
            look,
            interval(self.timing().lease),
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            module.as_ref().map(Name::as_str),
            name.as_ref().map(Name::as_str),
            batch.as_str(),
            after.map_or(Uuid::nil(), |after| after.id.0)
        );
        self.session().await?.all("list the members of a batch", query).await
    }

    /// In the order of the ids of what waits.
    async fn rows_at_limit(
        &self,
        canvas: CanvasId,
        (filter, limit_name): (&EventFilter, &LimitName),
        copies: bool,
        after: Option<&Position>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<ListedRow>, StoreError> {
        let (module, name) = filter.handler();
        let query = listed_rows!(
            r#" from wakeq.events_at_limit($1, $10::text, $11::uuid, $2) with ordinality as t (id, place)
               cross join lateral (
                     select x.* from wakeq.events_v2 x where x.id = t.id and x.canvas_id is not distinct from $1
                     offset 0) as e
               order by t.place"#,
            canvas.0,
            look,
            interval(self.timing().lease),
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            module.as_ref().map(Name::as_str),
            name.as_ref().map(Name::as_str),
            limit_name.as_str(),
            after.map_or(Uuid::nil(), |after| after.id.0)
        );
        self.session().await?.all("list what waits for a limit", query).await
    }

    async fn tagged_rows(
        &self,
        canvas: CanvasId,
        (filter, tag): (&EventFilter, &Tag),
        copies: bool,
        after: Option<&Position>,
        (look, limit): (i64, i64),
    ) -> Result<Vec<ListedRow>, StoreError> {
        let (module, name) = filter.handler();
        let (module, name) = (module.as_ref().map(Name::as_str), name.as_ref().map(Name::as_str));
        let query = listed_rows!(
            r#" from wakeq.tagged_events(
                     $1, $14::text, (select last from module), (select last from name), $10::text, $11::text,
                     coalesce($12::timestamptz, '-infinity'), $13::uuid, $2) with ordinality as t (id, place)
               cross join lateral (
                     select x.* from wakeq.events_v2 x where x.id = t.id and x.canvas_id is not distinct from $1
                     offset 0) as e
               order by t.place"#,
            canvas.0,
            look,
            interval(self.timing().lease),
            filter.json(),
            limit,
            copies,
            filter.looks_inside(),
            module,
            name,
            after.map_or(module.unwrap_or_default(), |after| &after.module),
            after.map_or(name.unwrap_or_default(), |after| &after.name),
            after.map(|after| after.delay_until),
            after.map_or(Uuid::nil(), |after| after.id.0),
            tag.as_str()
        );
        self.session().await?.all("list tagged events", query).await
    }
}

struct ListedRow {
    id: Uuid,
    canvas_id: Uuid,
    module: String,
    name: String,
    modifier: String,
    delay_until: Timestamp,
    enqueued_at: Timestamp,
    locked_at: Option<Timestamp>,
    retries: i32,
    losses: i32,
    object: Option<String>,
    seq: Option<i64>,
    prev: Option<i64>,
    queue: Option<String>,
    origin: Option<Uuid>,
    tags: Option<String>,
    worker: Option<String>,
    turn: Option<String>,
    waits: bool,
    number: i64,
    is_meant: bool,
    last: Option<bool>,
    rule: Option<String>,
    now: Timestamp,
}

impl ListedRow {
    fn into_listed(self) -> Option<ListedEvent> {
        let rule = self.rule.as_deref().and_then(|kind| kind.parse::<RuleKind>().ok());
        let (delay_until, locked_at, now) = (self.delay_until, self.locked_at, self.now);
        Some(ListedEvent {
            id: EventId(self.id),
            address: address(self.canvas_id, &self.module, &self.name, &self.modifier).ok()?,
            schedule: Schedule { delay_until, locked_at, rule, turn: Turn::parse(self.turn.as_deref()), now },
            enqueued_at: self.enqueued_at,
            retries: self.retries,
            losses: self.losses,
            waits: self.waits,
            worker: self.worker.and_then(|name| name.parse().ok()),
            place: Place::of(self.object.as_deref(), self.seq, self.prev),
            copy_of: CopyOf::of(self.queue.as_deref(), self.origin),
            tags: tags_of(self.tags.as_deref()),
            is_meant: self.is_meant,
            number: self.number,
            last: self.last,
        })
    }
}

/// The tags in an array of JSON. What another program wrote there and is not one counts as none.
fn tags_of(array: Option<&str>) -> Vec<Tag> {
    array.and_then(|array| serde_json::from_str(array).ok()).unwrap_or_default()
}
