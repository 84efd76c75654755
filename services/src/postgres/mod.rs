//! Chooses the Postgres to use: the one that was asked for, else the one of `DATABASE_URL`, else a cluster of our own.
//!
//! It must never choose silently (it can be printed in one line), and never stop or change a server that was given.

mod cluster;
mod database;
mod error;
mod installed;
mod keeper;

use std::fmt;

use crate::choice::{Asked, Chosen, PostgresChoice, set};
use crate::containers::Container;

pub use cluster::{Cluster, ClusterOptions, Folder};
pub use database::{DatabaseError, TestDatabase};
pub use error::PostgresError;

const URL_VARIABLE: &str = "DATABASE_URL";
/// Says what the tests take.
const CHOICE_VARIABLE: &str = "TEST_POSTGRES";

/// A Postgres server, and where it came from.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_services::PostgresError> {
/// use wakeq_services::{Asked, ClusterOptions, Postgres};
///
/// let asked = Asked::by_option("--postgres", "installed")?;
/// let chosen = Postgres::choose(ClusterOptions::default(), Some(asked)).await?;
/// println!("{chosen}"); // Postgres: 15.18 from /usr/lib/postgresql/15/bin, on port 21234 (--postgres installed)
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Postgres {
    /// `DATABASE_URL` names it.
    Environment(String),
    /// A cluster of the installed programs; it ends with this value and with this process.
    Installed(Cluster),
    /// A container; it ends with this value and with this process.
    Container(Container),
}

impl Postgres {
    /// Takes what is asked for; if nothing is, the server of `DATABASE_URL`, else a cluster of the installed Postgres.
    pub async fn choose(
        options: ClusterOptions,
        asked: Option<Asked<PostgresChoice>>,
    ) -> Result<Chosen<Self>, PostgresError> {
        let Some(Asked { choice, by }) = asked else { return Self::by_default(options).await };
        let service = match choice {
            PostgresChoice::Environment => match set(URL_VARIABLE) {
                Some(url) => Self::given(url)?,
                None => return Err(PostgresError::NoUrl { by }),
            },
            PostgresChoice::Installed => Self::Installed(Cluster::start(options).await?),
            PostgresChoice::Embedded => return Err(PostgresError::NoEmbedded { by }),
            PostgresChoice::Container => Self::Container(Container::postgres().await?),
        };
        Ok(Chosen { service, reason: by })
    }

    /// What the tests take: `TEST_POSTGRES` may ask for something.
    pub async fn for_tests() -> Result<Chosen<Self>, PostgresError> {
        Self::choose(ClusterOptions::default(), Asked::by_variable(CHOICE_VARIABLE)?).await
    }

    async fn by_default(options: ClusterOptions) -> Result<Chosen<Self>, PostgresError> {
        let (service, reason) = match set(URL_VARIABLE) {
            Some(url) => (Self::given(url)?, format!("{URL_VARIABLE} is set")),
            None => (Self::Installed(Cluster::start(options).await?), format!("{URL_VARIABLE} is not set")),
        };
        Ok(Chosen { service, reason })
    }

    fn given(url: String) -> Result<Self, PostgresError> {
        with_database(&url, "any").ok_or(PostgresError::Url)?;
        Ok(Self::Environment(url))
    }

    /// The address of a database on this server.
    pub fn url(&self, database: &str) -> String {
        match self {
            Self::Environment(url) => with_database(url, database).unwrap_or_else(|| url.clone()),
            Self::Installed(cluster) => cluster.url(database),
            Self::Container(container) => container.postgres_url(database),
        }
    }

    /// The address of a database that exists: the given one, or `postgres`.
    pub fn maintenance_url(&self) -> String {
        match self {
            Self::Environment(url) => url.clone(),
            Self::Installed(_) | Self::Container(_) => self.url("postgres"),
        }
    }

    /// Whether it was there before and stays: what is made in it has to be removed.
    pub fn stays(&self) -> bool {
        match self {
            Self::Environment(_) => true,
            Self::Installed(_) | Self::Container(_) => false,
        }
    }
}

/// Says no password.
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
        let given = Postgres::Environment("postgres://user:secret@host:5432/app?password=secret".to_owned());
        assert_eq!(given.to_string(), "Postgres: host:5432/app");
    }
}
