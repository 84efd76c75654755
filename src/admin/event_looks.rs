//! The looks for events of pulled handlers, which all calls of a process that wait share.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::event::HandlerScope;
use crate::store::{BATCH_MAX, Coalescer, Store};

/// How long a look waits for those of other calls, which share its statement.
const LOOK_LINGER: Duration = Duration::from_millis(100);

/// The looks of all calls of a process that wait for events. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct EventLooks(Arc<OnceLock<Coalescer<HandlerScope, bool>>>);

impl EventLooks {
    /// The looks over a store. One statement is in flight at a time, however many calls wait. Must
    /// be called inside a tokio runtime.
    pub(super) fn over(&self, store: &Store) -> &Coalescer<HandlerScope, bool> {
        self.0.get_or_init(|| {
            let store = store.clone();
            Coalescer::lingering(BATCH_MAX, LOOK_LINGER, 1, move |handlers: Vec<HandlerScope>| {
                let store = store.clone();
                async move { store.have_leasable(&handlers).await }
            })
        })
    }
}
