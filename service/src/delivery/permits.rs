//! Permits that canvases share: a canvas always gets a quarter of them, and more only while a
//! quarter is free for others. A free permit goes to the canvas with the fewest.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use wakeq::CanvasId;

/// What part of the permits a canvas has as its share, and is kept free for others.
const PART: usize = 4;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct SharedPermits {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// By canvas; entries are never 0.
    held: HashMap<CanvasId, usize>,
    /// By canvas, each in order of arrival; entries are never empty.
    waiting: HashMap<CanvasId, VecDeque<oneshot::Sender<SharedPermit>>>,
}

/// A permit, free again when this is dropped.
#[derive(Debug)]
pub(super) struct SharedPermit {
    permits: SharedPermits,
    canvas: CanvasId,
}

impl SharedPermits {
    /// At least one permit.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        let state = State { free: most, held: HashMap::new(), waiting: HashMap::new() };
        Self { inner: Arc::new(Inner { most, state: Mutex::new(state) }) }
    }

    /// Waits for a permit. Cancel safe: only the turn is lost.
    pub(super) async fn acquire(&self, canvas: CanvasId) -> SharedPermit {
        loop {
            let (sender, receiver) = oneshot::channel();
            self.state().waiting.entry(canvas).or_default().push_back(sender);
            self.grant();
            // The sender is kept until it is used.
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }

    fn grant(&self) {
        let mut granted = Vec::new();
        {
            let mut state = self.state();
            while let Some((canvas, sender)) = state.next(self.inner.most) {
                granted.push((sender, SharedPermit { permits: self.clone(), canvas }));
            }
        }
        // Without the lock: the permit of a waiter that has left is free again.
        for (sender, permit) in granted {
            drop(sender.send(permit));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while a change is incomplete.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The waiter whose turn it is, if it may have a permit; it counts as having one.
    fn next(&mut self, most: usize) -> Option<(CanvasId, oneshot::Sender<SharedPermit>)> {
        self.waiting.retain(|_, waiters| {
            waiters.retain(|sender| !sender.is_closed());
            !waiters.is_empty()
        });
        let held = |canvas: &CanvasId| self.held.get(canvas).copied().unwrap_or(0);
        let canvas = *self.waiting.keys().min_by_key(|canvas| held(canvas))?;
        let is_within = held(&canvas) < (most / PART).max(1);
        if self.free == 0 || !is_within && self.free <= most / PART {
            return None;
        }
        let waiters = self.waiting.get_mut(&canvas)?;
        let first = waiters.pop_front()?;
        if waiters.is_empty() {
            self.waiting.remove(&canvas);
        }
        self.free -= 1;
        *self.held.entry(canvas).or_default() += 1;
        Some((canvas, first))
    }
}

impl Drop for SharedPermit {
    fn drop(&mut self) {
        {
            let mut state = self.permits.state();
            state.free += 1;
            if let Some(held) = state.held.get_mut(&self.canvas) {
                *held -= 1;
                if *held == 0 {
                    state.held.remove(&self.canvas);
                }
            }
        }
        self.permits.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, poll};
    use uuid::Uuid;

    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(Uuid::from_u128(number))
    }

    /// As many permits as this canvas gets without waiting.
    fn all(permits: &SharedPermits, number: u128) -> Vec<SharedPermit> {
        std::iter::from_fn(|| permits.acquire(canvas(number)).now_or_never()).collect()
    }

    #[test]
    fn a_canvas_leaves_a_quarter_to_others_and_each_has_its_share() {
        let permits = SharedPermits::new(128);
        let first = all(&permits, 1);
        assert_eq!(first.len(), 96, "nobody else wants them, but somebody may");
        let second = all(&permits, 2);
        assert_eq!(second.len(), 32);
        assert_eq!(all(&permits, 3).len(), 0);
        drop(first);
        assert_eq!([3, 2].map(|number| all(&permits, number).len()), [64, 64], "they are given back at once");
        assert_eq!(
            [1, 2, 3].map(|most| all(&SharedPermits::new(most), 1).len()),
            [1, 2, 3],
            "few are not kept"
        );
    }

    #[tokio::test]
    async fn a_free_permit_goes_to_the_canvas_with_the_fewest() {
        let permits = SharedPermits::new(4);
        let mut first = all(&permits, 1);
        let second = all(&permits, 2);
        assert_eq!((first.len(), second.len()), (3, 1));
        let [mut left, mut again, mut third] =
            [1, 1, 3].map(|number| Box::pin(permits.acquire(canvas(number))));
        assert!(
            poll!(&mut left).is_pending() && poll!(&mut again).is_pending() && poll!(&mut third).is_pending()
        );
        drop(left);
        first.pop();
        assert!(poll!(&mut again).is_pending());
        let third = third.await;
        drop((first, second, third));
        drop(again.await);
        let state = permits.state();
        assert!(state.free == 4 && state.held.is_empty() && state.waiting.is_empty());
    }
}
