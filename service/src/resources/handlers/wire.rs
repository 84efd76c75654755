//! Handlers: counts and rules, of each and of a whole canvas.

mod rules;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resources::targets::wire::TargetJson;
use crate::resources::wire::wire_from;
pub(crate) use rules::{Lifted, RuleJson, RuleKind, RuleReachJson, StopRequest, Stopped};
use wakeq::HandlerScope;
use wakeq::control::{Bulk, CanvasStats, HandlerStats};

/// A handler with all its modifiers: its events by state, and the rules in force.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct Handler {
    /// The handler's module, its event space.
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    /// Events that are due and free to run.
    #[schema(minimum = 0)]
    pub(crate) waiting: i64,
    /// Events that are not due yet.
    #[schema(minimum = 0)]
    pub(crate) delayed: i64,
    /// Events that are due and held by a pause or a block.
    #[schema(minimum = 0)]
    pub(crate) paused: i64,
    /// Events that are running on a worker.
    #[schema(minimum = 0)]
    pub(crate) running: i64,
    /// Dead events, which are kept.
    #[schema(minimum = 0)]
    pub(crate) dead: i64,
    /// Objects that are halted for the handler by a dead event.
    #[serde(default)]
    #[schema(minimum = 0)]
    pub(crate) halted: i64,
    /// Since when the oldest due event has been due.
    pub(crate) oldest_due: Option<DateTime<Utc>>,
    /// The rules in force on the handler, its canvas and everything: a block first.
    pub(crate) rules: Vec<RuleJson>,
    /// Since when a worker has had events for the handler without knowing it.
    pub(crate) unknown_since: Option<DateTime<Utc>>,
    /// The handler's HTTP targets, by modifier.
    pub(crate) targets: Vec<TargetJson>,
    /// Whether it has more targets than are shown: `list_targets` has all.
    #[serde(default)]
    pub(crate) more_targets: bool,
}

impl Handler {
    /// A handler without any events, rules or targets.
    pub(crate) fn empty(scope: &HandlerScope) -> Self {
        Self { module: scope.module.to_string(), name: scope.name.to_string(), ..Self::default() }
    }

    /// Whether it has no events, rules or targets.
    pub(crate) fn is_empty(&self) -> bool {
        [self.waiting, self.delayed, self.paused, self.running, self.dead, self.halted] == [0; 6]
            && self.rules.is_empty()
            && self.targets.is_empty()
    }
}

/// The events of all handlers of a canvas by state, and the handlers to look at first.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct CanvasCounts {
    /// Handlers that have events, dead events, halted objects, or rules of their own.
    #[schema(minimum = 0)]
    pub(crate) handlers: i64,
    /// Handlers that are paused or blocked themselves.
    #[schema(minimum = 0)]
    pub(crate) stopped_handlers: i64,
    /// Handlers of which some worker has had events without knowing them.
    #[schema(minimum = 0)]
    pub(crate) unknown_handlers: i64,
    /// Events that are due and free to run.
    #[schema(minimum = 0)]
    pub(crate) waiting: i64,
    /// Events that are not due yet.
    #[schema(minimum = 0)]
    pub(crate) delayed: i64,
    /// Events that are due and held by a pause or a block.
    #[schema(minimum = 0)]
    pub(crate) paused: i64,
    /// Events that are running on a worker. While many are due, a lower bound: the others count as
    /// `waiting` or `paused`.
    #[schema(minimum = 0)]
    pub(crate) running: i64,
    /// Dead events, which are kept.
    #[schema(minimum = 0)]
    pub(crate) dead: i64,
    /// Objects that are halted for a handler by a dead event.
    #[schema(minimum = 0)]
    pub(crate) halted: i64,
    /// Since when the oldest due event has been due.
    pub(crate) oldest_due: Option<DateTime<Utc>>,
    /// Whether there may be more: up to 2,000,000 events, as many dead ones and 100,000 halted
    /// objects are counted.
    pub(crate) capped: bool,
    /// Up to 50 handlers, that with the most events that wait, run or are dead first.
    pub(crate) busiest: Vec<Handler>,
    /// Up to 50 of the handlers that are paused or blocked themselves, by module and name.
    pub(crate) stopped: Vec<Handler>,
    /// Up to 50 of the handlers that some worker does not know, by module and name.
    pub(crate) unknown: Vec<Handler>,
}

/// How many events of a canvas or a handler could run now with more workers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Depth)]
pub(crate) struct DepthJson {
    /// Events that are due and free to run: not running, not held by a rule, and not waiting for a
    /// limit.
    #[schema(minimum = 0)]
    pub(crate) depth: u64,
    /// Whether there may be more: at most 10,000 events of a canvas are counted, and about 20,000
    /// of all canvases.
    pub(crate) capped: bool,
    /// How long the oldest of them has been due, in seconds.
    #[schema(minimum = 0)]
    pub(crate) oldest_age_s: Option<f64>,
}

/// Which events of a handler to delete, except running ones.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PurgeRequest {
    /// Only events emitted before this time. Default: the time of the request.
    pub(crate) before: Option<DateTime<Utc>>,
    /// All events of the handler, as without `before`, and refused with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) all: bool,
    /// Whether to only count the events.
    pub(crate) dry_run: bool,
    /// With `dry_run`: count at most this many events. Default 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub(crate) count_up_to: Option<u64>,
}

/// The result of a purge.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Purged {
    /// Number of events deleted, at most 10,000 per request. With `dry_run`: number of events that
    /// would be deleted, at most `count_up_to`.
    #[schema(minimum = 0)]
    pub(crate) purged: u64,
    /// Whether there are more. To continue, repeat the request with `before` from this response.
    pub(crate) more: bool,
    /// Time on the database's clock before which all of these events were emitted. Repeating the
    /// request with it leaves alone events that are emitted later.
    pub(crate) before: Option<DateTime<Utc>>,
}

impl From<wakeq::control::Depth> for DepthJson {
    fn from(depth: wakeq::control::Depth) -> Self {
        let oldest_age_s = depth.oldest_age().map(|age| age.as_secs_f64());
        Self { depth: depth.depth, capped: depth.capped, oldest_age_s }
    }
}

impl FromIterator<Self> for DepthJson {
    /// Of several handlers together.
    fn from_iter<T: IntoIterator<Item = Self>>(depths: T) -> Self {
        depths.into_iter().fold(Self { depth: 0, capped: false, oldest_age_s: None }, |all, one| Self {
            depth: all.depth + one.depth,
            capped: all.capped || one.capped,
            oldest_age_s: [all.oldest_age_s, one.oldest_age_s].into_iter().flatten().reduce(f64::max),
        })
    }
}

impl From<(Bulk, DateTime<Utc>)> for Purged {
    fn from((bulk, before): (Bulk, DateTime<Utc>)) -> Self {
        Self { purged: bulk.count, more: bulk.more, before: Some(before) }
    }
}

wire_from! { HandlerStats => Handler, |stats| {
    waiting, delayed, paused, running, dead, halted, oldest_due, unknown_since, more_targets;
    module: stats.scope.module.to_string(),
    name: stats.scope.name.to_string(),
    rules: stats.rules.into_iter().map(RuleJson::from).collect(),
    targets: stats.targets.into_iter().map(TargetJson::from).collect(),
} }

wire_from! { CanvasStats => CanvasCounts, |stats| {
    handlers, stopped_handlers, unknown_handlers, waiting, delayed, paused, running, dead, halted, oldest_due,
    capped;
    busiest: stats.busiest.into_iter().map(Handler::from).collect(),
    stopped: stats.stopped.into_iter().map(Handler::from).collect(),
    unknown: stats.unknown.into_iter().map(Handler::from).collect(),
} }
