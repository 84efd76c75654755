//! Appending: one statement locks the streams in the order of their keys, checks the conditions,
//! and only then takes the sequence numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::event::{AppendCondition, Appended, EventId, NewLogEvent, StreamAppend, StreamId};
use crate::store::kernel::{Store, StoreError};

/// Maximum number of statements of an append, which are one that creates streams and the append,
/// each twice.
const STATEMENTS: usize = 4;
/// An append that takes a multiple of this number checks whether the next partition exists.
const MILESTONE: i64 = 100_000;
/// How often an append is started whose streams do not exist.
const TRIES: usize = 2;

/// Events that are appended in one statement, all or nothing.
#[derive(Debug, Default)]
pub struct LogBatch<'a> {
    events: Vec<(&'a StreamId, &'a NewLogEvent)>,
    conditions: Vec<(&'a StreamId, AppendCondition)>,
}

/// A condition that did not hold, so that nothing was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendRefusal {
    /// The stream.
    pub stream: StreamId,
    /// The condition.
    pub expected: AppendCondition,
    /// The position of the stream's last event; `None` if it has none.
    pub position: Option<i64>,
}

impl<'a> LogBatch<'a> {
    /// These appends, in this order.
    pub fn of(appends: &'a [StreamAppend]) -> Self {
        let mut batch = Self::default();
        for append in appends {
            batch.events.extend(append.events.iter().map(|event| (&append.stream, event)));
            batch.conditions.push((&append.stream, append.condition));
        }
        batch
    }

    /// Adds one event, under no condition.
    pub(in crate::store) fn push(&mut self, stream: &'a StreamId, event: &'a NewLogEvent) {
        self.events.push((stream, event));
        self.conditions.push((stream, AppendCondition::None));
    }

    fn streams(&self) -> BTreeSet<&'a StreamId> {
        self.conditions.iter().map(|(stream, _)| *stream).collect()
    }

    /// The last position that each of these streams is expected to have: `None` for any, -1 for no
    /// event. If two conditions contradict each other, a position that no stream has.
    fn expected(&self, streams: &[&StreamId]) -> Vec<Option<i64>> {
        let mut expected = HashMap::<&StreamId, i64>::new();
        for (stream, condition) in &self.conditions {
            let position = match condition {
                AppendCondition::None => continue,
                AppendCondition::Empty => -1,
                AppendCondition::Position(position) => *position,
            };
            let known = expected.entry(*stream).or_insert(position);
            if *known != position {
                *known = i64::MIN;
            }
        }
        streams.iter().map(|stream| expected.get(stream).copied()).collect()
    }

    /// The first condition that does not hold for streams with these positions; a stream that is
    /// not among them has no event.
    fn refusal(&self, positions: &HashMap<&StreamId, i64>) -> Option<AppendRefusal> {
        self.conditions.iter().find_map(|(stream, expected)| {
            let position = positions.get(*stream).copied().filter(|position| *position >= 0);
            let refused = AppendRefusal { stream: (*stream).clone(), expected: *expected, position };
            (!expected.holds(position)).then_some(refused)
        })
    }
}

impl Store {
    /// Appends the whole batch or nothing.
    pub(crate) async fn append_to_log(
        &self,
        batch: &LogBatch<'_>,
    ) -> Result<Result<Vec<Appended>, AppendRefusal>, StoreError> {
        let mut appended = self.append_once(batch).await;
        if appended.as_ref().is_err_and(lacks_partition) {
            self.add_log_partitions().await?;
            appended = self.append_once(batch).await;
        }
        if let Ok(Ok(appended)) = &appended
            && appended.iter().any(|event| event.seq % MILESTONE == 0)
        {
            self.add_partitions_ahead().await;
        }
        appended
    }

    /// The minute's pass creates partitions long before; this is for deployments where none runs.
    async fn add_partitions_ahead(&self) {
        if let Err(error) = self.add_log_partitions().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "no partitions of the log were created; the minute's pass will create them"
            );
        }
    }

    async fn append_once(
        &self,
        batch: &LogBatch<'_>,
    ) -> Result<Result<Vec<Appended>, AppendRefusal>, StoreError> {
        let mut session = self.session().await?.for_statements(STATEMENTS);
        let answer = session.limit(|connection| append_batch(connection, batch)).await;
        session.answered("append to the log", answer).await
    }
}

/// Whether the sequence number of an event is in no partition of the log, because none was created.
pub fn lacks_partition(error: &StoreError) -> bool {
    // The violation of a named constraint is something else.
    let named =
        |source: &sqlx::Error| source.as_database_error().is_some_and(|error| error.constraint().is_some());
    matches!(error, StoreError::Refused { source, .. } if !named(source))
        && error.code().as_deref() == Some("23514")
}

/// The statements of `Store::append_to_log`, on any connection: also inside a caller's
/// transaction. Nearly always it is one statement, since streams are rarely new.
pub async fn append_batch(
    connection: &mut PgConnection,
    batch: &LogBatch<'_>,
) -> Result<Result<Vec<Appended>, AppendRefusal>, sqlx::Error> {
    let streams: Vec<&StreamId> = batch.streams().into_iter().collect();
    // Of several streams, the existing ones must not be locked before the others are created:
    // creating a row may wait for a transaction that waits for a row locked here.
    if streams.len() > 1 {
        make_rows(&mut *connection, &streams).await?;
    }
    for _ in 0..TRIES {
        let (positions, appended) = append(&mut *connection, &streams, batch).await?;
        let refused = batch.refusal(&positions);
        match refused {
            _ if !appended.is_empty() => return Ok(Ok(appended)),
            // A condition that can't hold for a missing stream does not create it.
            Some(refused) => return Ok(Err(refused)),
            None if positions.len() == streams.len() => return Ok(Ok(appended)),
            None => make_rows(&mut *connection, &streams).await?,
        }
    }
    Err(sqlx::Error::Protocol(
        "the streams of an append are gone as soon as they are created: what deletes them?".into(),
    ))
}

/// Locks the streams that exist, and appends if all do and their conditions hold. Returns the
/// positions that they had, and where the events are.
async fn append<'a>(
    connection: &mut PgConnection,
    streams: &[&'a StreamId],
    batch: &LogBatch<'_>,
) -> Result<(HashMap<&'a StreamId, i64>, Vec<Appended>), sqlx::Error> {
    let (mut positions, mut appended) = (HashMap::new(), Vec::new());
    for row in rows(connection, &AppendColumns::of(streams, batch)).await? {
        let stream = row.at.and_then(|at| streams.get(usize::try_from(at - 1).ok()?));
        if let Some(stream) = stream {
            positions.insert(*stream, row.position);
        } else if let (Some(id), Some(seq), Some(prev)) = (row.id, row.seq, row.prev) {
            appended.push(Appended { id: EventId(id), seq, prev, position: row.position });
        }
    }
    Ok((positions, appended))
}

/// A stream that was locked, with its number in the batch and its position; or an event that was
/// appended.
struct AppendRow {
    at: Option<i64>,
    position: i64,
    id: Option<Uuid>,
    seq: Option<i64>,
    prev: Option<i64>,
}

/// The statement of [`append`]. A row that is locked is read as it is at that time, whatever the
/// snapshot says, so what follows from it is right. The floor is taken before the first sequence
/// number, because the numbers are taken from rows that are joined to it.
async fn rows(connection: &mut PgConnection, new: &AppendColumns) -> Result<Vec<AppendRow>, sqlx::Error> {
    sqlx::query_as!(
        AppendRow,
        r#"with locked as materialized (
               select wanted.at, wanted.expected, s.position, s.last_seq
                 from unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) with ordinality
                      as wanted (canvas_id, category, stream, expected, at)
                 join wakeq.log_streams s on s.canvas_id = any (array[wanted.canvas_id]) and s.category = wanted.category
                                         and s.stream = wanted.stream
                order by wanted.canvas_id, wanted.category, wanted.stream for update of s
           ), ends as materialized (
               select array_agg(position order by at) as positions, array_agg(last_seq order by at) as seqs,
                      count(*) = cardinality($1) and bool_and(expected is null or expected = position) as fit
                 from locked
           ), floor as materialized (
               select wakeq.log_floor() as floor from ends where fit and cardinality($5::uuid[]) > 0
           ), numbered as materialized (
               select new.*, nextval('wakeq.log_seq') as seq
                 from (select new.*
                         from floor,
                              unnest($5::uuid[], $6::text[], $7::text[], $8::integer[], $9::integer[], $10::uuid[],
                                     $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[], $16::bigint[])
                              with ordinality
                              as new (canvas_id, category, stream, bucket, at, id, name, payload, metadata, object,
                                      link_id, link_prev, number)
                        where floor.floor >= 0
                        order by new.number) as new
           ), placed as (
               select n.*, ((select positions from ends))[n.at] + row_number() over stream as position,
                      coalesce(lag(n.seq) over stream, ((select seqs from ends))[n.at]) as prev
                 from numbered n
               window stream as (partition by n.at order by n.number)
           ), moved as (
               update wakeq.log_streams s set position = latest.position, last_seq = latest.seq
                 from (select canvas_id, category, stream, max(position) as position, max(seq) as seq
                         from placed group by canvas_id, category, stream) as latest
                where s.canvas_id = any (array[latest.canvas_id]) and s.category = latest.category and s.stream = latest.stream
           ), written as (
               insert into wakeq.log (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, metadata,
                                      object, link_id, link_prev)
               select seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, metadata, object, link_id,
                      link_prev
                 from placed order by seq
           )
           select at, position as "position!", null::uuid as id, null::bigint as seq, null::bigint as prev from locked
            union all
           select null, position, id, seq, prev from placed
            order by seq"#,
        &new.streams.canvases,
        &new.streams.categories,
        &new.streams.names,
        new.expected.as_slice() as &[Option<i64>],
        &new.keys.canvases,
        &new.keys.categories,
        &new.keys.names,
        &new.keys.buckets,
        &new.at,
        &new.ids,
        &new.names,
        &new.payloads,
        &new.metadata,
        new.objects.as_slice() as &[Option<String>],
        new.link_ids.as_slice() as &[Option<i64>],
        new.link_prevs.as_slice() as &[Option<i64>],
    )
    .fetch_all(connection)
    .await
}

/// Creates the rows of those streams that have none.
async fn make_rows(transaction: &mut PgConnection, streams: &[&StreamId]) -> Result<(), sqlx::Error> {
    let keys = StreamKeys::of(streams.iter().copied());
    sqlx::query!(
        "insert into wakeq.log_streams (canvas_id, category, stream)
         select * from unnest($1::uuid[], $2::text[], $3::text[]) as new (canvas_id, category, stream)
          order by canvas_id, category, stream
             on conflict do nothing",
        &keys.canvases,
        &keys.categories,
        &keys.names
    )
    .execute(transaction)
    .await
    .map(drop)
}

/// Streams as columns, for `unnest`.
#[derive(Default)]
struct StreamKeys {
    canvases: Vec<Uuid>,
    categories: Vec<String>,
    names: Vec<String>,
    buckets: Vec<i32>,
}

impl StreamKeys {
    fn of<'a>(streams: impl Iterator<Item = &'a StreamId>) -> Self {
        let mut keys = Self::default();
        let mut buckets = BTreeMap::new();
        for stream in streams {
            keys.canvases.push(stream.canvas.0);
            keys.categories.push(stream.category.to_string());
            keys.names.push(stream.name.to_string());
            keys.buckets.push(*buckets.entry(stream).or_insert_with(|| i32::from(stream.bucket())));
        }
        keys
    }
}

/// A batch as columns.
#[derive(Default)]
struct AppendColumns {
    streams: StreamKeys,
    expected: Vec<Option<i64>>,
    /// The streams of the events and, for each, its number among `streams`, from 1.
    keys: StreamKeys,
    at: Vec<i32>,
    ids: Vec<Uuid>,
    names: Vec<String>,
    payloads: Vec<String>,
    metadata: Vec<String>,
    objects: Vec<Option<String>>,
    link_ids: Vec<Option<i64>>,
    link_prevs: Vec<Option<i64>>,
}

impl AppendColumns {
    fn of(streams: &[&StreamId], batch: &LogBatch<'_>) -> Self {
        let numbers: HashMap<&StreamId, i32> = streams.iter().copied().zip(1..).collect();
        let mut columns = Self {
            streams: StreamKeys::of(streams.iter().copied()),
            expected: batch.expected(streams),
            keys: StreamKeys::of(batch.events.iter().map(|(stream, _)| *stream)),
            ..Self::default()
        };
        for (stream, event) in &batch.events {
            // The stream of each event is among those of the conditions.
            columns.at.push(numbers.get(stream).copied().unwrap_or_default());
            columns.ids.push(event.id.0);
            columns.names.push(event.name.to_string());
            columns.payloads.push(event.payload.clone());
            columns.metadata.push(event.metadata.clone());
            columns.objects.push(event.place.as_ref().map(|place| place.object.to_string()));
            columns.link_ids.push(event.place.as_ref().map(|place| place.link.id));
            columns.link_prevs.push(event.place.as_ref().map(|place| place.link.prev));
        }
        columns
    }
}
