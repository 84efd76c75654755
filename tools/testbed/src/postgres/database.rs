//! A database for one test: a copy of a migrated template, dropped with the test.
//!
//! It must never know what the tables are: the caller passes the function that creates them.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::str::FromStr;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Mutex, OnceCell};

use super::keeper::{Keeper, PREFIX, drop_database};
use super::{Postgres, PostgresError};
use crate::choice::say;
use crate::limit::TestTime;

const DROPPED_WITHIN: Duration = Duration::from_secs(10);

/// Why a test has no database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// No server could be found or started.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The server could not create the database.
    #[error("a database for a test")]
    Create(#[from] sqlx::Error),
    /// The tables could not be created.
    #[error("the migrations of a template database")]
    Migrate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A database for one test, on the server that all tests of this process share. It is dropped with
/// this value, even if it still has connections. If a test keeps it for more than 7 minutes, or
/// `TEST_LIMIT_S` seconds, the process ends with the test's name.
///
/// ```no_run
/// # async fn make_tables(url: String) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example() -> Result<(), wakeq_testbed::DatabaseError> {
/// let database = wakeq_testbed::TestDatabase::create(b"version 1 of the tables", make_tables).await?;
/// println!("{}", database.url());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    _template_ref: TemplateRef,
    _time: TestTime,
}

impl TestDatabase {
    /// Copies the template for this state of the migrations. The first call with a given state
    /// creates its template with `migrate`, which receives the URL of an empty database and must
    /// leave no connection to it open.
    ///
    /// `state` is anything that differs whenever the migrations do, such as their checksums.
    pub async fn create<F, Fut, E>(state: &[u8], migrate: F) -> Result<Self, DatabaseError>
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let server = SharedServer::shared().await?;
        let template_ref = TemplateRef::on(server);
        let template = server.template(state, migrate).await?;
        Self::of(&template, server, template_ref).await
    }

    async fn of(
        template: &str,
        server: &SharedServer,
        template_ref: TemplateRef,
    ) -> Result<Self, DatabaseError> {
        let name = server.next_name();
        // A copy through the log would be twice the work.
        let create = format!("create database {name} template {template} strategy file_copy");
        server.keeper.run(create).await?;
        let url = server.postgres.url(&name);
        Ok(Self { name, url, _template_ref: template_ref, _time: TestTime::begin() })
    }

    /// A copy with the same rows. This database must have no connections meanwhile.
    pub async fn copy(&self) -> Result<Self, DatabaseError> {
        let server = SharedServer::shared().await?;
        Self::of(&self.name, server, TemplateRef::on(server)).await
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name of the database on the server.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if let Some(server) = SERVER.get() {
            server.dropper.run_blocking(drop_database(&self.name), server.drop_timeout());
        }
    }
}

/// Keeps the templates. On a server that was given, the last one to be dropped removes them; a
/// server of our own goes with the process.
#[derive(Debug)]
struct TemplateRef(&'static SharedServer);

impl TemplateRef {
    fn on(server: &'static SharedServer) -> Self {
        server.template_refs.fetch_add(1, Ordering::SeqCst);
        Self(server)
    }
}

impl Drop for TemplateRef {
    fn drop(&mut self) {
        let Self(server) = self;
        let was_last = server.template_refs.fetch_sub(1, Ordering::SeqCst) == 1;
        if !was_last || !server.postgres.stays() {
            return;
        }
        // A test that started meanwhile is either already counted, or finds no template and creates
        // one.
        if let Ok(mut templates) = server.templates.try_lock()
            && server.template_refs.load(Ordering::SeqCst) == 0
        {
            for (_, name) in templates.drain() {
                server.dropper.run_blocking(drop_database(&name), DROPPED_WITHIN);
            }
        }
    }
}

static SERVER: OnceCell<SharedServer> = OnceCell::const_new();

/// Shared by all tests of this process; ends with it.
#[derive(Debug)]
struct SharedServer {
    postgres: Postgres,
    keeper: Keeper,
    /// Separate, because dropping a database waits for a checkpoint, which creating one should not
    /// wait for.
    dropper: Keeper,
    run: String,
    databases_made: AtomicU64,
    template_refs: AtomicUsize,
    templates: Mutex<HashMap<u64, String>>,
}

impl SharedServer {
    async fn shared() -> Result<&'static Self, DatabaseError> {
        SERVER.get_or_try_init(Self::start).await
    }

    async fn start() -> Result<Self, DatabaseError> {
        let chosen = Postgres::for_tests().await.inspect_err(say_once)?;
        say(&chosen.to_string());
        let postgres = chosen.service;
        let run = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        let options = PgConnectOptions::from_str(&postgres.maintenance_url())?;
        let keeper = Keeper::start(options.clone(), run.clone()).await?;
        let dropper = Keeper::start(options, run.clone()).await?;
        let (databases_made, template_refs, templates) = Default::default();
        Ok(Self { postgres, keeper, dropper, run, databases_made, template_refs, templates })
    }

    /// A template is created under another name and renamed once it is complete and has no
    /// connections.
    async fn template<F, Fut, E>(&self, state: &[u8], migrate: F) -> Result<String, DatabaseError>
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<(), E>>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let state = hasher.finish();
        let mut templates = self.templates.lock().await;
        if let Some(name) = templates.get(&state) {
            return Ok(name.clone());
        }
        let unfinished = self.next_name();
        self.keeper.run(format!("create database {unfinished}")).await?;
        if let Err(error) = migrate(self.postgres.url(&unfinished)).await {
            self.keeper.run(drop_database(&unfinished)).await?;
            return Err(DatabaseError::Migrate(error.into()));
        }
        let name = format!("{PREFIX}{}_template_{state:016x}", self.run);
        self.keeper.run(format!("alter database {unfinished} rename to {name}")).await?;
        templates.insert(state, name.clone());
        Ok(name)
    }

    fn next_name(&self) -> String {
        format!("{PREFIX}{}_{}", self.run, self.databases_made.fetch_add(1, Ordering::Relaxed))
    }

    /// On a server that was given, the database has to be dropped before the process may end; a
    /// server of our own goes with it.
    fn drop_timeout(&self) -> Duration {
        if self.postgres.stays() { DROPPED_WITHIN } else { Duration::ZERO }
    }
}

/// Says why the tests have no server. Each of them fails with the same error, of which it shows the
/// name only.
fn say_once(error: &PostgresError) {
    static SAID: Once = Once::new();
    SAID.call_once(|| say(&error.to_string()));
}
