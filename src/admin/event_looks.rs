//! The looks for events of pulled handlers, which all calls of a process that wait share.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::event::HandlerScope;
use crate::store::{BATCH_MAX, Coalescer, DuePlace, Store, StoreError};

/// How long a look waits for those of other calls, which share its statement.
const LOOK_LINGER: Duration = Duration::from_millis(100);
/// Maximum number of handlers whose looks go on where the last one ended.
const PLACES_MAX: usize = 10_000;

/// The looks of all calls of a process that wait for events. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct EventLooks {
    looks: Arc<OnceLock<Coalescer<HandlerScope, bool>>>,
    places: Places,
}

impl EventLooks {
    /// The looks over a store. One statement is in flight at a time, however many calls wait. Must
    /// be called inside a tokio runtime.
    pub(super) fn over(&self, store: &Store) -> &Coalescer<HandlerScope, bool> {
        self.looks.get_or_init(|| {
            let (store, places) = (store.clone(), self.places.clone());
            Coalescer::lingering(BATCH_MAX, LOOK_LINGER, 1, move |handlers: Vec<HandlerScope>| {
                let (store, places) = (store.clone(), places.clone());
                async move { look(&store, &places, &handlers).await }
            })
        })
    }

    /// Behind which of a handler's events the last look has found some that can be leased, or the
    /// next one goes on. `None`: among the first ones.
    pub(super) fn place_of(&self, handler: &HandlerScope) -> Option<DuePlace> {
        self.places.of(handler)
    }
}

/// Where looks go on, by handler: where its first events are in other hands, each look is at the
/// next ones. Losing it only begins anew.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<HashMap<HandlerScope, DuePlace>>>);

impl Places {
    fn of(&self, handler: &HandlerScope) -> Option<DuePlace> {
        self.places().get(handler).copied()
    }

    fn move_to(&self, handler: &HandlerScope, place: Option<DuePlace>) {
        let mut places = self.places();
        let Some(place) = place else {
            places.remove(handler);
            return;
        };
        if places.len() >= PLACES_MAX {
            places.clear();
        }
        places.insert(handler.clone(), place);
    }

    fn places(&self) -> MutexGuard<'_, HashMap<HandlerScope, DuePlace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks once for each handler, however many calls wait for its events: where many events wait for
/// their objects a look takes milliseconds, and all other calls wait for it.
async fn look(store: &Store, places: &Places, handlers: &[HandlerScope]) -> Result<Vec<bool>, StoreError> {
    let asked = distinct(handlers);
    let from: Vec<_> = asked.iter().map(|handler| (handler, places.of(handler))).collect();
    let looks = store.have_leasable(&from).await?;
    for (handler, look) in asked.iter().zip(&looks) {
        places.move_to(handler, look.place);
    }
    let found: Vec<bool> = looks.iter().map(|look| look.has).collect();
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
    use crate::event::{Actor, CanvasId, PullPolicy};
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};

    #[test]
    fn calls_that_wait_for_the_same_handler_share_a_look() {
        let of = |name: &str| HandlerScope::worker(CanvasId::DEFAULT, name).unwrap();
        let waiting = [of("b"), of("a"), of("b"), of("c"), of("b")];
        let asked = distinct(&waiting);
        assert_eq!(asked, [of("a"), of("b"), of("c")]);
        assert_eq!(answers(&waiting, &asked, &[false, true, false]), [true, false, true, false, true]);
    }

    /// However many events of the handler are in other hands before the one that can be leased.
    /// Those of another canvas have looks of their own.
    #[tokio::test]
    async fn looks_go_on_until_they_find_an_event() {
        let table = Table::new().await;
        let handlers = [MANY, FEW].map(|canvas| HandlerScope::worker(canvas, "mail").unwrap());
        for (handler, count) in handlers.iter().zip([4_500, 1]) {
            let put = table.store.put_pulled(handler, &PullPolicy::default(), &Actor::user("ada")).await;
            assert!(put.unwrap().unwrap().new);
            table.mails_of_others(handler.canvas, count).await;
        }
        let looks = EventLooks::default();
        let found = async || look(&table.store, &looks.places, &handlers).await.unwrap();
        assert_eq!(found().await, [false, false]);
        assert_eq!(found().await, [false, false]);
        assert_eq!(found().await, [true, false]);
        let lease = async |handler: &HandlerScope| {
            let (minute, place) = (Duration::from_secs(60), looks.place_of(handler));
            table.store.lease_events(handler, 10, minute, 1_000, place).await.unwrap().rows.len()
        };
        assert_eq!((lease(&handlers[1]).await, lease(&handlers[0]).await), (0, 1));
        for _ in 0..2 {
            assert_eq!(found().await, [false, false]);
        }
        assert_eq!(looks.place_of(&handlers[0]), None, "the next look begins anew");
    }
}
