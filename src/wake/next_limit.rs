//! Where the next look at limits goes on.

use std::sync::{Mutex, PoisonError};

use crate::event::HeldLimit;

/// Behind which limit the next pass of this process looks on. Where many are full, one pass does
/// not come to all of them.
#[derive(Debug, Default)]
pub(super) struct NextLimit(Mutex<Option<HeldLimit>>);

impl NextLimit {
    pub(super) fn replace(&self, next: Option<HeldLimit>) -> Option<HeldLimit> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), next)
    }
}
