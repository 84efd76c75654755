//! Chooses the Postgres: the requested one, else the one of `DATABASE_URL`, else a cluster of the
//! installed programs, else of downloaded ones, else the embedded one.
//!
//! It must never choose silently (the choice can be printed in one line), and never stop or change
//! a server that it was given.

mod cluster;
mod database;
mod download;
mod embedded;
mod error;
mod installed;
mod keeper;
mod kept;
mod limit;
mod pgbouncer;
mod scratch;

use std::fmt;

use crate::choice::{ChosenService, PostgresChoice, Requested, env_value, say};
use crate::containers::Container;

pub use cluster::{Cluster, ClusterOptions, Folder};
pub use database::{DatabaseError, TestDatabase, is_skipped};
pub use download::DownloadError;
pub use embedded::EmbeddedPostgres;
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
/// # async fn example() -> Result<(), wakeq_services::PostgresError> {
/// use wakeq_services::{Requested, ClusterOptions, Postgres};
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
    /// The embedded one; it ends with this value and with this process.
    Embedded(EmbeddedPostgres),
    /// One in a container; it ends with this value and with this process.
    Container(Container),
}

impl Postgres {
    /// Starts the requested Postgres. Without a request, uses the server of `DATABASE_URL`, else
    /// starts a cluster of the installed programs, else of downloaded ones, else the embedded one.
    /// What is missing is downloaded or built first, and said. If the cluster's folder is kept, the
    /// last two use a folder beside it, `downloaded` and `embedded`.
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
            PostgresChoice::Downloaded => Self::downloaded(options).await?,
            PostgresChoice::Embedded => Self::embedded(options).await?,
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
                Err(PostgresError::NotInstalled) => {
                    let reason = format!("{URL_VARIABLE} is not set, and no Postgres is installed");
                    (Self::without_installed(options).await?, reason)
                }
                Err(PostgresError::TooOld { version, folder, needed }) => {
                    let old = format!("{version} in {} is too old ({needed} is needed)", folder.display());
                    (Self::without_installed(options).await?, format!("{URL_VARIABLE} is not set, and {old}"))
                }
                cluster => (Self::Installed(cluster?), format!("{URL_VARIABLE} is not set")),
            },
        };
        Ok(ChosenService { service, reason })
    }

    /// One that is downloaded or, if that is not possible, built.
    async fn without_installed(options: ClusterOptions) -> Result<Self, PostgresError> {
        match Self::downloaded(options.clone()).await {
            Err(PostgresError::Download(error)) => {
                say(&format!("Postgres: {error}; the embedded one is used instead"));
                Self::embedded(options).await
            }
            downloaded => downloaded,
        }
    }

    async fn downloaded(options: ClusterOptions) -> Result<Self, PostgresError> {
        let binaries = download::binaries().await?;
        let folder = beside(options.folder, "downloaded");
        Ok(Self::Installed(Cluster::start_of(binaries, ClusterOptions { folder, ..options }).await?))
    }

    async fn embedded(options: ClusterOptions) -> Result<Self, PostgresError> {
        let folder = beside(options.folder, "embedded");
        Ok(Self::Embedded(EmbeddedPostgres::start(&folder).await?))
    }

    /// Shuts it down gracefully, if it was started here.
    pub async fn stop(self) -> Result<(), PostgresError> {
        match self {
            Self::Installed(cluster) => cluster.stop().await,
            Self::Embedded(embedded) => embedded.stop().await,
            // Ends with its handle, and keeps no data.
            Self::Container(_) | Self::Environment(_) => Ok(()),
        }
    }

    /// Whether it is known not to wait for the disk: a power failure may lose acknowledged data, a
    /// kill does not.
    pub fn may_forget(&self) -> bool {
        match self {
            Self::Embedded(_) => true,
            Self::Environment(_) | Self::Installed(_) | Self::Container(_) => false,
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
            Self::Embedded(embedded) => embedded.url(database),
            Self::Container(container) => container.postgres_url(database),
        }
    }

    /// The URL of a database that exists: the given one, or `postgres`.
    pub fn maintenance_url(&self) -> String {
        match self {
            Self::Environment(url) => url.clone(),
            Self::Installed(_) | Self::Embedded(_) | Self::Container(_) => self.url("postgres"),
        }
    }

    /// Whether it was there before and stays, so that what is created in it has to be removed.
    pub fn stays(&self) -> bool {
        match self {
            Self::Environment(_) => true,
            Self::Installed(_) | Self::Embedded(_) | Self::Container(_) => false,
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
            Self::Embedded(embedded) => embedded.fmt(formatter),
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
