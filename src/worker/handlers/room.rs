//! What the batches of a worker have in common: how many events it runs at once, and whether it
//! stops. Only counts and tells; batches begin by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The room in which events gather.
pub(in crate::worker) struct Room {
    /// Maximum number of events that run at once, those that gather included.
    at_once: AtomicUsize,
    /// Events that gather now, in all batches.
    gathering: AtomicUsize,
    /// Told when events that gather take all of the room.
    full: watch::Sender<()>,
    /// The number of lost claims from which on an event is a suspect.
    suspect_losses: u32,
    stop: CancellationToken,
}

impl Room {
    pub(in crate::worker) fn new(at_once: usize, suspect_losses: u32, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            at_once: AtomicUsize::new(at_once),
            gathering: AtomicUsize::new(0),
            full: watch::Sender::new(()),
            suspect_losses,
            stop,
        })
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
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn batches_begin_when_what_gathers_takes_all_of_the_room() {
        let room = Room::new(2, 2, CancellationToken::new());
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

    #[test]
    fn nothing_gathers_in_a_worker_that_stops() {
        let stop = CancellationToken::new();
        let room = Room::new(64, 2, stop.clone());
        let gathers = room.until_closed();
        stop.cancel();
        assert!(gathers.now_or_never().is_some() && room.until_closed().now_or_never().is_some());
    }
}
