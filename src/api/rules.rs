//! Pauses and blocks.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{admin, event, store};

/// A pause or a block.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Rule {
    pub(crate) kind: RuleKind,
    /// Why.
    pub(crate) reason: Option<String>,
    /// When it ends by itself.
    pub(crate) until: Option<DateTime<Utc>>,
    /// Who made it.
    #[schema(example = "key:billing")]
    pub(crate) created_by: String,
    /// Since when it stands.
    pub(crate) created_at: DateTime<Utc>,
}

/// Who stopped a handler: its user (`pause`) or an admin (`block`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleKind {
    Pause,
    Block,
}

/// Why a handler is stopped, and for how long. All of it may be left out.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StopRequest {
    /// Shown wherever the rule is.
    #[schema(max_length = 1000, example = "mail server down")]
    pub(crate) reason: Option<String>,
    /// The rule ends by itself then, within a minute. Default: never.
    pub(crate) until: Option<DateTime<Utc>>,
}

/// What stopping a handler did. Once this is answered, no worker can claim an event of it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Stopped {
    /// Whether the rule is new; else its reason and end were replaced.
    pub(crate) new: bool,
    /// The rule as it stands now.
    pub(crate) rule: Rule,
    /// A rule of the other kind that stands as well.
    pub(crate) also: Option<RuleKind>,
}

/// What lifting a rule did.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Lifted {
    /// Whether there was such a rule.
    pub(crate) lifted: bool,
    /// The rule of the other kind that still stops the handler.
    pub(crate) still: Option<RuleKind>,
    /// Events woken so far.
    #[schema(minimum = 0)]
    pub(crate) woken: usize,
    /// Whether more are being woken after this answer.
    pub(crate) waking: bool,
}

impl From<event::RuleKind> for RuleKind {
    fn from(kind: event::RuleKind) -> Self {
        match kind {
            event::RuleKind::Pause => Self::Pause,
            event::RuleKind::Block => Self::Block,
        }
    }
}

impl From<store::Rule> for Rule {
    fn from(rule: store::Rule) -> Self {
        let store::Rule { kind, scope: _, reason, until, created_by, created_at } = rule;
        Self { kind: kind.into(), reason, until, created_by, created_at }
    }
}

impl From<StopRequest> for admin::Stop {
    fn from(request: StopRequest) -> Self {
        Self { reason: request.reason, until: request.until }
    }
}

impl From<admin::Stopped> for Stopped {
    fn from(stopped: admin::Stopped) -> Self {
        let admin::Stopped { new, rule, also } = stopped;
        Self { new, rule: rule.into(), also: also.map(RuleKind::from) }
    }
}

impl From<admin::Resumed> for Lifted {
    fn from(resumed: admin::Resumed) -> Self {
        let admin::Resumed { lifted, still, woken, waking } = resumed;
        Self { lifted, still: still.map(RuleKind::from), woken, waking }
    }
}
