//! Leases of copies in pulled queues, as operators see them. Queues span all canvases: callers
//! check the authorization.

use super::{Admin, AdminError, Cursor, LIST_MAX, Page, checked};
use crate::event::{Actor, EventId, Name, Notification};
use crate::store::Lease;

impl Admin {
    /// The copies in a queue that services have leased at present, by canvas and id, without values
    /// and tokens: up to `limit`, 1 to [`LIST_MAX`]. A page visits up to 1,000 canvases, so it may
    /// be short or empty and still have a next page.
    pub async fn leases(
        &self,
        queue: &Name,
        cursor: Option<&Cursor>,
        limit: u32,
    ) -> Result<Page<Lease>, AdminError> {
        let after = cursor.map(Cursor::lease).transpose()?;
        let limit = limit.clamp(1, LIST_MAX) as usize;
        let (items, next) = self.store.leases(queue, after, limit).await?;
        if items.is_empty() && self.store.pull_policy(queue).await?.is_none() {
            return Err(AdminError::NoQueue(queue.clone()));
        }
        Ok(Page { looked_at: items.len() as u64, items, next: next.map(Cursor::of_lease) })
    }

    /// Ends a lease whose token is lost: the copy can be leased again immediately, and nothing is
    /// counted. The holder of the token gets the error that the lease is over.
    pub async fn end_lease(&self, queue: &Name, id: EventId, actor: &Actor) -> Result<(), AdminError> {
        checked(actor)?;
        let Some(canvas) = self.store.end_lease(queue, id, actor).await? else {
            let known = self.store.pull_policy(queue).await?;
            return Err(known.map_or_else(|| AdminError::NoQueue(queue.clone()), |_| AdminError::NoLease(id)));
        };
        self.wake_facet(queue, canvas).await;
        self.publish(&[Notification::new(id, canvas)]).await;
        Ok(())
    }
}
