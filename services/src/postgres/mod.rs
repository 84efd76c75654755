//! Chooses the Postgres to use: the one of `DATABASE_URL`, else a cluster of our own.
//!
//! It must never choose silently (it can be printed in one line), and never stop or change a server that was given.

mod cluster;
mod database;
mod installed;
mod keeper;

use std::env;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::process::ProcessError;

pub use cluster::{Cluster, ClusterOptions, Folder};
pub use database::{DatabaseError, TestDatabase};

const URL_VARIABLE: &str = "DATABASE_URL";

/// Why there is no Postgres.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// Neither a server nor the programs for one.
    #[error(
        "no Postgres: set DATABASE_URL to a server that runs (postgres://user:password@host:5432/database), or install \
         one (Debian: `apt-get install postgresql`, macOS: `brew install postgresql@17`) with initdb and postgres on PATH"
    )]
    NotInstalled,
    /// The variable is set to something else than an address of Postgres.
    #[error("DATABASE_URL must begin with postgres:// or postgresql:// and name a database at its end")]
    Url,
    /// Root may not run Postgres, and there is nobody else.
    #[error(
        "Postgres does not run as root, and there is neither a user `postgres` nor `nobody` to run it as"
    )]
    NoUser,
    /// A folder or file.
    #[error("{}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// What.
        #[source]
        source: io::Error,
    },
    /// A process could not be started or ended.
    #[error("Postgres's process")]
    Process(#[from] ProcessError),
    /// The kept folder is in use.
    #[error("a Postgres (process {pid}, port {port}) already runs in {}: stop it, or use that one", folder.display())]
    AlreadyRunning {
        /// Its data folder.
        folder: PathBuf,
        /// Its process.
        pid: i32,
        /// Its port.
        port: String,
    },
    /// The kept folder is of another version.
    #[error("{} was made by Postgres {made_by}, and {installed} is installed: remove the folder, or install {made_by}",
        folder.display())]
    OtherVersion {
        /// The data folder.
        folder: PathBuf,
        /// The version that made it.
        made_by: String,
        /// The version that is here.
        installed: String,
    },
    /// `initdb` failed.
    #[error("initdb failed:\n{0}")]
    Initialise(String),
    /// The server ended instead of answering.
    #[error("Postgres ended at its start; its last words:\n{0}")]
    Ended(String),
    /// The server runs and does not answer.
    #[error("Postgres does not answer; its last words:\n{0}")]
    Silent(String),
}

/// A Postgres server, and where it came from.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_services::PostgresError> {
/// let postgres = wakeq_services::Postgres::choose(wakeq_services::ClusterOptions::default()).await?;
/// println!("{postgres}"); // Postgres: 15.18 from /usr/lib/postgresql/15/bin, on port 21234
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Postgres {
    /// `DATABASE_URL` names it.
    Given(String),
    /// A cluster of our own; it ends with this value and with this process.
    Own(Cluster),
}

impl Postgres {
    /// Takes the server of `DATABASE_URL`, else starts a cluster of the installed Postgres.
    pub async fn choose(options: ClusterOptions) -> Result<Self, PostgresError> {
        match env::var(URL_VARIABLE) {
            Ok(url) if !url.trim().is_empty() => {
                let url = url.trim().to_owned();
                with_database(&url, "any").ok_or(PostgresError::Url)?;
                Ok(Self::Given(url))
            }
            _ => Ok(Self::Own(Cluster::start(options).await?)),
        }
    }

    /// The address of a database on this server.
    pub fn url(&self, database: &str) -> String {
        match self {
            Self::Given(url) => with_database(url, database).unwrap_or_else(|| url.clone()),
            Self::Own(cluster) => cluster.url(database),
        }
    }

    /// The address of a database that exists: the given one, or `postgres`.
    pub fn maintenance_url(&self) -> String {
        match self {
            Self::Given(url) => url.clone(),
            Self::Own(cluster) => cluster.url("postgres"),
        }
    }

    /// The cluster, if it is our own.
    pub fn own(&mut self) -> Option<&mut Cluster> {
        match self {
            Self::Given(_) => None,
            Self::Own(cluster) => Some(cluster),
        }
    }
}

/// Says no password.
impl fmt::Display for Postgres {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(url) => {
                let without_user =
                    url.rsplit_once('@').or(url.split_once("://")).map_or("", |(_, rest)| rest);
                let address = without_user.split('?').next().unwrap_or_default();
                write!(formatter, "Postgres: {address}, from {URL_VARIABLE}")
            }
            Self::Own(cluster) => cluster.fmt(formatter),
        }
    }
}

/// The same address with another database; everything else in it stays as it is.
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
        let given = Postgres::Given("postgres://user:secret@host:5432/app?password=secret".to_owned());
        assert_eq!(given.to_string(), "Postgres: host:5432/app, from DATABASE_URL");
    }
}
