//! What the exporters observe: the queue of the process, once there is one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::observe::Observer;

/// The observer of the process's queue, once there is one.
#[derive(Clone, Default)]
pub(crate) struct SharedObserver(Arc<Mutex<Option<Arc<Observer>>>>);

impl SharedObserver {
    /// `None` when the queue must no longer be queried.
    pub(crate) fn set(&self, observer: Option<Observer>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = observer.map(Arc::new);
    }

    pub(super) async fn refresh(&self) {
        let observer = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(observer) = observer {
            observer.refresh().await;
        }
    }
}
