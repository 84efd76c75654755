//! Appending to many streams of the log in one transaction: inboxes and repositories.

use std::collections::BTreeSet;

use sqlx::postgres::PgConnection;

use wakeq::internals::{LogBatch, append_batch};
use wakeq::log::{Appended, NewLogEvent, StreamAppend, StreamId};

/// Locks streams in the order of their names; creates those that are missing.
pub(super) async fn lock(
    connection: &mut PgConnection,
    streams: &BTreeSet<&StreamId>,
) -> Result<(), sqlx::Error> {
    let nothing = |stream: &&StreamId| StreamAppend::new((*stream).clone(), Vec::new());
    let streams: Vec<StreamAppend> = streams.iter().map(nothing).collect();
    // Without conditions it is never refused.
    append_batch(connection, &LogBatch::of(&streams)).await.map(|appended| drop(appended.ok()))
}

/// Appends in the order of the rows; returns where they are.
pub(super) async fn append(
    connection: &mut PgConnection,
    rows: Vec<(StreamId, NewLogEvent)>,
) -> Result<Vec<Appended>, sqlx::Error> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    debug_assert!(
        rows.iter().all(|(stream, _)| stream.category.is_reserved()),
        "only to what is the entities'"
    );
    let one = |(stream, event)| StreamAppend::new(stream, vec![event]);
    let rows: Vec<StreamAppend> = rows.into_iter().map(one).collect();
    let appended = append_batch(connection, &LogBatch::of(&rows)).await?;
    Ok(appended.unwrap_or_default())
}
