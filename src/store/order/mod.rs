//! Order on objects, beyond the emit: the objects as they are read, the lanes of their events, of
//! which only the first may run, and the links that are missing from their chains.

mod lanes;
mod objects;
mod tombstones;

pub(crate) use lanes::HaltedPosition;
pub use lanes::{HaltedLane, InHand};
pub use objects::Object;
pub use tombstones::Tombstone;
