//! What the batches of a worker have in common: how many events it runs at once, which rules stand,
//! and whether it stops. Only counts and tells; batches begin by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::event::{HandlerAddress, HandlerScope};
use crate::store::Store;
use crate::worker::places::Places;

/// The room in which events gather.
pub(in crate::worker) struct Room {
    /// Maximum number of events that run at once, those that gather included, without the places
    /// that are kept for urgent ones.
    at_once: AtomicUsize,
    /// Events that gather now, in all batches.
    gathering: AtomicUsize,
    /// Told when events that gather take all of the room.
    full: watch::Sender<()>,
    /// The number of lost claims from which on an event is a suspect.
    suspect_losses: u32,
    /// The places that their runs take.
    places: Places,
    /// Where the rules are. `None` in tests without a store.
    store: Option<Store>,
    stop: CancellationToken,
}

impl Room {
    pub(in crate::worker) fn new(
        places: Places,
        store: Option<Store>,
        suspect_losses: u32,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            at_once: AtomicUsize::new(places.not_kept()),
            gathering: AtomicUsize::new(0),
            full: watch::Sender::new(()),
            suspect_losses,
            places,
            store,
            stop,
        })
    }

    /// That of a worker without a store.
    #[cfg(test)]
    pub(in crate::worker) fn of_test(at_once: usize, stop: CancellationToken) -> Arc<Self> {
        Self::new(Places::new(at_once, None, 0), None, 2, stop)
    }

    /// From now on one event runs at a time, so no batch waits for a second one.
    pub(in crate::worker) fn one_by_one(&self) {
        self.at_once.store(1, Ordering::Relaxed);
    }

    /// Whether an event with this many lost claims might take the process with it, and so must not
    /// take the others of a batch with it.
    pub(super) fn is_suspect(&self, losses: u32) -> bool {
        losses >= self.suspect_losses
    }

    /// Counts an event that begins to gather; returns whether such events now take all of the room.
    /// Then no other could join, and the caller calls [`Room::close`] once the event has joined.
    pub(super) fn enter(&self) -> bool {
        self.gathering.fetch_add(1, Ordering::AcqRel) + 1 >= self.at_once.load(Ordering::Relaxed)
    }

    /// Whether no further event of a function could join this many, since these have all the places
    /// that it may have.
    pub(super) fn is_share(&self, function: &HandlerAddress, events: usize) -> bool {
        let at_once = self.at_once.load(Ordering::Relaxed);
        // Places are looked at only if it may be so.
        events >= at_once - at_once / 8 && events >= self.places.most_of(function)
    }

    /// Changes each time that a function gets no place.
    pub(super) fn refusals(&self) -> watch::Receiver<()> {
        self.places.refusals()
    }

    /// Whether a rule holds a handler's events by now. Without an answer it counts that none did
    /// when they were claimed.
    pub(super) async fn is_held(&self, handler: &HandlerScope) -> bool {
        let Some(store) = &self.store else { return false };
        match store.rules_over(handler).await {
            Ok(rules) => !rules.is_empty(),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a batch begins without another look at the rules");
                false
            }
        }
    }

    /// This many events no longer gather.
    pub(super) fn leave(&self, events: usize) {
        self.gathering.fetch_sub(events, Ordering::AcqRel);
    }

    /// Makes all batches begin that gather now.
    pub(super) fn close(&self) {
        self.full.send_replace(());
    }

    /// Completes when batches that gather at this call have to begin: no event could join them, or
    /// the worker stops.
    pub(super) fn until_closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut full, stop) = (self.full.subscribe(), self.stop.clone());
        async move {
            tokio::select! {
                _ = full.changed() => {}
                () = stop.cancelled() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::event::{CanvasId, Name};
    use crate::worker::places::{PlaceKind, PlaceRequest};

    #[test]
    fn batches_begin_when_what_gathers_takes_all_of_the_room() {
        let room = Room::of_test(2, CancellationToken::new());
        let early = room.until_closed();
        assert!(!room.enter());
        assert!(room.enter());
        room.close();
        assert!(early.now_or_never().is_some());
        let later = room.until_closed();
        room.leave(2);
        assert!(!room.enter() && later.now_or_never().is_none(), "there is room again");
        room.one_by_one();
        room.leave(1);
        assert!(room.enter());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_function_has_its_share_of_the_room() {
        let address = |name: &str| HandlerAddress {
            scope: HandlerScope::worker(CanvasId::DEFAULT, name).unwrap(),
            modifier: Name::no_modifier(),
        };
        let function = |name| PlaceRequest { address: address(name), kind: PlaceKind::Function };
        let places = Places::new(8, None, 0);
        let room = Room::new(places.clone(), None, 2, CancellationToken::new());
        let mut taken = vec![places.try_take(&function("other")).unwrap()];
        taken.extend((0..7).map(|_| places.try_take(&function("slow")).unwrap()));
        let mut refusals = room.refusals();
        assert!(!room.is_share(&address("slow"), 7) && room.is_share(&address("slow"), 8), "it may be quick");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!refusals.has_changed().unwrap() && places.try_take(&function("slow")).is_none());
        refusals.changed().await.unwrap();
        assert!(!room.is_share(&address("slow"), 6) && room.is_share(&address("slow"), 7));
        drop(taken.remove(0));
        assert!(room.is_share(&address("slow"), 7), "the other may want it again");
        tokio::time::advance(Duration::from_secs(600)).await;
        assert!(!room.is_share(&address("slow"), 7) && room.is_share(&address("slow"), 8), "it is alone");
    }

    #[test]
    fn nothing_gathers_in_a_worker_that_stops() {
        let stop = CancellationToken::new();
        let room = Room::of_test(64, stop.clone());
        let gathers = room.until_closed();
        stop.cancel();
        assert!(gathers.now_or_never().is_some() && room.until_closed().now_or_never().is_some());
    }
}
