//! Tombstones: links of chains whose events ended without being consumed. They are written by the
//! statements that end these events; here they are read, and removed when they are old.

use std::time::Duration;

use crate::event::{CanvasId, Link, Name, ObjectKey, Timestamp};
use crate::store::kernel::{Store, StoreError, interval};

/// Most tombstones that are kept of one canvas.
const KEPT_MAX: i64 = 100_000;
/// Most tombstones that one statement removes.
pub(in crate::store) const TOMBSTONES_PAGE: u64 = 1_000;

/// A link that is missing from a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tombstone {
    /// The link.
    pub link: Link,
    /// Why: `cancelled`, `purged` or `dead`; or `redriven`, for an event that got no new copies in
    /// queues.
    pub cause: String,
    /// Since when it has been missing.
    pub left_at: Timestamp,
}

impl Store {
    /// The tombstones of an object after a link, in the order of the chain: those for consumers of
    /// the handlers' own events, or those of a queue, if it shows its copies or with `copies`.
    pub(crate) async fn tombstones(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        (queue, copies): (Option<&Name>, bool),
        after: i64,
        limit: i64,
    ) -> Result<Vec<Tombstone>, StoreError> {
        in_memory!(self, tombstones(canvas, object, queue, after, limit));
        let query = sqlx::query!(
            r#"select seq, prev, cause, left_at from wakeq.tombstones
                where canvas_id = $1 and object = $2 and seq > $3
                  and case when $4::text is null then queue = ''
                           else queue in ('*', $4) and ($5 or wakeq.is_shown($4)) end
                order by seq limit $6"#,
            canvas.0,
            object.as_str() as _,
            after,
            queue.map(Name::as_str),
            copies,
            limit
        );
        let rows = self.session().await?.all("list the tombstones of an object", query).await?;
        let found = rows.into_iter().map(|row| Tombstone {
            link: Link { id: row.seq, prev: row.prev },
            cause: row.cause,
            left_at: row.left_at,
        });
        Ok(found.collect())
    }

    /// Removes a page of tombstones that are older than this and on whose objects no event waits;
    /// and, of a canvas with more than [`KEPT_MAX`], the oldest. Returns how many.
    pub(crate) async fn expire_tombstones(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "with recursive canvases as (
                 (select t.canvas_id from wakeq.tombstones t order by t.canvas_id limit 1)
                  union all
                 select (select t.canvas_id from wakeq.tombstones t where t.canvas_id > c.canvas_id order by t.canvas_id limit 1)
                   from canvases c where c.canvas_id is not null
             ), edges as materialized (
                 select c.canvas_id, (select t.left_at from wakeq.tombstones t where t.canvas_id = c.canvas_id and t.left_at > '-infinity'
                                       order by t.left_at desc offset $2 limit 1) as full_at
                   from canvases c where c.canvas_id is not null
             )
             delete from wakeq.tombstones t using (
                 select old.* from edges e
                  cross join lateral (
                        select t.canvas_id, t.object, t.seq, t.queue from wakeq.tombstones t
                         where t.canvas_id = e.canvas_id and t.left_at > '-infinity'
                           and (t.left_at <= e.full_at
                                or t.left_at < now() - $1::interval
                                   and not exists (select from wakeq.events_v2 x
                                                    where x.canvas_id = t.canvas_id and x.object = t.object and x.queue is null)
                                   and not exists (select from wakeq.events_v2 x
                                                    where x.canvas_id = t.canvas_id and x.object = t.object and x.queue is not null))
                         order by t.left_at limit $3) as old
                  limit $3) as old
              where t.canvas_id = any (array[old.canvas_id]) and (t.object, t.seq, t.queue) = (old.object, old.seq, old.queue)",
            interval(kept),
            KEPT_MAX,
            TOMBSTONES_PAGE.cast_signed()
        );
        Ok(self.session().await?.execute("remove old tombstones", query).await?.rows_affected())
    }
}
