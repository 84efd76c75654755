//! What the doctor has found.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::doctor;
use crate::resources::wire::wire_from;

/// What is wrong around the queue, and what is as it should be.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct DoctorReport {
    /// In the order in which to mend them.
    pub(crate) findings: Vec<FindingJson>,
    /// How many checks have failed.
    #[schema(minimum = 0)]
    pub(crate) failed: usize,
    /// How many warn.
    #[schema(minimum = 0)]
    pub(crate) warned: usize,
    /// When a process has looked, at most a minute ago.
    pub(crate) checked_at: DateTime<Utc>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Finding)]
pub(crate) struct FindingJson {
    pub(crate) level: LevelJson,
    /// What was checked.
    #[schema(example = "minute's pass")]
    pub(crate) what: String,
    pub(crate) found: String,
    /// How to mend it; null if nothing has to be.
    pub(crate) mend: Option<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = FindingLevel)]
pub(crate) enum LevelJson {
    /// As it should be.
    Ok,
    /// The queue works, but might stop working.
    Warn,
    /// The queue does not work, or may lose events.
    Fail,
}

impl DoctorReport {
    pub(crate) fn new(findings: &[doctor::Finding], checked_at: DateTime<Utc>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        let (failed, warned) = (count(doctor::Level::Fail), count(doctor::Level::Warn));
        let findings = findings.iter().cloned().map(FindingJson::from).collect();
        Self { findings, failed, warned, checked_at }
    }
}

impl From<doctor::Level> for LevelJson {
    fn from(level: doctor::Level) -> Self {
        match level {
            doctor::Level::Ok => Self::Ok,
            doctor::Level::Warn => Self::Warn,
            doctor::Level::Fail => Self::Fail,
        }
    }
}

wire_from! { doctor::Finding => FindingJson, |finding| {
    found;
    level: finding.level.into(),
    what: finding.what.to_owned(),
    mend: finding.advice,
} }
