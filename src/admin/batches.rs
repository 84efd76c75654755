//! Batches as operators see them: listed, shown and given up. Those that emit open and close them,
//! with `Queue::batch`.

use super::{Admin, AdminError, LIST_MAX, checked};
use crate::event::{Actor, BatchName, CanvasId};
use crate::store::{BatchProgress, RegisteredBatch};

impl Admin {
    /// The batch of this name, and how many of its members have ended and are left.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::CanvasId;
    ///
    /// let import = admin.batch(CanvasId::DEFAULT, &"import:42".parse()?).await?;
    /// println!("{}: {} have ended, {} are left", import.batch.state, import.counts.total(), import.left);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn batch(&self, canvas: CanvasId, name: &BatchName) -> Result<BatchProgress, AdminError> {
        let found = self.store.batch(canvas, name).await?;
        found.ok_or_else(|| AdminError::NoBatch(name.clone()))
    }

    /// The batches of a canvas by name, after the given one: up to `limit`, and up to 1,001, since
    /// one more than a page tells whether another page follows. Those that are over are listed for
    /// 7 days.
    pub async fn batches(
        &self,
        canvas: CanvasId,
        after: Option<&BatchName>,
        limit: u32,
    ) -> Result<Vec<RegisteredBatch>, AdminError> {
        let limit = i64::from(limit.min(LIST_MAX + 1));
        Ok(self.store.batches(canvas, after, limit).await?)
    }

    /// Gives a batch up: its event is never emitted, and emits into it are refused. Its members
    /// stay as they are. Nothing changes if it is over already.
    pub async fn cancel_batch(
        &self,
        canvas: CanvasId,
        name: &BatchName,
        actor: &Actor,
    ) -> Result<(), AdminError> {
        checked(actor)?;
        match self.store.cancel_batch(canvas, name, actor).await? {
            Some(_) => Ok(()),
            None => Err(AdminError::NoBatch(name.clone())),
        }
    }
}
