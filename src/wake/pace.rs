//! Limits how fast the events of a canvas are published when many wait: a burst, then a rate.
//! Pub/Sub does not distinguish canvases, so one canvas's notifications there delay those of
//! others.
//!
//! It publishes nothing, and does not look at events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::{PAGE, PAGE_PERIOD};
use crate::event::CanvasId;

/// The burst of a canvas, as time at its rate.
const BURST: Duration = Duration::from_secs(2);
/// Events per second of [`CanvasId::DEFAULT`], the canvas of deployments with one tenant, where
/// there is no other canvas to delay.
const RATE_ALONE: u32 = 1_000_000;
/// Number of canvases from which on full buckets are removed.
const SWEEP_LEAST: usize = 64;
const NANOS: u128 = 1_000_000_000;

/// A token bucket for each canvas, and turns: pages of one canvas are published one after the
/// other, those of different canvases concurrently.
pub(super) struct Pace {
    /// Events per second.
    rate: u32,
    buckets: Mutex<Buckets>,
    /// When the next page, of any canvas, may be published.
    next_page: tokio::sync::Mutex<Option<Instant>>,
}

/// A bucket is stored as the moment when it will be full again. Its lock is the canvas's turn.
type Bucket = Arc<tokio::sync::Mutex<Instant>>;

struct Buckets {
    of: HashMap<CanvasId, Bucket>,
    sweep_at: usize,
}

/// The turn of a canvas: no other page of it is published until it ends.
pub(super) struct Turn {
    rate: u32,
    full_at: OwnedMutexGuard<Instant>,
}

impl Pace {
    pub(super) fn new(rate: u32) -> Self {
        let buckets = Buckets { of: HashMap::new(), sweep_at: SWEEP_LEAST };
        Self { rate: rate.max(1), buckets: Mutex::new(buckets), next_page: tokio::sync::Mutex::default() }
    }

    /// Waits for the canvas's turn, and until a page of it may be published. Waiters for the same
    /// canvas are served in order of arrival, so they alternate: a short job is not stuck behind a
    /// long one.
    pub(super) async fn turn(&self, canvas: CanvasId) -> Turn {
        let full_at = self.bucket(canvas).lock_owned().await;
        let spare = BURST - self.time_of(canvas, PAGE).min(BURST);
        tokio::time::sleep_until((*full_at).max(Instant::now() + spare) - spare).await;
        let mut next_page = self.next_page.lock().await;
        if let Some(at) = *next_page {
            tokio::time::sleep_until(at).await;
        }
        *next_page = Some(Instant::now() + PAGE_PERIOD);
        Turn { rate: self.rate_of(canvas), full_at }
    }

    /// How many of this many events may be published now; they count as published.
    pub(super) fn take(&self, canvas: CanvasId, events: usize) -> usize {
        // Another page of the canvas has the turn.
        let Ok(full_at) = self.bucket(canvas).try_lock_owned() else { return 0 };
        let left = BURST.saturating_sub(full_at.saturating_duration_since(Instant::now()));
        let rate = self.rate_of(canvas);
        let taken = events.min(usize::try_from(left.as_nanos() * u128::from(rate) / NANOS).unwrap_or(events));
        Turn { rate, full_at }.took(taken);
        taken
    }

    /// How long this many events of a canvas take at its rate.
    pub(super) fn time_of(&self, canvas: CanvasId, events: usize) -> Duration {
        time_of(events, self.rate_of(canvas))
    }

    fn rate_of(&self, canvas: CanvasId) -> u32 {
        if canvas == CanvasId::DEFAULT { self.rate.max(RATE_ALONE) } else { self.rate }
    }

    fn bucket(&self, canvas: CanvasId) -> Bucket {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.of.len() >= buckets.sweep_at {
            let now = Instant::now();
            let is_used = |bucket: &Bucket| {
                Arc::strong_count(bucket) > 1 || bucket.try_lock().is_ok_and(|full_at| *full_at > now)
            };
            buckets.of.retain(|_, bucket| is_used(bucket));
            buckets.sweep_at = SWEEP_LEAST.max(2 * buckets.of.len());
        }
        let new = || Arc::new(tokio::sync::Mutex::new(Instant::now()));
        Arc::clone(buckets.of.entry(canvas).or_insert_with(new))
    }
}

impl Turn {
    /// Ends the turn after this many events.
    pub(super) fn took(mut self, events: usize) {
        let from = (*self.full_at).max(Instant::now());
        *self.full_at = from + time_of(events, self.rate);
    }
}

fn time_of(events: usize, rate: u32) -> Duration {
    Duration::from_secs(events as u64) / rate
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(Uuid::from_u128(number))
    }

    /// Publishes this many pages; returns how long it took.
    async fn publish(pace: &Pace, number: u128, pages: usize) -> Duration {
        let start = Instant::now();
        for _ in 0..pages {
            pace.turn(canvas(number)).await.took(PAGE);
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_canvas_has_two_seconds_worth_at_once_and_then_its_rate() {
        let pace = Pace::new(1_000);
        assert_eq!(publish(&pace, 1, 2).await, PAGE_PERIOD, "as fast as ever");
        assert_eq!(publish(&pace, 1, 100).await.as_secs_f64().round(), 100.0);
        tokio::time::sleep(2 * BURST).await;
        assert_eq!(publish(&pace, 1, 2).await, PAGE_PERIOD, "full again, and not fuller");
        assert!(publish(&pace, 1, 1).await > Duration::from_millis(900));
    }

    /// One canvas has a long backlog, and many others a short one each: the short ones are
    /// published first.
    #[tokio::test(start_paused = true)]
    async fn a_long_backlog_of_one_canvas_is_not_in_front_of_others() {
        let pace = Pace::new(1_000);
        let long = async {
            publish(&pace, 1, 100).await;
            Instant::now()
        };
        let short = async {
            let short = (2..22).map(|number| publish(&pace, number, 1));
            let waits = futures_util::future::join_all(short).await;
            assert!(waits.iter().max().unwrap() < &Duration::from_secs(2), "{waits:?}");
            Instant::now()
        };
        let (long, short) = tokio::join!(long, short);
        assert!(long - short > Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_one_canvas_have_its_pace_together_and_alternate() {
        let (pace, start) = (Pace::new(1_000), Instant::now());
        let (long, short) = tokio::join!(publish(&pace, 1, 50), publish(&pace, 1, 3));
        assert!(short < Duration::from_secs(6), "{short:?}");
        assert_eq!((long.as_secs_f64().round(), start.elapsed()), (51.0, long));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_at_once_counts_and_a_turn_is_not_disturbed() {
        let pace = Pace::new(1_000);
        assert_eq!((pace.take(canvas(1), 1_500), pace.take(canvas(1), 1_500)), (1_500, 500));
        assert_eq!(
            (pace.take(canvas(1), 1), pace.take(canvas(2), 1)),
            (0, 1),
            "another has a bucket of its own"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(pace.take(canvas(1), 1_000), 10);
        let turn = pace.turn(canvas(3)).await;
        assert_eq!(pace.take(canvas(3), 1), 0);
        turn.took(0);
        assert_eq!(pace.take(canvas(3), 1), 1, "what was not published was not taken");
    }

    #[tokio::test(start_paused = true)]
    async fn the_canvas_of_deployments_with_one_tenant_has_no_rate() {
        let pace = Pace::new(1_000);
        assert_eq!(publish(&pace, 0, 101).await, 100 * PAGE_PERIOD);
        assert_eq!(pace.take(CanvasId::DEFAULT, 100_000), 100_000);
        assert_eq!(pace.take(canvas(1), 100_000), 2_000);
    }

    /// A page is published whole, however low the rate, and rate 0 counts as 1.
    #[tokio::test(start_paused = true)]
    async fn rates_from_the_lowest_to_the_highest() {
        for (rate, seconds) in [(0, 2_000), (100, 20), (1_000_000_000, 0)] {
            assert_eq!(publish(&Pace::new(rate), 1, 3).await.as_secs(), seconds, "{rate}");
        }
        assert_eq!(Pace::new(u32::MAX).take(canvas(1), 1_000_000), 1_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn canvases_are_forgotten_once_their_buckets_are_full() {
        let pace = Pace::new(1_000);
        for number in 1..10_000 {
            assert_eq!(pace.take(canvas(number), 100), 100);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(pace.buckets.lock().unwrap().of.len() < 2 * SWEEP_LEAST);
    }
}
