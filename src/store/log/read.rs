//! Reading: first how far the log can be read, then, with a later snapshot, the rows up to there.

use sqlx::postgres::PgConnection;
use uuid::Uuid;

use crate::event::{
    CanvasId, Category, EventId, EventSource, LogEvent, LogPage, PageLimit, Partition, Place, StreamId,
    Timestamp,
};
use crate::store::kernel::{Store, StoreError};

/// How many rows are scanned per requested row, if a source has only some of the rows that are
/// scanned.
const LOOKED_FOR_EACH: i64 = 8;
const LOOKED_LEAST: i64 = 1_000;
const LOOKED_MAX: i64 = 20_000;

/// How far the log can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogHorizon {
    /// Up to this sequence number nothing can be added any longer.
    pub readable: i64,
    /// The last sequence number that was taken.
    pub last: i64,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogEnd {
    /// The position of its last event.
    pub position: i64,
    /// The `seq` of its last event.
    pub seq: i64,
}

struct LogRow {
    seq: i64,
    prev: i64,
    canvas_id: Uuid,
    category: String,
    stream: String,
    position: i64,
    id: Uuid,
    name: String,
    payload: String,
    metadata: String,
    object: Option<String>,
    link_id: Option<i64>,
    link_prev: Option<i64>,
    appended_at: Timestamp,
    /// Whether the source has it; the last row that was scanned is returned in any case.
    matches: bool,
    /// Its number among the rows that were scanned, from 1.
    number: i64,
    /// Bytes of the source's events up to this one. The first that is too much comes without its
    /// payload.
    bytes: i64,
}

/// Which rows are read: after one sequence number and up to another, at most `limit` of at most
/// `looked` scanned rows, with at most `bytes`. The first one is read in any case.
struct Span {
    after: i64,
    through: i64,
    limit: i64,
    looked: i64,
    bytes: i64,
}

impl Store {
    /// How far the log can be read now.
    #[doc(hidden)]
    pub async fn log_horizon(&self) -> Result<LogHorizon, StoreError> {
        let mut session = self.session().await?;
        let horizon = session.limit(horizon).await;
        session.answered("find how far the log can be read", horizon).await
    }

    /// The end of a stream; `None` if it has no event.
    pub(crate) async fn log_end(&self, stream: &StreamId) -> Result<Option<LogEnd>, StoreError> {
        let query = sqlx::query_as!(
            LogEnd,
            "select position, last_seq as seq from wakeq.log_streams
              where canvas_id = $1 and category = $2 and stream = $3 and position >= 0",
            stream.canvas.0,
            stream.category.as_str() as _,
            stream.name.as_str() as _
        );
        self.session().await?.optional("look at a stream", query).await
    }

    /// The events of a source after a sequence number; a page has at most 4 MiB, or one event.
    pub(crate) async fn read_log(
        &self,
        source: &EventSource,
        after: i64,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        self.read_log_within(source, after, limit, PageLimit::BYTES).await
    }

    /// As [`Store::read_log`], with at most this many bytes of payloads and metadata, or one event.
    /// The database neither reads nor sends what does not fit, since the length of a value is known
    /// without the value. In two statements: a snapshot that is not younger than the horizon would
    /// miss what was committed between them.
    pub(crate) async fn read_log_within(
        &self,
        source: &EventSource,
        after: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<LogPage, StoreError> {
        let mut session = self.session().await?.for_statements(2);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let page = session
            .limit(async |connection: &mut PgConnection| {
                let horizon = horizon(&mut *connection).await?;
                let rows = if horizon.readable > after {
                    let looked = looked(source, limit);
                    let span = Span { after, through: horizon.readable, limit, looked, bytes };
                    rows(connection, source, &span).await?
                } else {
                    Vec::new()
                };
                Ok((horizon, rows))
            })
            .await;
        let (horizon, rows) = session.answered("read the log", page).await?;
        Ok(page_of(source, after, (limit, bytes), horizon, rows))
    }
}

async fn horizon(connection: &mut PgConnection) -> Result<LogHorizon, sqlx::Error> {
    sqlx::query_as!(LogHorizon, r#"select readable as "readable!", last as "last!" from wakeq.log_horizon()"#)
        .fetch_one(connection)
        .await
}

/// How many rows are scanned.
fn looked(source: &EventSource, limit: i64) -> i64 {
    let some = match source {
        EventSource::Log { canvas } => canvas.is_some(),
        EventSource::Category { partition, .. } => partition.is_some(),
        EventSource::Stream(_) => false,
    };
    if some { (limit * LOOKED_FOR_EACH).clamp(LOOKED_LEAST, LOOKED_MAX).max(limit) } else { limit }
}

fn page_of(
    source: &EventSource,
    after: i64,
    (limit, bytes): (i64, i64),
    horizon: LogHorizon,
    mut rows: Vec<LogRow>,
) -> LogPage {
    let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    // The first event that is too much marks the end of the page, unless it is the only one.
    let over = rows.iter().position(|row| row.bytes > bytes);
    let cut = match over {
        Some(0) => rows.first().map(|row| row.seq),
        Some(at) => rows.get(at).map(|row| row.seq - 1),
        None => rows
            .last()
            .filter(|last| count >= limit || last.number >= looked(source, limit))
            .map(|last| last.seq),
    };
    rows.truncate(over.map_or(rows.len(), |at| at.max(1)));
    let through = cut.unwrap_or(horizon.readable).max(after);
    let more = cut.is_some();
    let events = rows.into_iter().filter(|row| row.matches).filter_map(event).collect();
    LogPage { events, through, more, held: horizon.readable < horizon.last }
}

async fn rows(
    connection: &mut PgConnection,
    source: &EventSource,
    span: &Span,
) -> Result<Vec<LogRow>, sqlx::Error> {
    match source {
        EventSource::Log { canvas } => of_log(connection, *canvas, span).await,
        EventSource::Category { canvas: None, category, partition } => {
            of_category(connection, category, *partition, span).await
        }
        EventSource::Category { canvas: Some(canvas), category, partition } => {
            of_canvas_category(connection, *canvas, category, *partition, span).await
        }
        EventSource::Stream(stream) => of_stream(connection, stream, span).await,
    }
}

async fn of_log(
    connection: &mut PgConnection,
    canvas: Option<CanvasId>,
    span: &Span,
) -> Result<Vec<LogRow>, sqlx::Error> {
    sqlx::query_as!(
        LogRow,
        r#"select seq, prev, canvas_id, category as "category: String", stream as "stream: String", position, id,
                  name as "name: String", case when bytes <= $6 or bytes = own then payload else '' end as "payload!: String",
                  metadata as "metadata: String", object as "object: String", link_id, link_prev, appended_at,
                  matches as "matches!", number as "number!", bytes as "bytes!"
             from (select l.*, matches, own, row_number() over seqs as number, sum(own) over seqs as bytes
                     from wakeq.log l
                    cross join lateral (select $5::uuid is null or l.canvas_id = $5 as matches) as m
                    cross join lateral (select case when matches then octet_length(l.payload) + octet_length(l.metadata)
                                                    else 0 end as own) as o
                    where l.seq > $1 and l.seq <= $2
                   window seqs as (order by l.seq rows unbounded preceding) order by l.seq limit $4) as looked
            where (matches or number = $4) and bytes - own <= $6 order by seq limit $3"#,
        span.after,
        span.through,
        span.limit,
        span.looked,
        canvas.map(|canvas| canvas.0),
        span.bytes
    )
    .fetch_all(connection)
    .await
}

async fn of_category(
    connection: &mut PgConnection,
    category: &Category,
    partition: Option<Partition>,
    span: &Span,
) -> Result<Vec<LogRow>, sqlx::Error> {
    sqlx::query_as!(
        LogRow,
        r#"select seq, prev, canvas_id, category as "category: String", stream as "stream: String", position, id,
                  name as "name: String", case when bytes <= $8 or bytes = own then payload else '' end as "payload!: String",
                  metadata as "metadata: String", object as "object: String", link_id, link_prev, appended_at,
                  matches as "matches!", number as "number!", bytes as "bytes!"
             from (select l.*, matches, own, row_number() over seqs as number, sum(own) over seqs as bytes
                     from wakeq.log l
                    cross join lateral (select l.bucket % $6::integer = $7::integer as matches) as m
                    cross join lateral (select case when matches then octet_length(l.payload) + octet_length(l.metadata)
                                                    else 0 end as own) as o
                    where l.category = $5 and l.seq > $1 and l.seq <= $2
                   window seqs as (order by l.seq rows unbounded preceding) order by l.seq limit $4) as looked
            where (matches or number = $4) and bytes - own <= $8 order by seq limit $3"#,
        span.after,
        span.through,
        span.limit,
        span.looked,
        category.as_str() as _,
        partition.map_or(1, |partition| i32::from(partition.of())),
        partition.map_or(0, |partition| i32::from(partition.number()) - 1),
        span.bytes
    )
    .fetch_all(connection)
    .await
}

async fn of_canvas_category(
    connection: &mut PgConnection,
    canvas: CanvasId,
    category: &Category,
    partition: Option<Partition>,
    span: &Span,
) -> Result<Vec<LogRow>, sqlx::Error> {
    sqlx::query_as!(
        LogRow,
        r#"select seq, prev, canvas_id, category as "category: String", stream as "stream: String", position, id,
                  name as "name: String", case when bytes <= $9 or bytes = own then payload else '' end as "payload!: String",
                  metadata as "metadata: String", object as "object: String", link_id, link_prev, appended_at,
                  matches as "matches!", number as "number!", bytes as "bytes!"
             from (select l.*, matches, own, row_number() over seqs as number, sum(own) over seqs as bytes
                     from wakeq.log l
                    cross join lateral (select l.bucket % $6::integer = $7::integer as matches) as m
                    cross join lateral (select case when matches then octet_length(l.payload) + octet_length(l.metadata)
                                                    else 0 end as own) as o
                    where l.canvas_id = $8 and l.category = $5 and l.seq > $1 and l.seq <= $2
                   window seqs as (order by l.seq rows unbounded preceding) order by l.seq limit $4) as looked
            where (matches or number = $4) and bytes - own <= $9 order by seq limit $3"#,
        span.after,
        span.through,
        span.limit,
        span.looked,
        category.as_str() as _,
        partition.map_or(1, |partition| i32::from(partition.of())),
        partition.map_or(0, |partition| i32::from(partition.number()) - 1),
        canvas.0,
        span.bytes
    )
    .fetch_all(connection)
    .await
}

async fn of_stream(
    connection: &mut PgConnection,
    stream: &StreamId,
    span: &Span,
) -> Result<Vec<LogRow>, sqlx::Error> {
    sqlx::query_as!(
        LogRow,
        r#"select seq, prev, canvas_id, category as "category: String", stream as "stream: String", position, id,
                  name as "name: String", case when bytes <= $7 or bytes = own then payload else '' end as "payload!: String",
                  metadata as "metadata: String", object as "object: String", link_id, link_prev, appended_at,
                  true as "matches!", 0::bigint as "number!", bytes as "bytes!"
             from (select l.*, own, sum(own) over (order by l.seq rows unbounded preceding) as bytes
                     from wakeq.log l
                    cross join lateral (select octet_length(l.payload) + octet_length(l.metadata) as own) as o
                    where l.canvas_id = $4 and l.category = $5 and l.stream = $6 and l.seq > $1 and l.seq <= $2
                    order by l.seq limit $3) as looked
            where bytes - own <= $7 order by seq"#,
        span.after,
        span.through,
        span.limit,
        stream.canvas.0,
        stream.category.as_str() as _,
        stream.name.as_str() as _,
        span.bytes
    )
    .fetch_all(connection)
    .await
}

/// An event from its columns, which hold to the same rules as the types.
fn event(row: LogRow) -> Option<LogEvent> {
    Some(LogEvent {
        seq: row.seq,
        prev: row.prev,
        id: EventId(row.id),
        stream: StreamId::new(CanvasId(row.canvas_id), &row.category, &row.stream).ok()?,
        position: row.position,
        name: row.name.parse().ok()?,
        payload: row.payload,
        metadata: row.metadata,
        place: Place::of(row.object.as_deref(), row.link_id, row.link_prev),
        appended_at: row.appended_at,
    })
}
