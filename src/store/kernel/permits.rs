//! Limits the connections that requests of one canvas may hold at once, so that they wait behind
//! each other and not in front of other canvases. Statements that many canvases share, such as
//! those of emits, are exempt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::savings::Savings;
use crate::event::CanvasId;

/// How long a read may hold a connection. What it takes longer is taken from the canvas's
/// [`Savings`]. If they are used up, its permit to read is withheld for `REST` times the excess, up
/// to `REST_MAX`: a canvas that reads without end keeps Postgres busy for a sixth of the time per
/// permit, since it saves meanwhile. Only applies while another canvas uses this process.
const SHORT: Duration = Duration::from_millis(5);
const REST: u32 = 7;
const REST_MAX: Duration = Duration::from_secs(2);

tokio::task_local! {
    static FOR: Purpose;
}

/// On whose behalf, and for what, a connection is taken.
#[derive(Clone, Copy)]
pub struct Purpose {
    /// The canvas whose share it counts towards.
    pub canvas: CanvasId,
    /// It only reads.
    pub reads: bool,
    /// Another canvas uses this process, so that the permit of a long read is withheld afterwards.
    pub is_contended: bool,
}

/// Runs a future on behalf of a canvas: its connections count towards that canvas's share.
pub async fn on_behalf_of<F: Future>(purpose: Purpose, work: F) -> F::Output {
    FOR.scope(purpose, work).await
}

/// The permits of all canvases.
#[derive(Debug)]
pub(super) struct ConnectionPermits {
    /// Permits of one canvas; half of them may be used to read.
    share: usize,
    /// Permits of all canvases together: the rest is for statements that many of them share.
    all: Arc<Semaphore>,
    canvases: Mutex<HashMap<CanvasId, Weak<CanvasPermits>>>,
    savings: Arc<Savings>,
}

/// The permits of one canvas.
#[derive(Debug)]
struct CanvasPermits {
    canvas: CanvasId,
    savings: Arc<Savings>,
    permits: Arc<Semaphore>,
    /// Concurrent reads.
    reads: Arc<Semaphore>,
}

/// A permit to hold a connection, released when it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    /// Keeps the share known while any of its permits is held.
    share: Arc<CanvasPermits>,
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    /// The permit to read, which may be withheld afterwards if another canvas uses this process.
    reads: Option<OwnedSemaphorePermit>,
    is_contended: bool,
    /// Since when there is a connection.
    since: Option<Instant>,
}

impl ConnectionPermit {
    /// With the connection at hand: the canvas pays for the time in which it holds that, and not
    /// for the time in which others kept it waiting.
    pub(super) fn begun(mut self) -> Self {
        self.since = self.is_contended.then(Instant::now);
        self
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let (Some(turn), Some(since)) = (self.reads.take(), self.since) else { return };
        let excess = since.elapsed().saturating_sub(SHORT);
        if excess.is_zero() {
            return;
        }
        let rest = (self.share.savings.spend(self.share.canvas, excess) * REST).min(REST_MAX);
        if rest.is_zero() {
            return;
        }
        let held = (turn, Arc::clone(&self.share));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(rest).await;
                drop(held);
            });
        }
    }
}

impl ConnectionPermits {
    /// A third of the connections for one canvas, and all but two for all of them together; at
    /// least one.
    pub(super) fn new(connections: u32) -> Self {
        let connections = usize::try_from(connections).unwrap_or(1);
        let all = Arc::new(Semaphore::new(connections.saturating_sub(2).max(1)));
        let (share, canvases) = (connections.div_ceil(3).max(1), Mutex::default());
        Self { share, all, canvases, savings: Arc::default() }
    }

    /// Waits for a permit for the canvas on whose behalf this task works; `None` if it works for no
    /// canvas.
    pub(super) async fn take(&self) -> Option<ConnectionPermit> {
        let Purpose { canvas, reads, is_contended } = FOR.try_with(|purpose| *purpose).ok()?;
        let share = self.of(canvas);
        // The semaphores are never closed. Only requests with a permit of their own canvas wait for
        // the shared ones.
        let reads = if reads { Some(Arc::clone(&share.reads).acquire_owned().await.ok()?) } else { None };
        let own = Arc::clone(&share.permits).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(ConnectionPermit { share, _own: own, _all: all, reads, is_contended, since: None })
    }

    fn of(&self, canvas: CanvasId) -> Arc<CanvasPermits> {
        let mut canvases = self.canvases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = canvases.get(&canvas).and_then(Weak::upgrade) {
            return share;
        }
        canvases.retain(|_, share| share.strong_count() > 0);
        let permits = |count| Arc::new(Semaphore::new(count));
        let share = Arc::new(CanvasPermits {
            canvas,
            savings: Arc::clone(&self.savings),
            permits: permits(self.share),
            reads: permits(self.share.div_ceil(2)),
        });
        canvases.insert(canvas, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use uuid::Uuid;

    use super::*;

    async fn take(permits: &ConnectionPermits, canvas: u128) -> Option<ConnectionPermit> {
        take_to(permits, canvas, false).await
    }

    async fn take_to(permits: &ConnectionPermits, canvas: u128, reads: bool) -> Option<ConnectionPermit> {
        let purpose = Purpose { canvas: CanvasId(Uuid::from_u128(canvas)), reads, is_contended: true };
        FOR.scope(purpose, permits.take()).await.map(ConnectionPermit::begun)
    }

    #[tokio::test(start_paused = true)]
    async fn permits_do_not_rest_without_another_canvas() {
        let permits = ConnectionPermits::new(3);
        let alone = Purpose { canvas: CanvasId(Uuid::from_u128(1)), reads: true, is_contended: false };
        let begun = Instant::now();
        for _ in 0..2 {
            let held = FOR.scope(alone, permits.take()).await.unwrap().begun();
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(held);
        }
        assert_eq!(begun.elapsed().as_millis(), 1000);
    }

    #[tokio::test]
    async fn a_canvas_holds_its_share_and_leaves_the_rest() {
        let permits = ConnectionPermits::new(6);
        assert!(permits.take().await.is_none(), "on behalf of nobody");
        let mut held = vec![take(&permits, 1).await.unwrap(), take(&permits, 1).await.unwrap()];
        assert!(take(&permits, 1).now_or_never().is_none(), "it has its share");
        held.push(take(&permits, 2).now_or_never().flatten().expect("another canvas does not wait"));
        held.push(take(&permits, 3).now_or_never().flatten().unwrap());
        assert!(take(&permits, 4).now_or_never().is_none(), "two connections are left for what many share");
        held.remove(0);
        held.push(take(&permits, 4).now_or_never().flatten().unwrap());
        drop(held);
        drop(take(&permits, 1).await);
        assert_eq!(permits.canvases.lock().unwrap().len(), 1, "a canvas without permits is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_read_rests_so_that_others_get_permits() {
        let permits = ConnectionPermits::new(3);
        permits.savings.spend(CanvasId(Uuid::from_u128(1)), Duration::from_secs(3_600));
        let begun = Instant::now();
        for held_ms in [4, 25] {
            let held = take_to(&permits, 1, true).await.unwrap();
            tokio::time::sleep(Duration::from_millis(held_ms)).await;
            drop(held);
        }
        assert_eq!(begun.elapsed().as_millis(), 29, "the short one did not rest");
        let other = take_to(&permits, 2, true).now_or_never().flatten().expect("the connection is free");
        assert!(take_to(&permits, 1, true).now_or_never().is_none(), "its turn to read is not");
        drop(other);
        drop(take(&permits, 1).now_or_never().flatten().expect("it may write meanwhile"));
        drop(take_to(&permits, 1, true).await.unwrap());
        // Seven times 20 ms, less the twentieth of the time that it has saved meanwhile.
        assert_eq!(begun.elapsed().as_millis(), 29 + 130);
        drop(take_to(&permits, 1, true).now_or_never().flatten().expect("a short one does not rest"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_connection_is_not_paid_for() {
        let permits = ConnectionPermits::new(3);
        let canvas = CanvasId(Uuid::from_u128(1));
        permits.savings.spend(canvas, Duration::from_secs(3_600));
        let purpose = Purpose { canvas, reads: true, is_contended: true };
        for gets_one in [true, false] {
            let permit = FOR.scope(purpose, permits.take()).now_or_never().flatten().expect("none rests");
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(if gets_one { permit.begun() } else { permit });
        }
        drop(take_to(&permits, 1, true).now_or_never().flatten().expect("none rests"));
    }

    /// As those of somebody who opens a page.
    #[tokio::test(start_paused = true)]
    async fn a_long_read_now_and_then_does_not_rest() {
        let permits = ConnectionPermits::new(3);
        let begun = Instant::now();
        for _ in 0..10 {
            let held = take_to(&permits, 1, true).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(held);
        }
        assert_eq!(begun.elapsed().as_millis(), 2_000);
    }

    #[tokio::test]
    async fn reads_have_half_of_the_share() {
        let permits = ConnectionPermits::new(12);
        let reads = [take_to(&permits, 1, true).await.unwrap(), take_to(&permits, 1, true).await.unwrap()];
        assert!(take_to(&permits, 1, true).now_or_never().is_none());
        let writes = [take(&permits, 1).now_or_never().flatten(), take(&permits, 1).now_or_never().flatten()];
        assert!(writes.iter().all(Option::is_some) && take(&permits, 1).now_or_never().is_none());
        assert!(take_to(&permits, 2, true).now_or_never().flatten().is_some(), "another canvas reads");
        drop(reads);
    }

    #[tokio::test]
    async fn one_connection_is_enough() {
        let permits = ConnectionPermits::new(1);
        let held = take(&permits, 1).await.unwrap();
        assert!(take(&permits, 2).now_or_never().is_none());
        drop(held);
        assert!(take(&permits, 2).await.is_some());
    }
}
