//! The periods of a broker: its heartbeats, its lease, and the grace of a shutdown.

use std::time::Duration;

use super::BrokerError;

/// Longest lease.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Shortest lease.
const LEASE_MIN: Duration = Duration::from_millis(300);

/// The periods of a broker. They bound how long things take; signals usually make them faster.
///
/// ```
/// let config = wakeq_streams::BrokerConfig::default();
/// assert_eq!((config.heartbeat.as_secs(), config.lease.as_secs()), (10, 30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// The interval of the heartbeats of the node and its subscribers, of their looks at what they
    /// are given, and of the coordinator's rounds. 1 ms to a third of the lease, default 10 s.
    pub heartbeat: Duration,
    /// How long after its last heartbeat a subscriber keeps its sources, and the coordinator its
    /// term. 300 ms to one day, at least three heartbeats, default 30 s.
    ///
    /// A node that has written no heartbeat for two thirds of this ends its work: the last third is
    /// for events that are being handled. So a subscriber whose
    /// [grace](crate::EventSubscriber::grace) is longer than a third is refused.
    pub lease: Duration,
    /// How long events that are being handled may take at a shutdown; the node keeps heartbeating
    /// meanwhile. Default 20 s.
    pub shutdown_grace: Duration,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { heartbeat: seconds(10), lease: seconds(30), shutdown_grace: seconds(20) }
    }
}

impl BrokerConfig {
    pub(super) fn check(&self) -> Result<(), BrokerError> {
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            return Err(BrokerError::Config("the lease of a broker must be 300 ms to one day"));
        }
        if self.heartbeat < Duration::from_millis(1) || self.heartbeat.saturating_mul(3) > self.lease {
            return Err(BrokerError::Config(
                "the heartbeat of a broker must be 1 ms to a third of its lease: make it shorter, or the lease longer",
            ));
        }
        Ok(())
    }

    /// How long a node may work after it sent a heartbeat, by its own clock.
    pub(super) fn working(&self) -> Duration {
        self.lease - self.grace_max()
    }

    /// The longest time that a subscriber may take to stop working on a source.
    pub(super) fn grace_max(&self) -> Duration {
        self.lease / 3
    }
}
