//! The registered patterns, as far as this process knows them. Every insert states, in its own
//! statement, which version of them it was matched with, and is repeated if that is not the current
//! one.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use sqlx::postgres::PgConnection;
use tokio::sync::Mutex;

use crate::event::{HandlerAddress, Name, QueuePattern, QueuePatterns, Timing};

/// How often an insert is repeated because the patterns have changed meanwhile.
pub(in crate::store) const STALE_TRIES: usize = 10;

/// The patterns of one version.
#[derive(Debug)]
pub(in crate::store) struct QueueRegistry {
    /// The version that inserts compare; -1 before the patterns were read.
    pub(in crate::store) version: i64,
    patterns: QueuePatterns,
    /// The queues that services pull: no worker is notified of their copies.
    pulled: HashSet<Name>,
}

impl QueueRegistry {
    /// The queues that get a copy of events with this address.
    pub(in crate::store) fn queues(&self, address: &HandlerAddress) -> Vec<&Name> {
        self.patterns.matching(address)
    }

    /// Whether no worker is notified of the copies in this queue.
    pub(in crate::store) fn is_pulled(&self, queue: &Name) -> bool {
        self.pulled.contains(queue)
    }

    /// Whether there are no queues.
    pub(in crate::store) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}

/// The patterns as last read; shared by all clones of a store.
#[derive(Debug)]
pub(super) struct RegistryCache {
    known: RwLock<Arc<QueueRegistry>>,
    /// Held while a version is compiled, so that concurrent inserts compile it only once.
    compiling: Mutex<()>,
}

impl Default for RegistryCache {
    fn default() -> Self {
        let unread =
            QueueRegistry { version: -1, patterns: QueuePatterns::default(), pulled: HashSet::default() };
        Self { known: RwLock::new(Arc::new(unread)), compiling: Mutex::default() }
    }
}

impl RegistryCache {
    fn current(&self) -> Arc<QueueRegistry> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, read: &Arc<QueueRegistry>) {
        // Not only a later version: after a failover that lost the last change, the earlier one
        // counts again. Where it was an old snapshot of a caller's transaction, the next insert
        // reads once more.
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(read);
    }
}

/// The durations and the queues with which events are written.
#[derive(Clone, Copy, Debug)]
pub struct Emission<'a> {
    pub(in crate::store) timing: &'a Timing,
    cache: &'a RegistryCache,
    /// Whether the transaction may hold what its caller has written, and goes on.
    pub(in crate::store) goes_on: bool,
}

impl<'a> Emission<'a> {
    pub(super) fn of(timing: &'a Timing, cache: &'a RegistryCache) -> Self {
        Self { timing, cache, goes_on: true }
    }

    /// For a transaction of the store's own, which is committed with the events.
    pub(in crate::store) fn alone(self) -> Self {
        Self { goes_on: false, ..self }
    }

    /// The patterns as far as this process knows them.
    pub(in crate::store) fn registered(&self) -> Arc<QueueRegistry> {
        self.cache.current()
    }

    /// Reads the patterns as this connection sees them, which is what a statement in its
    /// transaction is compared with.
    pub(in crate::store) async fn read(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Arc<QueueRegistry>, sqlx::Error> {
        let Patterns { version, of_queues, pulled } = patterns_of(connection).await?;
        let _compiling = self.cache.compiling.lock().await;
        let known = self.cache.current();
        if known.version == version {
            return Ok(known);
        }
        let patterns = compiled(of_queues).await?.map_err(|error| {
            sqlx::Error::Protocol(format!("the patterns of the registered queues can't be compiled: {error}"))
        })?;
        let read = Arc::new(QueueRegistry { version, patterns, pulled });
        self.cache.keep(&read);
        Ok(read)
    }
}

/// The patterns as a connection sees them.
pub(in crate::store) struct Patterns {
    pub(in crate::store) version: i64,
    /// Each with its queue.
    pub(in crate::store) of_queues: Vec<(Name, String)>,
    pulled: HashSet<Name>,
}

pub(in crate::store) async fn patterns_of(connection: &mut PgConnection) -> Result<Patterns, sqlx::Error> {
    let rows = sqlx::query!(
        r#"select r.version, p.queue::text as queue, p.pattern as "pattern?", p.pulled as "pulled?"
             from wakeq.queue_registry r
             left join (select p.queue, p.pattern, q.pulled from wakeq.queue_patterns p
                          join wakeq.queues q on q.name = p.queue where not q.draining) as p on true
            order by p.queue, p.pattern"#
    )
    .fetch_all(connection)
    .await?;
    let Some(version) = rows.first().map(|row| row.version) else {
        return Err(sqlx::Error::Protocol("wakeq.queue_registry has lost its row: insert one".into()));
    };
    let pulled = rows.iter().filter(|row| row.pulled == Some(true));
    let pulled = pulled.filter_map(|row| row.queue.as_deref()?.parse().ok()).collect();
    let of_queues = rows.into_iter().filter_map(|row| Some((row.queue?.parse().ok()?, row.pattern?)));
    Ok(Patterns { version, of_queues: of_queues.collect(), pulled })
}

/// Compiles all of them together, on a thread that may block.
pub(in crate::store) async fn compiled(
    of_queues: Vec<(Name, String)>,
) -> Result<Result<QueuePatterns, regex::Error>, sqlx::Error> {
    let compile = move || match QueuePatterns::new(&of_queues) {
        Err(_) => {
            let readable: Vec<_> = of_queues.into_iter().filter(is_readable).collect();
            QueuePatterns::new(&readable)
        }
        compiled => compiled,
    };
    tokio::task::spawn_blocking(compile).await.map_err(|error| sqlx::Error::Io(error.into()))
}

/// A pattern that this release can't read would make every emit fail.
fn is_readable((queue, pattern): &(Name, String)) -> bool {
    let parsed = pattern.parse::<QueuePattern>();
    if let Err(error) = &parsed {
        tracing::error!(%queue, pattern, error = error as &dyn std::error::Error, "this release can't read a queue's pattern: it makes no copies for it");
    }
    parsed.is_ok()
}

/// The error of an insert that met changed patterns each time.
pub(in crate::store) fn too_busy() -> sqlx::Error {
    sqlx::Error::Protocol("the registered queues keep changing: try again".into())
}
