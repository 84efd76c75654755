//! Queues as operators see them: registered, listed, weighed and taken back, with what waits in their facets.

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::event::{Actor, CanvasId, Name, QueuePattern, Timestamp};
use crate::store::session::interval;
use crate::store::{Store, StoreError};

/// Most queues.
pub(crate) const QUEUES_MAX: i64 = 100;
/// Most copies that are counted of a facet.
const COUNT_MAX: i64 = 10_000;
/// Most copies that one statement drops.
const DROP_PAGE: i64 = 1000;

/// A registered queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredQueue {
    /// Its name.
    pub name: Name,
    /// Which events are copied into it: those with a topic that any of these is found in.
    pub patterns: Vec<String>,
    /// It gets no copies any more, and goes with the last one that waits.
    pub draining: bool,
    /// What a canvas gets of it that has no settings of its own.
    pub facets: FacetSettings,
    /// Since when it is registered.
    pub created_at: Timestamp,
    /// Who registered it.
    pub created_by: String,
    /// Since when it is as it is.
    pub updated_at: Timestamp,
    /// Who made it so.
    pub updated_by: String,
}

/// What a canvas gets of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FacetSettings {
    /// Events in each round, 0 to 1,000; with 0 the canvas is paused in the queue. Default 1.
    pub weight: Option<u32>,
    /// Events that may run at a time on all workers, 1 to 10,000. Default: no limit.
    pub in_flight_max: Option<u32>,
}

/// What waits of a canvas in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facet {
    /// The tenant.
    pub canvas: CanvasId,
    /// Copies that nobody runs, those that are not due and those under rules included; at most 10,000 are counted.
    pub waiting: u64,
    /// Copies that somebody runs, among as many.
    pub running: u64,
    /// Whether there may be more.
    pub capped: bool,
    /// Since when the oldest has been due.
    pub oldest_due: Option<Timestamp>,
    /// Where it stands in the rotation, from 1; none, if it is not in it.
    pub position: Option<u64>,
    /// What it gets, where that is not what the queue says.
    pub settings: FacetSettings,
}

/// A queue to be.
#[derive(Debug)]
pub(crate) struct NewQueueRow<'a> {
    pub(crate) name: &'a Name,
    pub(crate) patterns: &'a [QueuePattern],
    pub(crate) facets: FacetSettings,
    pub(crate) actor: &'a Actor,
}

/// What registering did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePut {
    /// There was none of this name.
    New,
    /// It replaced what was registered, or was the same.
    Replaced,
    /// There are [`QUEUES_MAX`] others.
    TooMany,
}

impl Store {
    /// Registers a queue, or replaces what is registered. From its commit on each matching emit makes a copy.
    pub(crate) async fn put_queue(&self, new: &NewQueueRow<'_>) -> Result<QueuePut, StoreError> {
        let mut session = self.session().await?.for_statements(5);
        let put = session.limit(|connection| put(connection, new)).await;
        session.answered("register a queue", put)
    }

    /// The queues by name, or the one of this name.
    pub(crate) async fn queues(&self, name: Option<&Name>) -> Result<Vec<RegisteredQueue>, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"select name::text as "name!", draining, weight, in_flight_max, created_at, created_by, updated_at, updated_by,
                      array(select pattern from wakeq.queue_patterns p where p.queue = q.name order by pattern) as "patterns!"
                 from wakeq.queues q where $1::text is null or name = $1 order by name"#,
            name.map(Name::as_str)
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("list queues", rows)?;
        let queues = rows.into_iter().filter_map(|row| {
            Some(RegisteredQueue {
                name: row.name.parse().ok()?,
                patterns: row.patterns,
                draining: row.draining,
                facets: settings(Some(row.weight), row.in_flight_max),
                created_at: row.created_at,
                created_by: row.created_by,
                updated_at: row.updated_at,
                updated_by: row.updated_by,
            })
        });
        Ok(queues.collect())
    }

    /// Takes a queue's registration back: no emit makes copies any more. It goes with the last copy that waits; whether
    /// there was one.
    pub(crate) async fn drain_queue(&self, name: &Name, actor: &Actor) -> Result<bool, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            r#"with changed as (
                   update wakeq.queues set draining = true, updated_by = $2, updated_at = now() where name = $1
                returning name
               ), bumped as (
                   update wakeq.queue_registry set version = version + 1 where exists (select from changed)
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $5, $2, 'delete-queue', 'done', $3, concat_ws('; ', $4::text, 'queue ' || name) from changed
               )
               select exists (select from changed) as "drained!""#,
            name.as_str() as _,
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            CanvasId::DEFAULT.0
        );
        let drained = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("unregister a queue", drained)
    }

    /// Deletes up to [`DROP_PAGE`] copies of a queue that nobody runs, once it gets none any more; whether there may be
    /// more.
    pub(crate) async fn drop_copies(&self, name: &Name) -> Result<bool, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            "delete from wakeq.events_v2 where id = any (array(
                 select id from wakeq.events_v2
                  where queue = $1 and (locked_at is null or locked_at < now() - $3::interval)
                    and exists (select from wakeq.queues where name = $1 and draining)
                  limit $2 for update skip locked))",
            name.as_str() as _,
            DROP_PAGE,
            interval(self.timing().lease)
        );
        let gone = session.limit(|connection| query.execute(connection)).await;
        Ok(session.answered("drop copies", gone)?.rows_affected() >= DROP_PAGE.cast_unsigned())
    }

    /// Deletes the queues that were drained, and facets that nothing waits in; how many queues.
    pub(crate) async fn end_drained(&self) -> Result<u64, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            r#"with ended as (
                   delete from wakeq.queues q
                    where draining and not exists (select from wakeq.events_v2 e where e.queue = q.name)
                returning name
               ), left_over as (
                   delete from wakeq.facets f
                    where f.position is null
                      and not exists (select from wakeq.events_v2 e where e.queue = f.queue and e.canvas_id = f.canvas_id)
               )
               select count(*) as "count!" from ended"#
        );
        let ended = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("end drained queues", ended).map(i64::cast_unsigned)
    }

    /// Says what a canvas gets of a queue; nothing set: what the queue says. Whether there is such a queue. Its copies are
    /// woken after that, by [`Store::wake_facet`].
    pub(crate) async fn set_facet(
        &self,
        queue: &Name,
        canvas: CanvasId,
        settings: FacetSettings,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            r#"with put as (
                   insert into wakeq.facet_settings (queue, canvas_id, weight, in_flight_max)
                   select name, $2, $3, $4 from wakeq.queues where name = $1
                       on conflict (queue, canvas_id) do update
                      set weight = excluded.weight, in_flight_max = excluded.in_flight_max
                returning queue
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $2, $5, 'set-facet', 'done', $6,
                          concat_ws('; ', $7::text, 'queue ' || queue, 'weight ' || $3::integer, 'in flight ' || $4::integer)
                     from put
               )
               select exists (select from put) as "put!""#,
            queue.as_str() as _,
            canvas.0,
            integer(settings.weight),
            integer(settings.in_flight_max),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let put = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("set what a canvas gets of a queue", put)
    }

    /// Makes the promises of waiting copies overdue, of a canvas or all: the next pass wakes them. For who let them go on.
    pub(crate) async fn wake_facets(
        &self,
        queue: &Name,
        canvas: Option<CanvasId>,
    ) -> Result<u64, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            "update wakeq.events_v2 set notify_at = clock_timestamp(), probes = 0
              where id = any (array(
                  select id from wakeq.events_v2
                   where queue = $1 and ($2::uuid is null or canvas_id = $2) and notify_at > clock_timestamp()
                     and delay_until <= clock_timestamp() order by canvas_id, delay_until limit $3))",
            queue.as_str() as _,
            canvas.map(|canvas| canvas.0),
            COUNT_MAX
        );
        let woken = session.limit(|connection| query.execute(connection)).await;
        Ok(session.answered("wake a queue", woken)?.rows_affected())
    }

    /// The facets of a queue: the canvases with waiting or running copies, those next in the rotation first; at most
    /// `limit`, after a canvas.
    pub(crate) async fn facets(
        &self,
        queue: &Name,
        only: Option<CanvasId>,
        after: Option<CanvasId>,
        limit: i64,
    ) -> Result<Vec<Facet>, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            r#"with recursive canvases as (
                   (select canvas_id, 1 as number from wakeq.events_v2
                     where queue = $1 and ($2::uuid is null or canvas_id = $2) and ($3::uuid is null or canvas_id > $3)
                     order by canvas_id limit 1)
                    union all
                   select (select e.canvas_id from wakeq.events_v2 e
                            where e.queue = $1 and e.canvas_id > c.canvas_id and $2::uuid is null
                            order by e.canvas_id limit 1), c.number + 1
                     from canvases c where c.canvas_id is not null and c.number < $4
               )
               select c.canvas_id as "canvas_id!", counted.running as "running!", counted.total as "total!", counted.oldest,
                      s.weight as "weight?", s.in_flight_max as "in_flight_max?",
                      case when f.position is not null
                           then (select count(*) from wakeq.facets o where o.queue = $1 and o.position <= f.position) end as position
                 from canvases c
                cross join lateral (
                      select count(*) as total, min(delay_until) filter (where delay_until <= now()) as oldest,
                             count(*) filter (where locked_at >= now() - $5::interval) as running
                        from (select delay_until, locked_at from wakeq.events_v2 e
                               where e.queue = $1 and e.canvas_id = c.canvas_id order by delay_until limit $6) as e) as counted
                 left join wakeq.facets f on f.queue = $1 and f.canvas_id = c.canvas_id
                 left join wakeq.facet_settings s on s.queue = $1 and s.canvas_id = c.canvas_id
                where c.canvas_id is not null
                order by c.canvas_id"#,
            queue.as_str() as _,
            only.map(|canvas| canvas.0),
            after.map(|canvas| canvas.0),
            i32::try_from(limit).unwrap_or(i32::MAX),
            interval(self.timing().lease),
            COUNT_MAX
        );
        let rows = session.limit(|connection| query.fetch_all(connection)).await;
        let rows = session.answered("list facets", rows)?;
        let facets = rows.into_iter().map(|row| Facet {
            canvas: CanvasId(row.canvas_id),
            waiting: (row.total - row.running).cast_unsigned(),
            running: row.running.cast_unsigned(),
            capped: row.total >= COUNT_MAX,
            oldest_due: row.oldest,
            position: row.position.map(i64::cast_unsigned),
            settings: settings(row.weight, row.in_flight_max),
        });
        Ok(facets.collect())
    }
}

fn settings(weight: Option<i32>, in_flight_max: Option<i32>) -> FacetSettings {
    FacetSettings {
        weight: weight.map(i32::cast_unsigned),
        in_flight_max: in_flight_max.map(i32::cast_unsigned),
    }
}

/// As Postgres has it, which refuses what is too large.
fn integer(number: Option<u32>) -> Option<i32> {
    number.map(|number| i32::try_from(number).unwrap_or(i32::MAX))
}

async fn put(connection: &mut PgConnection, new: &NewQueueRow<'_>) -> Result<QueuePut, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let patterns: Vec<String> = new.patterns.iter().map(|pattern| pattern.as_str().to_owned()).collect();
    // Registrations one after the other; the version grows in any case, and emitters read the patterns once more.
    sqlx::query!("update wakeq.queue_registry set version = version + 1").execute(&mut *transaction).await?;
    let put = sqlx::query!(
        r#"insert into wakeq.queues as q (name, weight, in_flight_max, created_by, updated_by)
           select $1::text, coalesce($2, 1), $3, $4, $4
            where (select count(*) from wakeq.queues where name <> $1::text) < $5
               on conflict (name) do update
              set draining = false, weight = excluded.weight, in_flight_max = excluded.in_flight_max,
                  updated_by = excluded.updated_by, updated_at = now()
        returning xmax = 0 as "new!""#,
        new.name.as_str(),
        integer(new.facets.weight),
        integer(new.facets.in_flight_max),
        new.actor.name(),
        QUEUES_MAX
    )
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(put) = put else {
        transaction.rollback().await?;
        return Ok(QueuePut::TooMany);
    };
    sqlx::query!(
        "with gone as (delete from wakeq.queue_patterns where queue = $1 and pattern <> all ($2))
         insert into wakeq.queue_patterns (queue, pattern) select $1, * from unnest($2::text[]) on conflict do nothing",
        new.name.as_str() as _,
        &patterns
    )
    .execute(&mut *transaction)
    .await?;
    sqlx::query!(
        "insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
         values ($1, $2, 'put-queue', 'done', $3, concat_ws('; ', $4::text, 'queue ' || $5::text))",
        Uuid::nil(),
        new.actor.name(),
        new.actor.request_id(),
        new.actor.credential_id(),
        new.name.as_str()
    )
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(if put.new { QueuePut::New } else { QueuePut::Replaced })
}
