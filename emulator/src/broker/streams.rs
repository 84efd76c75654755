//! Open streaming pulls.

use super::{Answer, Broker, Refusal, Time};
use crate::proto::pubsub;

/// One open stream.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
pub struct StreamId(pub(super) u64);

/// What a stream has to send now.
#[derive(Debug)]
pub enum StreamTurn {
    /// This.
    Response(pubsub::StreamingPullResponse),
    /// Nothing at present.
    Nothing,
    /// The end.
    Ended(Refusal),
}

impl Broker {
    /// Opens one.
    pub fn open_stream(&mut self, _now: Time, _request: &pubsub::StreamingPullRequest) -> Answer<StreamId> {
        Err(Refusal::unsupported("streams are under construction"))
    }
    /// A further request on it.
    pub fn stream_request(
        &mut self,
        _now: Time,
        _stream: StreamId,
        _request: pubsub::StreamingPullRequest,
    ) -> Answer<Option<pubsub::StreamingPullResponse>> {
        Err(Refusal::unsupported("streams are under construction"))
    }
    /// What it may send.
    pub fn take_for_stream(&mut self, _now: Time, _stream: StreamId, _max_messages: usize) -> StreamTurn {
        StreamTurn::Nothing
    }
    /// It has ended.
    pub fn close_stream(&mut self, _now: Time, _stream: StreamId) {}
}
