//! Crons as records: put, paused, deleted, read. Events that were emitted ahead of their tick and
//! are not due yet are taken back in the transaction of the change, by a separate statement: it has
//! to see what a pass inserted while the previous statement waited for it.

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::event::{Actor, CanvasId, Name, Quota, QuotaExceeded, Timestamp};
use crate::store::kernel::{Bounded, Session, Store, StoreError};
use crate::store::quotas::{default_quota, quota_exceeded, serialize_on_canvas};

/// A cron as it is stored.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(crate) struct CronRow {
    pub(crate) name: String,
    pub(crate) expression: String,
    pub(crate) zone: String,
    pub(crate) modifier: String,
    /// Left out of lists.
    pub(crate) value: Option<String>,
    pub(crate) missed: String,
    pub(crate) next_at: Option<Timestamp>,
    /// The last tick that has come, and its event.
    pub(crate) last_at: Option<Timestamp>,
    pub(crate) last_id: Option<Uuid>,
    pub(crate) ticks: i64,
    /// Events that were emitted ahead, and their future ticks, whatever became of the event.
    ahead: Vec<Uuid>,
    ahead_at: Vec<Timestamp>,
    pub(crate) paused_at: Option<Timestamp>,
    pub(crate) paused_by: Option<String>,
    pub(crate) paused_reason: Option<String>,
    pub(crate) created_by: String,
    pub(crate) created_at: Timestamp,
    pub(crate) changed_at: Timestamp,
}

/// The settings of a cron that is put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCronRow<'a> {
    pub(crate) canvas: CanvasId,
    pub(crate) name: &'a Name,
    pub(crate) expression: &'a str,
    pub(crate) zone: &'a str,
    pub(crate) modifier: &'a Name,
    pub(crate) value: &'a str,
    pub(crate) missed: &'a str,
    /// The most events that it emits within one minute.
    pub(crate) minute_ticks: i16,
}

impl NewCronRow<'_> {
    fn is_same_as(&self, row: &CronRow) -> bool {
        let new = [self.expression, self.zone, self.modifier.as_str(), self.value, self.missed];
        let old = [
            row.expression.as_str(),
            &row.zone,
            &row.modifier,
            row.value.as_deref().unwrap_or_default(),
            &row.missed,
        ];
        new == old
    }
}

/// The outcome of putting a cron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CronPut {
    /// There was none of this name.
    New,
    /// It replaced another one.
    Changed,
    /// The same cron was there already: nothing was done, and nothing recorded.
    Unchanged,
    /// The canvas has used up its quota of crons, or of their ticks.
    Full(QuotaExceeded),
}

/// The outcome of unpausing a cron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CronUnpaused {
    /// It ticks again.
    Done,
    /// It was not paused.
    Unchanged,
    /// This release finds no next tick for it: it stays paused.
    Never,
    /// No cron has this name.
    Missing,
}

impl Store {
    /// Creates a cron, or replaces it. `next` receives the existing cron and the moment up to which
    /// ticks are settled, and returns the first tick; a paused cron stays paused.
    pub(crate) async fn put_cron(
        &self,
        new: &NewCronRow<'_>,
        actor: &Actor,
        next: impl FnOnce(Option<&CronRow>, Timestamp) -> Option<Timestamp> + Send,
    ) -> Result<CronPut, StoreError> {
        let mut session = self.change().await?;
        let put = session.limit(|connection| put(connection, new, actor, next)).await;
        session.answered("put a cron", put).await
    }

    /// Pauses a cron; returns whether it was running, or `None` if it does not exist. Pausing it
    /// again replaces the actor and the reason.
    pub(crate) async fn pause_cron(
        &self,
        canvas: CanvasId,
        name: &Name,
        reason: Option<&str>,
        actor: &Actor,
    ) -> Result<Option<bool>, StoreError> {
        let mut session = self.change().await?;
        let paused: Bounded<_> =
            session.limit(|connection| pause(connection, canvas, name, reason, actor)).await;
        session.answered("pause a cron", paused).await
    }

    /// Unpauses a cron. `next` receives the database's clock and returns the next tick.
    pub(crate) async fn unpause_cron(
        &self,
        canvas: CanvasId,
        name: &Name,
        actor: &Actor,
        next: impl FnOnce(&CronRow, Timestamp) -> Option<Timestamp> + Send,
    ) -> Result<CronUnpaused, StoreError> {
        let mut session = self.change().await?;
        let unpaused = session.limit(|connection| unpause(connection, canvas, name, actor, next)).await;
        session.answered("unpause a cron", unpaused).await
    }

    /// Deletes a cron; returns whether there was one.
    pub(crate) async fn delete_cron(
        &self,
        canvas: CanvasId,
        name: &Name,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let mut session = self.change().await?;
        let deleted = session.limit(|connection| delete(connection, canvas, name, actor)).await;
        session.answered("delete a cron", deleted).await
    }

    /// A session for a transaction that changes one cron.
    async fn change(&self) -> Result<Session, StoreError> {
        Ok(self.session().await?.for_statements(7))
    }

    /// One cron, and the database's clock.
    pub(crate) async fn cron(
        &self,
        canvas: CanvasId,
        name: &Name,
    ) -> Result<Option<(CronRow, Timestamp)>, StoreError> {
        let found = self.crons(canvas, Some(name), None, 1).await?;
        Ok(found.0.into_iter().next().map(|row| (row, found.1)))
    }

    /// The crons of a canvas by name, and the database's clock. Only a cron asked for by name comes
    /// with its value.
    pub(crate) async fn crons(
        &self,
        canvas: CanvasId,
        name: Option<&Name>,
        after: Option<&Name>,
        limit: i64,
    ) -> Result<(Vec<CronRow>, Timestamp), StoreError> {
        let query = sqlx::query!(
            r#"select c.name::text as "name?", c.expression as "expression?", c.zone as "zone?",
                      c.modifier::text as "modifier?", case when $2::text is not null then c.value::text end as value,
                      c.missed as "missed?", c.next_at as "next_at?",
                      ticked.at as "last_at?", ticked.id as "last_id?", c.ticks as "ticks?",
                      c.paused_at as "paused_at?", c.paused_by as "paused_by?", c.paused_reason as "paused_reason?",
                      c.created_by as "created_by?", c.created_at as "created_at?", c.changed_at as "changed_at?",
                      clock_timestamp() as "now!"
                 from (values (1)) as one left join lateral (
                      select * from wakeq.cron_records
                       where canvas_id = $1 and ($2::text is null or name = $2) and ($3::text is null or name > $3)
                       order by name limit $4) as c on true
                 left join lateral (
                      select at, id from (values (c.last_at, c.last_id)) as known (at, id) where at is not null
                       union all
                      select at, id from unnest(c.ahead_at, c.ahead) as ahead (at, id) where at <= clock_timestamp()
                       order by at desc limit 1) as ticked on true
                order by c.name"#,
            canvas.0,
            name.map(Name::as_str),
            after.map(Name::as_str),
            limit
        );
        let rows = self.session().await?.all("look at crons", query).await?;
        let now = rows.first().map_or(Timestamp::UNIX_EPOCH, |row| row.now);
        let crons = rows.into_iter().filter_map(|row| {
            Some(CronRow {
                name: row.name?,
                expression: row.expression?,
                zone: row.zone?,
                modifier: row.modifier?,
                value: row.value,
                missed: row.missed?,
                next_at: row.next_at,
                last_at: row.last_at,
                last_id: row.last_id,
                ticks: row.ticks?,
                ahead: Vec::new(),
                ahead_at: Vec::new(),
                paused_at: row.paused_at,
                paused_by: row.paused_by,
                paused_reason: row.paused_reason,
                created_by: row.created_by?,
                created_at: row.created_at?,
                changed_at: row.changed_at?,
            })
        });
        Ok((crons.collect(), now))
    }
}

/// Extends the lock timeout, to wait for a process that is emitting the cron's ticks.
async fn extend_lock_timeout(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query!("select set_config('lock_timeout', '4s', true)").fetch_one(connection).await.map(drop)
}

/// The cron, locked: no process emits its ticks until the transaction ends.
async fn locked(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &Name,
) -> Result<Option<CronRow>, sqlx::Error> {
    sqlx::query_as!(
        CronRow,
        r#"select name::text as "name!", expression, zone, modifier::text as "modifier!", value::text as value, missed,
                  next_at, last_at, last_id, ticks, ahead, ahead_at, paused_at, paused_by, paused_reason, created_by, created_at,
                  changed_at
             from wakeq.cron_records where canvas_id = $1 and name = $2 for update"#,
        canvas.0,
        name.as_str() as _
    )
    .fetch_optional(connection)
    .await
}

async fn put(
    connection: &mut PgConnection,
    new: &NewCronRow<'_>,
    actor: &Actor,
    next: impl FnOnce(Option<&CronRow>, Timestamp) -> Option<Timestamp> + Send,
) -> Result<CronPut, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    extend_lock_timeout(&mut transaction).await?;
    serialize_on_canvas(&mut transaction, new.canvas).await?;
    let old = locked(&mut transaction, new.canvas, new.name).await?;
    let state = others(&mut transaction, new).await?;
    let put = match (&old, state.quota_exceeded(new, old.is_none())) {
        (Some(old), _) if new.is_same_as(old) => CronPut::Unchanged,
        (_, Some(exceeded)) => CronPut::Full(exceeded),
        (Some(_), None) => CronPut::Changed,
        (None, None) => CronPut::New,
    };
    if matches!(put, CronPut::Unchanged | CronPut::Full(_)) {
        transaction.rollback().await?;
        return Ok(put);
    }
    let passed = match &old {
        Some(old) => {
            take_back(&mut transaction, new.canvas, old).await?.map_or(state.now, |kept| kept.max(state.now))
        }
        None => state.now,
    };
    let next_at = next(old.as_ref(), passed);
    write(&mut transaction, new, actor, next_at, state.now).await?;
    transaction.commit().await?;
    Ok(put)
}

/// The crons of a canvas apart from the one that is put.
struct OtherCrons {
    now: Timestamp,
    count: i64,
    ticks: i64,
    count_max: i64,
    ticks_max: i64,
}

impl OtherCrons {
    /// The quota that would be exceeded. A cron that replaces another needs room only for its
    /// ticks.
    fn quota_exceeded(&self, new: &NewCronRow<'_>, is_new: bool) -> Option<QuotaExceeded> {
        let crons = (self.count, i64::from(is_new), self.count_max);
        let ticks = (self.ticks, i64::from(new.minute_ticks), self.ticks_max);
        quota_exceeded(new.canvas, Quota::Crons, crons)
            .or_else(|| quota_exceeded(new.canvas, Quota::CronTicks, ticks))
    }
}

async fn others(connection: &mut PgConnection, new: &NewCronRow<'_>) -> Result<OtherCrons, sqlx::Error> {
    sqlx::query_as!(
        OtherCrons,
        r#"select clock_timestamp() as "now!", count(*) as "count!",
                  coalesce(sum(minute_ticks), 0)::bigint as "ticks!",
                  wakeq.quota_of($1, 'crons', $3) as "count_max!", wakeq.quota_of($1, 'cron-ticks', $4) as "ticks_max!"
             from wakeq.cron_records where canvas_id = $1 and name <> $2"#,
        new.canvas.0,
        new.name.as_str() as _,
        default_quota(Quota::Crons),
        default_quota(Quota::CronTicks)
    )
    .fetch_one(connection)
    .await
}

/// Deletes the events that were emitted ahead of their ticks, if those are still ahead and the
/// event was neither made due early nor tried; one that a limit has put off was due. Returns the
/// last past tick that keeps its event. A future tick whose event stays, or has already ended,
/// stays noted, so that none is emitted for it again.
async fn take_back(
    connection: &mut PgConnection,
    canvas: CanvasId,
    row: &CronRow,
) -> Result<Option<Timestamp>, sqlx::Error> {
    if row.ahead.is_empty() {
        return Ok(None);
    }
    sqlx::query_scalar!(
        r#"with taken as (
               delete from wakeq.events_v2
                where id = any ($2) and canvas_id = $1 and delay_until > clock_timestamp() and locked_at is null
                  and retries = 0 and starts_at is null
            returning id
           ), kept as (
               select ahead.id, ahead.at from unnest($2::uuid[], $3::timestamptz[]) as ahead (id, at)
                where not exists (select from taken where taken.id = ahead.id)
           ), come as (
               select max(at) as last, (array_agg(id order by at desc))[1] as id from kept where at <= clock_timestamp()
           )
           update wakeq.cron_records c
              set (ahead, ahead_at) = (
                      select coalesce(array_agg(id), '{}'), coalesce(array_agg(at), '{}') from kept
                       where at > coalesce(come.last, '-infinity') or at >= c.next_at),
                  ticks = c.ticks - (select count(*) from taken),
                  last_at = greatest(c.last_at, come.last),
                  last_id = case when come.last > coalesce(c.last_at, '-infinity') then come.id else c.last_id end
             from come where c.canvas_id = $1 and c.name = $4
        returning come.last"#,
        canvas.0,
        &row.ahead,
        &row.ahead_at,
        row.name.as_str() as _
    )
    .fetch_one(connection)
    .await
}

/// Writes a cron, and records that in the audit log.
async fn write(
    connection: &mut PgConnection,
    new: &NewCronRow<'_>,
    actor: &Actor,
    next_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        r#"with put as (
               insert into wakeq.cron_records as c
                   (canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by, created_at, changed_at,
                    minute_ticks)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $10, $9, $9, $13)
                   on conflict on constraint cron_records_pkey do update
                  set expression = excluded.expression, zone = excluded.zone, modifier = excluded.modifier,
                      value = excluded.value, missed = excluded.missed, changed_at = excluded.changed_at,
                      minute_ticks = excluded.minute_ticks,
                      next_at = case when c.paused_at is null then excluded.next_at end
           )
           insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
           values ($1, $10, 'put-cron', 'CRON', $2::text, 'done', $11,
                   left(concat_ws('; ', $12::text, $3::text || ' in ' || $4::text), 1000))"#,
        new.canvas.0,
        new.name.as_str() as _,
        new.expression,
        new.zone,
        new.modifier.as_str() as _,
        new.value as _,
        new.missed,
        next_at,
        now,
        actor.name(),
        actor.request_id(),
        actor.credential_id(),
        new.minute_ticks
    )
    .execute(connection)
    .await
    .map(drop)
}

async fn pause(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &Name,
    reason: Option<&str>,
    actor: &Actor,
) -> Result<Option<bool>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    extend_lock_timeout(&mut transaction).await?;
    let Some(row) = locked(&mut transaction, canvas, name).await? else { return Ok(None) };
    take_back(&mut transaction, canvas, &row).await?;
    sqlx::query!(
        r#"with paused as (
               update wakeq.cron_records
                  set next_at = null, paused_at = coalesce(paused_at, clock_timestamp()), paused_by = $3,
                      paused_reason = $4
                where canvas_id = $1 and name = $2
           )
           insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
           values ($1, $3, 'pause-cron', 'CRON', $2::text, 'done', $5, left(concat_ws('; ', $6::text, $4::text), 1000))"#,
        canvas.0,
        name.as_str() as _,
        actor.name(),
        reason,
        actor.request_id(),
        actor.credential_id()
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(Some(row.paused_at.is_none()))
}

async fn unpause(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &Name,
    actor: &Actor,
    next: impl FnOnce(&CronRow, Timestamp) -> Option<Timestamp> + Send,
) -> Result<CronUnpaused, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    extend_lock_timeout(&mut transaction).await?;
    let Some(row) = locked(&mut transaction, canvas, name).await? else { return Ok(CronUnpaused::Missing) };
    if row.paused_at.is_none() {
        return Ok(CronUnpaused::Unchanged);
    }
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#);
    let now = now.fetch_one(&mut *transaction).await?;
    let Some(next_at) = next(&row, now) else { return Ok(CronUnpaused::Never) };
    sqlx::query!(
        r#"with unpaused as (
               update wakeq.cron_records
                  set next_at = $3, paused_at = null, paused_by = null, paused_reason = null
                where canvas_id = $1 and name = $2
           )
           insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
           values ($1, $4, 'unpause-cron', 'CRON', $2::text, 'done', $5, $6)"#,
        canvas.0,
        name.as_str() as _,
        next_at,
        actor.name(),
        actor.request_id(),
        actor.credential_id()
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(CronUnpaused::Done)
}

async fn delete(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &Name,
    actor: &Actor,
) -> Result<bool, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    extend_lock_timeout(&mut transaction).await?;
    let Some(row) = locked(&mut transaction, canvas, name).await? else { return Ok(false) };
    take_back(&mut transaction, canvas, &row).await?;
    sqlx::query!(
        r#"with deleted as (
               delete from wakeq.cron_records where canvas_id = $1 and name = $2
           )
           insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
           values ($1, $3, 'delete-cron', 'CRON', $2::text, 'done', $4, $5)"#,
        canvas.0,
        name.as_str() as _,
        actor.name(),
        actor.request_id(),
        actor.credential_id()
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(true)
}
