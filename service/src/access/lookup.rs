//! A bounded cache of database lookups, so that not every request needs a query. Concurrent lookups
//! of the same key share one query, and misses are cached too. Knows nothing about keys, accounts
//! or SQL.

use std::collections::HashMap;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, Shared, WeakShared};

use super::Clock;
use wakeq::StoreError;

type Answer<V> = Result<CachedAnswer<V>, StoreError>;
type Loading<V> = Pin<Box<dyn Future<Output = Answer<V>> + Send>>;

/// How long answers are cached, and how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For how long an answer is reused without a query.
    pub(super) fresh: Duration,
    /// For how long an answer is reused while the database is unavailable.
    pub(super) stale: Duration,
    /// Maximum number of cached hits, and of cached misses.
    pub(super) entries_max: usize,
    /// Maximum number of concurrent queries; further ones are refused.
    pub(super) loads_max: usize,
}

/// A cached answer: the value, or that there is none.
pub(super) struct CachedAnswer<V> {
    pub(super) value: Option<Arc<V>>,
    /// When the query was sent; the answer is at least this old.
    pub(super) asked_at: Instant,
}

impl<V> Clone for CachedAnswer<V> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), asked_at: self.asked_at }
    }
}

/// The cache.
pub(super) struct Lookup<K, V> {
    limits: Limits,
    clock: Clock,
    entries: Mutex<CacheEntries<K, V>>,
}

enum CacheResult<V> {
    Hit(CachedAnswer<V>),
    Pending(Shared<Loading<V>>),
    Full,
}

struct CacheEntries<K, V> {
    /// Hits are kept apart from misses, so that a flood of wrong guesses does not evict what is in
    /// use.
    present: HashMap<K, CachedAnswer<V>>,
    absent: HashMap<K, CachedAnswer<V>>,
    loading: HashMap<K, WeakShared<Loading<V>>>,
    /// Incremented by each invalidation: an answer to an earlier query is not cached.
    invalidations: u64,
}

impl<K: Clone + Eq + Hash, V: Send + Sync + 'static> Lookup<K, V> {
    pub(super) fn new(limits: Limits, clock: Clock) -> Self {
        let entries = CacheEntries {
            present: HashMap::new(),
            absent: HashMap::new(),
            loading: HashMap::new(),
            invalidations: 0,
        };
        Self { limits, clock, entries: Mutex::new(entries) }
    }

    /// Returns the cached answer if it is fresh, or the result of `load`. If the database fails, a
    /// stale answer is returned while it is within its limit.
    pub(super) async fn find<F>(&self, key: &K, load: F) -> Answer<V>
    where
        F: Future<Output = Result<Option<V>, StoreError>> + Send + 'static,
    {
        let asked = self.entries().invalidations;
        let answer = match self.check_cache(key, load) {
            CacheResult::Hit(found) => return Ok(found),
            CacheResult::Pending(loading) => loading.await,
            CacheResult::Full => Err(StoreError::Overloaded),
        };
        let mut entries = self.entries();
        entries.forget_ended(key);
        match answer {
            Ok(found) if entries.invalidations != asked => Ok(found),
            Ok(found) => {
                entries.keep(key, &found, self.limits.entries_max, self.oldest(self.limits.stale));
                Ok(found)
            }
            Err(error) => {
                let oldest = self.oldest(self.limits.stale);
                entries.of(key).filter(|found| Some(found.asked_at) >= oldest).ok_or(error)
            }
        }
    }

    /// Invalidates the entry, so that the next lookup queries the database.
    pub(super) fn forget(&self, key: &K) {
        let mut entries = self.entries();
        entries.present.remove(key);
        entries.absent.remove(key);
        entries.loading.remove(key);
        entries.invalidations += 1;
    }

    /// A fresh answer, or else the query to wait for: the one in flight or a new one, unless too
    /// many are in flight.
    fn check_cache<F>(&self, key: &K, load: F) -> CacheResult<V>
    where
        F: Future<Output = Result<Option<V>, StoreError>> + Send + 'static,
    {
        let oldest = self.oldest(self.limits.fresh);
        let mut entries = self.entries();
        if let Some(found) = entries.of(key).filter(|found| Some(found.asked_at) > oldest) {
            return CacheResult::Hit(found);
        }
        if let Some(loading) = entries.loading.get(key).and_then(WeakShared::upgrade) {
            return CacheResult::Pending(loading);
        }
        if entries.loading.len() >= self.limits.loads_max {
            entries.loading.retain(|_, loading| loading.upgrade().is_some());
            if entries.loading.len() >= self.limits.loads_max {
                return CacheResult::Full;
            }
        }
        let clock = self.clock.clone();
        let load: Loading<V> = Box::pin(async move {
            let asked_at = clock.now();
            let value = load.await?.map(Arc::new);
            Ok(CachedAnswer { value, asked_at })
        });
        let loading = load.shared();
        if let Some(weak) = loading.downgrade() {
            entries.loading.insert(key.clone(), weak);
        }
        CacheResult::Pending(loading)
    }

    /// The time this long ago; `None` if the clock does not reach back that far.
    fn oldest(&self, age: Duration) -> Option<Instant> {
        self.clock.now().checked_sub(age)
    }

    fn entries(&self) -> MutexGuard<'_, CacheEntries<K, V>> {
        // No code panics while a change is incomplete.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash, V> CacheEntries<K, V> {
    fn of(&self, key: &K) -> Option<CachedAnswer<V>> {
        self.present.get(key).or_else(|| self.absent.get(key)).cloned()
    }

    /// Removes a query that has completed, but not one that was started since.
    fn forget_ended(&mut self, key: &K) {
        let loading = self.loading.get(key).and_then(WeakShared::upgrade);
        if loading.is_none_or(|loading| loading.peek().is_some()) {
            self.loading.remove(key);
        }
    }

    fn keep(&mut self, key: &K, found: &CachedAnswer<V>, entries_max: usize, oldest: Option<Instant>) {
        let (into, other) = match found.value {
            Some(_) => (&mut self.present, &mut self.absent),
            None => (&mut self.absent, &mut self.present),
        };
        other.remove(key);
        if into.get(key).is_some_and(|known| known.asked_at > found.asked_at) {
            return;
        }
        if into.len() >= entries_max && !into.contains_key(key) {
            into.retain(|_, known| Some(known.asked_at) >= oldest);
            if into.len() >= entries_max
                && let Some(any) = into.keys().next().cloned()
            {
                into.remove(&any);
            }
        }
        into.insert(key.clone(), found.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lookup(clock: &Clock) -> Lookup<u32, &'static str> {
        let limits = Limits { fresh: 30 * SECOND, stale: 50 * SECOND, entries_max: 3, loads_max: 2 };
        Lookup::new(limits, clock.clone())
    }

    async fn finds(
        lookup: &Lookup<u32, &'static str>,
        key: u32,
        there: Option<&'static str>,
    ) -> Option<&'static str> {
        let found = lookup.find(&key, async move { Ok(there) }).await.unwrap();
        found.value.map(|value| *value)
    }

    #[tokio::test]
    async fn lookups_are_cached_for_their_lifetime() {
        let clock = Clock::default();
        let lookup = lookup(&clock);
        assert_eq!(finds(&lookup, 1, Some("old")).await, Some("old"));
        assert_eq!(finds(&lookup, 2, None).await, None);
        clock.advance(29 * SECOND);
        assert_eq!(finds(&lookup, 1, Some("new")).await, Some("old"));
        assert_eq!(finds(&lookup, 2, Some("new")).await, None);
        clock.advance(SECOND);
        assert_eq!(finds(&lookup, 1, None).await, None);
        assert_eq!(finds(&lookup, 2, Some("new")).await, Some("new"));
        lookup.forget(&2);
        assert_eq!(finds(&lookup, 2, None).await, None);
    }

    #[tokio::test]
    async fn concurrent_lookups_of_one_key_share_a_query() {
        let lookup = lookup(&Clock::default());
        let (asked, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let ask = || {
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            lookup.find(&1, async move {
                asked.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                Ok(Some("value"))
            })
        };
        // The caller that started the query is cancelled.
        let mut leaver = Box::pin(ask());
        assert!(futures_util::poll!(leaver.as_mut()).is_pending());
        let (found, ()) = tokio::join!(join_all((0..100).map(|_| ask())), async {
            drop(leaver);
            go.notify_one();
        });
        assert!(found.into_iter().all(|found| found.unwrap().value.as_deref() == Some(&"value")));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn rejects_lookups_beyond_the_limit() {
        let lookup = lookup(&Clock::default());
        let mut pending: Vec<_> = (0..2).map(|key| Box::pin(lookup.find_later(key))).collect();
        for one in &mut pending {
            assert!(futures_util::poll!(one.as_mut()).is_pending());
        }
        let refused = lookup.find(&9, async { Ok(Some("value")) }).await.map(|_| ());
        assert!(matches!(refused, Err(StoreError::Overloaded)));
        drop(pending);
        assert_eq!(finds(&lookup, 9, Some("value")).await, Some("value"), "entries that left make room");
    }

    impl Lookup<u32, &'static str> {
        async fn find_later(&self, key: u32) -> Option<Arc<&'static str>> {
            self.find(&key, std::future::pending()).await.unwrap().value
        }
    }

    #[tokio::test]
    async fn wrong_guesses_do_not_evict_cached_keys_in_use() {
        let lookup = lookup(&Clock::default());
        assert_eq!(finds(&lookup, 0, Some("in use")).await, Some("in use"));
        for guess in 1..100 {
            assert_eq!(finds(&lookup, guess, None).await, None);
        }
        assert_eq!(finds(&lookup, 0, None).await, Some("in use"));
        for other in 100..200 {
            finds(&lookup, other, Some("other")).await;
        }
        let entries = lookup.entries();
        assert_eq!((entries.present.len(), entries.absent.len(), entries.loading.len()), (3, 3, 0));
    }

    #[tokio::test]
    async fn without_the_database_an_answer_counts_a_little_longer() {
        let clock = Clock::default();
        let lookup = lookup(&clock);
        finds(&lookup, 1, Some("value")).await;
        clock.advance(49 * SECOND);
        let away = || async { Err(StoreError::Overloaded) };
        assert!(lookup.find(&1, away()).await.unwrap().value.is_some());
        assert!(lookup.find(&2, away()).await.is_err());
        clock.advance(SECOND);
        assert!(lookup.find(&1, away()).await.is_err());
    }

    /// The answer to a query from before the invalidation is returned, but not cached.
    #[tokio::test]
    async fn an_answer_from_before_a_revocation_is_not_kept() {
        let lookup = Arc::new(lookup(&Clock::default()));
        let (asked, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let slow = tokio::spawn({
            let (lookup, asked, answered) = (lookup.clone(), asked.clone(), answered.clone());
            async move {
                let load = async move {
                    asked.notify_one();
                    answered.notified().await;
                    Ok(Some("before"))
                };
                lookup.find(&1, load).await.unwrap().value.as_deref().copied()
            }
        });
        asked.notified().await;
        lookup.forget(&1);
        assert_eq!(finds(&lookup, 1, Some("after")).await, Some("after"), "it is asked anew");
        lookup.forget(&1);
        answered.notify_one();
        assert_eq!(slow.await.unwrap(), Some("before"));
        assert_eq!(finds(&lookup, 1, Some("now")).await, Some("now"), "and the old answer was not kept");
    }
}
