//! Queues that services register, and what each canvas gets of them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{InvalidPull, InvalidTarget, Pull, PutTarget, SecretText, Target};
use crate::event::{CanvasId, CopyOf, InvalidPattern};
use crate::{admin, store};

/// A queue to be registered. It replaces what is registered under its name.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutQueue {
    /// Which events are copied into it: those with a topic, `canvas:module:name`, that any of these is found in. Regular
    /// expressions without look-around and back-references, of up to 1,024 bytes each.
    #[schema(min_items = 1, max_items = 20, example = json!([".*:email_event:.*"]))]
    pub(crate) patterns: Vec<String>,
    /// How many events of a canvas come in each round, where the canvas has no settings of its own; 0 pauses.
    #[serde(default = "once")]
    #[schema(maximum = 1000, default = 1)]
    pub(crate) weight: u32,
    /// How many events of a canvas may run at a time on all workers. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) in_flight_max: Option<u32>,
    /// Whether its copies are shown to their canvases: who may `read` and `operate` there then may do so with them, and rules on
    /// the handlers that they name hold them. Otherwise only callers that reach every canvas see and change them.
    #[serde(default)]
    #[schema(default = false)]
    pub(crate) tenant_visible: bool,
    /// Services pull its copies over HTTP, and this is how those are tried again that they release with an error: `{}` for the
    /// defaults. No worker takes them. A canvas has 1,000 in flight at most, unless `in_flight_max` says otherwise. Excludes `target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pull: Option<Pull>,
    /// Where its events are sent. Without one, functions of workers work it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<PutTarget>,
}

fn once() -> u32 {
    1
}

/// A registered queue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Queue {
    #[schema(example = "email_events")]
    pub(crate) name: String,
    /// Which events are copied into it.
    pub(crate) patterns: Vec<String>,
    /// It gets no copies any more, and goes with the last one that waits.
    pub(crate) draining: bool,
    #[schema(minimum = 0)]
    pub(crate) weight: u32,
    pub(crate) in_flight_max: Option<u32>,
    /// Whether its copies are shown to their canvases, and held by their rules.
    #[serde(default)]
    pub(crate) tenant_visible: bool,
    /// How copies are tried again that are released with an error, if it is pulled.
    #[serde(default)]
    pub(crate) pull: Option<Pull>,
    /// Where its events are sent, if that is over HTTP.
    pub(crate) target: Option<Target>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) created_by: String,
    /// Since when it is as it is.
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) updated_by: String,
    /// What canvases get of it where that differs: the first 1,000. Only where one queue is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<Vec<FacetSettings>>,
}

/// What a canvas gets of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FacetSettings {
    pub(crate) canvas: Uuid,
    /// Events in each round, 0 while it is paused; null: as the queue says.
    pub(crate) weight: Option<u32>,
    /// Events at a time on all workers; null: as the queue says.
    pub(crate) in_flight_max: Option<u32>,
}

/// What registering a queue did.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PutQueueAnswer {
    /// Whether there was none of this name.
    pub(crate) new: bool,
    /// Whether anything is other than before.
    pub(crate) changed: bool,
    /// The queue as it stands now.
    pub(crate) queue: Queue,
    /// The secret of its target that was made, `whsec_…`: shown this once.
    #[schema(value_type = Option<String>)]
    pub(crate) secret: Option<SecretText>,
    /// Copies that may go on now, and were woken so far.
    #[schema(minimum = 0)]
    pub(crate) woken: usize,
    /// Whether more are being woken after this answer.
    pub(crate) waking: bool,
}

/// What becomes of the copies that wait in a queue which is unregistered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Waiting {
    /// They are worked as before, and the queue goes with the last one.
    #[default]
    Drain,
    /// They are deleted, except those that run.
    Drop,
}

/// What unregistering a queue did: it gets no copies any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DeletedQueue {
    /// Whether the queue is gone. If not, it goes with its last copy, within a minute.
    pub(crate) gone: bool,
}

/// A canvas with copies in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Facet {
    pub(crate) canvas: Uuid,
    /// Copies that nobody runs, those that are not due and those under rules included; at most 10,000.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) waiting: u64,
    /// Copies that somebody runs.
    #[schema(minimum = 0)]
    pub(crate) running: u64,
    /// Whether there may be more.
    pub(crate) capped: bool,
    /// Since when the oldest has been due.
    pub(crate) oldest_due: Option<DateTime<Utc>>,
    /// Where it stands in the rotation, from 1; null, if it is not in it.
    #[schema(minimum = 1)]
    pub(crate) position: Option<u64>,
    /// Its own weight; null: as the queue says.
    pub(crate) weight: Option<u32>,
    /// Its own limit; null: as the queue says.
    pub(crate) in_flight_max: Option<u32>,
}

/// How much there is to do in a queue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct QueueDepth {
    /// Copies that are due and free to run, of canvases that are not paused in the queue.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) depth: u64,
    /// Whether there may be more.
    pub(crate) capped: bool,
    /// Canvases that have turns now.
    #[schema(minimum = 0, maximum = 10_000)]
    pub(crate) canvases: u64,
}

/// What a canvas is to get of a queue; what is left out is as the queue says.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SetFacet {
    /// Events in each round; 0 pauses the canvas in the queue.
    #[schema(maximum = 1000)]
    pub(crate) weight: Option<u32>,
    /// Events at a time on all workers.
    #[schema(minimum = 1, maximum = 10_000)]
    pub(crate) in_flight_max: Option<u32>,
}

/// What a canvas gets of a queue now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FacetSet {
    pub(crate) settings: FacetSettings,
    /// Copies that may go on now, and were woken so far.
    #[schema(minimum = 0)]
    pub(crate) woken: usize,
    /// Whether more are being woken after this answer.
    pub(crate) waking: bool,
}

/// Which copy of an event it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Copied {
    /// The queue that it is in.
    #[schema(example = "email_events")]
    pub(crate) queue: String,
    /// The event that was emitted.
    pub(crate) origin: Uuid,
}

/// Why a request registers no queue.
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
    /// As the queue takes it.
    pub(crate) fn read(self) -> Result<admin::NewQueue, InvalidQueue> {
        // More than there may be are refused by their number: none of them has to be read.
        let texts = self.patterns.iter().take(100).enumerate();
        let patterns = texts
            .map(|(at, text)| text.parse().map_err(|error| InvalidQueue::Pattern { number: at + 1, error }));
        Ok(admin::NewQueue {
            patterns: patterns.collect::<Result<_, _>>()?,
            facets: store::FacetSettings { weight: Some(self.weight), in_flight_max: self.in_flight_max },
            tenant_visible: self.tenant_visible,
            pull: self.pull.map(Pull::read).transpose()?,
            target: self.target.map(PutTarget::read).transpose()?,
        })
    }
}

impl Queue {
    /// With what canvases get of it.
    pub(crate) fn with(
        queue: store::RegisteredQueue,
        settings: Vec<(CanvasId, store::FacetSettings)>,
    ) -> Self {
        let settings = settings.into_iter().map(|(canvas, own)| FacetSettings::of(canvas, own)).collect();
        Self { settings: Some(settings), ..queue.into() }
    }
}

impl FacetSettings {
    fn of(canvas: CanvasId, own: store::FacetSettings) -> Self {
        Self { canvas: canvas.0, weight: own.weight, in_flight_max: own.in_flight_max }
    }
}

impl FacetSet {
    /// What was set for a canvas.
    pub(crate) fn of(canvas: CanvasId, set: admin::SetFacet) -> Self {
        let admin::SetFacet { settings, woken, waking } = set;
        Self { settings: FacetSettings::of(canvas, settings), woken, waking }
    }
}

impl From<store::RegisteredQueue> for Queue {
    fn from(queue: store::RegisteredQueue) -> Self {
        Self {
            name: queue.name.to_string(),
            patterns: queue.patterns,
            draining: queue.draining,
            weight: queue.facets.weight.unwrap_or(1),
            in_flight_max: queue.facets.in_flight_max,
            tenant_visible: queue.tenant_visible,
            pull: queue.pull.map(Pull::from),
            target: queue.target.map(Target::from),
            created_at: queue.created_at,
            created_by: queue.created_by,
            updated_at: queue.updated_at,
            updated_by: queue.updated_by,
            settings: None,
        }
    }
}

impl From<admin::PutQueue> for PutQueueAnswer {
    fn from(put: admin::PutQueue) -> Self {
        let admin::PutQueue { new, changed, queue, secret, woken, waking } = put;
        let secret = secret.map(|secret| SecretText(secret.reveal()));
        Self { new, changed, queue: queue.into(), secret, woken, waking }
    }
}

impl From<Waiting> for admin::Waiting {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Drain => Self::Drain,
            Waiting::Drop => Self::Drop,
        }
    }
}

impl From<admin::DeletedQueue> for DeletedQueue {
    fn from(deleted: admin::DeletedQueue) -> Self {
        Self { gone: deleted.gone }
    }
}

impl From<store::Facet> for Facet {
    fn from(facet: store::Facet) -> Self {
        let store::Facet { canvas, waiting, running, capped, oldest_due, position, settings } = facet;
        let store::FacetSettings { weight, in_flight_max } = settings;
        Self { canvas: canvas.0, waiting, running, capped, oldest_due, position, weight, in_flight_max }
    }
}

impl From<store::QueueDepth> for QueueDepth {
    fn from(depth: store::QueueDepth) -> Self {
        let store::QueueDepth { queue: _, depth, capped, canvases } = depth;
        Self { depth, capped, canvases }
    }
}

impl From<SetFacet> for store::FacetSettings {
    fn from(set: SetFacet) -> Self {
        Self { weight: set.weight, in_flight_max: set.in_flight_max }
    }
}

impl From<CopyOf> for Copied {
    fn from(copy: CopyOf) -> Self {
        Self { queue: copy.queue.to_string(), origin: copy.origin.0 }
    }
}
