//! How often a node is heard of, and for how long it is counted on.

use std::time::Duration;

use super::BrokerError;

/// Longest lease.
const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Shortest lease.
const LEASE_MIN: Duration = Duration::from_millis(300);

/// The periods of a broker. They bound how long things take; signals make them prompt.
///
/// ```
/// let config = wakeq::BrokerConfig::default();
/// assert_eq!((config.heartbeat.as_secs(), config.lease.as_secs()), (10, 30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// How often the node and its subscribers are heard of, look at what they are given, and the coordinator makes a round.
    /// Default 10 s.
    pub heartbeat: Duration,
    /// How long after it was last heard of a subscriber keeps its sources, and the coordinator its term. Three heartbeats at
    /// least, 300 ms to a day. Default 30 s.
    ///
    /// A node that could not make itself heard for two thirds of this ends its work: the last third is for what is being
    /// handled to come to an end. So a subscriber whose [grace](crate::EventSubscriber::grace) is longer than that is refused.
    pub lease: Duration,
    /// How long what is being handled may go on at a shutdown; for as long the node is heard of. Default 20 s.
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

    /// For how long after a heartbeat was sent a node may work, on its own clock.
    pub(super) fn working(&self) -> Duration {
        self.lease - self.grace_max()
    }

    /// How long a subscriber may take to end with a source.
    pub(super) fn grace_max(&self) -> Duration {
        self.lease / 3
    }
}
