//! Order of the events on an object.

mod chains;
mod crashes;
mod tombstones;
