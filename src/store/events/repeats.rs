//! Repeats of ids that callers chose: one for another handler is refused. Which ids are known is
//! found by the statements that insert events.

use sqlx::postgres::PgConnection;

use super::pages::PAGE;
use crate::event::NewEvent;

/// Fails if one of these events, whose chosen ids are known, is for another handler than the event
/// that has its id. Nothing is asked if there are none.
pub(super) async fn check_repeats(
    connection: &mut PgConnection,
    known: Vec<&NewEvent>,
) -> Result<(), sqlx::Error> {
    for page in known.chunks(PAGE) {
        check_page(&mut *connection, page).await?;
    }
    Ok(())
}

async fn check_page(connection: &mut PgConnection, known: &[&NewEvent]) -> Result<(), sqlx::Error> {
    let (mut canvases, mut ids) = (Vec::with_capacity(known.len()), Vec::with_capacity(known.len()));
    let (mut modules, mut names) = (Vec::with_capacity(known.len()), Vec::with_capacity(known.len()));
    for event in known {
        let scope = &event.address.scope;
        canvases.push(scope.canvas.0);
        ids.push(event.id.0);
        modules.push(scope.module.as_str());
        names.push(scope.name.as_str());
    }
    let checked = sqlx::query!(
        "select wakeq.check_repeats($1, $2, $3, $4)::text as checked",
        &canvases,
        &ids,
        modules.as_slice() as &[&str],
        names.as_slice() as &[&str],
    );
    checked.fetch_one(connection).await.map(drop)
}
