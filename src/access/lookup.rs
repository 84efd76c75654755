//! What was found in the database a moment ago, so that not every request asks it: bounded, shared by all who ask for
//! the same at once, and wrong answers are remembered, too. Knows nothing of keys, accounts or SQL.

use std::collections::HashMap;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{FutureExt, Shared, WeakShared};

use super::Clock;
use crate::store::StoreError;

type Answer<V> = Result<Found<V>, StoreError>;
type Loading<V> = Pin<Box<dyn Future<Output = Answer<V>> + Send>>;

/// How long an answer counts, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// An answer is given again for this long without asking.
    pub(super) fresh: Duration,
    /// While the database is away, for this long.
    pub(super) stale: Duration,
    /// Most answers that name something, and as many that say "there is none".
    pub(super) entries_max: usize,
    /// Most questions to the database at a time; more are refused.
    pub(super) loads_max: usize,
}

/// An answer, or that there is none, as it was before `asked_at`.
pub(super) struct Found<V> {
    pub(super) value: Option<Arc<V>>,
    /// Just before the database was asked: it is at least this old.
    pub(super) asked_at: Instant,
}

impl<V> Clone for Found<V> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), asked_at: self.asked_at }
    }
}

/// The answers.
pub(super) struct Lookup<K, V> {
    limits: Limits,
    clock: Clock,
    kept: Mutex<Kept<K, V>>,
}

struct Kept<K, V> {
    /// Apart from each other, so that a flood of wrong guesses does not push out what is in use.
    present: HashMap<K, Found<V>>,
    absent: HashMap<K, Found<V>>,
    loading: HashMap<K, WeakShared<Loading<V>>>,
}

impl<K: Clone + Eq + Hash, V: Send + Sync + 'static> Lookup<K, V> {
    pub(super) fn new(limits: Limits, clock: Clock) -> Self {
        let kept = Kept { present: HashMap::new(), absent: HashMap::new(), loading: HashMap::new() };
        Self { limits, clock, kept: Mutex::new(kept) }
    }

    /// What was found a moment ago, or else what `load` finds now. Without the database: what was found not too long
    /// ago.
    pub(super) async fn find<F>(&self, key: &K, load: F) -> Answer<V>
    where
        F: Future<Output = Result<Option<V>, StoreError>> + Send + 'static,
    {
        let loading = match self.fresh_or_loading(key, load)? {
            Ok(found) => return Ok(found),
            Err(loading) => loading,
        };
        let answer = loading.await;
        let mut kept = self.kept();
        kept.forget_ended(key);
        match answer {
            Ok(found) => {
                kept.keep(key, &found, self.limits.entries_max, self.oldest(self.limits.stale));
                Ok(found)
            }
            Err(error) => {
                let oldest = self.oldest(self.limits.stale);
                kept.of(key).filter(|found| Some(found.asked_at) >= oldest).ok_or(error)
            }
        }
    }

    /// Asks again the next time.
    pub(super) fn forget(&self, key: &K) {
        let mut kept = self.kept();
        kept.present.remove(key);
        kept.absent.remove(key);
    }

    /// A fresh answer, or the question that somebody asks already or that is asked now.
    #[expect(clippy::type_complexity, reason = "read once, above")]
    fn fresh_or_loading<F>(
        &self,
        key: &K,
        load: F,
    ) -> Result<Result<Found<V>, Shared<Loading<V>>>, StoreError>
    where
        F: Future<Output = Result<Option<V>, StoreError>> + Send + 'static,
    {
        let oldest = self.oldest(self.limits.fresh);
        let mut kept = self.kept();
        if let Some(found) = kept.of(key).filter(|found| Some(found.asked_at) > oldest) {
            return Ok(Ok(found));
        }
        if let Some(loading) = kept.loading.get(key).and_then(WeakShared::upgrade) {
            return Ok(Err(loading));
        }
        if kept.loading.len() >= self.limits.loads_max {
            kept.loading.retain(|_, loading| loading.upgrade().is_some());
            if kept.loading.len() >= self.limits.loads_max {
                return Err(StoreError::Overloaded);
            }
        }
        let clock = self.clock.clone();
        let load: Loading<V> = Box::pin(async move {
            let asked_at = clock.now();
            let value = load.await?.map(Arc::new);
            Ok(Found { value, asked_at })
        });
        let loading = load.shared();
        if let Some(weak) = loading.downgrade() {
            kept.loading.insert(key.clone(), weak);
        }
        Ok(Err(loading))
    }

    /// The earliest moment that is not longer ago than this; none, if the machine has not run for that long.
    fn oldest(&self, age: Duration) -> Option<Instant> {
        self.clock.now().checked_sub(age)
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
        // Nothing in here panics half-way through a change.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash, V: Send + Sync> Kept<K, V> {
    fn of(&self, key: &K) -> Option<Found<V>> {
        self.present.get(key).or_else(|| self.absent.get(key)).cloned()
    }

    /// Forgets a question that has its answer, and not one that was asked since.
    fn forget_ended(&mut self, key: &K) {
        let loading = self.loading.get(key).and_then(WeakShared::upgrade);
        if loading.is_none_or(|loading| loading.peek().is_some()) {
            self.loading.remove(key);
        }
    }

    fn keep(&mut self, key: &K, found: &Found<V>, entries_max: usize, oldest: Option<Instant>) {
        let (into, other) = match found.value {
            Some(_) => (&mut self.present, &mut self.absent),
            None => (&mut self.absent, &mut self.present),
        };
        other.remove(key);
        if into.get(key).is_some_and(|kept| kept.asked_at > found.asked_at) {
            return;
        }
        if into.len() >= entries_max && !into.contains_key(key) {
            into.retain(|_, kept| Some(kept.asked_at) >= oldest);
            if into.len() >= entries_max
                && let Some(any) = into.keys().next().cloned()
            {
                into.remove(&any);
            }
        }
        into.insert(key.clone(), found.clone());
    }
}
