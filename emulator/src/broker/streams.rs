//! Open streaming pulls: which subscription each reads, its lease time, its flow control, what it was told.

use std::collections::BTreeMap;
use std::time::Duration;

/// An open streaming pull; unique in the broker, never used again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
pub struct StreamId(u64);

/// All open streaming pulls of a broker.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    opened: u64,
    open: BTreeMap<StreamId, Stream>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The subscription's whole name.
    pub(crate) subscription: String,
    /// What messages are leased for.
    pub(crate) deadline: Duration,
    /// How many messages may be out.
    pub(crate) max_messages: usize,
    /// Of which size together.
    pub(crate) max_bytes: usize,
}

impl Streams {
    /// Those that read a subscription.
    pub(crate) fn of<'a>(&'a self, subscription: &'a str) -> impl Iterator<Item = (StreamId, &'a Stream)> {
        self.open
            .iter()
            .filter(move |(_, stream)| stream.subscription == subscription)
            .map(|(id, stream)| (*id, stream))
    }
}
