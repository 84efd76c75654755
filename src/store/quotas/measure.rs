//! How much a canvas keeps: each statement reads an index up to slightly beyond the limit, and
//! estimates sizes from a sample.

use std::collections::BTreeSet;

use crate::event::{CanvasId, EventId, ObjectKey, Quota, StreamId};
use crate::store::kernel::usage::Pair;
use crate::store::kernel::{Store, StoreError};

/// About what an event of the log takes besides its payload and metadata.
pub(super) const LOG_ROW_BYTES: u64 = 200;
/// About how many events' sizes are read, if there are more.
const SAMPLE: i64 = 500;
/// How many sequence numbers of the log are sampled to estimate a canvas's share of it.
const LOG_SAMPLE: i32 = 2_000;
/// A log with fewer sequence numbers than this is read as a whole.
const LOG_SMALL: i64 = 20_000;
/// Up to this number, chosen ids are counted one by one, which takes about a tenth of a second.
const IDS_COUNTED: i64 = 100_000;
/// Maximum number of types of entities that are visited.
const TYPES_MAX: i32 = 1_000;

pub(super) fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// The limit of a canvas for which none was set.
pub fn default_quota(quota: Quota) -> i64 {
    i64::try_from(quota.default_limit()).unwrap_or(i64::MAX)
}

impl Store {
    /// Waiting, dead and kept events and the bytes of their values and checkpoints. All are counted
    /// in their indexes, up to one beyond the limit. The sizes are those of every n-th one, from a
    /// random start, so that large ones can't be hidden.
    pub(super) async fn measure_waiting(&self, canvas: CanvasId) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query!(
            r#"with limits as materialized (
                   select wakeq.quota_of($1, 'events', $2) as events, wakeq.quota_of($1, 'event-bytes', $3) as bytes
               ), counted as materialized (
                   select count(*) as events from (
                       select from wakeq.events_v2
                        where canvas_id = $1 and delay_until > '-infinity' limit (select events + 1 from limits)) as waiting
               ), sampled as materialized (
                   select id from (
                       select id, row_number() over () as number from (
                           select id from wakeq.events_v2 where canvas_id = $1 and delay_until > '-infinity'
                            order by canvas_id, module, name, delay_until, id limit (select events from counted)) as waiting) as numbered
                    where (number + $4) % (select greatest(1, events / $5) from counted) = 0
               ), sizes as (
                   select avg(octet_length(e.value) + coalesce(octet_length(e.last_error), 0)
                              + coalesce(octet_length(e.options::text), 0)) as mean
                     from wakeq.events_v2 e
                    where e.id = any (array(select id from sampled)) and e.canvas_id = $1
               ), dead as materialized (
                   select count(*) as events from (
                       select from wakeq.dead_events where canvas_id = $1 limit (select events + 1 from limits)) as dead
               ), dead_sampled as materialized (
                   select id from (
                       select id, row_number() over () as number from (
                           select id from wakeq.dead_events where canvas_id = $1 and died_at > '-infinity'
                            order by canvas_id, died_at, id limit (select events from dead)) as dead) as numbered
                    where (number + $4) % (select greatest(1, events / $5) from dead) = 0
               ), dead_sizes as (
                   select avg(octet_length(d.value) + coalesce(octet_length(d.last_error), 0)
                              + coalesce(octet_length(d.options::text), 0)) as mean
                     from dead_sampled s cross join lateral (
                          select value, last_error, options from wakeq.dead_events d
                           where d.canvas_id = $1 and d.id = s.id offset 0) as d
               ), kept as materialized (
                   select count(*) as checkpoints from (
                       select from wakeq.checkpoints where canvas_id = $1 limit (select 2 * events + 1 from limits)) as kept
               ), kept_sampled as materialized (
                   select event_id from (
                       select event_id, row_number() over () as number from (
                           select event_id from wakeq.checkpoints where canvas_id = $1
                            order by canvas_id, event_id limit (select checkpoints from kept)) as kept) as numbered
                    where (number + $4) % (select greatest(1, checkpoints / $5) from kept) = 0
               ), kept_sizes as (
                   select avg(octet_length(k.value)) as mean
                     from kept_sampled s cross join lateral (
                          select x.value from wakeq.checkpoints x
                           where x.canvas_id = $1 and x.event_id = s.event_id offset 0) as k
               )
               select c.events + d.events as "events!",
                      (coalesce(s.mean * c.events, 0) + coalesce(t.mean * d.events, 0)
                       + coalesce(z.mean * k.checkpoints, 0))::bigint as "bytes!",
                      l.events as "events_max!", l.bytes as "bytes_max!"
                 from limits l, counted c, sizes s, dead d, dead_sizes t, kept k, kept_sizes z"#,
            canvas.0,
            default_quota(Quota::Events),
            default_quota(Quota::EventBytes),
            chance(),
            SAMPLE
        );
        let row = self.session().await?.one("count the events of a canvas", query).await?;
        let [ended, ended_bytes] = self.measure_ended(canvas, row.events_max).await?;
        let used = [number(row.events) + ended, number(row.bytes) + ended_bytes];
        Ok((used, [number(row.events_max), number(row.bytes_max)]))
    }

    /// Events that are kept after they have ended, up to one beyond `limit`, and their bytes: those
    /// of every n-th one, from a random start.
    async fn measure_ended(&self, canvas: CanvasId, limit: i64) -> Result<Pair, StoreError> {
        let query = sqlx::query!(
            r#"with ended as materialized (
                   select count(*) as events from (
                       select from wakeq.ended_events where canvas_id = $1 limit $2::bigint + 1) as ended
               ), sampled as materialized (
                   select id, kept_until from (
                       select id, kept_until, row_number() over () as number from (
                           select id, kept_until from wakeq.ended_events where canvas_id = $1
                            order by canvas_id, id, kept_until limit (select events from ended)) as ended) as numbered
                    where (number + $3) % (select greatest(1, events / $4) from ended) = 0
               ), sizes as (
                   select avg(octet_length(e.value) + coalesce(octet_length(e.result), 0)
                              + coalesce(octet_length(e.error), 0) + coalesce(octet_length(e.attempts::text), 0)
                              + coalesce(octet_length(e.options::text), 0)) as mean
                     from sampled s cross join lateral (
                          select value, result, error, attempts, options from wakeq.ended_events e
                           where e.canvas_id = $1 and e.id = s.id and e.kept_until = s.kept_until offset 0) as e
               )
               select e.events as "events!", coalesce(s.mean * e.events, 0)::bigint as "bytes!" from ended e, sizes s"#,
            canvas.0,
            limit,
            chance(),
            SAMPLE
        );
        let row = self.session().await?.one("count the ended events of a canvas", query).await?;
        Ok([number(row.events), number(row.bytes)])
    }

    /// Objects, counted in their index, and the bytes of their states: of every n-th object, from a
    /// random start.
    pub(super) async fn measure_objects(&self, canvas: CanvasId) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query!(
            r#"with limits as materialized (
                   select wakeq.quota_of($1, 'objects', $2) as objects, wakeq.quota_of($1, 'object-bytes', $3) as bytes
               ), counted as materialized (
                   select count(*) as objects from (
                       select from wakeq.objects where canvas_id = $1 limit (select objects + 1 from limits)) as counted
               ), sampled as materialized (
                   select object from (
                       select object, row_number() over () as number from (
                           select object from wakeq.objects where canvas_id = $1
                            order by canvas_id, object limit (select objects from counted)) as kept) as numbered
                    where (number + $4) % (select greatest(1, objects / $5) from counted) = 0
               ), sizes as (
                   select avg(coalesce(octet_length(o.state), 0)) as mean
                     from sampled s join wakeq.objects o on o.canvas_id = $1 and o.object = s.object
               )
               select c.objects as "objects!", coalesce(s.mean * c.objects, 0)::bigint as "bytes!",
                      l.objects as "objects_max!", l.bytes as "bytes_max!"
                 from limits l, counted c, sizes s"#,
            canvas.0,
            default_quota(Quota::Objects),
            default_quota(Quota::ObjectBytes),
            chance(),
            SAMPLE
        );
        let row = self.session().await?.one("count the objects of a canvas", query).await?;
        let used = [number(row.objects), number(row.bytes)];
        Ok((used, [number(row.objects_max), number(row.bytes_max)]))
    }

    /// The bytes of an object's state.
    pub(super) async fn state_bytes(&self, canvas: CanvasId, object: &ObjectKey) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select octet_length(state)::bigint as "bytes!" from wakeq.objects
                where canvas_id = $1 and object = $2 and state is not null"#,
            canvas.0,
            object.as_str() as _
        );
        Ok(self.session().await?.optional("look at the size of a state", query).await?.map_or(0, number))
    }

    /// Chosen ids, and the keys that are remembered: idempotency keys, unique keys, names of
    /// batches and keys of limits.
    pub(super) async fn measure_remembered(&self, canvas: CanvasId) -> Result<(Pair, Pair), StoreError> {
        self.count_remembered(canvas, IDS_COUNTED).await
    }

    /// Keys are counted in their index, up to one beyond the limit. So are ids, but only up to this
    /// number; if there are more, then those in a random 4096th of all ids, which stands for the
    /// whole: stored ids are hashes ([`EventId::chosen`]). A caller can search for ids that are
    /// stored in one part, which costs 4,096 hashes for each, so this is only for ids that are too
    /// many to count. Two standard errors are subtracted, so that no canvas is refused by chance.
    pub(in crate::store) async fn count_remembered(
        &self,
        canvas: CanvasId,
        counted: i64,
    ) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query!(
            r#"with limits as materialized (
                   select wakeq.quota_of($1, 'chosen-ids', $2) as ids, wakeq.quota_of($1, 'idempotency-keys', $3) as keys
               ), few as materialized (
                   select count(*) as ids from (
                       select from wakeq.emitted_ids where canvas_id = $1
                        limit (select least(ids, $4::bigint) + 1 from limits)) as counted
               ), part as materialized (
                   select lpad(to_hex($5::bigint % 4096), 3, '0') as digits
               ), many as (
                   select (greatest(0, count(*) - 2 * sqrt(count(*))) * 4096)::bigint as ids
                     from part p, wakeq.emitted_ids e
                    where (select ids from few) > $4 and e.canvas_id = $1
                      and e.id between rpad(p.digits, 32, '0')::uuid and rpad(p.digits, 32, 'f')::uuid
               )
               select l.ids as "ids_max!", l.keys as "keys_max!",
                      (case when f.ids > $4 then greatest(m.ids, $4) else f.ids end)::bigint as "ids!",
                      (select count(*) from (
                          select from wakeq.idempotency_keys where canvas_id = $1
                           union all
                          select from wakeq.unique_keys where canvas_id = $1
                           union all
                          select from wakeq.batches where canvas_id = $1
                           union all
                          select from wakeq.limit_states where canvas_id = $1 limit (select keys + 1 from limits)) as counted) as "keys!"
                 from limits l, few f, many m"#,
            canvas.0,
            default_quota(Quota::ChosenIds),
            default_quota(Quota::IdempotencyKeys),
            counted,
            chance()
        );
        let row = self.session().await?.one("count what a canvas has remembered", query).await?;
        Ok(([number(row.ids), number(row.keys)], [number(row.ids_max), number(row.keys_max)]))
    }

    /// Streams of the log, counted in their index.
    pub(super) async fn measure_log(&self, canvas: CanvasId) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query!(
            r#"with limits as materialized (
                   select wakeq.quota_of($1, 'log-streams', $2) as streams, wakeq.quota_of($1, 'log-bytes', $3) as bytes
               )
               select streams as "streams_max!", bytes as "bytes_max!",
                      (select count(*) from (
                          select from wakeq.log_streams where canvas_id = $1 limit (select streams + 1 from limits)) as counted) as "streams!"
                 from limits"#,
            canvas.0,
            default_quota(Quota::LogStreams),
            default_quota(Quota::LogBytes)
        );
        let row = self.session().await?.one("count the streams of a canvas", query).await?;
        Ok(([number(row.streams), 0], [number(row.streams_max), number(row.bytes_max)]))
    }

    /// The bytes of a canvas in the log.
    ///
    /// The sequence numbers of the log have no gaps except for rollbacks, so a random sample of
    /// them is representative, at the same cost for every log. The standard error is a third for a
    /// canvas with a hundredth of the log; two of them are subtracted, so that no canvas is refused
    /// by chance.
    pub(super) async fn log_bytes(&self, canvas: CanvasId) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with ends as materialized (
                   select coalesce((select seq from wakeq.log order by seq limit 1), 1) as first,
                          coalesce(pg_sequence_last_value('wakeq.log_seq'), 0) as last
               ), picked as materialized (
                   select (e.first + floor(random() * (e.last - e.first + 1)))::bigint as seq
                     from ends e, generate_series(1, $2) as numbers
                    where e.last - e.first >= $3
               ), sizes as (
                   select coalesce(octet_length(l.payload) + octet_length(l.metadata) + $4, 0)::float8 as size
                     from picked p left join lateral (
                         select payload, metadata from wakeq.log where seq = p.seq and canvas_id = $1) as l on true
               ), estimated as (
                   select greatest(0, avg(size) - 2 * coalesce(stddev_samp(size), 0) / sqrt(greatest(count(*), 1))) as mean
                     from sizes
               ), whole as (
                   select sum(octet_length(l.payload) + octet_length(l.metadata) + $4) as bytes
                     from ends e, wakeq.log l
                    where e.last - e.first < $3 and l.canvas_id = $1 and l.seq between e.first and e.last
               )
               select coalesce((select bytes from whole)::float8,
                               (select mean from estimated) * (e.last - e.first + 1), 0)::bigint as "bytes!"
                 from ends e"#,
            canvas.0,
            LOG_SAMPLE,
            LOG_SMALL,
            i32::try_from(LOG_ROW_BYTES).unwrap_or(i32::MAX)
        );
        let bytes = self.session().await?.for_statements(2).one("measure the log of a canvas", query).await?;
        Ok(number(bytes))
    }

    /// Entities, counted in their index type by type, and the events that wait in their inboxes.
    pub(super) async fn measure_entities(&self, canvas: CanvasId) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query!(
            r#"with recursive limits as materialized (
                   select wakeq.quota_of($1, 'entities', $2) as entities, wakeq.quota_of($1, 'entity-events', $3) as events
               ), types as (
                   (select entity_type::text as entity_type, 1 as number from wakeq.entities order by entity_type limit 1)
                    union all
                   select next.entity_type, t.number + 1 from types t, lateral (
                       select e.entity_type::text from wakeq.entities e
                        where e.entity_type > t.entity_type order by e.entity_type limit 1) as next
                    where t.number < $4
               )
               select l.entities as "entities_max!", l.events as "events_max!",
                      (select count(*) from (
                          select from types t, lateral (
                              select from wakeq.entities e
                               where e.entity_type = t.entity_type and e.canvas_id = $1) as one
                           limit (select entities + 1 from limits)) as counted) as "entities!",
                      (select count(*) from (
                          select from wakeq.entity_events where canvas_id = $1 and status = 'accepted'
                           limit (select events + 1 from limits)) as counted) as "events!"
                 from limits l"#,
            canvas.0,
            default_quota(Quota::Entities),
            default_quota(Quota::EntityEvents),
            TYPES_MAX
        );
        let row = self.session().await?.one("count the entities of a canvas", query).await?;
        let used = [number(row.entities), number(row.events)];
        Ok((used, [number(row.entities_max), number(row.events_max)]))
    }

    /// Lines of the audit log of callers that are known: a canvas can't stop strangers, so theirs
    /// use up none of its quota.
    pub(super) async fn measure_record(&self, canvas: CanvasId) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query!(
            r#"with limits as materialized (
                   select wakeq.quota_of($1, 'audit-lines', $2) as lines
               )
               select lines as "most!", (select count(*) from (
                          select from wakeq.audit_log where canvas_id = $1 and actor <> 'unauthenticated'
                            limit (select lines + 1 from limits)) as counted) as "lines!"
                 from limits"#,
            canvas.0,
            default_quota(Quota::AuditLines)
        );
        let row = self.session().await?.one("count the audit lines of a canvas", query).await?;
        Ok(([number(row.lines), 0], [number(row.most), u64::MAX]))
    }

    /// How many of these objects do not exist yet.
    pub(super) async fn count_new_objects(
        &self,
        canvas: CanvasId,
        objects: &BTreeSet<&ObjectKey>,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "new!" from unnest($2::text[]) as wanted (object)
                where not exists (select from wakeq.objects o where o.canvas_id = $1 and o.object = wanted.object offset 0)"#,
            canvas.0,
            &objects.iter().map(|object| object.to_string()).collect::<Vec<_>>()
        );
        self.session().await?.one("find which objects are new", query).await.map(number)
    }

    /// How many of these streams do not exist yet.
    pub(super) async fn count_new_streams(
        &self,
        canvas: CanvasId,
        streams: &BTreeSet<&StreamId>,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "new!" from unnest($2::text[], $3::text[]) as wanted (category, stream)
                where not exists (
                    select from wakeq.log_streams s
                     where s.canvas_id = $1 and s.category = wanted.category and s.stream = wanted.stream offset 0)"#,
            canvas.0,
            &streams.iter().map(|stream| stream.category.to_string()).collect::<Vec<_>>(),
            &streams.iter().map(|stream| stream.name.to_string()).collect::<Vec<_>>()
        );
        self.session().await?.one("find which streams are new", query).await.map(number)
    }

    /// How many of these keys have no row of use yet. One without a limit may get it before its
    /// event runs.
    pub(super) async fn count_new_limit_keys(
        &self,
        canvas: CanvasId,
        keys: &BTreeSet<&str>,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "new!" from unnest($2::text[]) as wanted (name)
                where not exists (
                    select from wakeq.limit_states s where s.canvas_id = $1 and s.name = wanted.name offset 0)"#,
            canvas.0,
            &keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>()
        );
        self.session().await?.one("find which keys of limits are new", query).await.map(number)
    }

    /// How many of these entities do not exist yet.
    pub(super) async fn count_new_entities(
        &self,
        canvas: CanvasId,
        entities: &BTreeSet<(&str, &str)>,
    ) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "new!" from unnest($2::text[], $3::text[]) as wanted (entity_type, id)
                where not exists (
                    select from wakeq.entities e
                     where e.entity_type = wanted.entity_type and e.canvas_id = $1 and e.id = wanted.id offset 0)"#,
            canvas.0,
            &entities.iter().map(|(entity_type, _)| (*entity_type).to_owned()).collect::<Vec<_>>(),
            &entities.iter().map(|(_, id)| (*id).to_owned()).collect::<Vec<_>>()
        );
        self.session().await?.one("find which entities are new", query).await.map(number)
    }
}

/// An unpredictable number.
fn chance() -> i64 {
    let (_, random) = EventId::new().0.as_u64_pair();
    (random & 0xffff_ffff).cast_signed()
}
