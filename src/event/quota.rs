//! Quotas: of what a canvas may keep only so much, how much that is unless an operator says otherwise, and what somebody is
//! told who asks for more. Data only: what there is is measured in the store.

use std::fmt;
use std::str::FromStr;

use super::CanvasId;

const GIB: u64 = 1024 * 1024 * 1024;

/// Something of which a canvas may keep only so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quota {
    /// Events that wait or run, with their copies in registered queues.
    Events,
    /// The bytes of their values.
    EventBytes,
    /// Objects that events were emitted on.
    Objects,
    /// Streams of the log; an entity has two.
    LogStreams,
    /// The bytes of what stands in them: payloads and metadata.
    LogBytes,
    /// Entities.
    Entities,
    /// Events that were sent to entities and not processed yet.
    EntityEvents,
    /// Crons.
    Crons,
    /// Events that all crons together may emit in one minute.
    CronTicks,
    /// Keys of the API, with the revoked and expired ones that are still kept.
    Keys,
    /// Handlers that are reached over HTTP.
    Targets,
}

impl Quota {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Events,
        Self::EventBytes,
        Self::Objects,
        Self::LogStreams,
        Self::LogBytes,
        Self::Entities,
        Self::EntityEvents,
        Self::Crons,
        Self::CronTicks,
        Self::Keys,
        Self::Targets,
    ];

    /// Its name in the API, on the command line and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::EventBytes => "event-bytes",
            Self::Objects => "objects",
            Self::LogStreams => "log-streams",
            Self::LogBytes => "log-bytes",
            Self::Entities => "entities",
            Self::EntityEvents => "entity-events",
            Self::Crons => "crons",
            Self::CronTicks => "cron-ticks",
            Self::Keys => "keys",
            Self::Targets => "targets",
        }
    }

    /// What every canvas may keep for which nobody set another limit.
    pub fn default_limit(self) -> u64 {
        match self {
            Self::Events | Self::Objects | Self::LogStreams | Self::EntityEvents => 1_000_000,
            Self::EventBytes => 8 * GIB,
            Self::LogBytes => 32 * GIB,
            Self::Entities => 250_000,
            Self::Crons | Self::Keys | Self::Targets => 1_000,
            Self::CronTicks => 6_000,
        }
    }

    /// Whether there is less of it by and by without anybody's doing, so that it is worth trying again.
    pub fn drains(self) -> bool {
        match self {
            Self::Events | Self::EventBytes | Self::EntityEvents => true,
            Self::Objects
            | Self::LogStreams
            | Self::LogBytes
            | Self::Entities
            | Self::Crons
            | Self::CronTicks
            | Self::Keys
            | Self::Targets => false,
        }
    }

    /// What it is that is counted.
    fn noun(self) -> &'static str {
        match self {
            Self::Events => "waiting events",
            Self::EventBytes => "bytes of waiting events",
            Self::Objects => "objects",
            Self::LogStreams => "streams of the log",
            Self::LogBytes => "bytes of the log",
            Self::Entities => "entities",
            Self::EntityEvents => "events of entities that are not processed",
            Self::Crons => "crons",
            Self::CronTicks => "ticks of crons a minute",
            Self::Keys => "keys",
            Self::Targets => "targets",
        }
    }

    /// What somebody can do who has no more room.
    fn advice(self) -> &'static str {
        match self {
            Self::Events | Self::EventBytes => {
                "emit again when workers have done some, or purge what nobody will run"
            }
            Self::EntityEvents => "send again when the type's processor has done some",
            Self::Objects => {
                "emit on objects that there are; one without a state goes when it is not used any more"
            }
            Self::LogStreams => "append to streams that there are",
            Self::LogBytes => "append less, or keep large payloads elsewhere",
            Self::Entities => "send to entities that there are",
            Self::Crons => "delete some, or let one emit for several",
            Self::CronTicks => "let some tick less often",
            Self::Keys => "use one key for longer: revoked and expired ones go with the record of them",
            Self::Targets => "delete one first",
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// Not the name of a quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no such quota: it is one of events, event-bytes, objects, log-streams, log-bytes, entities, entity-events, \
     crons, cron-ticks, keys and targets"
)]
pub struct InvalidQuota;

impl FromStr for Quota {
    type Err = InvalidQuota;

    fn from_str(text: &str) -> Result<Self, InvalidQuota> {
        Self::ALL.into_iter().find(|quota| quota.as_str() == text).ok_or(InvalidQuota)
    }
}

/// A canvas has no room for more of something: nothing of what was asked for was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the canvas {canvas} has {used} {}, its quota `{quota}` is {limit}, and this needs {wanted} more: {}, or ask an operator \
     for a higher one (`wakeq quotas set`)", .quota.noun(), .quota.advice()
)]
pub struct QuotaExceeded {
    /// Whose it is.
    pub canvas: CanvasId,
    /// Of what there is too much.
    pub quota: Quota,
    /// How much the canvas may keep.
    pub limit: u64,
    /// How much it had when that was last measured, with what this process has added since.
    pub used: u64,
    /// How much more was asked for.
    pub wanted: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quota_is_read_back_by_its_name() {
        for quota in Quota::ALL {
            assert_eq!(quota.as_str().parse(), Ok(quota));
            assert!(InvalidQuota.to_string().contains(quota.as_str()), "{quota}");
        }
        assert_eq!("EVENTS".parse::<Quota>(), Err(InvalidQuota));
    }
}
