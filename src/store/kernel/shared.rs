//! A store on a pool that its program has made, and whose connections the program uses as well:
//! what the sessions of the pool need, and whether they have it.
//!
//! Must never change a session that the pool has opened, since other statements than wakeq's run in
//! it.

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};

use super::session::checked;
use super::session_settings::SessionSettings;
use super::{Store, StoreConfig, StoreError, pools};

impl StoreConfig {
    /// The options of a pool for [`Store::from_pool`]: they make the settings that wakeq's
    /// statements rely on in each session of the pool. Change what you like, except
    /// `after_connect` ([`StoreConfig::prepare_session`] then makes the settings).
    ///
    /// These settings hold for your own statements on the pool, too: the time limits of this
    /// configuration, time zone UTC, read committed, and plans without sequential scans, hash joins
    /// and merge joins as long as others are possible. What does not suit a transaction of yours
    /// can be changed in it with `set local`.
    ///
    /// ```no_run
    /// use wakeq::{Store, StoreConfig};
    ///
    /// async fn connect(url: &str) -> Result<(sqlx::PgPool, Store), Box<dyn std::error::Error>> {
    ///     let config = StoreConfig::default();
    ///     let pool = config.pool_options().max_connections(20).connect(url).await?;
    ///     let store = Store::from_pool(pool.clone(), config).await?;
    ///     Ok((pool, store))
    /// }
    /// ```
    pub fn pool_options(&self) -> PgPoolOptions {
        pools::pool(self, self.max_connections)
    }

    /// Makes the settings that wakeq's statements rely on in a session, for pools with an
    /// `after_connect` of their own. A session without an `application_name` is called `wakeq`.
    ///
    /// ```no_run
    /// use sqlx::postgres::PgPoolOptions;
    /// use wakeq::{Store, StoreConfig};
    ///
    /// async fn connect(url: &str) -> Result<Store, Box<dyn std::error::Error>> {
    ///     let config = StoreConfig::default();
    ///     let prepared = config.clone();
    ///     let options = PgPoolOptions::new().after_connect(move |connection, _| {
    ///         let config = prepared.clone();
    ///         Box::pin(async move {
    ///             sqlx::query("set search_path to app").execute(&mut *connection).await?;
    ///             config.prepare_session(connection).await
    ///         })
    ///     });
    ///     Ok(Store::from_pool(options.connect(url).await?, config).await?)
    /// }
    /// ```
    pub async fn prepare_session(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        SessionSettings::of(self).make(connection).await
    }
}

impl Store {
    /// As [`Store::connect`], on a pool of the program's, so that statements of both share its
    /// connections. [`StoreConfig::max_connections`] is then the pool's.
    ///
    /// The sessions of the pool must have the settings that [`StoreConfig::pool_options`] or
    /// [`StoreConfig::prepare_session`] make, which is checked once, in one of them. Behind a
    /// [pooler](StoreConfig::transaction_pooler) the role must have them, as for any store.
    ///
    /// Beside the pool the store opens up to five connections of its own with the pool's connect
    /// options, and one for each `LISTEN`, so that leases are renewed, credentials looked up and
    /// quotas measured while the program holds all connections of the pool. If the password
    /// changes, set it in the pool and in the store ([`Store::set_connect_options`]). Those
    /// connections do not pass the pool's `after_connect`: a role that all are to have belongs in
    /// the connect options (`options([("role", "app")])`), not into a `set role` there.
    /// [`Store::close`] leaves the pool open.
    ///
    /// A statement waits for a connection of the pool as long as for its answer
    /// ([`StoreConfig::statement_timeout`]). A pool that pings before each use
    /// (`test_before_acquire`, which is sqlx's default) costs each statement a round trip.
    ///
    /// Errors: [`StoreError::PoolSettings`], and those of [`Store::connect`].
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use wakeq::notify::LocalNotifier;
    /// use wakeq::{Event, Queue, QueueConfig, Store, StoreConfig};
    ///
    /// async fn place_order(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    ///     let config = StoreConfig::default();
    ///     let pool = config.pool_options().connect(url).await?;
    ///     let store = Store::from_pool(pool.clone(), config).await?;
    ///     let queue = Queue::new(store, Arc::new(LocalNotifier::new()), QueueConfig::default());
    ///
    ///     let mut transaction = pool.begin().await?;
    ///     sqlx::query("insert into orders (id) values (17)").execute(&mut *transaction).await?;
    ///     let receipt = queue.emit_in(&mut transaction, Event::new("confirm-order", &17)?).await?;
    ///     transaction.commit().await?;
    ///     receipt.notify().await;
    ///     Ok(())
    /// }
    /// ```
    pub async fn from_pool(pool: PgPool, config: StoreConfig) -> Result<Self, StoreError> {
        let config = StoreConfig { max_connections: pool.options().get_max_connections(), ..config };
        config.check()?;
        let options = checked(PgConnectOptions::clone(&pool.connect_options()), &config)?;
        Self::with_pool(pool, true, options.clone(), config).settled(&options).await
    }

    /// This store for a statement beside a transaction of the caller's, which may hold the only
    /// connection of the pool. It is not sent in that transaction, which it would end if it failed,
    /// and whose role may lack the rights.
    #[doc(hidden)]
    pub fn beside_transactions(&self) -> Self {
        if !self.is_shared {
            return self.clone();
        }
        let mut store = self.clone();
        (store.pool, store.is_shared) = (self.beside.clone(), false);
        store
    }

    /// Fails if a session of the caller's pool lacks a setting. A pool opens all of its sessions in
    /// the same way.
    pub(super) async fn check_pool(&self) -> Result<(), StoreError> {
        if !self.is_shared() || self.config.transaction_pooler {
            return Ok(());
        }
        let settings = SessionSettings::shown(&self.config);
        let query = sqlx::query_scalar!(
            r#"select format('%s is %s, not %s', wanted.name, s.setting, wanted.value) as "lacking!"
                 from unnest($1::text[], $2::text[]) with ordinality as wanted(name, value, place)
                 join pg_catalog.pg_settings s on s.name = wanted.name
                where s.setting <> wanted.value order by place"#,
            settings.names.as_slice() as _,
            &settings.values
        );
        let lacking = self.session().await?.all("look at the settings of the pool", query).await?;
        match lacking.join(", ") {
            lacking if lacking.is_empty() => Ok(()),
            lacking => Err(StoreError::PoolSettings { lacking }),
        }
    }
}
