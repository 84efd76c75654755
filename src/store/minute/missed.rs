//! Events whose notifications may have been missed, by the promises that their emits made.

use std::time::Duration;

use uuid::Uuid;

use crate::event::{Notification, Timestamp};
use crate::store::kernel::{Store, StoreError, interval, notifications};

/// Events of one page.
pub(crate) const MISSED_PAGE: usize = 1_000;
/// The longest time that is looked back to: older promises are overdue.
const BACK_MAX: Duration = Duration::from_secs(10 * 60);

/// A page of events that may have been missed.
#[derive(Debug, Default)]
pub(crate) struct MissedPage {
    pub(crate) notifications: Vec<Notification>,
    /// Where the next page begins; `None` after the last.
    pub(crate) next: Option<MissedCursor>,
}

/// The last event of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissedCursor {
    notify_at: Timestamp,
    id: Uuid,
}

impl Store {
    /// Events that were emitted in this time until now, and that nobody has begun: their promises
    /// stand a grace later. Some may have been notified of all the same. No promise is moved.
    pub(crate) async fn missed_for(
        &self,
        missed: Duration,
        after: Option<MissedCursor>,
    ) -> Result<MissedPage, StoreError> {
        let query = sqlx::query!(
            "select id, canvas_id, notify_at as \"notify_at!\" from wakeq.events_v2
              where notify_at >= coalesce($3::timestamptz, now() + $2::interval - $1::interval - interval '1 second')
                and notify_at <= now() + $2::interval + interval '1 second'
                and (notify_at, id) > (coalesce($3::timestamptz, '-infinity'), coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'))
                and delay_until <= now() and locked_at is null
              order by notify_at, id limit 1000",
            interval(missed.min(BACK_MAX)),
            interval(self.timing().grace),
            after.map(|cursor| cursor.notify_at),
            after.map(|cursor| cursor.id)
        );
        let rows = self.session().await?.all("look for what was missed", query).await?;
        let next = rows.last().filter(|_| rows.len() >= MISSED_PAGE);
        let next = next.map(|row| MissedCursor { notify_at: row.notify_at, id: row.id });
        let (ids, canvases) = rows.iter().map(|row| (row.id, row.canvas_id)).unzip();
        Ok(MissedPage { notifications: notifications(ids, canvases), next })
    }
}
