//! The unique keys that events have, and those that are remembered.

use std::collections::HashMap;

use crate::event::{EventId, HandlerScope, Timestamp};

/// A handler and a key.
pub(super) type KeyPlace = (HandlerScope, String);

/// Which events got keys last, and may have lost them; and which had them, until when.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) taken: HashMap<KeyPlace, EventId>,
    pub(super) remembered: HashMap<KeyPlace, (EventId, Timestamp)>,
}
