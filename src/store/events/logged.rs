//! Emitted events that are also appended to the log, in the transaction that emits them.

use serde_json::json;
use sqlx::postgres::PgConnection;

use super::outcome::InsertOutcome;
use crate::event::{NewEvent, NewLogEvent, StreamAppend, StreamId};
use crate::store::log::{LogBatch, append_batch};

/// Maximum number of events in one statement.
const PAGE: usize = 1_000;
/// Maximum bytes of these events, unless a single event is larger.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Additional statements of an emit of logged events, per page.
pub(super) const LOG_STATEMENTS: usize = 4;

/// Appends those of these events that are to be logged and are new. This comes last: a transaction
/// that locks objects and streams locks the objects first.
pub(super) async fn append_emitted(
    transaction: &mut PgConnection,
    events: &[NewEvent],
    inserted: &[InsertOutcome],
) -> Result<(), sqlx::Error> {
    let logged: Vec<(&StreamId, NewLogEvent)> = events.iter().zip(inserted).filter_map(logged).collect();
    if logged.is_empty() {
        return Ok(());
    }
    if logged.len() > PAGE {
        // Locks all streams in the order of their keys, before the first page.
        let streams: Vec<_> =
            logged.iter().map(|(stream, _)| StreamAppend::new((*stream).clone(), Vec::new())).collect();
        // Without conditions it is never refused.
        append_batch(&mut *transaction, &LogBatch::of(&streams)).await?.ok();
    }
    let (mut batch, mut count, mut bytes) = (LogBatch::default(), 0, 0);
    for (stream, event) in &logged {
        if count > 0 && (count == PAGE || bytes + event.size_bytes() > PAGE_BYTES) {
            append_batch(&mut *transaction, &batch).await?.ok();
            (batch, count, bytes) = (LogBatch::default(), 0, 0);
        }
        batch.push(stream, event);
        count += 1;
        bytes += event.size_bytes();
    }
    append_batch(transaction, &batch).await?.ok();
    Ok(())
}

/// An event as the log stores it: its handler's name, its value, and where it went.
fn logged<'a>((event, inserted): (&'a NewEvent, &InsertOutcome)) -> Option<(&'a StreamId, NewLogEvent)> {
    let (stream, link) = match (&event.logged, inserted) {
        (Some(stream), InsertOutcome::New { link, .. }) => (stream, link),
        (None, _) | (_, InsertOutcome::Known | InsertOutcome::Stands { .. }) => return None,
    };
    let mut metadata = json!(event.metadata);
    metadata["module"] = event.address.scope.module.as_str().into();
    metadata["modifier"] = event.address.modifier.as_str().into();
    let (id, name, place) = (event.id, event.address.scope.name.clone(), event.place(*link));
    Some((
        stream,
        NewLogEvent { id, name, payload: event.value.clone(), metadata: metadata.to_string(), place },
    ))
}
