//! Objects, as reads show them. Their rows are written by emits on them.

use crate::event::{CanvasId, ObjectKey, Timestamp};
use crate::store::kernel::{Sql, StoreError};

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// The tenant.
    pub canvas: CanvasId,
    /// Its key.
    pub key: ObjectKey,
    /// The link id of the last event that was emitted on it; 0 if there was none.
    pub last_id: i64,
    /// The state it was last set to, as JSON.
    pub state: Option<String>,
    /// When the state was set.
    pub state_at: Option<Timestamp>,
}

impl Sql<'_> {
    pub(in crate::store) async fn object(
        &self,
        canvas: CanvasId,
        key: &ObjectKey,
    ) -> Result<Option<Object>, StoreError> {
        let query = sqlx::query!(
            "select last_seq, state::text as state, state_at from wakeq.objects where canvas_id = $1 and object = $2",
            canvas.0,
            key.as_str() as _
        );
        let row = self.session().await?.optional("read an object", query).await?;
        // Emitting a known event again on another object leaves a row there and no event.
        Ok(row.filter(|row| row.last_seq > 0).map(|row| Object {
            canvas,
            key: key.clone(),
            last_id: row.last_seq,
            state: row.state,
            state_at: row.state_at,
        }))
    }
}
