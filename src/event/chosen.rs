//! Ids chosen by callers. They are unique within a canvas; the id under which the event is stored
//! is unique across all canvases.

use sha2::{Digest, Sha256};
use uuid::Builder;

use super::{CanvasId, EventId};

/// Domain separation: hashed first, so that no other hash over a canvas and an id yields the same
/// id. `wakeq.chosen_id` in the migrations uses the same text.
const DOMAIN: &[u8] = b"wakeq chosen id";

impl EventId {
    /// The id of the event that is emitted on `canvas` with the chosen id `id`: deterministic, and
    /// different on every canvas. [`Emitted::id`](crate::Emitted::id) and
    /// [`Execution::id`](crate::Execution::id) hold this id.
    ///
    /// ```
    /// use wakeq::{CanvasId, EventId};
    ///
    /// let order: EventId = "0194e4f2-8a31-7c55-9d02-6f0a4b1c2d3e".parse().unwrap();
    /// let id = EventId::chosen(CanvasId::DEFAULT, order);
    /// assert_eq!(id.to_string(), "e89f22b1-03ba-8d26-bb79-bd6b7b4c5010");
    /// assert_ne!(id, EventId::chosen("00000000-0000-0000-0000-000000000001".parse().unwrap(), order));
    /// ```
    pub fn chosen(canvas: CanvasId, id: Self) -> Self {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(canvas.0.as_bytes());
        hash.update(id.0.as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(Builder::from_custom_bytes(bytes).into_uuid())
    }
}
