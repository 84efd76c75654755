//! The looks for events of pulled handlers, which all calls of a process that wait share.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::event::HandlerScope;
use crate::store::{BATCH_MAX, Coalescer, Store, StoreError};

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
                async move { look(&store, &handlers).await }
            })
        })
    }
}

/// Looks once for each handler, however many calls wait for its events: where many events wait for
/// their objects a look takes milliseconds, and all other calls wait for it.
async fn look(store: &Store, handlers: &[HandlerScope]) -> Result<Vec<bool>, StoreError> {
    let asked = distinct(handlers);
    let found = store.have_leasable(&asked).await?;
    Ok(answers(handlers, &asked, &found))
}

fn distinct(handlers: &[HandlerScope]) -> Vec<HandlerScope> {
    let distinct: BTreeSet<&HandlerScope> = handlers.iter().collect();
    distinct.into_iter().cloned().collect()
}

/// What was found for each handler, of what was found for those that were asked for, in order.
fn answers(handlers: &[HandlerScope], asked: &[HandlerScope], found: &[bool]) -> Vec<bool> {
    let answer = |handler| asked.binary_search(handler).ok().and_then(|at| found.get(at).copied());
    handlers.iter().map(|handler| answer(handler).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CanvasId;

    #[test]
    fn calls_that_wait_for_the_same_handler_share_a_look() {
        let of = |name: &str| HandlerScope::worker(CanvasId::DEFAULT, name).unwrap();
        let waiting = [of("b"), of("a"), of("b"), of("c"), of("b")];
        let asked = distinct(&waiting);
        assert_eq!(asked, [of("a"), of("b"), of("c")]);
        assert_eq!(answers(&waiting, &asked, &[false, true, false]), [true, false, true, false, true]);
    }
}
