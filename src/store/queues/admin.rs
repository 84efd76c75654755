//! Queues as operators see them: listing and unregistering them, the shares of canvases, and the
//! copies that wait in their facets.

use std::time::Duration;

use uuid::Uuid;

use crate::event::{Actor, CanvasId, Keep, Name, PullPolicy, Timestamp};
use crate::store::kernel::{Sql, Store, StoreError, interval};
use crate::store::targets::RegisteredTarget;

/// Maximum number of registered queues.
pub(super) const QUEUES_MAX: i64 = 100;
/// Maximum number of copies that are counted per facet.
const COUNT_MAX: i64 = 10_000;
/// Maximum number of copies that one statement drops.
const DROP_PAGE: i64 = 1000;

/// A registered queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredQueue {
    /// Its name.
    pub name: Name,
    /// The patterns. Events whose topic any of them matches are copied into it.
    pub patterns: Vec<String>,
    /// It no longer gets copies, and is removed after the last one that waits.
    pub draining: bool,
    /// Its copies are visible to their canvases, which may treat them like their events and hold
    /// them by rules.
    pub tenant_visible: bool,
    /// The default for canvases without settings of their own.
    pub facets: FacetSettings,
    /// The retry policy of its copies, if services pull them over HTTP.
    pub pull: Option<PullPolicy>,
    /// Where its copies are sent, if that is over HTTP.
    pub target: Option<RegisteredTarget>,
    /// When it was registered.
    pub created_at: Timestamp,
    /// Who registered it.
    pub created_by: String,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Who changed it last.
    pub updated_by: String,
}

/// A canvas's share of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FacetSettings {
    /// Copies per round of the rotation, 0 to 1,000; with 0 the canvas is paused in the queue.
    /// Default 1.
    pub weight: Option<u32>,
    /// Copies that may run at once, on all workers together, 1 to 10,000. Default: no limit.
    pub in_flight_max: Option<u32>,
}

/// A canvas's share and copies in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facet {
    /// The tenant.
    pub canvas: CanvasId,
    /// Copies that are not running, including those that are not due or under rules; at most 10,000
    /// copies are counted.
    pub waiting: u64,
    /// Copies that are running, among those 10,000.
    pub running: u64,
    /// Whether there may be more.
    pub capped: bool,
    /// Since when the oldest has been due.
    pub oldest_due: Option<Timestamp>,
    /// Its position in the rotation, from 1; `None` if it is not in it.
    pub position: Option<u64>,
    /// Its own settings, where they differ from the queue's.
    pub settings: FacetSettings,
}

impl Store {
    /// The queues by name, or only the one of this name.
    pub(crate) async fn queues(&self, name: Option<&Name>) -> Result<Vec<RegisteredQueue>, StoreError> {
        let query = sqlx::query!(
            r#"select name::text as "name!", draining, tenant_visible, weight, in_flight_max, created_at, created_by, updated_at, updated_by,
                      pulled, pull_retries, pull_delay_ms, pull_factor, pull_delay_max_ms, pull_halts,
                      array(select pattern from wakeq.queue_patterns p where p.queue = q.name order by pattern) as "patterns!"
                 from wakeq.queues q where $1::text is null or name = $1 order by name"#,
            name.map(Name::as_str)
        );
        let rows = self.session().await?.all("list queues", query).await?;
        let targets = self.targets_of_queues(name).await?;
        let queues = rows.into_iter().filter_map(|row| {
            Some(RegisteredQueue {
                target: targets.iter().find(|target| target.address.scope.name.as_str() == row.name).cloned(),
                pull: row.pulled.then(|| PullPolicy {
                    retries: row.pull_retries.cast_unsigned(),
                    delay: milliseconds(row.pull_delay_ms),
                    factor: row.pull_factor.cast_unsigned(),
                    delay_max: milliseconds(row.pull_delay_max_ms),
                    halts: row.pull_halts,
                    keep: Keep::default(),
                }),
                name: row.name.parse().ok()?,
                patterns: row.patterns,
                draining: row.draining,
                tenant_visible: row.tenant_visible,
                facets: settings(Some(row.weight), row.in_flight_max),
                created_at: row.created_at,
                created_by: row.created_by,
                updated_at: row.updated_at,
                updated_by: row.updated_by,
            })
        });
        Ok(queues.collect())
    }

    /// Unregisters a queue: emits no longer make copies, and it is removed after the last copy that
    /// waits. Returns whether there was one. Locks the registry before the queue, as a registration
    /// does.
    pub(crate) async fn drain_queue(&self, name: &Name, actor: &Actor) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with bumped as (
                   update wakeq.queue_registry
                      set version = greatest(version + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
                    where exists (select from wakeq.queues where name = $1)
                returning version
               ), changed as (
                   update wakeq.queues set draining = true, updated_by = $2, updated_at = now()
                    where name = $1 and (select version from bumped) is not null
                returning name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $5, $2, 'delete-queue', 'done', $3, concat_ws('; ', $4::text, 'queue ' || name) from changed
               )
               select exists (select from changed) as "drained!""#,
            name.as_str() as _,
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            None::<Uuid>
        );
        self.session().await?.one("unregister a queue", query).await
    }

    /// Deletes up to [`DROP_PAGE`] copies of a draining queue that are not running; returns whether
    /// there may be more.
    pub(crate) async fn drop_copies(&self, name: &Name) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.events_v2 where id = any (array(
                 select id from wakeq.events_v2
                  where queue = $1 and queue <> '' and (locked_at is null or locked_at < now() - $3::interval)
                    and exists (select from wakeq.queues where name = $1 and draining)
                  limit $2 for update skip locked))",
            name.as_str() as _,
            DROP_PAGE,
            interval(self.timing().lease)
        );
        Ok(self.session().await?.execute("drop copies", query).await?.rows_affected()
            >= DROP_PAGE.cast_unsigned())
    }

    /// Sets a canvas's share of a queue. The queue's settings apply to those that are not given.
    /// Returns whether the queue exists. With `wakes` its copies will be woken, by
    /// [`Store::wake_page`].
    pub(crate) async fn set_facet(
        &self,
        queue: &Name,
        canvas: CanvasId,
        settings: FacetSettings,
        wakes: bool,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with put as (
                   insert into wakeq.facet_settings (queue, canvas_id, weight, in_flight_max)
                   select name, $2, $3, $4 from wakeq.queues where name = $1
                       on conflict (queue, canvas_id) do update
                      set weight = excluded.weight, in_flight_max = excluded.in_flight_max
                returning queue
               ), waking as (
                   insert into wakeq.queue_wakes (queue, canvas_id) select queue, $2 from put where $8
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
            actor.credential_id(),
            wakes
        );
        self.session().await?.one("set a facet of a queue", query).await
    }

    /// The settings of canvases that differ from the queue's, by canvas: of one canvas, or at most
    /// `limit`, after a given canvas.
    pub(crate) async fn facet_settings(
        &self,
        queue: &Name,
        only: Option<CanvasId>,
        after: Option<CanvasId>,
        limit: i64,
    ) -> Result<Vec<(CanvasId, FacetSettings)>, StoreError> {
        let query = sqlx::query!(
            "select canvas_id, weight, in_flight_max from wakeq.facet_settings
              where queue = $1 and ($2::uuid is null or canvas_id = $2) and ($3::uuid is null or canvas_id > $3)
                and (weight is not null or in_flight_max is not null)
              order by canvas_id limit $4",
            queue.as_str() as _,
            only.map(|canvas| canvas.0),
            after.map(|canvas| canvas.0),
            limit
        );
        let rows = self.session().await?.all("list the facets of a queue", query).await?;
        Ok(rows
            .into_iter()
            .map(|row| (CanvasId(row.canvas_id), settings(row.weight, row.in_flight_max)))
            .collect())
    }

    /// The facets of a queue, that is the canvases with waiting or running copies, by canvas: at
    /// most `limit`, after a given canvas.
    pub(crate) async fn facets(
        &self,
        queue: &Name,
        only: Option<CanvasId>,
        after: Option<CanvasId>,
        limit: i64,
    ) -> Result<Vec<Facet>, StoreError> {
        let query = sqlx::query!(
            r#"with recursive canvases as (
                   (select canvas_id, 1 as number from wakeq.events_v2
                     where queue = $1 and ($2::uuid is null or canvas_id = $2) and ($3::uuid is null or canvas_id > $3)
                       and queue <> ''
                     order by canvas_id limit 1)
                    union all
                   select (select e.canvas_id from wakeq.events_v2 e
                            where e.queue = $1 and e.canvas_id > c.canvas_id and $2::uuid is null and e.queue <> ''
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
                               where e.queue = $1 and e.canvas_id = c.canvas_id and e.queue <> ''
                               order by delay_until limit $6) as e) as counted
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
        let rows = self.session().await?.all("list facets", query).await?;
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

pub(super) fn settings(weight: Option<i32>, in_flight_max: Option<i32>) -> FacetSettings {
    FacetSettings {
        weight: weight.map(i32::cast_unsigned),
        in_flight_max: in_flight_max.map(i32::cast_unsigned),
    }
}

pub(super) fn milliseconds(number: i64) -> Duration {
    Duration::from_millis(number.unsigned_abs())
}

/// A number as an integer of Postgres, at most the largest one.
pub(super) fn integer(number: Option<u32>) -> Option<i32> {
    number.map(|number| i32::try_from(number).unwrap_or(i32::MAX))
}

impl Store {
    /// The targets of queues, or of the queue with this name.
    async fn targets_of_queues(&self, name: Option<&Name>) -> Result<Vec<RegisteredTarget>, StoreError> {
        let module = Name::queue();
        let handler = name.map(|name| (&module, name));
        Sql(self).targets(CanvasId::OF_QUEUES, handler, None, None, QUEUES_MAX).await
    }
}
