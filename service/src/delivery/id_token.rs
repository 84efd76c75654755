//! OIDC tokens for requests, as Cloud Run and similar services require. Neither creates nor
//! verifies tokens itself.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use google_cloud_auth::credentials::idtoken::{self, IDTokenCredentials, mds};

/// A source of tokens.
#[async_trait]
pub trait IdTokens: Debug + Send + Sync + 'static {
    /// Returns a token for this audience that stays valid for a while.
    async fn token(&self, audience: &str) -> Result<String, NoIdToken>;
}

/// Why no token could be obtained; the log has the details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no ID token for its audience: {0}")]
pub struct NoIdToken(pub String);

/// Maximum number of cached audiences.
const AUDIENCES_MAX: usize = 256;

/// Google's ID tokens for the process's service account: from the metadata server, or from a key or
/// an impersonation in the environment (application default credentials). A token is used until
/// four minutes before it expires, when it is replaced by a new one.
#[derive(Debug)]
pub struct GoogleIdTokens {
    metadata_server: Option<String>,
    audiences_max: usize,
    sources: Mutex<Sources>,
}

impl Default for GoogleIdTokens {
    fn default() -> Self {
        Self { metadata_server: None, audiences_max: AUDIENCES_MAX, sources: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct Sources {
    by_audience: HashMap<String, Source>,
    uses: u64,
}

#[derive(Debug)]
struct Source {
    credentials: IDTokenCredentials,
    used: u64,
}

impl GoogleIdTokens {
    /// Uses a metadata server other than Google's, `http://host:port`.
    pub fn of_metadata_server(endpoint: &str) -> Self {
        Self { metadata_server: Some(endpoint.to_owned()), ..Self::default() }
    }

    /// The cached credentials of an audience, which cache its token; created if missing.
    fn credentials(&self, audience: &str) -> Result<IDTokenCredentials, NoIdToken> {
        let mut sources = self.sources();
        sources.uses += 1;
        let used = sources.uses;
        if let Some(source) = sources.by_audience.get_mut(audience) {
            source.used = used;
            return Ok(source.credentials.clone());
        }
        let built = match &self.metadata_server {
            Some(endpoint) => mds::Builder::new(audience).with_endpoint(endpoint).build(),
            None => idtoken::Builder::new(audience).build(),
        };
        let credentials = built.map_err(|error| {
            tracing::warn!(%error, "no ID tokens are available for targets");
            NoIdToken("this process has no credentials that can create one".to_owned())
        })?;
        if sources.by_audience.len() >= self.audiences_max {
            let oldest = sources.by_audience.iter().min_by_key(|(_, source)| source.used);
            if let Some(oldest) = oldest.map(|(audience, _)| audience.clone()) {
                sources.by_audience.remove(&oldest);
            }
        }
        sources.by_audience.insert(audience.to_owned(), Source { credentials: credentials.clone(), used });
        Ok(credentials)
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        // No code panics while a change is incomplete.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl IdTokens for GoogleIdTokens {
    async fn token(&self, audience: &str) -> Result<String, NoIdToken> {
        let credentials = self.credentials(audience)?;
        credentials.id_token().await.map_err(|error| {
            tracing::warn!(%error, "no ID token was issued for a target");
            if !error.is_transient() {
                // The credentials never recover from a permanent error: the next request creates
                // new ones.
                self.sources().by_audience.remove(audience);
            }
            NoIdToken("Google issued none; the worker's log shows why".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_so_many_audiences_are_kept() {
        let metadata_server = Some("http://127.0.0.1:9".to_owned());
        let tokens = GoogleIdTokens { metadata_server, audiences_max: 2, ..GoogleIdTokens::default() };
        for audience in ["a", "b", "a", "c"] {
            tokens.credentials(audience).unwrap();
        }
        let mut kept: Vec<_> = tokens.sources().by_audience.keys().cloned().collect();
        kept.sort();
        assert_eq!(kept, ["a", "c"], "the one that was not used for longest went");
    }
}
