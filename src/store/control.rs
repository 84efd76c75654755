//! What an operator does to waiting events: cancel, run now, purge.

use super::session::interval;
use super::{Store, StoreError};
use crate::event::{CanvasId, EventId, HandlerScope, Timestamp};

/// Most events that one statement purges.
pub(crate) const PURGE_PAGE: u64 = 1000;

impl Store {
    /// Deletes an event that nobody runs; whether it was there.
    pub(crate) async fn cancel(&self, id: EventId) -> Result<bool, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            "delete from wakeq.events_v2
              where id = $1 and (locked_at is null or locked_at < clock_timestamp() - $2::interval)",
            id.0,
            interval(self.timing().lease)
        );
        let deleted = session.limit(|connection| query.execute(connection)).await;
        Ok(session.answered("cancel an event", deleted)?.rows_affected() > 0)
    }

    /// Makes an event that nobody runs due at once; its canvas, if it was there.
    pub(crate) async fn run_now(&self, id: EventId) -> Result<Option<CanvasId>, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            "update wakeq.events_v2
                set delay_until = least(delay_until, now()), probes = 0,
                    notify_at = wakeq.wake_at(now(), now(), $3, $4)
              where id = $1 and (locked_at is null or locked_at < clock_timestamp() - $2::interval)
          returning canvas_id",
            id.0,
            interval(self.timing().lease),
            interval(self.timing().horizon),
            interval(self.timing().grace)
        );
        let canvas = session.limit(|connection| query.fetch_optional(connection)).await;
        Ok(session.answered("make an event due", canvas)?.map(CanvasId))
    }

    /// How many events of a handler nobody runs: what [`Store::purge_page`] would delete.
    pub(crate) async fn purgeable(&self, scope: &HandlerScope) -> Result<i64, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(
            r#"select count(*) as "count!" from wakeq.events_v2
                where canvas_id = $1 and module = $2 and name = $3
                  and (locked_at is null or locked_at < now() - $4::interval)"#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            interval(self.timing().lease)
        );
        let count = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("count what a purge would delete", count)
    }

    /// Deletes up to [`PURGE_PAGE`] events of a handler that nobody runs; how many.
    pub(crate) async fn purge_page(&self, scope: &HandlerScope) -> Result<u64, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query!(
            "delete from wakeq.events_v2 where id = any (array(
                 select id from wakeq.events_v2
                  where canvas_id = $1 and module = $2 and name = $3
                    and (locked_at is null or locked_at < now() - $4::interval)
                  limit $5 for update skip locked))",
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            interval(self.timing().lease),
            PURGE_PAGE.cast_signed()
        );
        let deleted = session.limit(|connection| query.execute(connection)).await;
        Ok(session.answered("purge events", deleted)?.rows_affected())
    }

    /// When a chosen id was emitted, if it is remembered.
    pub(crate) async fn emitted_at(&self, id: EventId) -> Result<Option<Timestamp>, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!("select emitted_at from wakeq.emitted_ids where id = $1", id.0);
        let emitted_at = session.limit(|connection| query.fetch_optional(connection)).await;
        session.answered("look for a chosen id", emitted_at)
    }

    /// The database's clock.
    pub(crate) async fn clock(&self) -> Result<Timestamp, StoreError> {
        let mut session = self.session().await?;
        let query = sqlx::query_scalar!(r#"select clock_timestamp() as "clock!""#);
        let clock = session.limit(|connection| query.fetch_one(connection)).await;
        session.answered("read the clock", clock)
    }
}
