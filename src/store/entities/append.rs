//! Appending to many streams of the log in one transaction: inboxes and repositories.

use std::collections::BTreeSet;

use sqlx::postgres::PgConnection;

use crate::event::{EventId, Link, Name, StreamId};

/// An event on its way into the log.
#[derive(Clone, Debug)]
pub(super) struct NewRow {
    pub(super) stream: StreamId,
    pub(super) id: EventId,
    pub(super) name: Name,
    pub(super) payload: String,
    pub(super) metadata: String,
}

/// Where it stands there: its seq, and that of the event before it; its place in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    pub(super) link: Link,
    pub(super) position: i64,
}

/// Locks streams, in the order of their names; makes those that are not there.
pub(super) async fn lock(
    connection: &mut PgConnection,
    streams: &BTreeSet<&StreamId>,
) -> Result<(), sqlx::Error> {
    let canvases: Vec<_> = streams.iter().map(|stream| stream.canvas.0).collect();
    let categories: Vec<_> = streams.iter().map(|stream| stream.category.to_string()).collect();
    let names: Vec<_> = streams.iter().map(|stream| stream.name.to_string()).collect();
    sqlx::query!(
        "insert into wakeq.log_streams (canvas_id, category, stream)
         select * from unnest($1::uuid[], $2::text[], $3::text[]) as new (canvas_id, category, stream)
          order by canvas_id, category, stream
             on conflict do nothing",
        &canvases,
        &categories,
        &names
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "select s.position
           from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (canvas_id, category, stream)
           join wakeq.log_streams s on s.canvas_id = wanted.canvas_id and s.category = wanted.category and s.stream = wanted.stream
          order by s.canvas_id, s.category, s.stream for update of s",
        &canvases,
        &categories,
        &names
    )
    .fetch_all(connection)
    .await
    .map(drop)
}

/// Appends to streams that are locked, in the order of the rows.
pub(super) async fn append(
    connection: &mut PgConnection,
    rows: &[NewRow],
) -> Result<Vec<Appended>, sqlx::Error> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query!(r#"select wakeq.log_floor() as "floor!""#).fetch_one(&mut *connection).await?;
    let streams = || rows.iter().map(|row| &row.stream);
    let appended = sqlx::query!(
        r#"with numbered as materialized (
               select new.*, nextval('wakeq.log_seq') as seq
                 from (select * from unnest($1::uuid[], $2::text[], $3::text[], $4::integer[], $5::uuid[], $6::text[],
                                            $7::text[], $8::text[]) with ordinality
                           as new (canvas_id, category, stream, bucket, id, name, payload, metadata, place)
                        order by place) as new
           ), linked as (
               select n.*, s.position + row_number() over stream as position,
                      coalesce(lag(n.seq) over stream, s.last_seq) as prev
                 from numbered n
                 join wakeq.log_streams s on s.canvas_id = n.canvas_id and s.category = n.category and s.stream = n.stream
               window stream as (partition by n.canvas_id, n.category, n.stream order by n.place)
           ), moved as (
               update wakeq.log_streams s set last_seq = latest.seq, position = latest.position
                 from (select canvas_id, category, stream, max(seq) as seq, max(position) as position
                         from linked group by canvas_id, category, stream) as latest
                where s.canvas_id = latest.canvas_id and s.category = latest.category and s.stream = latest.stream
           ), written as (
               insert into wakeq.log
                   (seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, metadata)
               select seq, prev, canvas_id, category, stream, position, bucket, id, name, payload, metadata from linked
           )
           select seq as "seq!", prev as "prev!", position as "position!" from linked order by place"#,
        &streams().map(|stream| stream.canvas.0).collect::<Vec<_>>(),
        &streams().map(|stream| stream.category.to_string()).collect::<Vec<_>>(),
        &streams().map(|stream| stream.name.to_string()).collect::<Vec<_>>(),
        &streams().map(|stream| i32::from(stream.bucket())).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.id.0).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.name.to_string()).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.payload.clone()).collect::<Vec<_>>(),
        &rows.iter().map(|row| row.metadata.clone()).collect::<Vec<_>>(),
    )
    .fetch_all(connection)
    .await?;
    let place = |seq, prev, position| Appended { link: Link { id: seq, prev }, position };
    Ok(appended.into_iter().map(|row| place(row.seq, row.prev, row.position)).collect())
}
