//! The doctor's judgement: maps facts to findings, each with advice on how to fix it.
//!
//! Pure: no I/O and no clock. Each threshold is explained where it is defined.

mod chores;
mod database;
mod locks;
mod log;
mod own;
mod pubsub;
mod rights;
mod secrets;
mod strangers;

use std::fmt;

use serde::Serialize;

use wakeq::StoreError;

pub(crate) use chores::{
    CROWD, UNKNOWN_WITHIN, chores, durations, limits, lost_after, overdue_after, sizes, switches,
    unknown_handlers, workers,
};
pub(crate) use database::{
    announced_pooler, clock, connections, foreign_engine, held_snapshots, migrations, pooler, route, server,
    settings,
};
pub(crate) use locks::held_locks;
pub(crate) use log::{log_holders, log_readers};
pub(crate) use own::own_names;
pub(crate) use pubsub::{pubsub_rights, push_horizon, topics, without_topics};
pub(crate) use rights::{rights, role};
pub(crate) use secrets::secrets;
pub(crate) use strangers::strangers;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// What was checked.
    pub(crate) what: &'static str,
    pub(crate) found: String,
    /// How to fix it, if something has to be fixed.
    #[serde(rename = "mend")]
    pub(crate) advice: Option<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// The queue works, but might stop working.
    Warn,
    /// The queue does not work, or may lose events.
    Fail,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Ok, what, found: found.into(), advice: None }
    }

    pub(crate) fn warn(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Warn, what, found: found.into(), advice: Some(advice.into()) }
    }

    pub(crate) fn fail(what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Fail, what, found: found.into(), advice: Some(advice.into()) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        write!(formatter, "{level:4}  {}: {}", self.what, self.found)?;
        self.advice.iter().try_for_each(|advice| write!(formatter, " -> {advice}"))
    }
}

/// A check that the database did not allow, with the error in words.
pub(crate) fn not_checked(what: &'static str, error: &StoreError, words: &str) -> Finding {
    let found = format!("not checked: {words}");
    match error {
        StoreError::NotMigrated(_) => Finding::fail(what, "the schema does not exist", "run `wakeq migrate`"),
        StoreError::Unavailable(_) => {
            Finding::fail(what, words, "mend what it says; else check the network between here and there")
        }
        StoreError::TimedOut { .. } => Finding::fail(what, found, "see what keeps the server busy"),
        StoreError::Refused { .. }
        | StoreError::Migration(_)
        | StoreError::PartlyMigrated(_)
        | StoreError::UnsafeDurability { .. }
        | StoreError::RoleSettings { .. }
        | StoreError::PoolSettings { .. }
        | StoreError::ForeignEngine(_)
        | StoreError::Timing(_)
        | StoreError::OtherTiming { .. }
        | StoreError::Overloaded
        | StoreError::Quota(_)
        | StoreError::WaitingMax(_)
        | StoreError::NoBatch(_)
        | StoreError::IdTaken(_)
        | StoreError::Config(_)
        | StoreError::Defect
        | _ => Finding::fail(what, found, "see the reason: usually a privilege that the role lacks"),
    }
}

/// A comma-separated list of the first items, with the number of the others: `3, 5, 8`.
fn list<T: fmt::Display>(items: &[T]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = items.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = items.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line() {
        assert_eq!(Finding::ok("clock", "0 ms apart").to_string(), "ok    clock: 0 ms apart");
        let bad = Finding::fail("fsync", "off", "turn it on");
        assert_eq!(bad.to_string(), "FAIL  fsync: off -> turn it on");
        assert_eq!(list(&[1, 2, 3, 4, 5, 6, 7]), "1, 2, 3, 4, 5 and 2 more");
    }
}
