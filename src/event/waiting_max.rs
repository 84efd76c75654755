//! The error of an emit that names a limit at its `waiting_max`.

use super::{CanvasId, LimitKey};

/// As many events wait for a limit as its `waiting_max` says. Nothing was emitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{most} events of the canvas {canvas} wait for a place of the limit {key}, which is its \
     `waiting_max`: emit again when some have started, or set a higher one (`wakeq limits set`)"
)]
#[non_exhaustive]
pub struct WaitingMaxReached {
    /// The canvas.
    pub canvas: CanvasId,
    /// The key that the event names.
    pub key: LimitKey,
    /// How many may wait.
    pub most: u32,
}
