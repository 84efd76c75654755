//! Handlers: counts and rules.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::HandlerStats;
use crate::event::RuleKind;
use crate::store;

/// A handler, with all its modifiers: how many events wait for what, and the rules in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Handler {
    /// The event space.
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    /// Due and free to run.
    #[schema(minimum = 0)]
    pub(crate) waiting: i64,
    /// Not due yet.
    #[schema(minimum = 0)]
    pub(crate) delayed: i64,
    /// Due, and held by a pause or a block.
    #[schema(minimum = 0)]
    pub(crate) paused: i64,
    /// On a worker now.
    #[schema(minimum = 0)]
    pub(crate) running: i64,
    /// Given up, and kept.
    #[schema(minimum = 0)]
    pub(crate) dead: i64,
    /// Since when the oldest due event has been due.
    pub(crate) oldest_due: Option<DateTime<Utc>>,
    /// The rules in force, a block first.
    pub(crate) rules: Vec<Rule>,
    /// Since when some worker has had events for it but no such handler.
    pub(crate) unknown_since: Option<DateTime<Utc>>,
}

/// A pause or a block.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Rule {
    pub(crate) kind: Kind,
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
#[schema(as = RuleKind)]
pub(crate) enum Kind {
    Pause,
    Block,
}

impl From<RuleKind> for Kind {
    fn from(kind: RuleKind) -> Self {
        match kind {
            RuleKind::Pause => Self::Pause,
            RuleKind::Block => Self::Block,
        }
    }
}

impl From<store::Rule> for Rule {
    fn from(rule: store::Rule) -> Self {
        let store::Rule { kind, scope: _, reason, until, created_by, created_at } = rule;
        Self { kind: kind.into(), reason, until, created_by, created_at }
    }
}

impl From<HandlerStats> for Handler {
    fn from(stats: HandlerStats) -> Self {
        Self {
            module: stats.scope.module.to_string(),
            name: stats.scope.name.to_string(),
            waiting: stats.waiting,
            delayed: stats.delayed,
            paused: stats.paused,
            running: stats.running,
            dead: stats.dead,
            oldest_due: stats.oldest_due,
            rules: stats.rules.into_iter().map(Rule::from).collect(),
            unknown_since: stats.unknown_since,
        }
    }
}
