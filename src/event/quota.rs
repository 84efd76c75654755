//! Quotas: the kinds of data of which a canvas may keep a limited amount, the default limits, and
//! the error when a limit is exceeded. Data only; usage is measured in the store.

use std::str::FromStr;

use super::CanvasId;

const GIB: u64 = 1024 * 1024 * 1024;

/// A resource that is limited per canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quota {
    /// Events that wait, run or are dead, with their copies in registered queues, and those that
    /// are kept after they have ended.
    Events,
    /// The bytes of their values and options, of the errors of dead ones, and of the results of
    /// kept ones.
    EventBytes,
    /// Objects on which events were emitted.
    Objects,
    /// The bytes of their states.
    ObjectBytes,
    /// Chosen ids that are remembered.
    ChosenIds,
    /// Idempotency keys with their answers, unique keys that outlive their events, names of
    /// batches, and keys of limits that are in use.
    IdempotencyKeys,
    /// Streams of the log; an entity has two.
    LogStreams,
    /// The bytes of payloads and metadata in these streams.
    LogBytes,
    /// Entities.
    Entities,
    /// Events that were sent to entities and are not processed yet.
    EntityEvents,
    /// Crons.
    Crons,
    /// Events per minute that all crons together may emit.
    CronTicks,
    /// API keys, including revoked and expired ones that are still kept.
    Keys,
    /// Handlers that are reached over HTTP.
    Targets,
    /// Hooks, which receive webhooks.
    Hooks,
    /// Batches that are not over.
    Batches,
    /// Pauses and blocks.
    Rules,
    /// Lines of the audit log.
    AuditLines,
}

impl Quota {
    /// All quotas.
    pub const ALL: [Self; 18] = [
        Self::Events,
        Self::EventBytes,
        Self::Objects,
        Self::ObjectBytes,
        Self::ChosenIds,
        Self::IdempotencyKeys,
        Self::LogStreams,
        Self::LogBytes,
        Self::Entities,
        Self::EntityEvents,
        Self::Crons,
        Self::CronTicks,
        Self::Keys,
        Self::Targets,
        Self::Hooks,
        Self::Batches,
        Self::Rules,
        Self::AuditLines,
    ];

    /// Its name in the API, on the command line and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::EventBytes => "event-bytes",
            Self::Objects => "objects",
            Self::ObjectBytes => "object-bytes",
            Self::ChosenIds => "chosen-ids",
            Self::IdempotencyKeys => "idempotency-keys",
            Self::LogStreams => "log-streams",
            Self::LogBytes => "log-bytes",
            Self::Entities => "entities",
            Self::EntityEvents => "entity-events",
            Self::Crons => "crons",
            Self::CronTicks => "cron-ticks",
            Self::Keys => "keys",
            Self::Targets => "targets",
            Self::Hooks => "hooks",
            Self::Batches => "batches",
            Self::Rules => "rules",
            Self::AuditLines => "audit-lines",
        }
    }

    /// The limit of every canvas for which no other was set.
    pub fn default_limit(self) -> u64 {
        match self {
            Self::Events | Self::Objects | Self::LogStreams | Self::EntityEvents => 1_000_000,
            Self::EventBytes | Self::ObjectBytes => 8 * GIB,
            Self::ChosenIds => 100_000_000,
            Self::IdempotencyKeys => 5_000_000,
            Self::LogBytes => 32 * GIB,
            Self::Entities => 250_000,
            Self::Crons | Self::Keys | Self::Targets => 1_000,
            Self::CronTicks => 6_000,
            Self::Hooks => 100,
            Self::Batches | Self::Rules => 10_000,
            Self::AuditLines => 10_000_000,
        }
    }

    /// Whether usage shrinks by itself as work is done, so that retrying later can succeed.
    pub fn drains(self) -> bool {
        match self {
            Self::Events
            | Self::EventBytes
            | Self::EntityEvents
            | Self::ChosenIds
            | Self::IdempotencyKeys
            | Self::Batches => true,
            Self::Objects
            | Self::ObjectBytes
            | Self::LogStreams
            | Self::LogBytes
            | Self::Entities
            | Self::Crons
            | Self::CronTicks
            | Self::Keys
            | Self::Targets
            | Self::Hooks
            | Self::Rules
            | Self::AuditLines => false,
        }
    }

    /// The name of what is counted, for messages.
    fn noun(self) -> &'static str {
        match self {
            Self::Events => "waiting, dead and kept events",
            Self::EventBytes => "bytes of waiting, dead and kept events",
            Self::Objects => "objects",
            Self::ObjectBytes => "bytes of objects' states",
            Self::ChosenIds => "chosen ids that are remembered",
            Self::IdempotencyKeys => "idempotency keys, unique keys, batches and limits that are remembered",
            Self::LogStreams => "streams of the log",
            Self::LogBytes => "bytes of the log",
            Self::Entities => "entities",
            Self::EntityEvents => "events of entities that are not processed",
            Self::Crons => "crons",
            Self::CronTicks => "ticks of crons a minute",
            Self::Keys => "keys",
            Self::Targets => "targets",
            Self::Hooks => "hooks",
            Self::Batches => "batches that are not over",
            Self::Rules => "pauses and blocks",
            Self::AuditLines => "lines of the audit log",
        }
    }

    /// What a caller at the limit can do, for messages.
    fn advice(self) -> &'static str {
        match self {
            Self::Events | Self::EventBytes => {
                "emit again when workers have processed some, or purge those that will not be run, \
                 delete or redrive dead ones, and keep ended ones for a shorter time"
            }
            Self::ObjectBytes => "set smaller states, or keep large ones elsewhere",
            Self::ChosenIds => "emit again when older ids are forgotten, or let wakeq choose the ids",
            Self::IdempotencyKeys => {
                "emit again when older keys are forgotten, emit more events per idempotency key, \
                 remember unique keys for a shorter time, open fewer batches, or name fewer keys of limits"
            }
            Self::EntityEvents => "send again when the type's processor has processed some",
            Self::Objects => {
                "emit on existing objects; one without a state is removed when it is no longer used"
            }
            Self::LogStreams => "append to existing streams",
            Self::LogBytes => "append less, or keep large payloads elsewhere",
            Self::Entities => "send to existing entities",
            Self::Crons => "delete some, or let one emit for several",
            Self::CronTicks => "let some tick less often",
            Self::Keys => {
                "use keys for longer: revoked and expired ones are deleted together with \
                           their audit records"
            }
            Self::Targets | Self::Hooks => "delete one first",
            Self::Batches => "close those that get no more members, or give some up",
            Self::Rules => "unpause or unblock some first",
            Self::AuditLines => "change less until older lines expire",
        }
    }
}

displayed_as_text!(Quota);

/// A text that is not the name of a quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no such quota: use one of events, event-bytes, objects, object-bytes, chosen-ids, \
     idempotency-keys, log-streams, log-bytes, entities, entity-events, crons, cron-ticks, keys, targets, \
     hooks, batches, rules and audit-lines"
)]
pub struct InvalidQuota;

impl FromStr for Quota {
    type Err = InvalidQuota;

    fn from_str(text: &str) -> Result<Self, InvalidQuota> {
        Self::ALL.into_iter().find(|quota| quota.as_str() == text).ok_or(InvalidQuota)
    }
}

/// A canvas has reached a quota. Nothing of the request was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the canvas {canvas} has {used} {}, its quota `{quota}` is {limit}, and this needs {wanted} more: {}, or ask an operator \
     for a higher one (`wakeq quotas set`)", .quota.noun(), .quota.advice()
)]
pub struct QuotaExceeded {
    /// The canvas.
    pub canvas: CanvasId,
    /// The quota.
    pub quota: Quota,
    /// The canvas's limit.
    pub limit: u64,
    /// Usage at the last measurement, plus what this process has added since.
    pub used: u64,
    /// How much more was requested.
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
