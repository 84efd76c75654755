//! The options of `wakeq emit` for a unique key.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::resources::emit::wire::{OnConflictJson, UniqueJson, UniqueUntil};

#[derive(Args)]
pub(super) struct UniqueArgs {
    /// A key that at most one event of the handler has at a time
    #[arg(long, value_name = "KEY", conflicts_with_all = ["id", "on", "only_to_queues", "logged"])]
    unique: Option<String>,
    /// Until when the key is taken [default: started, or ended with --remember]
    #[arg(long, value_enum, requires = "unique")]
    until: Option<UntilArg>,
    /// How long the key stays taken after the event was due, even if it has ended (1h)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "unique")]
    remember: Option<Duration>,
    /// What happens to an event that waits with the key [default: keep]
    #[arg(long, value_enum, requires = "unique")]
    on_conflict: Option<ConflictArg>,
    /// To postpone: how long from now the event is due (5s)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "at_most")]
    postpone: Option<Duration>,
    /// To postpone: how long after the first emit the event is due at the latest (1m)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "postpone")]
    at_most: Option<Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum UntilArg {
    Started,
    Ended,
}

#[derive(Clone, Copy, ValueEnum)]
enum ConflictArg {
    Keep,
    Replace,
    Postpone,
}

impl UniqueArgs {
    /// The key, if there is one.
    pub(super) fn json(self) -> Option<UniqueJson> {
        let seconds = |time: Duration| time.as_secs_f64();
        Some(UniqueJson {
            key: self.unique?,
            until: self.until.map(UniqueUntil::from),
            remember_s: self.remember.map(seconds),
            on_conflict: self.on_conflict.map(OnConflictJson::from),
            postpone_s: self.postpone.map(seconds),
            at_most_s: self.at_most.map(seconds),
        })
    }
}

impl From<UntilArg> for UniqueUntil {
    fn from(until: UntilArg) -> Self {
        match until {
            UntilArg::Started => Self::Started,
            UntilArg::Ended => Self::Ended,
        }
    }
}

impl From<ConflictArg> for OnConflictJson {
    fn from(conflict: ConflictArg) -> Self {
        match conflict {
            ConflictArg::Keep => Self::Keep,
            ConflictArg::Replace => Self::Replace,
            ConflictArg::Postpone => Self::Postpone,
        }
    }
}
