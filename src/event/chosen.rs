//! Ids chosen by callers. They are unique within a canvas; the id under which the event is stored
//! is unique across all canvases.

use sha2::{Digest, Sha256};
use uuid::{Builder, Version};

use super::{CanvasId, EventId, Name};

/// An id was chosen before, for another handler. Nothing was emitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the id was chosen before, for the handler {module}/{name}, whose event is {id}: nothing was emitted. Choose \
     another id for another event"
)]
#[non_exhaustive]
pub struct ChosenIdTaken {
    /// The event that was emitted with it.
    pub id: EventId,
    /// The module of its handler.
    pub module: Name,
    /// The name of its handler.
    pub name: Name,
}

/// Domain separation: hashed first, so that no other hash over a canvas and an id yields the same
/// id. `wakeq.chosen_id` in the migrations uses the same text.
const DOMAIN: &[u8] = b"wakeq chosen id";
/// The same, for ids that count among those of one handler.
const DOMAIN_OF_HANDLER: &[u8] = b"wakeq id chosen for a handler";
/// The same, for ids that count among those of one hook.
const DOMAIN_OF_HOOK: &[u8] = b"wakeq id of a webhook";

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
        let hash = Sha256::new().chain_update(DOMAIN).chain_update(canvas.0.as_bytes());
        Self::of_hash(hash.chain_update(id.0.as_bytes()))
    }

    /// The id chosen by a caller that may emit to some handlers only: it counts among those of its
    /// handler, so that it takes no id that others of its canvas will choose.
    #[doc(hidden)]
    pub fn of_handler(module: &Name, name: &Name, id: Self) -> Self {
        let hash = Sha256::new().chain_update(DOMAIN_OF_HANDLER).chain_update(id.0.as_bytes());
        // No name contains a slash.
        Self::of_hash(hash.chain_update(module.as_str()).chain_update("/").chain_update(name.as_str()))
    }

    /// The id chosen for what a hook receives, by the sender's own id: a repeat has the same, and
    /// two hooks of a canvas have different ones.
    ///
    /// ```
    /// use wakeq::{CanvasId, EventId, Name};
    ///
    /// let hook: Name = "payments".parse().unwrap();
    /// let chosen = EventId::of_webhook(&hook, "evt_1NG8Du2eZvKYlo2CUI79vXWy");
    /// let event = EventId::chosen(CanvasId::DEFAULT, chosen);
    /// assert_ne!(event, EventId::chosen(CanvasId::DEFAULT, EventId::of_webhook(&hook, "evt_2")));
    /// ```
    pub fn of_webhook(hook: &Name, id: &str) -> Self {
        let hash = Sha256::new().chain_update(DOMAIN_OF_HOOK).chain_update(hook.as_str());
        // No name contains a slash.
        Self::of_hash(hash.chain_update("/").chain_update(id))
    }

    /// Whether it was made from an id that a caller chose.
    pub(crate) fn is_chosen(self) -> bool {
        self.0.get_version() == Some(Version::Custom)
    }

    fn of_hash(hash: Sha256) -> Self {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(Builder::from_custom_bytes(bytes).into_uuid())
    }
}
