//! How a store uses Postgres, as its program configures it.

use std::time::Duration;

use super::StoreError;
use crate::event::{SecretKeys, Timing};

/// How the store uses Postgres.
///
/// ```
/// let config = wakeq::StoreConfig { max_connections: 10, ..Default::default() };
/// assert_eq!(config.statement_timeout.as_secs(), 5);
/// ```
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Maximum number of connections, 1 to 1,000. Not counted: the one that renews leases, the two
    /// that look up credentials, and up to four of a
    /// [`PostgresNotifier`](crate::notify::PostgresNotifier), which are opened when first needed.
    /// Default 6; one is enough to work. A store on a pool of the program's
    /// ([`Store::from_pool`](crate::Store::from_pool)) has the pool's.
    pub max_connections: u32,
    /// The server cancels a statement after this long. After one second more than this, it ends a
    /// transaction whose next statement has not arrived, and a connection that accepts no data.
    /// Default 5 s; from 1 ms to one day.
    pub statement_timeout: Duration,
    /// The server cancels a statement that has waited for a lock this long. 1 ms to one day;
    /// default 200 ms.
    pub lock_timeout: Duration,
    /// Whether to use a server that may lose commits (`fsync` or `synchronous_commit` off). Default
    /// false.
    pub allow_unsafe_durability: bool,
    /// Whether to connect to another host without verifying its certificate, that is without
    /// `sslmode=verify-full`, or `verify-ca` with an `sslrootcert`. Default false.
    pub allow_unverified_database: bool,
    /// Whether a pooler in transaction mode stands before the server. It has to keep prepared
    /// statements (pgbouncer 1.21 or newer, with `max_prepared_statements`). Settings are not made
    /// on connecting then, since the next transaction may get another session. They must be those
    /// of the role, and connecting fails with the statements that give it the settings that it
    /// lacks. Default false.
    pub transaction_pooler: bool,
    /// The durations that are written into rows, the same in every process of a deployment. Default
    /// `None`: the deployment's, or [`Timing::default`] if it has none yet.
    pub timing: Option<Timing>,
    /// How to treat the durations that the deployment already has. Default [`TimingMode::Agree`]:
    /// refuse to connect if other ones are given.
    pub timing_mode: TimingMode,
    /// The keys that encrypt the signing secrets of targets. Default: no key, so that no target can
    /// be registered.
    pub secret_keys: SecretKeys,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            max_connections: 6,
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_millis(200),
            allow_unsafe_durability: false,
            allow_unverified_database: false,
            transaction_pooler: false,
            timing: None,
            timing_mode: TimingMode::default(),
            secret_keys: SecretKeys::default(),
        }
    }
}

impl StoreConfig {
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if let Some(timing) = &self.timing {
            timing.check()?;
        }
        let day = Duration::from_secs(24 * 3600);
        let within = |limit: Duration| (Duration::from_millis(1)..=day).contains(&limit);
        if !(1..=1000).contains(&self.max_connections) {
            return Err(StoreError::Config("max_connections must be 1 to 1,000"));
        }
        if !within(self.statement_timeout) || !within(self.lock_timeout) {
            return Err(StoreError::Config("statement_timeout and lock_timeout must be 1 ms to one day"));
        }
        Ok(())
    }
}

/// How a process treats the deployment's durations when it connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimingMode {
    /// Writes its own if there are none yet, and fails to connect if it was given other ones than
    /// the existing. For every process that emits or works.
    #[default]
    Agree,
    /// Uses the existing ones, or its own if there are none, and writes none. For tools that only
    /// issue commands.
    Follow,
    /// Replaces the existing ones. Every other process has to be restarted with the same ones: it
    /// ends with [`StoreError::OtherTiming`] at its next minute's pass.
    Replace,
    /// Neither reads nor compares them. For tools that only inspect a database, whatever its state.
    Unchecked,
}

/// How long each side waits for the other: a second longer than the server lets a statement run.
pub(super) fn answer_limit(statement_timeout: Duration) -> Duration {
    statement_timeout + Duration::from_secs(1)
}
