//! Room: what a run has to hold before it may claim, where that is limited.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The rooms that a run is in.
#[derive(Debug, Default)]
pub(super) struct Room {
    handler: Option<OwnedSemaphorePermit>,
    canvas: Option<OwnedSemaphorePermit>,
    suspect: Option<OwnedSemaphorePermit>,
    value: Option<OwnedSemaphorePermit>,
}

/// Which room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoomKind {
    Handler,
    Canvas,
    Suspect,
    /// The bytes of a large value.
    Value,
}

impl Room {
    /// Takes so many places in one at once, unless the run is in it already; whether it is in it now.
    pub(super) fn enter(&mut self, kind: RoomKind, room: &Arc<Semaphore>, places: u32) -> bool {
        let place = self.place(kind);
        if place.is_none() {
            *place = Arc::clone(room).try_acquire_many_owned(places).ok();
        }
        place.is_some()
    }

    /// Holds what was waited for, too.
    pub(super) fn hold(&mut self, kind: RoomKind, entered: Option<OwnedSemaphorePermit>) {
        *self.place(kind) = entered;
    }

    fn place(&mut self, kind: RoomKind) -> &mut Option<OwnedSemaphorePermit> {
        match kind {
            RoomKind::Handler => &mut self.handler,
            RoomKind::Canvas => &mut self.canvas,
            RoomKind::Suspect => &mut self.suspect,
            RoomKind::Value => &mut self.value,
        }
    }
}
