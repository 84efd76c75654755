//! Registered queues and their facets.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::pulls::wire::{InvalidPull, Pull};
use crate::resources::targets::wire::{InvalidTarget, PutTarget, SecretText, TargetJson};
use crate::resources::wire::{List, wire_from};
use wakeq::CanvasId;
use wakeq::queues::{CopyOf, InvalidPattern};

/// A queue to be registered. It replaces the one registered under its name.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutQueue {
    /// Regular expressions over `canvas:module:name`: an event is copied if any of them is found in
    /// it. Without look-around and back-references; at most 1,024 bytes each.
    #[schema(min_items = 1, max_items = 20, example = json!([".*:email_event:.*"]))]
    pub(crate) patterns: Vec<String>,
    /// Events per canvas and round, for canvases without settings of their own; 0 pauses.
    #[serde(default = "once")]
    #[schema(maximum = 1000, default = 1)]
    pub(crate) weight: u32,
    /// Maximum events of a canvas that run at once on all workers. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) in_flight_max: Option<u32>,
    /// Whether canvases may see, cancel, redrive, delete and pause their copies: with the scopes
    /// `read` and `operate` on a canvas, callers may do so, and rules on the handlers that the
    /// copies name hold them. Otherwise only callers with access to all canvases see and change
    /// the copies.
    #[serde(default)]
    #[schema(default = false)]
    pub(crate) tenant_visible: bool,
    /// The retry options of a pulled queue, for copies that are released with an error; `{}` for
    /// the defaults. Services pull its copies over HTTP, and no worker runs them. A canvas has at
    /// most 1,000 copies in flight unless `in_flight_max` is set. Excludes `target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pull: Option<Pull>,
    /// The HTTP target that receives the events. Without it, functions of workers process the
    /// queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<PutTarget>,
}

fn once() -> u32 {
    1
}

/// A registered queue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Queue)]
pub(crate) struct QueueJson {
    #[schema(example = "email_events")]
    pub(crate) name: String,
    /// The patterns of the events that are copied into the queue.
    pub(crate) patterns: Vec<String>,
    /// Whether the queue is draining: it receives no more copies, and is removed after the last
    /// waiting one.
    pub(crate) draining: bool,
    #[schema(minimum = 0)]
    pub(crate) weight: u32,
    pub(crate) in_flight_max: Option<u32>,
    /// Whether canvases see their copies, and hold them by their rules.
    #[serde(default)]
    pub(crate) tenant_visible: bool,
    /// The retry options of a pulled queue, for copies that are released with an error.
    #[serde(default)]
    pub(crate) pull: Option<Pull>,
    /// The HTTP target that receives the events, if any.
    pub(crate) target: Option<TargetJson>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    /// When the queue was last changed.
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) updated_by: String,
    /// The canvases with settings of their own: at most `limit`. Only when a single queue is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<Vec<FacetSettingsJson>>,
    /// The cursor of the next page of `settings`: the parameter `cursor` of the next request.
    /// Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// The settings of a canvas in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FacetSettings)]
pub(crate) struct FacetSettingsJson {
    pub(crate) canvas: Uuid,
    /// Events per round, 0 while the canvas is paused; null for the queue's setting.
    pub(crate) weight: Option<u32>,
    /// Maximum events that run at once on all workers; null for the queue's setting.
    pub(crate) in_flight_max: Option<u32>,
}

/// The result of registering a queue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PutQueueAnswer {
    /// Whether no queue had this name.
    pub(crate) new: bool,
    /// Whether anything was changed.
    pub(crate) changed: bool,
    /// The queue as it is now.
    pub(crate) queue: QueueJson,
    /// The generated secret of its target, `whsec_…`; shown only once.
    #[schema(value_type = Option<String>)]
    pub(crate) secret: Option<SecretText>,
    /// Number of copies woken so far, because they may run now.
    #[schema(minimum = 0)]
    pub(crate) woken: usize,
    /// Whether more are woken after this response.
    pub(crate) waking: bool,
}

/// What to do with the waiting copies of a queue that is unregistered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Waiting {
    /// Process them as before; the queue is removed after the last one.
    #[default]
    Drain,
    /// Delete them, except running ones.
    Drop,
}

/// The result of unregistering a queue, which receives no more copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DeletedQueue)]
pub(crate) struct DeletedQueueJson {
    /// Whether the queue is gone. If not, it is removed within a minute after its last copy.
    pub(crate) gone: bool,
}

/// A canvas with copies in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Facet)]
pub(crate) struct FacetJson {
    pub(crate) canvas: Uuid,
    /// Copies that are not running, including those that are not due or are held by rules; at most
    /// 10,000.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) waiting: u64,
    /// Copies that are running.
    #[schema(minimum = 0)]
    pub(crate) running: u64,
    /// Whether there may be more.
    pub(crate) capped: bool,
    /// Since when the oldest copy has been due.
    pub(crate) oldest_due: Option<DateTime<Utc>>,
    /// The canvas's position in the rotation, from 1; null if it is not in it.
    #[schema(minimum = 1)]
    pub(crate) position: Option<u64>,
    /// The canvas's own weight; null for the queue's setting.
    pub(crate) weight: Option<u32>,
    /// The canvas's own limit; null for the queue's setting.
    pub(crate) in_flight_max: Option<u32>,
}

/// How much there is to do in a queue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = QueueDepth)]
pub(crate) struct QueueDepthJson {
    /// Copies that are due and free to run, of canvases that are not paused in the queue.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) depth: u64,
    /// Whether there may be more.
    pub(crate) capped: bool,
    /// Canvases that have turns now.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) canvases: u64,
}

/// The settings of a canvas in a queue. Omitted fields use the queue's settings.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SetFacet {
    /// Events per round; 0 pauses the canvas in the queue.
    #[schema(maximum = 1000)]
    pub(crate) weight: Option<u32>,
    /// Maximum events that run at once on all workers.
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) in_flight_max: Option<u32>,
}

/// The settings of a canvas in a queue, as they are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FacetSet {
    pub(crate) settings: FacetSettingsJson,
    /// Number of copies woken so far, because they may run now.
    #[schema(minimum = 0)]
    pub(crate) woken: usize,
    /// Whether more are woken after this response.
    pub(crate) waking: bool,
}

/// The queue that a copy is in, and the event it was copied from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Copied {
    /// The queue.
    #[schema(example = "email_events")]
    pub(crate) queue: String,
    /// The event that was copied.
    pub(crate) origin: Uuid,
}

/// Why a request does not describe a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidQueue {
    #[error("pattern {number} is not valid: {error}")]
    Pattern { number: usize, error: InvalidPattern },
    #[error(transparent)]
    Target(#[from] InvalidTarget),
    #[error(transparent)]
    Pull(#[from] InvalidPull),
}

impl PutQueue {
    /// The queue to be registered.
    pub(crate) fn read(self) -> Result<wakeq::queues::NewQueue, InvalidQueue> {
        // A request with more patterns than allowed is refused because of their number, so the
        // others need not be parsed.
        let texts = self.patterns.iter().take(100).enumerate();
        let patterns = texts
            .map(|(at, text)| text.parse().map_err(|error| InvalidQueue::Pattern { number: at + 1, error }));
        Ok(wakeq::queues::NewQueue {
            patterns: patterns.collect::<Result<_, _>>()?,
            facets: wakeq::queues::FacetSettings {
                weight: Some(self.weight),
                in_flight_max: self.in_flight_max,
            },
            tenant_visible: self.tenant_visible,
            pull: self.pull.map(Pull::read).transpose()?,
            target: self.target.map(PutTarget::read).transpose()?,
        })
    }
}

impl QueueJson {
    /// With the first `limit` of these settings of canvases. That there are more of them shows that
    /// another page follows.
    pub(crate) fn with(
        queue: wakeq::queues::RegisteredQueue,
        settings: Vec<(CanvasId, wakeq::queues::FacetSettings)>,
        limit: u32,
    ) -> Self {
        let settings: Vec<FacetSettingsJson> =
            settings.into_iter().map(|(canvas, own)| FacetSettingsJson::of(canvas, own)).collect();
        let List { items, next_cursor, .. } =
            List::<FacetSettingsJson>::page(settings, limit, |own: &FacetSettingsJson| {
                own.canvas.to_string()
            });
        Self { settings: Some(items), next_cursor, ..queue.into() }
    }
}

impl FacetSettingsJson {
    fn of(canvas: CanvasId, own: wakeq::queues::FacetSettings) -> Self {
        Self { canvas: canvas.0, weight: own.weight, in_flight_max: own.in_flight_max }
    }
}

impl FacetSet {
    /// The answer to setting a canvas's facet.
    pub(crate) fn of(canvas: CanvasId, set: wakeq::queues::SetFacet) -> Self {
        let wakeq::queues::SetFacet { settings, woken, waking } = set;
        Self { settings: FacetSettingsJson::of(canvas, settings), woken, waking }
    }
}

wire_from! { wakeq::queues::RegisteredQueue => QueueJson, |queue| {
    patterns, draining, tenant_visible, created_at, created_by, updated_at, updated_by;
    name: queue.name.to_string(),
    weight: queue.facets.weight.unwrap_or(1),
    in_flight_max: queue.facets.in_flight_max,
    pull: queue.pull.map(Pull::from),
    target: queue.target.map(TargetJson::from),
    settings: None,
    next_cursor: None,
} }

impl From<wakeq::queues::PutQueue> for PutQueueAnswer {
    fn from(put: wakeq::queues::PutQueue) -> Self {
        let wakeq::queues::PutQueue { new, changed, queue, secret, woken, waking } = put;
        let secret = secret.map(|secret| SecretText(secret.reveal()));
        Self { new, changed, queue: queue.into(), secret, woken, waking }
    }
}

impl From<Waiting> for wakeq::queues::WaitingCopies {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Drain => Self::Drain,
            Waiting::Drop => Self::Drop,
        }
    }
}

wire_from! { wakeq::queues::DeletedQueue => DeletedQueueJson, |deleted| { gone; } }

impl From<wakeq::queues::Facet> for FacetJson {
    fn from(facet: wakeq::queues::Facet) -> Self {
        let wakeq::queues::Facet { canvas, waiting, running, capped, oldest_due, position, settings } = facet;
        let wakeq::queues::FacetSettings { weight, in_flight_max } = settings;
        Self { canvas: canvas.0, waiting, running, capped, oldest_due, position, weight, in_flight_max }
    }
}

impl From<wakeq::queues::QueueDepth> for QueueDepthJson {
    fn from(depth: wakeq::queues::QueueDepth) -> Self {
        let wakeq::queues::QueueDepth { queue: _, depth, capped, canvases } = depth;
        Self { depth, capped, canvases }
    }
}

impl From<SetFacet> for wakeq::queues::FacetSettings {
    fn from(set: SetFacet) -> Self {
        Self { weight: set.weight, in_flight_max: set.in_flight_max }
    }
}

impl From<CopyOf> for Copied {
    fn from(copy: CopyOf) -> Self {
        Self { queue: copy.queue.to_string(), origin: copy.origin.0 }
    }
}
