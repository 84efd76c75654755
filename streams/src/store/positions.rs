//! Positions of consumer groups in their sources, and the events that groups gave up on.
//!
//! Every write names the epoch under which the position was opened, and where it was: a deposed
//! owner moves nothing.

use sqlx::postgres::PgConnection;

use super::Store;
use wakeq::log::{EventSource, LogEvent};
use wakeq::{Name, StoreError};

/// A move of a position, as its owner intends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PositionMove<'a> {
    pub(crate) group: &'a Name,
    pub(crate) source: &'a EventSource,
    pub(crate) epoch: i64,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// An event that is given up, or fails and is retried, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadEntry<'a> {
    pub(crate) event: &'a LogEvent,
    pub(crate) attempts: i32,
    pub(crate) error: &'a str,
}

impl Store {
    /// Opens a position under this epoch and returns it; `None` if it was opened under a higher
    /// one. A move under the same epoch that may still be in flight is waited for, and seen.
    #[doc(hidden)]
    pub async fn open_position(
        &self,
        group: &Name,
        source: &EventSource,
        epoch: i64,
    ) -> Result<Option<i64>, StoreError> {
        let mut session = self.session().await?.for_statements(2);
        let position = session.limit(|connection| open(connection, group, source, epoch)).await;
        session.answered("open a position", position).await
    }

    /// A position; `None` if it was never opened.
    pub(crate) async fn position(
        &self,
        group: &Name,
        source: &EventSource,
    ) -> Result<Option<i64>, StoreError> {
        let query = sqlx::query_scalar!(
            "select position from wakeq.consumer_positions where consumer_group = $1 and source = $2",
            group.as_str() as _,
            source.to_string()
        );
        self.session().await?.optional("read a position", query).await
    }

    /// The epoch under which a position was opened; 0 if it never was.
    pub(crate) async fn position_epoch(&self, group: &Name, source: &EventSource) -> Result<i64, StoreError> {
        let query = sqlx::query_scalar!(
            "select epoch from wakeq.consumer_positions where consumer_group = $1 and source = $2",
            group.as_str() as _,
            source.to_string()
        );
        Ok(self.session().await?.optional("read the epoch of a position", query).await?.unwrap_or_default())
    }

    /// Moves a position; returns whether it was where its owner expected it, under that epoch.
    pub(crate) async fn move_position(&self, to: &PositionMove<'_>) -> Result<bool, StoreError> {
        let mut session = self.session().await?;
        let moved = session.limit(|connection| move_position(connection, to)).await;
        session.answered("move a position", moved).await
    }

    /// Notes that the event after a position fails, until the position is moved; returns whether
    /// the epoch is still that of the position.
    pub(crate) async fn note_failing(
        &self,
        group: &Name,
        source: &EventSource,
        epoch: i64,
        failing: &DeadEntry<'_>,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "update wakeq.consumer_positions
                set failing_since = case when failing_seq = $4 then failing_since else now() end, failing_seq = $4,
                    failing_attempts = $5, failing_error = $6
              where consumer_group = $1 and source = $2 and epoch = $3",
            group.as_str() as _,
            source.to_string(),
            epoch,
            failing.event.seq,
            failing.attempts,
            failing.error
        );
        Ok(self.session().await?.execute("record that an event fails", query).await?.rows_affected() > 0)
    }

    /// Stores an event among the dead events of its group and moves the position past it, both or
    /// neither; returns whether the position was where its owner expected it.
    pub(crate) async fn move_to_dead(
        &self,
        to: &PositionMove<'_>,
        entry: &DeadEntry<'_>,
    ) -> Result<bool, StoreError> {
        let DeadEntry { event, attempts, error } = entry;
        let query = sqlx::query_scalar!(
            "with moved as (
                 update wakeq.consumer_positions set position = $5, updated_at = now(), failing_seq = null, failing_since = null,
                        failing_attempts = null, failing_error = null
                  where consumer_group = $1 and source = $2 and epoch = $3 and position = $4 and position <= $5
              returning consumer_group, source
             )
             insert into wakeq.consumer_dead as d
                 (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error)
             select moved.consumer_group, moved.source, $6, $7, $8, $9, $10, $11, $12, $13, $14 from moved
             on conflict (consumer_group, source, seq) do update
                set attempts = excluded.attempts, last_error = excluded.last_error, died_at = now()
             returning true as \"moved!\"",
            to.group.as_str() as _,
            to.source.to_string(),
            to.epoch,
            to.from,
            to.to,
            event.seq,
            event.id.0,
            event.stream.canvas.0,
            event.stream.category.as_str() as _,
            event.stream.name.as_str() as _,
            event.name.as_str() as _,
            event.payload.as_str() as _,
            attempts,
            error
        );
        Ok(self.session().await?.optional("give up an event", query).await?.is_some())
    }
}

async fn open(
    connection: &mut PgConnection,
    group: &Name,
    source: &EventSource,
    epoch: i64,
) -> Result<Option<i64>, sqlx::Error> {
    let taken = sqlx::query_scalar!(
        "insert into wakeq.consumer_positions as p (consumer_group, source, epoch) values ($1, $2, $3)
             on conflict (consumer_group, source) do update set epoch = excluded.epoch, updated_at = now()
          where p.epoch < excluded.epoch
         returning position",
        group.as_str() as _,
        source.to_string(),
        epoch
    );
    let taken = taken.fetch_optional(&mut *connection).await?;
    if taken.is_some() {
        return Ok(taken);
    }
    // Not in the same statement: its snapshot is older than the row that it waited for.
    let own = sqlx::query_scalar!(
        "select position from wakeq.consumer_positions where consumer_group = $1 and source = $2 and epoch = $3",
        group.as_str() as _,
        source.to_string(),
        epoch
    );
    own.fetch_optional(connection).await
}

/// Moves a position within its owner's transaction; returns whether it was where the owner expected
/// it, under that epoch.
pub(crate) async fn move_position(
    connection: &mut PgConnection,
    to: &PositionMove<'_>,
) -> Result<bool, sqlx::Error> {
    let moved = sqlx::query_scalar!(
        "update wakeq.consumer_positions set position = $5, updated_at = now(), failing_seq = null, failing_since = null,
                        failing_attempts = null, failing_error = null
          where consumer_group = $1 and source = $2 and epoch = $3 and position = $4 and position <= $5
      returning true as \"moved!\"",
        to.group.as_str() as _,
        to.source.to_string(),
        to.epoch,
        to.from,
        to.to
    );
    Ok(moved.fetch_optional(connection).await?.is_some())
}
