//! Shares: how much of a common resource a single party may use at once, and how fast. A party that
//! exceeds its share is refused and told when to retry; the others are not affected.
//!
//! Requests are counted by credential and by canvas, those without a valid credential, webhooks
//! that are not verified yet and connections by client address.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::client::Client;
use super::problem::{Kind, Problem};
use crate::access::Principal;
use wakeq::CanvasId;

/// Maximum number of parties with a rate of their own. Beyond it, newcomers share one.
const KNOWN_MAX: usize = 10_000;
/// How many networks it takes at least to use up the concurrent requests of all webhooks.
const NETWORKS_MIN: usize = 4;
/// Minimum time between two sweeps for parties that can be forgotten.
const SWEEP: Duration = Duration::from_secs(1);

/// The limits of a single party.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareLimits {
    /// Concurrent requests of a canvas or of a credential.
    pub(crate) requests: usize,
    pub(crate) per_credential: u32,
    pub(crate) per_canvas: u32,
    pub(crate) events_per_canvas: u32,
    /// While no other canvas uses this process.
    pub(crate) events_alone: u32,
    /// Bytes per second of a canvas, or of a credential across canvases.
    pub(crate) bytes: u32,
    pub(crate) of_strangers: u32,
}

/// The current use of all parties.
pub(crate) struct Shares {
    requests: Tally<LimitKey>,
    credentials: RateLimiter<Arc<str>>,
    canvases: RateLimiter<CanvasId>,
    /// Emitted events, beside those of other canvases and alone.
    events: RateLimiter<CanvasId>,
    events_alone: RateLimiter<CanvasId>,
    /// Bytes of bodies and answers.
    bytes: RateLimiter<LimitKey>,
    strangers: RateLimiter<IpAddr>,
}

/// The parties that a request or its bytes count for, each with limits of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum LimitKey {
    Credential(Arc<str>),
    Canvas(CanvasId),
    /// Pub/Sub, whose pushes may be about any canvas.
    Pushes,
    /// All webhooks whose signatures are not verified yet: a canvas must not pay for strangers.
    Webhooks,
    /// The network of a client that sends one of these.
    Network(IpAddr),
}

/// What a request counts for that no guard has admitted: its sender is not verified yet, or it is
/// for a page. An extension of the request.
#[derive(Clone)]
pub(super) struct Unverified(pub(super) Arc<[LimitKey]>);

impl Display for LimitKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Credential(_) => "this credential",
            Self::Canvas(_) => "this canvas",
            Self::Pushes => "the subscription",
            Self::Webhooks => "webhooks as a whole",
            Self::Network(_) => "this address",
        })
    }
}

/// Identifies a credential: two keys of one holder are two credentials.
pub(super) fn credential_of(principal: &Principal) -> Arc<str> {
    match principal.key() {
        Some(key) => format!("{}:{key}", principal.name()).into(),
        None => principal.name().into(),
    }
}

impl Shares {
    pub(crate) fn new(limits: ShareLimits) -> Self {
        Self {
            requests: Tally::new(limits.requests),
            credentials: RateLimiter::new(limits.per_credential, 2),
            canvases: RateLimiter::new(limits.per_canvas, 2),
            events: RateLimiter::new(limits.events_per_canvas, 2),
            events_alone: RateLimiter::new(limits.events_alone.max(limits.events_per_canvas), 2),
            bytes: RateLimiter::new(limits.bytes, 1),
            strangers: RateLimiter::new(limits.of_strangers, 2),
        }
    }

    /// Counts a request of an identified caller, before it is authorized.
    pub(super) fn count_request(&self, credential: &Arc<str>) -> Result<(), Problem> {
        let taken = self.credentials.take(credential.clone(), 1, Instant::now());
        taken.map_err(|wait| too_fast("this credential", wait))
    }

    /// Counts a request of a caller authorized on this canvas, so that no one else can exhaust its
    /// rate.
    pub(super) fn count_canvas_request(&self, canvas: CanvasId) -> Result<(), Problem> {
        let taken = self.canvases.take(canvas, 1, Instant::now());
        taken.map_err(|wait| too_fast("this canvas", wait))
    }

    /// Counts a request's announced body for all of these keys, or for none of them.
    pub(super) fn count_body(&self, limit_keys: &[LimitKey], bytes: u64) -> Result<(), Problem> {
        let taken = self.bytes.take_all(limit_keys, bytes, Instant::now());
        taken.map_err(|(key, wait)| too_fast(&format!("{key} (in bytes)"), wait))
    }

    /// Counts a request's events, all of which are emitted or none, of a canvas that is alone in
    /// this process or has others beside it.
    pub(crate) fn count_events(
        &self,
        canvas: CanvasId,
        has_other: bool,
        events: usize,
    ) -> Result<(), Problem> {
        let rates = if has_other { &self.events } else { &self.events_alone };
        let taken = rates.take(canvas, events as u64, Instant::now());
        taken.map_err(|wait| too_fast("this canvas (in events)", wait))
    }

    /// Counts bytes whose number was not known in advance: later requests wait for them.
    pub(super) fn charge_bytes(&self, limit_keys: &[LimitKey], bytes: u64) {
        let now = Instant::now();
        limit_keys.iter().for_each(|key| self.bytes.spend(key.clone(), bytes, now));
    }

    /// Counts a request without a valid credential, or one that no guard sees. Other requests do
    /// not count, from whatever address.
    pub(crate) fn count_unauthenticated(&self, client: Client) -> Result<(), Problem> {
        let taken = self.strangers.take(client.network(), 1, Instant::now());
        taken.map_err(|wait| too_fast("requests without a valid credential from this address", wait))
    }

    /// Reserves a concurrent request for these keys.
    pub(super) fn reserve_request(&self, limit_keys: &[LimitKey]) -> Result<Reservation, Problem> {
        let most = self.requests.most;
        let most_of = |key: &LimitKey| match matches!(key, LimitKey::Network(_)) {
            true => most.div_ceil(NETWORKS_MIN),
            false => most,
        };
        self.requests.reserve_within(limit_keys, 1, most_of).map_err(|key| {
            let words =
                format!("{key} has reached its share of this process's concurrent requests: try again");
            Problem::new(Kind::TooManyRequests, words).delayed()
        })
    }
}

fn too_fast(who: &str, wait: Duration) -> Problem {
    let words =
        format!("more comes from {who} than its share of this process: wait for the time in retry-after");
    Problem::new(Kind::TooManyRequests, words).retry_after(wait).delayed()
}

/// Counts concurrent uses per key, up to a limit each. Cheap to clone.
pub(crate) struct Tally<K> {
    most: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K> Clone for Tally<K> {
    fn clone(&self) -> Self {
        Self { most: self.most, taken: Arc::clone(&self.taken) }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Tally<K> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Reserves `count` for each of the keys, or returns the first key whose limit would be
    /// exceeded.
    pub(crate) fn reserve<'k>(&self, keys: &'k [K], count: usize) -> Result<Reservation, &'k K> {
        self.reserve_within(keys, count, |_| self.most)
    }

    /// The same, with a limit of its own for each key.
    fn reserve_within<'k>(
        &self,
        keys: &'k [K],
        count: usize,
        most_of: impl Fn(&K) -> usize,
    ) -> Result<Reservation, &'k K> {
        let mut taken = self.taken();
        let full = |key: &&K| taken.get(key).copied().unwrap_or(0).saturating_add(count) > most_of(key);
        if let Some(key) = keys.iter().find(full) {
            return Err(key);
        }
        for key in keys {
            *taken.entry(key.clone()).or_default() += count;
        }
        drop(taken);
        let (tally, keys) = (self.clone(), keys.to_vec());
        Ok(Reservation(Some(Box::new(move || tally.give_back(&keys, count)))))
    }

    fn give_back(&self, keys: &[K], count: usize) {
        let mut taken = self.taken();
        for key in keys {
            if let Some(left) = taken.get_mut(key) {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    taken.remove(key);
                }
            }
        }
    }

    /// The number of keys in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.taken().len()
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reservation, released when it is dropped.
pub(crate) struct Reservation(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

/// A token bucket per key, with a rate per second and a burst of some seconds' worth. Each is
/// stored as the time at which the bucket will be full again (the generic cell rate algorithm), and
/// forgotten after that.
struct RateLimiter<K> {
    per_second: f64,
    burst: Duration,
    state: Mutex<Buckets<K>>,
}

struct Buckets<K> {
    at: HashMap<K, Instant>,
    /// The shared bucket of all keys that did not fit.
    overflow: Option<Instant>,
    swept: Option<Instant>,
}

impl<K: Eq + Hash> RateLimiter<K> {
    fn new(per_second: u32, burst_s: u64) -> Self {
        let state = Mutex::new(Buckets { at: HashMap::new(), overflow: None, swept: None });
        Self { per_second: f64::from(per_second.max(1)), burst: Duration::from_secs(burst_s), state }
    }

    /// Takes `count` tokens, or returns how long to wait for them. A count beyond the burst is
    /// allowed when the bucket is full.
    fn take(&self, key: K, count: u64, now: Instant) -> Result<(), Duration> {
        let cost = self.time_of(count);
        self.change(key, now, |full_at| self.room(cost, full_at, now).map(|()| full_at + cost))
    }

    /// Takes `count` tokens of each key, or returns the key with the longest wait, and takes none.
    fn take_all<'k>(&self, keys: &'k [K], count: u64, now: Instant) -> Result<(), (&'k K, Duration)>
    where
        K: Clone,
    {
        let cost = self.time_of(count);
        let look = |key: &K| {
            self.change(key.clone(), now, |full_at| self.room(cost, full_at, now).map(|()| full_at))
        };
        let refused = keys.iter().filter_map(|key| Some((key, look(key).err()?)));
        if let Some(refused) = refused.max_by_key(|(_, wait)| *wait) {
            return Err(refused);
        }
        keys.iter().for_each(|key| self.spend(key.clone(), count, now));
        Ok(())
    }

    fn room(&self, cost: Duration, full_at: Instant, now: Instant) -> Result<(), Duration> {
        let latest = now + self.burst - cost.min(self.burst);
        full_at.checked_duration_since(latest).filter(|wait| !wait.is_zero()).map_or(Ok(()), Err)
    }

    /// Takes `count` tokens, even if there are not as many.
    fn spend(&self, key: K, count: u64, now: Instant) {
        // This closure never refuses.
        let _ = self.change(key, now, |full_at| Ok(full_at + self.time_of(count)));
    }

    fn change(
        &self,
        key: K,
        now: Instant,
        change: impl FnOnce(Instant) -> Result<Instant, Duration>,
    ) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.at.contains_key(&key) || state.has_room(now);
        let full_at = if known { state.at.get(&key).copied() } else { state.overflow };
        let full_at = change(full_at.map_or(now, |at| at.max(now)))?;
        match known {
            true => drop(state.at.insert(key, full_at)),
            false => state.overflow = Some(full_at),
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are those of bytes or events in one request")]
    fn time_of(&self, count: u64) -> Duration {
        Duration::from_secs_f64(count as f64 / self.per_second)
    }
}

impl<K: Eq + Hash> Buckets<K> {
    /// Whether one more key can be stored.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.at.len() >= KNOWN_MAX && self.swept.is_none_or(|swept| now - swept >= SWEEP) {
            self.at.retain(|_, full_at| *full_at > now);
            self.swept = Some(now);
        }
        self.at.len() < KNOWN_MAX
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const A: LimitKey = LimitKey::Canvas(CanvasId(Uuid::from_u128(1)));
    const B: LimitKey = LimitKey::Canvas(CanvasId(Uuid::from_u128(2)));

    #[test]
    fn one_canvas_takes_its_share_and_leaves_the_others_theirs() {
        let tally = Tally::new(3);
        let key = |name: &str| LimitKey::Credential(name.into());
        let mut held: Vec<_> =
            (0..3).map(|at| tally.reserve(&[A, key(&at.to_string())], 1).unwrap()).collect();
        assert_eq!(tally.reserve(&[A, key("3")], 1).err(), Some(&A), "with whatever key");
        assert_eq!(tally.len(), 4, "what was refused has taken nothing");
        let other = tally.reserve(&[B, key("b")], 3).unwrap();
        assert_eq!(tally.reserve(&[A, B], 1).err(), Some(&A));
        held.pop();
        drop(tally.reserve(&[A], 1).unwrap());
        drop((held, other));
        assert_eq!(tally.len(), 0, "nobody is remembered");
    }

    #[test]
    fn a_network_leaves_webhooks_of_others_room() {
        let shares = Shares::new(ShareLimits {
            requests: 8,
            per_credential: 1,
            per_canvas: 1,
            events_per_canvas: 1,
            events_alone: 1,
            bytes: 1,
            of_strangers: 1,
        });
        let reserve = |host: u8| {
            let network = LimitKey::Network(IpAddr::from([10, 0, 0, host]));
            shares.reserve_request(&[LimitKey::Webhooks, network]).ok()
        };
        let one: Vec<_> = (0..8).filter_map(|_| reserve(0)).collect();
        assert_eq!(one.len(), 2, "a quarter of what all have together");
        let others: Vec<_> = (1..9).filter_map(reserve).collect();
        assert_eq!(others.len(), 6, "which others use up");
        drop((one, others));
        assert!(reserve(0).is_some());
    }

    #[test]
    fn a_bucket_holds_two_seconds_and_fills_again() {
        let (rates, start) = (RateLimiter::new(10, 2), Instant::now());
        let taken = |key: &'static str, after_ms: u64| {
            let now = start + Duration::from_millis(after_ms);
            (0..1000).take_while(|_| rates.take(key, 1, now).is_ok()).count()
        };
        assert_eq!((taken("a", 0), taken("a", 0), taken("b", 0)), (20, 0, 20), "b has a bucket of its own");
        assert_eq!(rates.take("a", 1, start), Err(Duration::from_millis(100)));
        assert_eq!((taken("a", 99), taken("a", 100), taken("a", 600)), (0, 1, 5));
        assert_eq!(taken("a", 3_600_000), 20, "an hour later it is full, and not fuller");
    }

    #[test]
    fn an_overdrawn_bucket_waits_and_oversized_requests_take_a_full_one() {
        let (rates, start) = (RateLimiter::new(100, 1), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        rates.spend("a", 250, start);
        assert_eq!(
            rates.take("a", 0, at(0)),
            Err(Duration::from_millis(1500)),
            "the debt of all but a bucket"
        );
        assert_eq!(rates.take("b", 60, at(0)), Ok(()), "which is its own");
        assert_eq!(
            (rates.take("a", 0, at(1500)), rates.take("a", 1, at(1500))),
            (Ok(()), Err(Duration::from_millis(10)))
        );
        assert_eq!(rates.take("a", 1000, at(2499)), Err(Duration::from_millis(1)));
        assert_eq!(rates.take("a", 1000, at(2500)), Ok(()));
        assert_eq!(rates.take("a", 1, at(11_500)), Err(Duration::from_millis(10)), "and is paid for as well");
    }

    #[test]
    fn a_request_takes_from_all_its_buckets_or_none() {
        let (rates, start) = (RateLimiter::new(10, 1), Instant::now());
        assert_eq!(rates.take_all(&["key", "a"], 6, start), Ok(()));
        let wait = Duration::from_millis(200);
        assert_eq!(rates.take_all(&["key", "b"], 6, start), Err((&"key", wait)), "wherever it sends");
        assert_eq!(rates.take_all(&["other", "b"], 10, start), Ok(()), "b has lost nothing by it");
        assert_eq!(rates.take_all(&["key", "b"], 6, start), Err((&"b", Duration::from_millis(600))));
        assert_eq!(rates.take_all(&["key", "a"], 6, start), Err((&"a", wait)), "of equals the last");
        assert_eq!(rates.take_all(&["key", "b"], 6, start + Duration::from_millis(600)), Ok(()));
    }

    #[test]
    fn addresses_beyond_the_limit_share_a_bucket_and_known_ones_keep_theirs() {
        let (rates, start) = (RateLimiter::new(1, 2), Instant::now());
        assert_eq!(rates.take(u32::MAX, 1, start), Ok(()));
        let passed = (0..100_000).filter(|address| rates.take(*address, 1, start).is_ok()).count();
        assert_eq!(passed, KNOWN_MAX - 1 + 2, "the rest share one bucket");
        assert_eq!(rates.state.lock().unwrap().at.len(), KNOWN_MAX);
        assert_eq!(rates.take(u32::MAX, 1, start), Ok(()), "it has its own");
        let later = start + Duration::from_secs(10);
        assert_eq!(rates.take(1_000_000, 1, later), Ok(()));
        assert_eq!(rates.state.lock().unwrap().at.len(), 1, "callers that left are forgotten");
    }
}
