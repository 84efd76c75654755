//! Entities: their stored data, the outcomes of the events that were sent to them, and the
//! transaction of a batch.

mod answer;
mod append;
mod batch;
mod erase;
mod isolated;
mod list;
mod load;
mod outcomes;
mod owners;
mod send;
mod types;

pub(crate) use answer::EntityQuestion;
pub(crate) use batch::{BatchEnd, DecidedEvent, EntityBatch, EntityRow, PASSED_OVER, StoredEvent};
pub(crate) use erase::ERASED_MAX;
pub use list::{EntityCursor, EntitySummary, InvalidEntityCursor};
pub use load::StoredEntity;
pub(crate) use load::{EntityPosition, LoadedEntity, TAIL_ROWS, WantedTail};
pub use outcomes::EntityEventStatus;
pub(crate) use outcomes::RecordedOutcome;
pub(crate) use send::{SendEnd, SentEntityEvent, ToEntity, send_to_entities};
