//! Pauses and blocks.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A pause or a block.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Rule)]
pub(crate) struct RuleJson {
    pub(crate) kind: RuleKind,
    pub(crate) stops: RuleReachJson,
    /// The reason.
    pub(crate) reason: Option<String>,
    /// When the rule ends by itself.
    pub(crate) until: Option<DateTime<Utc>>,
    /// Who created the rule.
    #[schema(example = "key:billing")]
    pub(crate) created_by: String,
    /// Since when the rule has been in force.
    pub(crate) created_at: DateTime<Utc>,
}

/// What a rule stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RuleReach)]
pub(crate) enum RuleReachJson {
    /// A handler, with all its modifiers.
    Handler,
    /// A whole canvas.
    Canvas,
    /// Every canvas, and every queue.
    Everything,
}

/// Who stopped a handler: its user (`pause`) or an admin (`block`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleKind {
    Pause,
    Block,
}

/// Why a handler, a canvas or everything is stopped, and for how long. All fields are optional.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopRequest {
    /// Reason to show to others.
    #[schema(max_length = 1000, example = "mail server down")]
    pub(crate) reason: Option<String>,
    /// Time at which the rule ends by itself, within a minute. Default: never.
    pub(crate) until: Option<DateTime<Utc>>,
    /// Time after which the rule ends by itself, in seconds on the database's clock. Excludes
    /// `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3_162_240_000.0)]
    pub(crate) for_s: Option<f64>,
}

/// The result of stopping a handler, a canvas or everything. From now on, no worker can claim an
/// event of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Stopped {
    /// Whether the rule is new; otherwise its reason and end were replaced.
    pub(crate) new: bool,
    /// The rule as it is now.
    pub(crate) rule: RuleJson,
    /// The kind of the other rule, if one is in force as well.
    pub(crate) also: Option<RuleKind>,
}

/// The result of lifting a rule.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Lifted {
    /// Whether there was such a rule.
    pub(crate) lifted: bool,
    /// The kind of the other rule, if one still stops the same.
    pub(crate) still: Option<RuleKind>,
    /// A rule that stops more and holds the events all the same: one on the handler's canvas, or on
    /// everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) under: Option<RuleJson>,
    /// Number of events woken so far.
    #[schema(minimum = 0)]
    pub(crate) woken: usize,
    /// Whether more are woken after this response.
    pub(crate) waking: bool,
}

impl From<wakeq::control::RuleKind> for RuleKind {
    fn from(kind: wakeq::control::RuleKind) -> Self {
        match kind {
            wakeq::control::RuleKind::Pause => Self::Pause,
            wakeq::control::RuleKind::Block => Self::Block,
        }
    }
}

impl From<wakeq::control::RuleReach> for RuleReachJson {
    fn from(reach: wakeq::control::RuleReach) -> Self {
        match reach {
            wakeq::control::RuleReach::Handler => Self::Handler,
            wakeq::control::RuleReach::Canvas => Self::Canvas,
            wakeq::control::RuleReach::Everything => Self::Everything,
        }
    }
}

impl From<wakeq::control::Rule> for RuleJson {
    fn from(rule: wakeq::control::Rule) -> Self {
        let stops = rule.reach().into();
        let wakeq::control::Rule { kind, scope: _, reason, until, created_by, created_at } = rule;
        Self { kind: kind.into(), stops, reason, until, created_by, created_at }
    }
}

/// Maximum of `for_s`: the same as the maximum delay of an event.
const FOR_MAX: f64 = 3_162_240_000.0;

impl StopRequest {
    /// The requested stop, with `now` of the database's clock, or why it is invalid.
    pub(crate) fn at(self, now: DateTime<Utc>) -> Result<wakeq::Stop, &'static str> {
        let Self { reason, until, for_s } = self;
        let until = match (until, for_s) {
            (until, None) => until,
            (Some(_), Some(_)) => return Err("give `until` or `for_s`, not both"),
            (None, Some(seconds)) => Some(
                later(now, seconds)
                    .ok_or("a rule can last for at most 100 years: give a shorter time, or no end")?,
            ),
        };
        Ok(wakeq::Stop { reason, until })
    }
}

fn later(now: DateTime<Utc>, seconds: f64) -> Option<DateTime<Utc>> {
    let lasting = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= FOR_MAX)?;
    now.checked_add_signed(TimeDelta::from_std(lasting).ok()?)
}

impl From<wakeq::control::StopResult> for Stopped {
    fn from(stopped: wakeq::control::StopResult) -> Self {
        let wakeq::control::StopResult { new, rule, also } = stopped;
        Self { new, rule: rule.into(), also: also.map(RuleKind::from) }
    }
}

impl From<wakeq::control::ResumeResult> for Lifted {
    fn from(resumed: wakeq::control::ResumeResult) -> Self {
        let wakeq::control::ResumeResult { lifted, still, under, woken, waking } = resumed;
        let (still, under) = (still.map(RuleKind::from), under.map(RuleJson::from));
        Self { lifted, still, under, woken, waking }
    }
}
