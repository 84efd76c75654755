//! The options of `wakeq emit` for a unique key.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::resources::emit::wire::{OnConflictJson, UniqueJson, UniqueUntil};

#[derive(Args)]
#[command(next_help_heading = "Unique key")]
pub(super) struct UniqueArgs {
    /// A key that one event of the handler has at a time
    #[arg(long, value_name = "KEY", conflicts_with_all = ["id", "on", "only_to_queues", "logged"])]
    unique: Option<String>,
    /// How long the key is taken [default: started]
    ///
    /// With --remember the default is `ended`.
    #[arg(long, value_enum, requires = "unique")]
    until: Option<UntilArg>,
    /// How long it stays taken after the due time (1h)
    ///
    /// That is even if the event has ended.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "unique")]
    remember: Option<Duration>,
    /// What happens to a waiting event with it [default: keep]
    #[arg(long, value_name = "WHAT", value_enum, requires = "unique")]
    on_conflict: Option<ConflictArg>,
    /// To postpone: how long from now it is due (5s)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, requires = "at_most")]
    postpone: Option<Duration>,
    /// To postpone: the longest wait after the first emit (1m)
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
