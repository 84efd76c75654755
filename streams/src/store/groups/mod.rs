//! Consumer groups: nodes, subscribers, their subscriptions, and locks. One file per table.

mod dead;
mod locks;
mod nodes;
mod positions;
mod single;
mod subscribers;
mod subscriptions;
mod upkeep;

pub(crate) use dead::REDRIVEN_PAGE;
pub use dead::{GroupDead, GroupDeadCursor, GroupDeadPage, InvalidGroupDeadCursor};
pub use positions::{FailingEvent, GroupPosition};
pub(crate) use single::GroupClaim;
pub(crate) use subscribers::RegisterOutcome;
pub use upkeep::RemoveGroup;

use sqlx::postgres::PgConnection;

use crate::event::SubscriberId;
use wakeq::Name;
use wakeq::log::{EventSource, SourceList};

/// Locks a group until the transaction ends, by its row, which is created if it is missing. A
/// statement of its own: the snapshot of the next one includes everything that was done under the
/// lock before.
async fn lock_group(connection: &mut PgConnection, group: &Name) -> Result<(), sqlx::Error> {
    let lock = sqlx::query!(
        "insert into wakeq.consumer_groups as g (consumer_group) values ($1)
             on conflict (consumer_group) do update set recoveries = g.recoveries",
        group.as_str() as _
    );
    lock.execute(connection).await.map(drop)
}

/// The requests of the live members of a group, except one of them: each distinct list once.
async fn requests_of_others(
    connection: &mut PgConnection,
    group: &Name,
    but: Option<SubscriberId>,
) -> Result<Vec<Vec<EventSource>>, sqlx::Error> {
    let lists = sqlx::query_scalar!(
        r#"select distinct cast(requests as text) as "requests!" from wakeq.subscribers
            where subscriber_name = $1 and expires_at >= clock_timestamp() and ($2::uuid is null or subscriber_id <> $2)"#,
        group.as_str() as _,
        but.map(|id| id.0)
    );
    Ok(lists.fetch_all(connection).await?.iter().map(|list| sources(list)).collect())
}

/// Sources from their column. One that can't be read is of a newer release, and irrelevant here.
fn sources(json: &str) -> Vec<EventSource> {
    SourceList::from_json(json).map(|list| list.0).unwrap_or_default()
}

fn json(sources: &[EventSource]) -> String {
    SourceList(sources.to_vec()).to_json()
}
