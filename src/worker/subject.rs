//! What a claim is about, as far as that outlasts its handler.

use crate::event::{
    BatchName, EventOptions, HandlerAddress, HeldLimit, Keep, Name, Notification, Place, Timestamp,
};
use crate::store::ClaimedEvent;

/// A claimed event.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) address: HandlerAddress,
    pub(super) place: Option<Place>,
    pub(super) copy: Option<CopyTurn>,
    /// The batch that it is a member of.
    pub(super) batch: Option<BatchName>,
    /// On the database's clock.
    pub(super) claimed_at: Timestamp,
    /// For how long its emit asked to keep it.
    pub(super) keep: Option<Keep>,
    /// The limits whose places it has.
    pub(super) held: Option<Box<[HeldLimit]>>,
}

/// A turn that was taken in a registered queue.
#[derive(Clone, Debug)]
pub(super) struct CopyTurn {
    pub(super) queue: Name,
    /// The copy that has it: not always the one that the notification named.
    pub(super) turn: Notification,
    /// It counts towards what its canvas may have in flight in the queue.
    pub(super) is_limited: bool,
}

impl Subject {
    pub(super) fn of(event: &ClaimedEvent) -> Self {
        let turn = Notification::new(event.claim.id, event.address.scope.canvas);
        let is_limited = event.is_limited;
        let copy = event.copy_of.as_ref();
        let copy = copy.map(|copy| CopyTurn { queue: copy.queue.clone(), turn, is_limited });
        let (address, place) = (event.address.clone(), event.place.clone());
        let options = event.options.as_deref();
        let batch = options.and_then(EventOptions::batch).cloned();
        let keep = options.and_then(EventOptions::keep);
        let held = event.held.clone();
        Self { address, place, copy, batch, claimed_at: event.locked_at, keep, held }
    }

    /// The registered queue, if the event is a copy.
    pub(super) fn queue(&self) -> Option<&Name> {
        self.copy.as_ref().map(|copy| &copy.queue)
    }
}
