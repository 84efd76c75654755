//! Snapshots.

use super::{Answer, Broker, Refusal, Time};
use crate::proto::pubsub;

/// A snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    config: pubsub::Snapshot,
}

impl Broker {
    /// Keeps what a subscription hasn't acknowledged.
    pub fn create_snapshot(
        &mut self,
        _now: Time,
        _request: pubsub::CreateSnapshotRequest,
    ) -> Answer<pubsub::Snapshot> {
        Err(Refusal::unsupported("under construction"))
    }

    /// How it is configured.
    pub fn get_snapshot(
        &mut self,
        _now: Time,
        _request: pubsub::GetSnapshotRequest,
    ) -> Answer<pubsub::Snapshot> {
        Err(Refusal::unsupported("under construction"))
    }

    /// A project's snapshots, a page at a time.
    pub fn list_snapshots(
        &mut self,
        _now: Time,
        _request: pubsub::ListSnapshotsRequest,
    ) -> Answer<pubsub::ListSnapshotsResponse> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Changes the fields that the mask names.
    pub fn update_snapshot(
        &mut self,
        _now: Time,
        _request: pubsub::UpdateSnapshotRequest,
    ) -> Answer<pubsub::Snapshot> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Deletes a snapshot and what it keeps.
    pub fn delete_snapshot(&mut self, _now: Time, _request: pubsub::DeleteSnapshotRequest) -> Answer<()> {
        Err(Refusal::unsupported("under construction"))
    }

    /// Sets a subscription's acknowledgements to a time or to a snapshot.
    pub fn seek(&mut self, _now: Time, _request: pubsub::SeekRequest) -> Answer<pubsub::SeekResponse> {
        Err(Refusal::unsupported("under construction"))
    }
}
