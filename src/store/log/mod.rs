//! The log: appending to streams, reading up to where nothing can be missing, and the partitions of its table.
//!
//! Who appends locks its streams, and only then takes numbers; who reads asks first how far that is possible. What is
//! stored is never changed here.

mod append;
mod emitted;
mod read;
mod upkeep;

pub(crate) use append::{LogBatch, Refused, append_batch, lacks_partition};
pub(super) use emitted::{LOG_STATEMENTS, append_emitted};
pub use read::{LogEnd, LogHorizon};
pub use upkeep::{LogAppender, LogHolder};
