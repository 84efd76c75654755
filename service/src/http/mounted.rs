//! Where the API is mounted: routes, and all that speaks of paths, know them from the API's root,
//! which another server may have below a path of its own.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OriginalUri};
use axum::http::request::Parts;
use axum::http::{Extensions, Uri};

/// The path of the API's root, without a slash at its end: empty where the API is all of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root(pub(super) String);

impl Root {
    /// Of a request to `uri`, which is below the root.
    pub(crate) fn of(extensions: &Extensions, uri: &Uri) -> Self {
        let Some(OriginalUri(original)) = extensions.get() else { return Self::default() };
        let (whole, own) = (original.path(), uri.path());
        // The root itself may have been asked for without its slash.
        let root = whole.strip_suffix(own).or_else(|| (own == "/").then_some(whole));
        Self(root.unwrap_or_default().to_owned())
    }

    /// Whether the API is all of its server.
    pub(super) fn is_server(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of a path from the API's root.
    pub(crate) fn path(&self, own: &str) -> String {
        format!("{}{own}", self.0)
    }

    /// The path of the root itself. A server that nests the API below `/queue` has no `/queue/`.
    pub(crate) fn home(&self) -> &str {
        if self.is_server() { "/" } else { &self.0 }
    }
}

/// Marks an answer whose location has the root already.
#[derive(Clone, Copy)]
pub(crate) struct Placed;

impl<S: Sync> FromRequestParts<S> for Root {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions, &parts.uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_what_the_server_has_before_our_path() {
        for (original, own, root) in [
            ("/v1/listen?pattern=a", "/v1/listen?pattern=a", ""),
            ("/queue/v1/listen", "/v1/listen", "/queue"),
            ("/a/b/docs/", "/docs/", "/a/b"),
            ("/queue", "/", "/queue"),
            ("/queue/", "/", "/queue"),
            ("/queue?a=b", "/?a=b", "/queue"),
            ("/", "/", ""),
            ("/elsewhere", "/v1/listen", ""),
        ] {
            let mut extensions = Extensions::new();
            let own: Uri = own.parse().unwrap();
            assert_eq!(Root::of(&extensions, &own), Root::default());
            extensions.insert(OriginalUri(original.parse().unwrap()));
            assert_eq!(Root::of(&extensions, &own).0, root, "{original}");
        }
    }
}
