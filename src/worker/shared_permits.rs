//! Permits that canvases share: for pushes that run, and for lookups and connections. A free permit
//! goes to the canvas with the fewest, and canvases with as many take turns. Where a quarter is
//! kept free, a canvas always gets a quarter, and more only while another quarter is free for
//! others.
//!
//! Knows nothing of events, and must never wait for anything but a permit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::event::CanvasId;

/// The part of the permits that a canvas has as its share, and that is kept free for others.
const PART: usize = 4;

/// Permits that canvases share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedPermits {
    inner: Arc<PermitPool>,
}

#[derive(Debug)]
struct PermitPool {
    most: usize,
    /// How many a canvas that has its share leaves free.
    kept: usize,
    state: Mutex<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    free: usize,
    /// By canvas; entries are never 0.
    held: HashMap<CanvasId, usize>,
    /// By canvas; entries are never empty.
    waiting: HashMap<CanvasId, CanvasWaiters>,
    last_turn: u64,
}

/// Those of a canvas that wait.
#[derive(Debug)]
struct CanvasWaiters {
    /// When it began to wait, or had its last turn: a number that only grows.
    turn: u64,
    /// In order of arrival.
    waiters: VecDeque<oneshot::Sender<SharedPermit>>,
}

/// A permit, free again when this is dropped.
#[derive(Debug)]
pub struct SharedPermit {
    permits: SharedPermits,
    canvas: CanvasId,
}

impl SharedPermits {
    /// At least one permit. A quarter of them is kept free for canvases that have less than that.
    pub fn new(most: usize) -> Self {
        Self::keeping(most, most / PART)
    }

    /// At least one permit, all of which a canvas may have while no other waits.
    pub fn all_lent(most: usize) -> Self {
        Self::keeping(most, 0)
    }

    fn keeping(most: usize, kept: usize) -> Self {
        let most = most.max(1);
        let state = PoolState { free: most, held: HashMap::new(), waiting: HashMap::new(), last_turn: 0 };
        Self { inner: Arc::new(PermitPool { most, kept, state: Mutex::new(state) }) }
    }

    /// How many permits nobody has.
    pub fn free(&self) -> usize {
        self.state().free
    }

    /// Waits for a permit. Cancel safe: only the turn is lost.
    pub async fn acquire(&self, canvas: CanvasId) -> SharedPermit {
        loop {
            let (sender, receiver) = oneshot::channel();
            self.state().wait(canvas, sender);
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
            while let Some((canvas, sender)) = state.next(&self.inner) {
                granted.push((sender, SharedPermit { permits: self.clone(), canvas }));
            }
        }
        // Without the lock: the permit of a waiter that has left is free again.
        for (sender, permit) in granted {
            drop(sender.send(permit));
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        // No code panics while a change is incomplete.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// A canvas that begins to wait comes last among those with as many.
    fn wait(&mut self, canvas: CanvasId, sender: oneshot::Sender<SharedPermit>) {
        self.last_turn += 1;
        let begun = CanvasWaiters { turn: self.last_turn, waiters: VecDeque::new() };
        self.waiting.entry(canvas).or_insert(begun).waiters.push_back(sender);
    }

    /// The waiter whose turn it is, if it may have a permit; it counts as having one.
    fn next(&mut self, limits: &PermitPool) -> Option<(CanvasId, oneshot::Sender<SharedPermit>)> {
        self.waiting.retain(|_, queue| {
            queue.waiters.retain(|sender| !sender.is_closed());
            !queue.waiters.is_empty()
        });
        let held = |canvas: &CanvasId| self.held.get(canvas).copied().unwrap_or(0);
        let order = |(canvas, queue): &(&CanvasId, &CanvasWaiters)| (held(canvas), queue.turn);
        let canvas = *self.waiting.iter().min_by_key(order)?.0;
        let is_within = held(&canvas) < (limits.most / PART).max(1);
        if self.free == 0 || !is_within && self.free <= limits.kept {
            return None;
        }
        let queue = self.waiting.get_mut(&canvas)?;
        let first = queue.waiters.pop_front()?;
        self.last_turn += 1;
        queue.turn = self.last_turn;
        if queue.waiters.is_empty() {
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
    use futures_util::future::{join, join_all};
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

    /// None is kept free: a lone canvas has all, and a permit that becomes free goes to the one
    /// with fewer.
    #[tokio::test]
    async fn permits_that_are_all_lent_go_to_the_canvas_with_the_fewest() {
        let permits = SharedPermits::all_lent(8);
        let mut first = all(&permits, 1);
        assert_eq!((first.len(), permits.free()), (8, 0));
        let mut second = Vec::new();
        for _ in 0..4 {
            let mut again = Box::pin(permits.acquire(canvas(1)));
            let mut other = Box::pin(permits.acquire(canvas(2)));
            assert!(poll!(&mut again).is_pending() && poll!(&mut other).is_pending());
            first.pop();
            assert!(poll!(&mut again).is_pending());
            second.push(other.await);
        }
        let mut again = Box::pin(permits.acquire(canvas(1)));
        assert!(poll!(&mut again).is_pending());
        first.pop();
        first.push(again.await);
        assert_eq!((first.len(), second.len(), permits.free()), (4, 4, 0));
    }

    #[tokio::test]
    async fn canvases_with_as_many_take_turns() {
        let (permits, order) = (SharedPermits::all_lent(1), Mutex::new(Vec::new()));
        let held = permits.acquire(canvas(9)).await;
        let take = |number| {
            let (permits, order) = (&permits, &order);
            async move {
                let _permit = permits.acquire(canvas(number)).await;
                order.lock().unwrap().push(number);
            }
        };
        let all_taken = join_all([1, 1, 1, 2, 2, 3].map(take));
        join(all_taken, async { drop(held) }).await;
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 1, 2, 1]);
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
