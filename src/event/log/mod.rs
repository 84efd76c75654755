//! The vocabulary of the log: categories, streams, stored and appended events, and the sources that
//! consumers read.
//!
//! Plain data that is validated when it is constructed; no I/O.

mod append;
mod overlap;
mod partitioner;
mod source;
mod stream;

pub use append::{AppendCondition, Appended, InvalidCondition, LogEventError, NewLogEvent, StreamAppend};
pub use partitioner::EventSequencePartitioner;
pub use source::{EventSource, InvalidSource, Partition, SourceList};
pub use stream::stable_hash;
pub use stream::{Category, InvalidLogName, LogEvent, LogPage, PageLimit, StreamId, StreamName};
