//! Tombstones: links of chains whose events ended without being consumed. They are written by the
//! statements that end these events, and removed by the expiry; here they are read.

use crate::event::{CanvasId, Link, Name, ObjectKey, Timestamp};
use crate::store::kernel::{Sql, StoreError};

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

impl Sql<'_> {
    pub(in crate::store) async fn tombstones(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        (queue, copies): (Option<&Name>, bool),
        after: i64,
        limit: i64,
    ) -> Result<Vec<Tombstone>, StoreError> {
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
}
