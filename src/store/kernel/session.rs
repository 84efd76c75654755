//! Connections: how they are opened, checked, bounded and returned.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::types::PgInterval;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, Postgres};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::watch;

use super::StoreError;
use super::config::{StoreConfig, answer_limit};
use super::counting::Counting;
#[cfg(feature = "testing")]
use super::double::Double;
use super::held::Held;
use super::pass::Probe;
use super::permits::{ConnectionPermit, ConnectionPermits};
use super::pools;
use super::registry::{Emission, RegistryCache};
use super::route::DatabaseRoute;
use super::session_settings::APPLICATION;
use super::usage::Quotas;
use super::uses::Uses;
use crate::event::SecretKeys;
use crate::event::{Name, Timing};

/// Connections reserved for credential lookups, so that emits and lookups never wait for each
/// other.
const LOOKUPS: u32 = 2;
/// Connections for NOTIFY. Each LISTEN has a connection of its own.
const NOTICES: u32 = 1;

/// The events, rules and chores in Postgres. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) pool: PgPool,
    /// Whether the pool is the caller's: then it is neither closed nor changed here.
    pub(super) is_shared: bool,
    /// For statements beside a transaction that may hold the caller's whole pool.
    pub(super) beside: PgPool,
    renewals: PgPool,
    lookups: PgPool,
    notices: PgPool,
    permits: Arc<ConnectionPermits>,
    pub(in crate::store) config: Arc<StoreConfig>,
    timing: Arc<Timing>,
    /// The worker in whose name claims are made.
    pub(in crate::store) worker: Option<Arc<Name>>,
    pub(in crate::store) probe: Arc<Probe>,
    registry: Arc<RegistryCache>,
    pub(in crate::store) quotas: Arc<Quotas>,
    pub(in crate::store) counting: Arc<Counting>,
    uses: Arc<Uses>,
    /// Why this process must not go on with its durations.
    pub(super) retimed: Arc<watch::Sender<Option<StoreError>>>,
    #[cfg(feature = "testing")]
    double: Option<Arc<dyn Double>>,
}

impl Store {
    /// Connects, and checks that the server keeps what it commits and that the deployment's other
    /// processes use the same durations.
    ///
    /// `url` has the form `postgres://user:password@host:port/database`.
    ///
    /// Errors: [`StoreError::Unavailable`]; [`StoreError::UnsafeDurability`];
    /// [`StoreError::Timing`] for durations that no queue can work with,
    /// [`StoreError::OtherTiming`] for durations that differ from the deployment's;
    /// [`StoreError::NotMigrated`]; [`StoreError::RoleSettings`], behind a pooler;
    /// [`StoreError::Config`] for limits out of range and, before anything is sent, for another
    /// host whose certificate would not be verified.
    pub async fn connect(url: &str, config: StoreConfig) -> Result<Self, StoreError> {
        Self::connect_with(parsed(url)?, config).await
    }

    /// As [`Store::connect`], with options instead of a URL: for what a URL can't express, such as
    /// a certificate that is not in a file, and for passwords or tokens that expire
    /// ([`Store::set_connect_options`]).
    pub async fn connect_with(options: PgConnectOptions, config: StoreConfig) -> Result<Self, StoreError> {
        config.check()?;
        let options = checked(options, &config)?;
        Self::over(options.clone(), config).settled(&options).await
    }

    /// This store after the checks, with the durations that it has to use.
    pub(super) async fn settled(mut self, options: &PgConnectOptions) -> Result<Self, StoreError> {
        let settled = async {
            self.check_settings().await?;
            self.check_pool().await?;
            self.check_durability().await?;
            self.settle_timing().await
        };
        match settled.await {
            Ok(timing) => self.timing = Arc::new(timing),
            Err(error) => return Err(cause(error, options).await),
        }
        Ok(self)
    }

    /// A store that sends and checks nothing yet, for a tool that looks at any server.
    #[doc(hidden)]
    pub fn unchecked(url: &str, config: StoreConfig) -> Result<Self, StoreError> {
        config.check()?;
        let options = checked(parsed(url)?, &config)?;
        Ok(Self::over(options, config))
    }

    /// Opens all further connections with these options, in this store and its clones: after the
    /// password was changed, or with the next token in its place. Connections that are already open
    /// stay in use, and are replaced within half an hour.
    ///
    /// A pool of the caller's ([`Store::from_pool`]) is not changed: its owner does that.
    ///
    /// Sends nothing, unless a [pooler](StoreConfig::transaction_pooler) was announced: then the
    /// settings of another role or server are checked first.
    ///
    /// Errors: [`StoreError::Config`] for another database, which would be another queue, and for
    /// another host whose certificate would not be verified; as [`Store::connect`] from the check.
    /// Nothing is changed then.
    ///
    /// ```no_run
    /// use sqlx::postgres::PgConnectOptions;
    /// use wakeq::{Store, StoreConfig};
    ///
    /// # async fn token() -> String { String::new() }
    /// # async fn example(options: PgConnectOptions) -> Result<(), wakeq::StoreError> {
    /// // Without a password; the token that stands in its place is good for a quarter of an hour.
    /// let store = Store::connect_with(options.clone().password(&token().await), StoreConfig::default()).await?;
    /// let renewed = store.clone();
    /// tokio::spawn(async move {
    ///     loop {
    ///         tokio::time::sleep(std::time::Duration::from_secs(10 * 60)).await;
    ///         if let Err(error) = renewed.set_connect_options(options.clone().password(&token().await)).await {
    ///             tracing::error!(error = &error as &dyn std::error::Error, "the token was not taken");
    ///         }
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_connect_options(&self, options: PgConnectOptions) -> Result<(), StoreError> {
        let options = checked(options, &self.config)?;
        if database(&options) != database(&self.pool.connect_options()) {
            return Err(StoreError::Config(
                "the new options name another database, which would be another queue: connect another store to it",
            ));
        }
        self.check_settings_of(&options).await?;
        for pool in self.own_pools() {
            pool.set_connect_options(options.clone());
        }
        Ok(())
    }

    /// A store without a server, for the test kit's in-memory tables.
    #[cfg(feature = "testing")]
    pub(in crate::store) fn nowhere(timing: Timing) -> Self {
        let config = StoreConfig { timing: Some(timing), ..StoreConfig::default() };
        Self::over(PgConnectOptions::new_without_pgpass(), config)
    }

    /// A store that has not connected yet.
    pub(super) fn over(options: PgConnectOptions, config: StoreConfig) -> Self {
        let pool = pools::pool(&config, config.max_connections).connect_lazy_with(options.clone());
        Self::with_pool(pool, false, options, config)
    }

    /// The same with this pool for its statements.
    pub(super) fn with_pool(
        pool: PgPool,
        is_shared: bool,
        options: PgConnectOptions,
        config: StoreConfig,
    ) -> Self {
        let open = |connections| pools::pool(&config, connections).connect_lazy_with(options.clone());
        Self {
            pool,
            is_shared,
            beside: open(1),
            renewals: open(1),
            lookups: open(LOOKUPS),
            notices: open(NOTICES),
            permits: Arc::new(ConnectionPermits::new(config.max_connections)),
            timing: Arc::new(config.timing.clone().unwrap_or_default()),
            config: Arc::new(config),
            worker: None,
            probe: Arc::default(),
            registry: Arc::default(),
            quotas: Arc::default(),
            counting: Arc::default(),
            uses: Arc::default(),
            retimed: Arc::new(watch::Sender::new(None)),
            #[cfg(feature = "testing")]
            double: None,
        }
    }

    /// This store for a worker of this name: claims made through it are the worker's.
    pub(crate) fn claiming_as(self, worker: Name) -> Self {
        Self { worker: Some(Arc::new(worker)), ..self }
    }

    /// The worker's name, as statements take it.
    pub(in crate::store) fn worker(&self) -> Option<&str> {
        self.worker.as_deref().map(Name::as_str)
    }

    /// How this store writes events.
    #[doc(hidden)]
    pub fn emission(&self) -> Emission<'_> {
        Emission::of(&self.timing, &self.registry)
    }

    /// The durations that this store writes into rows.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// How long a statement waits for a lock.
    #[doc(hidden)]
    pub fn lock_timeout(&self) -> Duration {
        self.config.lock_timeout
    }

    /// The keys that encrypt the signing secrets of targets.
    #[doc(hidden)]
    pub fn secret_keys(&self) -> &SecretKeys {
        &self.config.secret_keys
    }

    /// Closes every connection, after the running statements have ended; after this time at the
    /// latest. Those of a caller's pool stay open.
    pub(in crate::store) async fn close_connections(&self, limit: Duration) {
        pools::close(self.own_pools(), limit).await;
    }

    /// The pools that only this store and its clones use.
    fn own_pools(&self) -> impl Iterator<Item = &PgPool> {
        let own = (!self.is_shared).then_some(&self.pool);
        own.into_iter().chain([&self.beside, &self.renewals, &self.lookups, &self.notices])
    }

    /// Whether the pool of its statements is the caller's.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// How long a statement may take until its answer is here.
    pub(in crate::store) fn answer_limit(&self) -> Duration {
        answer_limit(self.config.statement_timeout)
    }

    /// Whether it is on a server, and not on the test kit's tables.
    pub(crate) fn has_server(&self) -> bool {
        #[cfg(feature = "testing")]
        if self.is_in_memory() {
            return false;
        }
        true
    }

    #[doc(hidden)]
    pub async fn session(&self) -> Result<Session, StoreError> {
        #[cfg(feature = "testing")]
        if self.is_in_memory() {
            return Err(StoreError::Config(
                "a store in memory does not support this: give the test kit a database",
            ));
        }
        self.uses.add();
        let permit = self.permits.take().await;
        let mut session = if self.is_shared {
            Box::pin(Session::of_shared(&self.pool, self.config.statement_timeout)).await?
        } else {
            Session::of(&self.pool, self.config.statement_timeout).await?
        };
        session.permit = permit.map(ConnectionPermit::begun);
        Ok(session)
    }

    /// How often this store and its clones have used the database, without renewals and lookups.
    pub(crate) fn uses(&self) -> &Uses {
        &self.uses
    }

    /// The pool of all statements except lease renewals and credential lookups.
    pub(in crate::store) fn pool_of_statements(&self) -> &PgPool {
        &self.pool
    }

    /// How the database is reached.
    #[doc(hidden)]
    pub fn route(&self) -> DatabaseRoute {
        DatabaseRoute::of(&self.pool.connect_options())
    }

    /// A session, or the actual reason why there is none, which the pool does not report.
    #[doc(hidden)]
    pub async fn reach(&self) -> Result<Session, StoreError> {
        match self.session().await {
            Ok(session) => Ok(session),
            Err(error) => Err(Box::pin(cause(error, &self.pool.connect_options())).await),
        }
    }

    #[doc(hidden)]
    pub async fn renewal_session(&self) -> Result<Session, StoreError> {
        Session::of(&self.renewals, self.config.statement_timeout).await
    }

    /// For credential lookups, however busy the other connections are.
    #[doc(hidden)]
    pub async fn lookup_session(&self) -> Result<Session, StoreError> {
        Session::of(&self.lookups, self.config.statement_timeout).await
    }

    /// For NOTIFY, whose commits wait for each other.
    pub(super) async fn notice_session(&self) -> Result<Session, StoreError> {
        Session::of(&self.notices, self.config.statement_timeout).await
    }

    /// The pool of NOTIFY.
    pub(super) fn pool_of_notices(&self) -> &PgPool {
        &self.notices
    }

    /// A pool of one connection, for LISTEN, which keeps it: one that is dead without a sign blocks
    /// neither the next attempt nor the end of the process.
    pub(super) fn pool_to_listen(&self) -> PgPool {
        pools::pool(&self.config, 1).connect_lazy_with((*self.notices.connect_options()).clone())
    }

    async fn check_durability(&self) -> Result<(), StoreError> {
        if self.config.allow_unsafe_durability {
            return Ok(());
        }
        let query = sqlx::query!(
            r#"select name as "name!", setting as "setting!" from pg_catalog.pg_settings
               where name in ('fsync', 'synchronous_commit') and setting = 'off'"#
        );
        match self.session().await?.optional("check durability", query).await? {
            Some(row) => Err(StoreError::UnsafeDurability { setting: row.name, value: row.setting }),
            None => Ok(()),
        }
    }
}

#[cfg(feature = "testing")]
impl Store {
    /// This store with a test kit; shared by all clones of it.
    pub(in crate::store) fn with_double(self, double: impl Double) -> Self {
        Self { double: Some(Arc::new(double)), ..self }
    }

    /// The test kit, if there is one.
    pub(in crate::store) fn double(&self) -> Option<&dyn std::any::Any> {
        let double: &dyn std::any::Any = self.double.as_deref()?;
        Some(double)
    }

    /// Whether the test kit's tables are used instead of Postgres.
    pub(in crate::store) fn is_in_memory(&self) -> bool {
        self.double.as_deref().is_some_and(|double| double.has_tables())
    }
}

fn parsed(url: &str) -> Result<PgConnectOptions, StoreError> {
    url.parse().map_err(|error| StoreError::from_sqlx("read the connection URL", error))
}

/// The options to connect with, if they are allowed.
pub(super) fn checked(
    options: PgConnectOptions,
    config: &StoreConfig,
) -> Result<PgConnectOptions, StoreError> {
    DatabaseRoute::check(&options, config.allow_unverified_database)?;
    // The server's own default is as exact, and poolers refuse this parameter.
    Ok(options.application_name(APPLICATION).extra_float_digits(None))
}

/// The database that a connection is to: the one named after the user, unless another is given.
fn database(options: &PgConnectOptions) -> &str {
    options.get_database().unwrap_or(options.get_username())
}

/// Why no connection could be made: a pool that timed out does not say, so this tries once more.
pub(super) async fn cause(error: StoreError, options: &PgConnectOptions) -> StoreError {
    if !matches!(&error, StoreError::Unavailable(source) if matches!(**source, sqlx::Error::PoolTimedOut)) {
        return error;
    }
    match tokio::time::timeout(Duration::from_secs(1), options.connect()).await {
        Ok(Err(reason)) => StoreError::from_sqlx("connect", reason),
        Ok(Ok(_)) | Err(_) => error,
    }
}

/// A connection for one statement or transaction. Unless the server's answer was seen, it is closed
/// rather than reused: the server may still be busy with a statement whose caller has left.
pub struct Session {
    connection: Option<PoolConnection<Postgres>>,
    /// The permit of the canvas on whose behalf it is used.
    permit: Option<ConnectionPermit>,
    limit: Duration,
    _held: Held,
}

/// The result of a bounded statement; `None` if it did not come in time.
pub(in crate::store) type Bounded<T> = Option<Result<T, sqlx::Error>>;

impl Session {
    async fn of(pool: &PgPool, statement_timeout: Duration) -> Result<Self, StoreError> {
        // Boxed, as it has 15 KB, which every future with a statement in it would have as well.
        let connection = Box::pin(pool.acquire()).await;
        // Whatever the server's reason to refuse a connection, to the caller it is unavailable.
        let connection = connection.map_err(|error| StoreError::Unavailable(Arc::new(error)))?;
        let limit = answer_limit(statement_timeout);
        Ok(Self { connection: Some(connection), permit: None, limit, _held: Held::begin() })
    }

    /// The same from a pool whose own limit for a wait is its owner's.
    async fn of_shared(pool: &PgPool, statement_timeout: Duration) -> Result<Self, StoreError> {
        let session = Self::of(pool, statement_timeout);
        match tokio::time::timeout(statement_timeout, session).await {
            Ok(session) => session,
            Err(_) => Err(StoreError::Unavailable(Arc::new(sqlx::Error::PoolTimedOut))),
        }
    }

    /// Extends the time limit to a transaction of this many statements.
    #[doc(hidden)]
    pub fn for_statements(mut self, count: usize) -> Self {
        self.limit = self.limit.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        self
    }

    /// Runs a statement, for slightly longer than the server would let it run.
    #[doc(hidden)]
    pub async fn limit<'c, T, F>(
        &'c mut self,
        statement: impl FnOnce(&'c mut PgConnection) -> F,
    ) -> Bounded<T>
    where
        F: Future<Output = Result<T, sqlx::Error>> + 'c,
    {
        let limit = self.limit;
        match &mut self.connection {
            Some(connection) => tokio::time::timeout(limit, statement(connection)).await.ok(),
            None => None,
        }
    }

    /// Returns the connection to the pool if the server answered, and classifies the error. The
    /// server reports an error before it releases what the statement has locked, so an error is
    /// returned once that is free, and a later statement on another connection finds it so.
    #[doc(hidden)]
    pub async fn answered<T>(mut self, statement: &'static str, answer: Bounded<T>) -> Result<T, StoreError> {
        if let Some(Err(sqlx::Error::Database(_))) = &answer
            && self.limit(PgConnection::ping).await.is_none_or(|pong| pong.is_err())
            && let Some(connection) = self.connection.take()
        {
            // It may still be busy.
            drop(connection.detach());
        }
        let timed_out = |ended| StoreError::TimedOut { statement, after: self.limit, ended };
        let Some(result) = answer else { return Err(timed_out(false)) };
        let (ended, result) = match result {
            Err(error) if StoreError::is_ended(&error) => (true, Err(timed_out(true))),
            result => (false, result.map_err(|error| StoreError::from_sqlx(statement, error))),
        };
        if ended || result.as_ref().err().is_none_or(StoreError::is_refusal) {
            drop(self.connection.take());
        }
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
        drop(self.permit.take());
    }
}

/// A duration as Postgres takes it, in whole microseconds.
pub fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}
