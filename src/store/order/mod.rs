//! Order on objects, beyond the emit: the lanes of their events, of which only the first may run,
//! and the links that are missing from their chains.

mod lanes;
mod tombstones;

pub(crate) use lanes::HaltedPosition;
pub use lanes::{HaltedLane, InHand};
pub(in crate::store) use tombstones::TOMBSTONES_PAGE;
pub use tombstones::Tombstone;
