//! Events whose notifications may have been missed, by the promises that their emits made, and all
//! events that wait.

use std::time::Duration;

use uuid::Uuid;

use crate::event::{CanvasId, Notification, Timestamp};
use crate::store::kernel::{Store, StoreError, interval, notifications};

/// Events of one page.
pub(crate) const MISSED_PAGE: usize = 1_000;
/// The longest time that is looked back to: older promises are overdue.
const BACK_MAX: Duration = Duration::from_secs(10 * 60);

/// A page of events that may have been missed.
#[derive(Debug, Default)]
pub(crate) struct MissedPage {
    pub(crate) notifications: Vec<Notification>,
    /// Whether some may be pulled, as copies in queues and events of pulled handlers are, as far as
    /// that is asked.
    pub(crate) may_be_pulled: bool,
    /// Where the next page begins; `None` after the last.
    pub(crate) next: Option<MissedCursor>,
}

/// The last event of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissedCursor {
    /// When the look began, as far as that is asked.
    since: Option<Timestamp>,
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
        let next = next.map(|row| MissedCursor { since: None, notify_at: row.notify_at, id: row.id });
        let (ids, canvases) = rows.iter().map(|row| (row.id, row.canvas_id)).unzip();
        Ok(MissedPage { notifications: notifications(ids, canvases), may_be_pulled: false, next })
    }

    /// Events that are due and that nobody has begun, whoever was notified of them, but for those
    /// of some canvases. Their promises are ahead: the minute's pass finds the others. No promise
    /// is moved.
    ///
    /// A page looks at 10,000 promises at most, since those of delayed events are among them, and
    /// may be empty. The last one has looked at promises that are further ahead than any of an
    /// event that is due. These are no condition of the index, or a plan without statistics would
    /// expect a few rows in between and sort all of them.
    ///
    /// Workers put off the promises of events whose handlers they do not know, which are then ahead
    /// of the cursor. So what has a promise as far ahead as one that was put off, or moved by a
    /// pass, since the look began, is left out: it was published then. Otherwise such events would
    /// be published for ever.
    pub(crate) async fn waiting_after(
        &self,
        after: Option<MissedCursor>,
        without: &[CanvasId],
    ) -> Result<MissedPage, StoreError> {
        let without: Vec<Uuid> = without.iter().map(|canvas| canvas.0).collect();
        let timing = self.timing();
        let query = sqlx::query!(
            r#"select notify_at as "notify_at!", id as "id!", canvas_id as "canvas_id!", waits as "waits!",
                      may_be_pulled as "may_be_pulled!", is_within as "is_within!", is_last as "is_last!",
                      coalesce($5::timestamptz, now()) as "since!" from (
                   select notify_at, id, canvas_id,
                          queue is not null or (select exists (select from wakeq.pulled_handlers)) as may_be_pulled,
                          notify_at <= now() + $4::interval as is_within,
                          delay_until <= now() and locked_at is null and canvas_id <> all ($3::uuid[])
                          and notify_at < coalesce($5::timestamptz, now()) + greatest(wakeq.defer_for($6, probes),
                              case when probes > 0 then least($7::interval * power(2, least(probes - 1, 20)), $4::interval)
                              end) as waits,
                          row_number() over (order by notify_at, id) = 10000 as is_last
                     from wakeq.events_v2
                    where notify_at >= coalesce($1::timestamptz, now())
                      and (notify_at, id) > (coalesce($1::timestamptz, '-infinity'), coalesce($2::uuid, '00000000-0000-0000-0000-000000000000'))
                    order by notify_at, id limit 10000) looked
                where waits and is_within or is_last
                order by notify_at, id limit 1000"#,
            after.map(|cursor| cursor.notify_at),
            after.map(|cursor| cursor.id),
            &without,
            interval(timing.probe_backoff_max.max(timing.grace)),
            after.and_then(|cursor| cursor.since),
            interval(timing.unknown_handler_wait),
            interval(timing.probe_backoff)
        );
        let rows = self.session().await?.all("look for what waits", query).await?;
        let next = rows.last().filter(|row| row.is_within && (row.is_last || rows.len() >= MISSED_PAGE));
        let next =
            next.map(|row| MissedCursor { since: Some(row.since), notify_at: row.notify_at, id: row.id });
        let may_be_pulled = rows.iter().any(|row| row.may_be_pulled);
        let (ids, canvases) =
            rows.iter().filter(|row| row.waits && row.is_within).map(|row| (row.id, row.canvas_id)).unzip();
        Ok(MissedPage { notifications: notifications(ids, canvases), may_be_pulled, next })
    }
}
