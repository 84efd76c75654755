//! Checkpoints of events, for operators and for handlers that are not functions of a worker.

use super::{Admin, AdminError};
use crate::event::{CanvasId, Checkpoint, Claim, EventId, HandlerScope};

/// Says that a text is not a claim.
const NOT_A_CLAIM: &str = "not the claim of an attempt: send what came with the event (the header \
                           `wakeq-claim`, or the `lease`), unchanged";

impl Admin {
    /// What the attempts of an event that waits, runs or died have left to the next one; `None` if
    /// there is nothing.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, id: wakeq::EventId) -> Result<(), wakeq::AdminError> {
    /// let checkpoint = admin.checkpoint(wakeq::CanvasId::DEFAULT, id).await?;
    /// println!("{}", checkpoint.map_or("it begins anew".to_owned(), |checkpoint| checkpoint.json));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn checkpoint(&self, canvas: CanvasId, id: EventId) -> Result<Option<Checkpoint>, AdminError> {
        match self.own_id(canvas, id).await {
            Ok(id) => Ok(self.store.checkpoint(canvas, id).await?),
            Err(AdminError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a checkpoint for an attempt that runs elsewhere, as
    /// [`Execution::checkpoint`](crate::Execution::checkpoint) does. `claim` is the attempt's, or
    /// the lease of a copy or event, and `json` is JSON of at most 64 KiB. Errors:
    /// [`AdminError::ClaimLost`] if another attempt has begun, or the event has ended.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin, copy: wakeq::queues::LeasedCopy) -> Result<(), wakeq::AdminError> {
    /// let canvas = copy.address.scope.canvas;
    /// admin.store_checkpoint(canvas, copy.id, copy.lease.reveal(), r#"{"page": 7}"#).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn store_checkpoint(
        &self,
        canvas: CanvasId,
        id: EventId,
        claim: &str,
        json: &str,
    ) -> Result<(), AdminError> {
        Checkpoint::check(json)?;
        let id = self.own_id(canvas, id).await?;
        let claim = Claim::of_token(id, claim).ok_or(AdminError::Invalid(NOT_A_CLAIM))?;
        if self.store.store_checkpoint(canvas, claim, json).await? {
            Ok(())
        } else {
            Err(AdminError::ClaimLost(id))
        }
    }
    /// The handler of an event that has not ended; `None` if the canvas has no such event, or it is
    /// a copy in a queue.
    #[doc(hidden)]
    pub async fn handler_of(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<HandlerScope>, AdminError> {
        let Some(id) = self.store.known_event(canvas, id, self.copies).await? else { return Ok(None) };
        let found = self.store.load(&[id]).await?.into_iter().flatten().next();
        let event = found.filter(|event| event.copy_of.is_none() && event.address.scope.canvas == canvas);
        Ok(event.map(|event| event.address.scope))
    }
}
