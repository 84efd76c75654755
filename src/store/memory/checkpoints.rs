//! Checkpoints, which are in the rows of their events: both end together.

use super::{LiveRow, Tables};
use crate::event::{CanvasId, Checkpoint, Claim, EventId};
use crate::store::kernel::StoreError;

impl Tables {
    pub(in crate::store) fn store_checkpoint(
        &mut self,
        canvas: CanvasId,
        claim: Claim,
        json: &str,
    ) -> Result<bool, StoreError> {
        let checkpoint = Checkpoint::new(json.to_owned(), self.now);
        let owned = self.owned(&claim).filter(|row| row.address().scope.canvas == canvas);
        Ok(owned.map(|row| row.checkpoint = Some(checkpoint)).is_some())
    }

    pub(in crate::store) fn checkpoints(
        &self,
        events: &[(CanvasId, EventId)],
    ) -> Result<Vec<(EventId, Checkpoint)>, StoreError> {
        let found = |(canvas, id): &(CanvasId, EventId)| {
            let row = self.events.get(id).or_else(|| self.dead.get(id).map(|dead| &dead.row));
            let of_canvas = row.filter(|row: &&LiveRow| row.address().scope.canvas == *canvas)?;
            Some((*id, of_canvas.checkpoint.clone()?))
        };
        Ok(events.iter().filter_map(found).collect())
    }

    pub(in crate::store) fn drop_checkpoint(
        &self,
        _canvas: CanvasId,
        _id: EventId,
    ) -> Result<(), StoreError> {
        Ok(())
    }
}
