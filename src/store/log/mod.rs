//! The log: appending to streams, reading up to where nothing can be missing, and the partitions of
//! its table.
//!
//! An append locks its streams and only then takes sequence numbers; a read first asks how far the
//! log can be read. Stored events are never changed here.

mod append;
mod read;
mod streams;
mod upkeep;

pub(crate) use append::AppendRefusal;
pub use append::{LogBatch, append_batch, lacks_partition};
pub use read::{LogEnd, LogHorizon};
pub use streams::LogStream;
pub use upkeep::{LogAppender, LogHolder};
