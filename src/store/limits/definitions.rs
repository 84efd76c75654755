//! Limits as they are defined: set, removed, listed. Each change writes its audit line in the same
//! statement.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use crate::event::{Actor, CanvasId, Limit, LimitName, NewLimit, Rate, Timestamp};
use crate::store::kernel::{Sql, StoreError, interval};
use crate::store::quotas::serialize_on_canvas;

/// Maximum number of limits of a canvas.
const LIMITS_MAX: i64 = 1000;

/// A limit that was set.
#[derive(Clone, Debug)]
pub(crate) struct PutLimit {
    /// Whether there was none of this name.
    pub(crate) new: bool,
    pub(crate) limit: Limit,
}

struct PutRow {
    new: bool,
    created_at: Timestamp,
    created_by: String,
    updated_at: Timestamp,
}

struct LimitRow {
    name: String,
    concurrency: Option<i32>,
    rate_count: Option<i32>,
    rate_period_us: Option<i64>,
    rate_burst: Option<i32>,
    on_full: String,
    waiting_max: Option<i32>,
    created_at: Timestamp,
    created_by: String,
    updated_at: Timestamp,
    updated_by: String,
}

impl Sql<'_> {
    pub(in crate::store) async fn put_limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        limit: &NewLimit,
        actor: &Actor,
    ) -> Result<Option<PutLimit>, StoreError> {
        let mut session = self.session().await?.for_statements(4);
        let row = session.limit(|connection| put(connection, canvas, name, limit, actor)).await;
        let row = session.answered("set a limit", row).await?;
        Ok(row.map(|row| PutLimit {
            new: row.new,
            limit: Limit {
                canvas,
                name: name.clone(),
                definition: *limit,
                created_at: row.created_at,
                created_by: row.created_by,
                updated_at: row.updated_at,
                updated_by: actor.name().into(),
            },
        }))
    }

    pub(in crate::store) async fn remove_limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.limits where canvas_id = $1 and name = $2 returning canvas_id, name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select nullif(canvas_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), $3, 'delete-limit', 'done', $4,
                          concat_ws('; ', $5::text, name::text) from gone
               )
               select exists (select from gone) as "removed!""#,
            canvas.0,
            name.as_str() as _,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.one("remove a limit", query).await
    }

    pub(in crate::store) async fn limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
    ) -> Result<Option<Limit>, StoreError> {
        let query = sqlx::query_as!(
            LimitRow,
            r#"select name::text as "name!", concurrency, rate_count,
                      (extract(epoch from rate_period) * 1000000)::bigint as rate_period_us, rate_burst, on_full,
                      waiting_max, created_at, created_by, updated_at, updated_by
                 from wakeq.limits where canvas_id = $1 and name = $2"#,
            canvas.0,
            name.as_str() as _
        );
        let row = self.session().await?.optional("read a limit", query).await?;
        Ok(row.and_then(|row| row.into_limit(canvas)))
    }

    pub(in crate::store) async fn limits(
        &self,
        canvas: CanvasId,
        after: Option<&LimitName>,
        limit: u32,
    ) -> Result<Vec<Limit>, StoreError> {
        let query = sqlx::query_as!(
            LimitRow,
            r#"select name::text as "name!", concurrency, rate_count,
                      (extract(epoch from rate_period) * 1000000)::bigint as rate_period_us, rate_burst, on_full,
                      waiting_max, created_at, created_by, updated_at, updated_by
                 from wakeq.limits where canvas_id = $1 and name > $2::text order by name limit $3"#,
            canvas.0,
            after.map_or("", LimitName::as_str),
            i64::from(limit)
        );
        let rows = self.session().await?.all("list limits", query).await?;
        Ok(rows.into_iter().filter_map(|row| row.into_limit(canvas)).collect())
    }
}

/// Writes the row while no other limit of the canvas is set, so that they are no more than the
/// canvas may have.
async fn put(
    connection: &mut PgConnection,
    canvas: CanvasId,
    name: &LimitName,
    limit: &NewLimit,
    actor: &Actor,
) -> Result<Option<PutRow>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    serialize_on_canvas(&mut transaction, canvas).await?;
    let rate = limit.rate;
    let query = sqlx::query_as!(
        PutRow,
        r#"with others as (
               select count(*) as count from (
                   select from wakeq.limits where canvas_id = $1 and name <> $2 limit $10::bigint) as counted
           ), put as (
               insert into wakeq.limits (canvas_id, name, concurrency, rate_count, rate_period, rate_burst, on_full,
                                         waiting_max, created_by, updated_by)
               select $1, $2, $3, $4, $5, $6, $7, $8, $9, $9 from others where count < $10::bigint
                   on conflict (canvas_id, name) do update
                  set concurrency = excluded.concurrency, rate_count = excluded.rate_count,
                      rate_period = excluded.rate_period, rate_burst = excluded.rate_burst,
                      on_full = excluded.on_full, waiting_max = excluded.waiting_max,
                      updated_by = excluded.updated_by, updated_at = now()
            returning xmax = 0 as new, created_at, created_by, updated_at
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
               select nullif($1, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), $9, 'put-limit', 'done', $11,
                      concat_ws('; ', $12::text, $2::text || ': ' || $13::text, case when not new then 'it was set already' end)
                 from put
           )
           select new as "new!", created_at as "created_at!", created_by as "created_by!", updated_at as "updated_at!"
             from put"#,
        canvas.0,
        name.as_str() as _,
        limit.concurrency.map(u32::cast_signed),
        rate.map(|rate| rate.count.cast_signed()),
        rate.map(|rate| interval(rate.period)) as _,
        rate.map(|rate| rate.burst.cast_signed()),
        limit.on_full.as_str(),
        limit.waiting_max.map(u32::cast_signed),
        actor.name(),
        LIMITS_MAX,
        actor.request_id(),
        actor.credential_id(),
        limit.to_string()
    );
    let row = query.fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(row)
}

impl LimitRow {
    /// `None` for what another release has set and this one does not know.
    fn into_limit(self, canvas: CanvasId) -> Option<Limit> {
        let rate = match (self.rate_count, self.rate_period_us, self.rate_burst) {
            (Some(count), Some(period_us), Some(burst)) => Some(Rate {
                count: count.unsigned_abs(),
                period: Duration::from_micros(period_us.unsigned_abs()),
                burst: burst.unsigned_abs(),
            }),
            _ => None,
        };
        Some(Limit {
            canvas,
            name: self.name.parse().ok()?,
            definition: NewLimit {
                concurrency: self.concurrency.map(i32::unsigned_abs),
                rate,
                on_full: self.on_full.parse().ok()?,
                waiting_max: self.waiting_max.map(i32::unsigned_abs),
            },
            created_at: self.created_at,
            created_by: self.created_by,
            updated_at: self.updated_at,
            updated_by: self.updated_by,
        })
    }
}
