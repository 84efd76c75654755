//! The vocabulary of the log: categories, streams, what a stored event is, and the sources that consumers read.
//!
//! Plain data that was checked when it was made; no I/O.

mod source;
mod stream;

pub use source::{EventSource, InvalidSource, Partition, SourceList};
pub use stream::{Category, InvalidLogName, LogEvent, LogPage, StreamId, StreamName};
pub(crate) use stream::stable_hash;
