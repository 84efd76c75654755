//! The positions of groups in their sources, for operators.

use uuid::Uuid;

use crate::store::Store;
use wakeq::log::EventSource;
use wakeq::{Actor, Name, StoreError, Timestamp};

/// Maximum number of positions that are listed of all groups.
const POSITIONS_MAX: i64 = 100_000;

/// The position of a group in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupPosition {
    /// The group.
    pub group: Name,
    /// The source.
    pub source: EventSource,
    /// The `seq` of the last event that is done; 0 before the first.
    pub position: i64,
    /// The epoch under which it was last opened.
    pub epoch: i64,
    /// When it was last moved or opened.
    pub updated_at: Timestamp,
    /// The event after it, if that is failing.
    pub failing: Option<FailingEvent>,
}

/// A failing event, for which its source waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingEvent {
    /// Its `seq`.
    pub seq: i64,
    /// Since when it has been failing.
    pub since: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub error: String,
}

impl Store {
    /// The positions of all groups, or of one.
    #[doc(hidden)]
    pub async fn group_positions(&self, group: Option<&Name>) -> Result<Vec<GroupPosition>, StoreError> {
        let query = sqlx::query!(
            r#"select consumer_group::text as "name!", source, position, epoch, updated_at,
                      failing_seq, failing_since, failing_attempts, failing_error
                 from wakeq.consumer_positions where $1::text is null or consumer_group = $1
                order by consumer_group, source limit $2"#,
            group.map(Name::as_str),
            POSITIONS_MAX
        );
        let rows = self.session().await?.all("list positions", query).await?;
        let positions = rows.into_iter().filter_map(|row| {
            Some(GroupPosition {
                group: row.name.parse().ok()?,
                source: row.source.parse().ok()?,
                position: row.position,
                epoch: row.epoch,
                updated_at: row.updated_at,
                failing: row.failing_seq.zip(row.failing_since).map(|(seq, since)| FailingEvent {
                    seq,
                    since,
                    attempts: row.failing_attempts.unwrap_or_default().unsigned_abs(),
                    error: row.failing_error.unwrap_or_default(),
                }),
            })
        });
        Ok(positions.collect())
    }

    /// Moves the positions of a group in these sources to this `seq`, whichever process owns them;
    /// returns how many. The owners resume from there: their next commit is refused, and they read
    /// their position again.
    pub(crate) async fn reset_positions(
        &self,
        group: &Name,
        sources: &[EventSource],
        to: i64,
        actor: &Actor,
    ) -> Result<u64, StoreError> {
        let sources: Vec<String> = sources.iter().map(EventSource::to_string).collect();
        let query = sqlx::query_scalar!(
            r#"with moved as (
                   insert into wakeq.consumer_positions as p (consumer_group, source, position)
                   select $1::text, source, $3 from unnest($2::text[]) as asked (source) order by source
                       on conflict (consumer_group, source) do update
                      set position = excluded.position, updated_at = now(), failing_seq = null, failing_since = null,
                          failing_attempts = null, failing_error = null
                returning source
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $4, $5, 'reset-group', 'done', $6,
                          concat_ws('; ', $7::text, 'group ' || $1::text || ', ' || count(*) || ' sources to ' || $3)
                     from moved having count(*) > 0
               )
               select count(*) as "count!" from moved"#,
            group.as_str(),
            &sources,
            to,
            None::<Uuid>,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        Ok(self.session().await?.one("reset positions", query).await?.unsigned_abs())
    }
}
