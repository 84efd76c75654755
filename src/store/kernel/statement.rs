//! Single statements, each on a session of its own; nothing here decides what they are.

use sqlx::FromRow;
use sqlx::postgres::{PgArguments, PgConnection, PgQueryResult, PgRow, Postgres};
use sqlx::query::{Map, Query, QueryScalar};

use super::StoreError;
use super::session::Session;

/// A statement that returns rows.
#[doc(hidden)]
pub trait Rows<T> {
    /// All of them.
    fn all(self, connection: &mut PgConnection) -> impl Future<Output = Result<Vec<T>, sqlx::Error>> + Send;

    /// The only one.
    fn one(self, connection: &mut PgConnection) -> impl Future<Output = Result<T, sqlx::Error>> + Send;

    /// The only one, if there is one.
    fn optional(
        self,
        connection: &mut PgConnection,
    ) -> impl Future<Output = Result<Option<T>, sqlx::Error>> + Send;
}

macro_rules! fetched {
    () => {
        async fn all(self, connection: &mut PgConnection) -> Result<Vec<T>, sqlx::Error> {
            self.fetch_all(connection).await
        }

        async fn one(self, connection: &mut PgConnection) -> Result<T, sqlx::Error> {
            self.fetch_one(connection).await
        }

        async fn optional(self, connection: &mut PgConnection) -> Result<Option<T>, sqlx::Error> {
            self.fetch_optional(connection).await
        }
    };
}

impl<T, F> Rows<T> for Map<'_, Postgres, F, PgArguments>
where
    F: FnMut(PgRow) -> Result<T, sqlx::Error> + Send,
    T: Send + Unpin,
{
    fetched!();
}

impl<T> Rows<T> for QueryScalar<'_, Postgres, T, PgArguments>
where
    (T,): for<'r> FromRow<'r, PgRow>,
    T: Send + Unpin,
{
    fetched!();
}

impl Session {
    /// Runs a statement and returns its rows.
    #[doc(hidden)]
    pub async fn all<T>(mut self, what: &'static str, query: impl Rows<T>) -> Result<Vec<T>, StoreError> {
        let rows = self.limit(|connection| query.all(connection)).await;
        self.answered(what, rows).await
    }

    /// Runs a statement that returns one row.
    #[doc(hidden)]
    pub async fn one<T>(mut self, what: &'static str, query: impl Rows<T>) -> Result<T, StoreError> {
        let row = self.limit(|connection| query.one(connection)).await;
        self.answered(what, row).await
    }

    /// Runs a statement that returns at most one row.
    #[doc(hidden)]
    pub async fn optional<T>(
        mut self,
        what: &'static str,
        query: impl Rows<T>,
    ) -> Result<Option<T>, StoreError> {
        let row = self.limit(|connection| query.optional(connection)).await;
        self.answered(what, row).await
    }

    /// Runs a statement that returns no rows.
    #[doc(hidden)]
    pub async fn execute(
        mut self,
        what: &'static str,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<PgQueryResult, StoreError> {
        let done = self.limit(|connection| query.execute(connection)).await;
        self.answered(what, done).await
    }
}
