//! Events that are no longer tried: listed, redriven, deleted.

use std::collections::BTreeSet;

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use super::chains;
use super::control::BULK_PAGE;
use super::load::{DeadEvent, DeadFilter, DeadRow, dead_rows};
use super::rows::bring_back;
use crate::event::{Actor, CanvasId, EventId, Notification, ObjectKey, Timestamp, Timing};
use crate::store::kernel::{Sql, StoreError};

/// How often a page is redriven whose ids are being emitted at that moment.
const REDRIVE_TRIES: usize = 3;
/// Statements of a redrive: begin, read, up to three for objects, the halted lanes, three for each
/// try, commit.
const REDRIVE_STATEMENTS: usize = 7 + 3 * REDRIVE_TRIES;

/// The outcome of a page of a redrive.
#[derive(Clone, Debug)]
pub(crate) struct RedriveOutcome {
    /// To be published now.
    pub(crate) back: Vec<Notification>,
    /// How many dead events were read: fewer than the limit if there are no others.
    pub(crate) looked: u64,
}

impl Sql<'_> {
    pub(in crate::store) async fn dead_events(
        &self,
        filter: &DeadFilter,
        copies: bool,
        after: Option<(Timestamp, EventId)>,
        limit: i64,
    ) -> Result<Vec<DeadEvent>, StoreError> {
        let query = dead_rows!(
            r#"
                where canvas_id = $1 and died_at > '-infinity'
                  and ($2::text is null or module = $2) and ($3::text is null or name = $3)
                  and ($4::uuid is null or id = $4)
                  and ($5::timestamptz is null or died_at >= $5) and ($6::timestamptz is null or died_at < $6)
                  and ($10 or queue is null or wakeq.is_shown(queue))
                  and (died_at, id) < (coalesce($8::timestamptz, 'infinity'), coalesce($9::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
                order by died_at desc, id desc limit $7"#,
            filter.canvas.0,
            filter.scope.as_ref().map(|scope| scope.module.as_str()),
            filter.scope.as_ref().map(|scope| scope.name.as_str()),
            filter.id.map(|id| id.0),
            filter.since,
            filter.before,
            limit,
            after.map(|(died_at, _)| died_at),
            after.map(|(_, id)| id.0),
            copies
        );
        let rows = self.session().await?.all("list dead events", query).await?;
        Ok(rows.into_iter().filter_map(DeadRow::into_event).collect())
    }

    pub(in crate::store) async fn dead_event(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<DeadEvent>, StoreError> {
        let query = dead_rows!(" where id = $1 and canvas_id = $2", id.0, canvas.0);
        let row = self.session().await?.optional("look for a dead event", query).await?;
        Ok(row.and_then(DeadRow::into_event))
    }

    pub(in crate::store) async fn count_dead(
        &self,
        filter: &DeadFilter,
        (back, copies): (bool, bool),
        limit: u64,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "count!" from (
                   select from wakeq.dead_events d
                    where canvas_id = $1 and died_at > '-infinity'
                      and not ($7 and exists (select from wakeq.events_v2 e where e.id = d.id and e.canvas_id = $1 offset 0))
                      and ($2::text is null or module = $2) and ($3::text is null or name = $3)
                      and ($4::uuid is null or id = $4)
                      and ($5::timestamptz is null or died_at >= $5) and ($6::timestamptz is null or died_at < $6)
                      and ($9 or queue is null or wakeq.is_shown(queue))
                    limit $8) as meant"#,
            filter.canvas.0,
            filter.scope.as_ref().map(|scope| scope.module.as_str()),
            filter.scope.as_ref().map(|scope| scope.name.as_str()),
            filter.id.map(|id| id.0),
            filter.since,
            filter.before,
            back,
            limit.cast_signed(),
            copies
        );
        self.session().await?.one("count dead events", query).await.map(i64::cast_unsigned)
    }

    pub(in crate::store) async fn redrive_page(
        &self,
        filter: &DeadFilter,
        copies: bool,
        (skip, limit): (u64, u64),
        actor: &Actor,
    ) -> Result<RedriveOutcome, StoreError> {
        let mut session = self.session().await?.for_statements(REDRIVE_STATEMENTS);
        let timing = self.timing();
        let redriven = session
            .limit(|connection| redrive(connection, (filter, copies), (skip, limit), actor, timing))
            .await;
        session.answered("redrive dead events", redriven).await
    }

    pub(in crate::store) async fn delete_dead_page(
        &self,
        filter: &DeadFilter,
        copies: bool,
        actor: &Actor,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.dead_events d using (
                       select canvas_id, id from wakeq.dead_events
                        where canvas_id = $1 and died_at > '-infinity'
                          and ($2::text is null or module = $2) and ($3::text is null or name = $3)
                          and ($4::uuid is null or id = $4)
                          and ($5::timestamptz is null or died_at >= $5) and ($6::timestamptz is null or died_at < $6)
                          and ($11 or queue is null or wakeq.is_shown(queue))
                        order by died_at, id limit $7 for update skip locked) as old
                    where d.canvas_id = any (array[old.canvas_id]) and d.id = old.id
                returning d.module, d.name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, times, request_id, detail)
                   select $1, $8, 'delete-dead', case when $2 is not null or $4 is not null then min(module) end,
                          case when $2 is not null or $4 is not null then min(name) end, $4, 'done', count(*), $9, $10
                     from gone having count(*) > 0
               )
               select count(*) as "count!" from gone"#,
            filter.canvas.0,
            filter.scope.as_ref().map(|scope| scope.module.as_str()),
            filter.scope.as_ref().map(|scope| scope.name.as_str()),
            filter.id.map(|id| id.0),
            filter.since,
            filter.before,
            BULK_PAGE.cast_signed(),
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            copies
        );
        self.session().await?.one("delete dead events", query).await.map(i64::cast_unsigned)
    }
}

async fn redrive(
    connection: &mut PgConnection,
    (filter, copies): (&DeadFilter, bool),
    (skip, limit): (u64, u64),
    actor: &Actor,
    timing: &Timing,
) -> Result<RedriveOutcome, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let page = sqlx::query!(
        r#"select id, object::text as object from wakeq.dead_events d
            where canvas_id = $1 and died_at > '-infinity'
              and not exists (select from wakeq.events_v2 e where e.id = d.id and e.canvas_id = $1 offset 0)
              and ($2::text is null or module = $2) and ($3::text is null or name = $3)
              and ($4::uuid is null or id = $4)
              and ($5::timestamptz is null or died_at >= $5) and ($6::timestamptz is null or died_at < $6)
              and ($9 or queue is null or wakeq.is_shown(queue))
            order by died_at, id limit $7 offset $8 for update skip locked"#,
        filter.canvas.0,
        filter.scope.as_ref().map(|scope| scope.module.as_str()),
        filter.scope.as_ref().map(|scope| scope.name.as_str()),
        filter.id.map(|id| id.0),
        filter.since,
        filter.before,
        limit.cast_signed(),
        skip.cast_signed(),
        copies
    )
    .fetch_all(&mut *transaction)
    .await?;
    let looked = page.len() as u64;
    let objects: BTreeSet<ObjectKey> =
        page.iter().filter_map(|row| row.object.as_deref()?.parse().ok()).collect();
    let ids = page.into_iter().map(|row| row.id).collect();
    let back = redrive_ids(&mut transaction, filter, (ids, &objects), actor, timing).await?;
    transaction.commit().await?;
    Ok(RedriveOutcome { back, looked })
}

/// Brings these dead events back, whose rows are locked; `objects` are those that they were on.
/// Those that were emitted again in the meantime are left out. Without them it is tried again, so
/// that no other event names one of them as predecessor.
pub(super) async fn redrive_ids(
    transaction: &mut PgConnection,
    filter: &DeadFilter,
    (mut ids, objects): (Vec<Uuid>, &BTreeSet<ObjectKey>),
    actor: &Actor,
    timing: &Timing,
) -> Result<Vec<Notification>, sqlx::Error> {
    let mut halting = Vec::new();
    if !objects.is_empty() {
        let objects = objects.iter().map(|object| (filter.canvas, object)).collect();
        chains::lock(&mut *transaction, objects).await?;
        halting = lock_halting(&mut *transaction, filter.canvas, &ids).await?;
    }
    for _ in 0..REDRIVE_TRIES {
        let mut attempt = transaction.begin().await?;
        let back = bring_back(&mut attempt, filter, (&ids, &halting), actor, timing).await?;
        if back.len() == ids.len() {
            attempt.commit().await?;
            return Ok(back);
        }
        // An id was emitted after the read: its event is already live, and its object's chain must
        // not name another one.
        attempt.rollback().await?;
        ids = back.into_iter().map(|notification| notification.id.0).collect();
    }
    Err(sqlx::Error::Protocol(
        "ids of dead events are being emitted at the same time: redrive them again".into(),
    ))
}

/// Locks those of these events that halt their lanes, until this transaction ends: a concurrent
/// skip of such a lane either waits for it, or came first, and then the event has lost its place.
async fn lock_halting(
    transaction: &mut PgConnection,
    canvas: CanvasId,
    ids: &[Uuid],
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar!(
        "select event_id from wakeq.halted_lanes
          where id = any (array(
              select h.id from unnest($2::uuid[]) as asked (id) cross join lateral (
                     select h.id from wakeq.halted_lanes h
                      where h.canvas_id = $1 and h.event_id = asked.id offset 0) as h))
          order by event_id for update",
        canvas.0,
        ids
    )
    .fetch_all(transaction)
    .await
}
