//! The SQL of consumer groups and entities, beside that of the queue.

mod entities;
mod groups;
mod positions;
#[cfg(test)]
pub(crate) mod tests;

use std::ops::Deref;

pub(crate) use entities::{
    BatchEnd, DecidedEvent, ERASED_MAX, EntityBatch, EntityPosition, EntityQuestion, EntityRow, LoadedEntity,
    PASSED_OVER, RecordedOutcome, SendEnd, SentEntityEvent, StoredEvent, TAIL_ROWS, ToEntity, WantedTail,
    send_to_entities,
};
pub use entities::{EntityCursor, EntityEventStatus, EntitySummary, InvalidEntityCursor, StoredEntity};
pub use groups::{
    FailingEvent, GroupDead, GroupDeadCursor, GroupDeadPage, GroupPosition, InvalidGroupDeadCursor,
    RemoveGroup,
};
pub(crate) use groups::{GroupClaim, REDRIVEN_PAGE, RegisterOutcome};
pub(crate) use positions::{DeadEntry, PositionMove};

/// The queue's store, with the statements of consumer groups and entities.
#[derive(Clone, Debug)]
pub struct Store(wakeq::Store);

impl From<wakeq::Store> for Store {
    fn from(store: wakeq::Store) -> Self {
        Self(store)
    }
}

impl From<&wakeq::Store> for Store {
    fn from(store: &wakeq::Store) -> Self {
        Self(store.clone())
    }
}

impl Deref for Store {
    type Target = wakeq::Store;

    fn deref(&self) -> &wakeq::Store {
        &self.0
    }
}
