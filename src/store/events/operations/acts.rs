//! What a page of an operation does to its events: a statement for each kind. What an operator does
//! to one event is in `control.rs`, `cancelling.rs` and `dead_events.rs`, and has the same effect.

use std::collections::BTreeSet;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::look::OperationEvents;
use crate::event::{
    Actor, CanvasId, EventId, HandlerScope, HeldLimit, Lane, Notification, ObjectKey, OperationKind, Tag,
    Timestamp, Timing,
};
use crate::store::events::dead_events::redrive_ids;
use crate::store::events::load::DeadFilter;
use crate::store::kernel::{StoreError, address, interval};

/// What was done to the events of a page.
#[derive(Debug, Default)]
pub(super) struct Act {
    /// How many were changed.
    pub(super) changed: u64,
    /// To be published.
    pub(super) notifications: Vec<Notification>,
    /// Lanes whose next events have to be woken.
    pub(super) lanes: Vec<Lane>,
    /// Limits at which places were kept for events that are gone.
    pub(super) limits: Vec<HeldLimit>,
    /// Whether workers have to learn that events that they run are cancelled.
    pub(super) stops: bool,
}

/// Events of a canvas, and in whose name they are changed.
#[derive(Clone, Copy)]
struct Meant<'a> {
    canvas: CanvasId,
    ids: &'a [Uuid],
    actor: &'a Actor,
    timing: &'a Timing,
    /// Only dead events that died before this.
    before: Timestamp,
}

impl Act {
    /// Does it to these events. Those that others hold beyond the lock timeout are left.
    pub(super) async fn of(
        transaction: &mut PgConnection,
        events: OperationEvents<'_>,
        ids: &[EventId],
        actor: &Actor,
        timing: &Timing,
    ) -> Result<Self, sqlx::Error> {
        let canvas = events.canvas;
        let mut ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        if !events.kind.of_dead() {
            ids = lock(&mut *transaction, canvas, &ids).await?;
        }
        let meant = Meant { canvas, ids: &ids, actor, timing, before: events.before };
        match events.kind {
            OperationKind::Cancel => remove(transaction, meant, true).await,
            OperationKind::Delete => remove(transaction, meant, false).await,
            OperationKind::RunNow => run_now(transaction, meant).await,
            OperationKind::Retag { add, remove } => retag(transaction, meant, add, remove).await,
            OperationKind::Redrive => redrive(transaction, meant).await,
            OperationKind::DeleteDead => delete_dead(transaction, meant).await,
        }
    }

    fn counting(changed: i64) -> Self {
        Self { changed: changed.unsigned_abs(), ..Self::default() }
    }
}

/// Locks the events in the order of their ids, as everywhere. If others hold one of them for too
/// long, those that nobody holds.
async fn lock(
    transaction: &mut PgConnection,
    canvas: CanvasId,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, sqlx::Error> {
    let mut attempt = transaction.begin().await?;
    let waited = sqlx::query_scalar!(
        "select id from wakeq.events_v2 where id = any ($1) and canvas_id = $2 and queue is null order by id for update",
        ids,
        canvas.0
    )
    .fetch_all(&mut *attempt)
    .await;
    match waited {
        Err(error) if StoreError::is_refused_lock(&error) => attempt.rollback().await?,
        waited => {
            let ids = waited?;
            attempt.commit().await?;
            return Ok(ids);
        }
    }
    sqlx::query_scalar!(
        "select id from wakeq.events_v2 where id = any ($1) and canvas_id = $2 and queue is null
          order by id for update skip locked",
        ids,
        canvas.0
    )
    .fetch_all(transaction)
    .await
}

/// Deletes those that wait. Where running ones are cancelled, too, their rows say so from then on.
async fn remove(transaction: &mut PgConnection, meant: Meant<'_>, cancels: bool) -> Result<Act, sqlx::Error> {
    let Meant { canvas, ids, actor, timing, .. } = meant;
    let row = sqlx::query!(
        r#"with gone as (
               delete from wakeq.events_v2 e
                where id = any ($1) and canvas_id = $2 and (locked_at is null or locked_at < clock_timestamp() - $3::interval)
            returning id, module, name, object, seq, prev, options ->> 'batch' as batch, e as event
           ), counted as (
               insert into wakeq.batch_ends (canvas_id, batch, completed, cancelled)
               select $2, batch, -count(*), count(*) from gone where batch is not null group by batch
           ), kept as (
               select wakeq.keep_ended(event, wakeq.keep_of(event, null, 'cancelled'), 'cancelled', null, null, null, $5) from gone where $4
           ), asked as (
               update wakeq.events_v2 set cancelled_by = $5
                where $4 and id = any ($1) and canvas_id = $2 and cancelled_by is null
                  and coalesce(locked_at >= clock_timestamp() - $3::interval, false)
            returning id
           ), lanes as (
               select distinct module, name, object from gone where object is not null
           ), passed_over as (
               insert into wakeq.tombstones (canvas_id, object, seq, prev, cause)
               select $2, object, seq, prev, case when $4 then 'cancelled' else 'purged' end from gone where object is not null
                   on conflict do nothing
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, times, detail)
               select $2, $5, case when $4 then 'cancel' else 'purge' end, 'done', count(*), $6 from gone having count(*) > 0
                union all
               select $2, $5, 'cancel-running', 'done', count(*), $6 from asked having count(*) > 0
           ), armed as (
               update wakeq.events_v2 e
                  set notify_at = wakeq.wake_at(e.delay_until, statement_timestamp(), $7, $8), probes = 0
                where e.id = any (array(
                    select x.id from wakeq.events_v2 x
                     where x.id = any (array(
                         select wakeq.first_without($2, object, null, module, name, array(select id from gone)) from lanes))
                       and (x.locked_at is null or x.locked_at < clock_timestamp() - $3::interval) for update skip locked))
           )
           select greatest((select count(*) from gone), (select count(*) from kept)) as "gone!", (select count(*) from asked) as "asked!",
                  array(select module::text || '/' || name::text || '/' || object::text from lanes) as "lanes!",
                  wakeq.places_kept(array(select id from gone)) as "limits!""#,
        ids,
        canvas.0,
        interval(timing.lease),
        cancels,
        actor.name(),
        actor.credential_id(),
        interval(timing.horizon),
        interval(timing.grace)
    )
    .fetch_one(transaction)
    .await?;
    let lanes = row.lanes.iter().filter_map(|text| lane(canvas, text)).collect();
    let limits = row.limits.iter().filter_map(|limit| HeldLimit::parse(limit)).collect();
    Ok(Act { lanes, limits, stops: row.asked > 0, ..Act::counting(row.gone + row.asked) })
}

/// A lane from the text of its handler and its object.
fn lane(canvas: CanvasId, text: &str) -> Option<Lane> {
    let (module, rest) = text.split_once('/')?;
    let (name, object) = rest.split_once('/')?;
    let scope: HandlerScope = address(canvas.0, module, name, "_").ok()?.scope;
    Some(Lane { scope, object: object.parse().ok()?, queue: None })
}

/// Makes those due that wait. What a rule holds stays parked, and is woken when the rule is lifted.
async fn run_now(transaction: &mut PgConnection, meant: Meant<'_>) -> Result<Act, sqlx::Error> {
    let Meant { canvas, ids, actor, timing, .. } = meant;
    let row = sqlx::query!(
        r#"with due as (
               update wakeq.events_v2
                  set delay_until = least(delay_until, now()), probes = 0,
                      notify_at = case when notify_at is not null then wakeq.wake_at(now(), now(), $4, $5) end
                where id = any ($1) and canvas_id = $2 and (locked_at is null or locked_at < clock_timestamp() - $3::interval)
            returning id, notify_at
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, times, detail)
               select $2, $6, 'run-now', 'done', count(*), $7 from due having count(*) > 0
           )
           select (select count(*) from due) as "due!",
                  array(select id from due where notify_at is not null order by id) as "ids!""#,
        ids,
        canvas.0,
        interval(timing.lease),
        interval(timing.horizon),
        interval(timing.grace),
        actor.name(),
        actor.credential_id()
    )
    .fetch_one(transaction)
    .await?;
    let notifications = row.ids.into_iter().map(|id| Notification::new(EventId(id), canvas)).collect();
    Ok(Act { notifications, ..Act::counting(row.due) })
}

/// Changes the tags of those that would not have too many, nor too long options, afterwards. As
/// with the tags of one event, options that are too long already may get shorter.
async fn retag(
    transaction: &mut PgConnection,
    meant: Meant<'_>,
    add: &[Tag],
    remove: &[Tag],
) -> Result<Act, sqlx::Error> {
    let Meant { canvas, ids, actor, .. } = meant;
    let texts = |tags: &[Tag]| -> Vec<String> {
        // A tag that was named twice is one.
        let first =
            tags.iter().enumerate().filter(|(at, tag)| !tags.iter().take(*at).any(|before| before == *tag));
        first.map(|(_, tag)| tag.as_str().to_owned()).collect()
    };
    let changed = sqlx::query_scalar!(
        r#"with tagged as (
               select x.id, x.options, array(
                          select kept.tag from (
                              select tag, number from jsonb_array_elements_text(coalesce(x.options->'tags', '[]')) with ordinality as t (tag, number)
                               where tag <> all ($4)
                               union all
                              select tag, 100 + number from unnest($3::text[]) with ordinality as t (tag, number)
                               where not coalesce(x.options->'tags' ? tag, false)) as kept
                           order by kept.number) as tags
                 from wakeq.events_v2 x where x.id = any ($1) and x.canvas_id = $2
           ), wanted as (
               select id, case when cardinality(tags) = 0 then nullif(options - 'tags', '{}')
                               else coalesce(options, '{}') || jsonb_build_object('tags', tags) end as options
                 from tagged where cardinality(tags) <= 10
           ), retagged as (
               update wakeq.events_v2 e set options = w.options from wanted w
                where e.id = any (array[w.id]) and e.options is distinct from w.options
                  and coalesce(octet_length(w.options::text) <= greatest(4096, octet_length(e.options::text)), true)
            returning e.id
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, times, detail)
               select $2, $5, 'retag', 'done', count(*), $6 from retagged having count(*) > 0
           )
           select count(*) as "changed!" from retagged"#,
        ids,
        canvas.0,
        &texts(add),
        &texts(remove),
        actor.name(),
        actor.credential_id()
    )
    .fetch_one(transaction)
    .await?;
    Ok(Act::counting(changed))
}

/// Brings dead events back, in their order. Those that others hold are left, and so are those that
/// others have brought back since the look and that have died again.
async fn redrive(transaction: &mut PgConnection, meant: Meant<'_>) -> Result<Act, sqlx::Error> {
    let Meant { canvas, ids, actor, timing, before } = meant;
    let page = sqlx::query!(
        r#"select d.id as "id!", d.object::text as object
           from unnest($2::uuid[]) as asked (id) cross join lateral (
                select d.id, d.object, d.died_at from wakeq.dead_events d
                 where d.canvas_id = $1 and d.id = asked.id and d.died_at < $3 for update skip locked) as d
          where not exists (select from wakeq.events_v2 e where e.id = d.id and e.canvas_id = $1 offset 0)
          order by d.died_at, d.id"#,
        canvas.0,
        ids,
        before
    )
    .fetch_all(&mut *transaction)
    .await?;
    let objects: BTreeSet<ObjectKey> =
        page.iter().filter_map(|row| row.object.as_deref()?.parse().ok()).collect();
    let ids = page.into_iter().map(|row| row.id).collect();
    let filter = DeadFilter { canvas, ..DeadFilter::default() };
    let notifications = redrive_ids(transaction, &filter, (ids, &objects), actor, timing).await?;
    Ok(Act { changed: notifications.len() as u64, notifications, ..Act::default() })
}

async fn delete_dead(transaction: &mut PgConnection, meant: Meant<'_>) -> Result<Act, sqlx::Error> {
    let Meant { canvas, ids, actor, before, .. } = meant;
    let gone = sqlx::query_scalar!(
        r#"with gone as (
               delete from wakeq.dead_events d using (
                   select o.canvas_id, o.id from unnest($2::uuid[]) as asked (id) cross join lateral (
                          select o.canvas_id, o.id from wakeq.dead_events o
                           where o.canvas_id = $1 and o.id = asked.id and o.died_at < $5 for update skip locked) as o) as old
                where d.canvas_id = any (array[old.canvas_id]) and d.id = old.id
            returning d.id
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, times, detail)
               select $1, $3, 'delete-dead', 'done', count(*), $4 from gone having count(*) > 0
           )
           select count(*) as "gone!" from gone"#,
        canvas.0,
        ids,
        actor.name(),
        actor.credential_id(),
        before
    )
    .fetch_one(transaction)
    .await?;
    Ok(Act::counting(gone))
}
