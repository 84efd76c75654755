//! Requests to those who sign tokens: over TLS, and with limits on time and bytes. Knows no token.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

use super::error::{AccessError, FetchError};

const WITHIN: Duration = Duration::from_secs(5);
const BODY_MAX_BYTES: usize = 256 * 1024;

/// Follows no redirects, so that an answer is that of the host which was asked.
pub(super) fn client() -> Result<Client, AccessError> {
    let client = Client::builder().timeout(WITHIN).redirect(Policy::none()).build();
    client.map_err(|error| AccessError::Tls(causes(&error)))
}

/// Whether nobody on the way can change what is fetched from there.
pub(super) fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" || is_local(url)
}

/// Whether it is plain HTTP on this machine.
pub(super) fn is_local(url: &Url) -> bool {
    url.scheme() == "http" && matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"))
}

/// The body of an answer; `None` if it is too long.
pub(super) async fn body(mut response: Response) -> Result<Option<Vec<u8>>, FetchError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > BODY_MAX_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// The request failed, or its answer broke off.
pub(super) fn failed(error: reqwest::Error) -> FetchError {
    FetchError::Failed(causes(&error.without_url()))
}

/// An error followed by its causes, since the outermost message alone says little.
fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}
