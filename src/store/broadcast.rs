//! What listeners receive about a new event.

use super::{InsertOutcome, NewEvent};
use crate::event::{Broadcast, Place};

impl NewEvent {
    /// What listeners receive once the event is committed; `None` if it was already known.
    pub(crate) fn broadcast(&self, inserted: &InsertOutcome) -> Option<Broadcast> {
        let InsertOutcome::New { link, .. } = inserted else { return None };
        Some(Broadcast {
            id: self.id,
            address: self.address.clone(),
            value: Some(self.value.clone()),
            traceparent: self.traceparent.clone(),
            place: self.object.clone().zip(*link).map(|(object, link)| Place { object, link }),
            due: self.due,
        })
    }
}
