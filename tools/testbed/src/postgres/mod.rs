//! Chooses the Postgres: the requested one, else the one of `DATABASE_URL`, else a cluster of the
//! installed programs, else of downloaded ones.
//!
//! It must never choose silently (the choice can be printed in one line), and never stop or change
//! a server that it was given.

mod cluster;
mod database;
mod download;
mod error;
mod installed;
mod keeper;
mod kept;
mod pgbouncer;
mod scratch;

use std::fmt;

use crate::choice::{ChosenService, PostgresChoice, Requested, env_value};
use crate::containers::Container;
use installed::Binaries;

pub use cluster::{Cluster, ClusterOptions, Folder};
pub use database::{DatabaseError, TestDatabase};
pub use download::DownloadError;
pub use error::PostgresError;
pub use installed::installed_postgres;
pub use kept::remove_data_folder;
pub use pgbouncer::{PgBouncer, PgBouncerError, PgBouncerOptions};

const URL_VARIABLE: &str = "DATABASE_URL";
/// Selects the Postgres for tests.
const CHOICE_VARIABLE: &str = "TEST_POSTGRES";

/// A Postgres server, and where it comes from.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_testbed::PostgresError> {
/// use wakeq_testbed::{Requested, ClusterOptions, Postgres};
///
/// let requested = Requested::by_option("--postgres", "installed")?;
/// let chosen = Postgres::choose(ClusterOptions::default(), Some(requested)).await?;
/// println!("{chosen}"); // Postgres: 15.18 from /usr/lib/postgresql/15/bin, on port 21234, its data in … (--postgres installed)
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Postgres {
    /// The one that `DATABASE_URL` names.
    Environment(String),
    /// A cluster of installed or downloaded programs; ends with this value and with this process.
    Installed(Cluster),
    /// One in a container; it ends with this value and with this process.
    Container(Container),
}

impl Postgres {
    /// Starts the requested Postgres. Without a request, uses the server of `DATABASE_URL`, else
    /// starts a cluster of the installed programs, else of downloaded ones. Programs that are
    /// missing are downloaded first, and a line says so. If the cluster's folder is kept, that of
    /// downloaded programs is `downloaded`, beside it.
    pub async fn choose(
        options: ClusterOptions,
        requested: Option<Requested<PostgresChoice>>,
    ) -> Result<ChosenService<Self>, PostgresError> {
        let Some(Requested { choice, by }) = requested else { return Self::by_default(options).await };
        let service = match choice {
            PostgresChoice::Environment => match env_value(URL_VARIABLE) {
                Some(url) => Self::given(url)?,
                None => return Err(PostgresError::NoUrl { by }),
            },
            PostgresChoice::Installed => Self::Installed(Cluster::start_installed(options).await?),
            PostgresChoice::Downloaded => Self::downloaded(download::binaries().await?, options).await?,
            PostgresChoice::Container => Self::Container(Container::postgres().await?),
        };
        Ok(ChosenService { service, reason: by })
    }

    /// The Postgres for tests, in memory if possible; `TEST_POSTGRES` may request a kind.
    pub async fn for_tests() -> Result<ChosenService<Self>, PostgresError> {
        let options = ClusterOptions { folder: Folder::Memory, ..ClusterOptions::default() };
        Self::choose(options, Requested::by_variable(CHOICE_VARIABLE)?).await
    }

    async fn by_default(options: ClusterOptions) -> Result<ChosenService<Self>, PostgresError> {
        let (service, reason) = match env_value(URL_VARIABLE) {
            Some(url) => (Self::given(url)?, format!("{URL_VARIABLE} is set")),
            None => match Cluster::start_installed(options.clone()).await {
                Err(missing @ PostgresError::NotInstalled) => {
                    let reason = format!("{URL_VARIABLE} is not set, and no Postgres is installed");
                    (Self::instead_of(missing, options).await?, reason)
                }
                Err(PostgresError::TooOld { version, folder, needed }) => {
                    let old = format!("{version} in {} is too old ({needed} is needed)", folder.display());
                    let missing = PostgresError::TooOld { version, folder, needed };
                    let reason = format!("{URL_VARIABLE} is not set, and {old}");
                    (Self::instead_of(missing, options).await?, reason)
                }
                cluster => (Self::Installed(cluster?), format!("{URL_VARIABLE} is not set")),
            },
        };
        Ok(ChosenService { service, reason })
    }

    /// One that is downloaded, as the installed one is missing. If that is not possible either, the
    /// error is the one given, which says what to install.
    async fn instead_of(missing: PostgresError, options: ClusterOptions) -> Result<Self, PostgresError> {
        let binaries = download::try_binaries().await.ok_or(missing)?;
        Self::downloaded(binaries, options).await
    }

    async fn downloaded(binaries: Binaries, options: ClusterOptions) -> Result<Self, PostgresError> {
        let folder = beside(options.folder, "downloaded");
        Ok(Self::Installed(Cluster::start_of(binaries, ClusterOptions { folder, ..options }).await?))
    }

    /// Shuts it down gracefully, if it was started here.
    pub async fn stop(self) -> Result<(), PostgresError> {
        match self {
            Self::Installed(cluster) => cluster.stop().await,
            // Ends with its handle, and keeps no data.
            Self::Container(_) | Self::Environment(_) => Ok(()),
        }
    }

    fn given(url: String) -> Result<Self, PostgresError> {
        with_database(&url, "any").ok_or(PostgresError::Url)?;
        Ok(Self::Environment(url))
    }

    /// The URL of a database on this server.
    pub fn url(&self, database: &str) -> String {
        match self {
            Self::Environment(url) => with_database(url, database).unwrap_or_else(|| url.clone()),
            Self::Installed(cluster) => cluster.url(database),
            Self::Container(container) => container.postgres_url(database),
        }
    }

    /// The URL of a database that exists: the given one, or `postgres`.
    pub fn maintenance_url(&self) -> String {
        match self {
            Self::Environment(url) => url.clone(),
            Self::Installed(_) | Self::Container(_) => self.url("postgres"),
        }
    }

    /// Whether it was there before and stays, so that what is created in it has to be removed.
    pub fn stays(&self) -> bool {
        match self {
            Self::Environment(_) => true,
            Self::Installed(_) | Self::Container(_) => false,
        }
    }
}

/// Leaves the password out.
impl fmt::Display for Postgres {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(url) => {
                let without_user =
                    url.rsplit_once('@').or(url.split_once("://")).map_or("", |(_, rest)| rest);
                let address = without_user.split('?').next().unwrap_or_default();
                write!(formatter, "Postgres: {address}")
            }
            Self::Installed(cluster) => cluster.fmt(formatter),
            Self::Container(container) => write!(formatter, "Postgres: {container}"),
        }
    }
}

/// A folder of this name beside the one that is kept for the installed version.
fn beside(folder: Folder, name: &str) -> Folder {
    match folder {
        Folder::Persistent(folder) => Folder::Persistent(folder.with_file_name(name)),
        folder @ (Folder::Temporary | Folder::Memory) => folder,
    }
}

/// The same URL with another database; the rest is unchanged.
fn with_database(url: &str, database: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    if !matches!(scheme, "postgres" | "postgresql") {
        return None;
    }
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let (authority, _) = path.split_once('/')?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{scheme}://{authority}/{database}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_is_replaced() {
        let cases = [
            ("postgres://u:p%40ss@host:5433/app", "postgres://u:p%40ss@host:5433/new"),
            ("postgresql://host/app?sslmode=require", "postgresql://host/new?sslmode=require"),
            ("postgres:///app?host=/run/postgresql", "postgres:///new?host=/run/postgresql"),
        ];
        for (given, expected) in cases {
            assert_eq!(with_database(given, "new").as_deref(), Some(expected));
        }
        for refused in ["mysql://host/app", "host=localhost dbname=app", "postgres://host"] {
            assert_eq!(with_database(refused, "new"), None, "{refused}");
        }
    }

    #[test]
    fn a_password_is_not_printed() {
        let given = Postgres::Environment("postgres://user:secret@host:5432/app?password=secret".to_owned());
        assert_eq!(given.to_string(), "Postgres: host:5432/app");
    }
}
