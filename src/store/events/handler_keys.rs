//! The handlers whose events a statement claims. A row's handler is compared with each of their
//! names, which takes longer than all else where there are many. There it is looked up among the
//! hashes of the names instead, by halves.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::store::kernel::{Sql, StoreError};

/// Maximum number of names with which each row's handler is compared.
const COMPARED_MAX: usize = 64;
/// How long hashes are kept. Those of another major version may differ, and a process lives on when
/// its server is replaced.
const KEPT: Duration = Duration::from_secs(60);

/// Handlers of any canvas, as `module/name/modifier`. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandlerKeys(Arc<Keys>);

#[derive(Debug, Default)]
struct Keys {
    names: Vec<String>,
    hashes: Mutex<Option<Arc<HandlerHashes>>>,
}

/// The hashes of all names, in order. Nobody else knows the seed, so that nobody can choose a
/// handler that has the hash of another.
#[derive(Debug)]
pub(super) struct HandlerHashes {
    pub(super) seed: i64,
    pub(super) sorted: Vec<i64>,
    /// When they are made again.
    until: Instant,
}

impl HandlerKeys {
    /// The names.
    pub(crate) fn names(&self) -> &[String] {
        &self.0.names
    }

    /// The hashes among which a row's handler is looked up; `None` if it is compared with the
    /// names. The server makes the hashes, once a minute.
    pub(super) async fn hashes(&self, sql: &Sql<'_>) -> Result<Option<Arc<HandlerHashes>>, StoreError> {
        let Keys { names, hashes } = &*self.0;
        if names.len() <= COMPARED_MAX {
            return Ok(None);
        }
        let mut kept = hashes.lock().await;
        if let Some(hashes) = kept.as_ref().filter(|hashes| Instant::now() < hashes.until) {
            return Ok(Some(Arc::clone(hashes)));
        }
        let made = Arc::new(sql.hashes_of(names).await?);
        *kept = Some(Arc::clone(&made));
        Ok(Some(made))
    }

    /// As if a server of another version had made the hashes, some time ago.
    #[cfg(test)]
    pub(crate) async fn outdate(&self) {
        let made_before = HandlerHashes { seed: 0, sorted: vec![0], until: Instant::now() };
        *self.0.hashes.lock().await = Some(Arc::new(made_before));
    }
}

impl From<Vec<String>> for HandlerKeys {
    fn from(names: Vec<String>) -> Self {
        Self(Arc::new(Keys { names, hashes: Mutex::default() }))
    }
}

impl Sql<'_> {
    async fn hashes_of(&self, names: &[String]) -> Result<HandlerHashes, StoreError> {
        let seed = Uuid::new_v4().as_u64_pair().0.cast_signed();
        let query = sqlx::query_scalar!(
            r#"select hashtextextended(name, $2) as "hash!" from unnest($1::text[]) as given (name) order by 1"#,
            names,
            seed
        );
        let sorted = self.session().await?.all("hash the names of handlers", query).await?;
        Ok(HandlerHashes { seed, sorted, until: Instant::now() + KEPT })
    }
}
