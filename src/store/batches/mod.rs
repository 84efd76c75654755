//! Batches: opening, closing and showing them, and their ends.
//!
//! How members are counted is in the migrations: a trigger counts each end, and the statements that
//! end an event in another way than by completing it move what it has counted.

mod ending;
mod records;

pub(crate) use ending::{BatchKey, EndedBatch, LookedBatches};
pub(crate) use records::{BatchClosing, BatchOpening};
pub use records::{BatchProgress, BatchState, RegisteredBatch};
