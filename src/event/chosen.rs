//! Ids that callers choose. They count within a canvas; the id that an event is stored under counts over all of them.

use sha2::{Digest, Sha256};
use uuid::Builder;

use super::{CanvasId, EventId};

/// What is hashed first, so that no other hash of a canvas and an id comes to the same. `wakeq.chosen_id` in the
/// migrations has it too.
const DOMAIN: &[u8] = b"wakeq chosen id";

impl EventId {
    /// The id of the event that is emitted on a canvas with this id of its caller's choice: always the same, and another
    /// one on every other canvas. It is what [`Emitted::id`](crate::Emitted::id) and
    /// [`Execution::id`](crate::Execution::id) are for that event.
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
