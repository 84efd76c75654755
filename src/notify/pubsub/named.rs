//! The name of this process, which an emulator gets in place of credentials.
//!
//! The client library chooses another client id for each connection, so that an emulator could not
//! tell the streams of one process from those of several. Google's service never gets this header.

use std::sync::OnceLock;

use google_cloud_auth::credentials::{CacheableResource, Credentials, CredentialsProvider, EntityTag};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, HeaderValue};
use uuid::Uuid;

/// wakeq's emulator lists a stream under it.
const HEADER: &str = "x-client-name";

/// The name of this process at an emulator, constant until it ends.
pub(super) fn of_this_process() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| format!("wakeq-{}-{:08x}", std::process::id(), Uuid::new_v4().as_fields().0))
}

/// No credentials, but the name.
pub(super) fn credentials() -> Credentials {
    NamedClient { tag: EntityTag::new() }.into()
}

#[derive(Debug)]
struct NamedClient {
    tag: EntityTag,
}

impl CredentialsProvider for NamedClient {
    async fn headers(
        &self,
        extensions: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        if extensions.get::<EntityTag>() == Some(&self.tag) {
            return Ok(CacheableResource::NotModified);
        }
        let named = HeaderValue::from_str(of_this_process())
            .map(|name| (http::HeaderName::from_static(HEADER), name));
        Ok(CacheableResource::New { entity_tag: self.tag.clone(), data: named.into_iter().collect() })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}
