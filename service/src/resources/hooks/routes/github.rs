//! Signatures of GitHub: `X-Hub-Signature-256` has the HMAC-SHA256 of the body in hexadecimal
//! digits. GitHub signs neither the id of a delivery, nor the kind of event, nor a time.

use axum::http::HeaderMap;

use super::signature::{Unsigned, from_hex, has_hmac, id, one};

const ID: &str = "x-github-delivery";
const SIGNATURE: &str = "x-hub-signature-256";
const EVENT: &str = "x-github-event";

/// The headers of a webhook.
#[derive(Debug)]
pub(super) struct GitHub<'a> {
    pub(super) id: &'a str,
    /// The kind of event: `push`, `pull_request` …
    pub(super) event: Option<&'a str>,
    signature: [u8; 32],
}

impl<'a> GitHub<'a> {
    /// Reads them; `None` if the request has neither id nor signature.
    pub(super) fn read(headers: &'a HeaderMap) -> Option<Result<Self, Unsigned>> {
        let has_any = [ID, SIGNATURE].into_iter().any(|name| headers.contains_key(name));
        has_any.then(|| Self::of(headers))
    }

    fn of(headers: &'a HeaderMap) -> Result<Self, Unsigned> {
        let id = id(headers, ID)?;
        let given = one(headers, SIGNATURE)?.ok_or(Unsigned::Missing(SIGNATURE))?;
        let signature = given.strip_prefix("sha256=").and_then(from_hex);
        let signature =
            signature.ok_or(Unsigned::Malformed(SIGNATURE, "sha256=…, with 64 hexadecimal digits"))?;
        Ok(Self { id, event: one(headers, EVENT)?, signature })
    }

    pub(super) fn is_made_with(&self, key: &[u8], body: &[u8]) -> bool {
        has_hmac(&[self.signature], key, &[body])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of GitHub's documentation.
    #[test]
    fn the_documented_signature_is_verified() {
        let mut headers = HeaderMap::new();
        headers.insert(ID, "72d3162e-cc78-11e3-81ab-4c9367dc0958".parse().unwrap());
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        headers.insert(SIGNATURE, signature.parse().unwrap());
        let signed = GitHub::read(&headers).unwrap().unwrap();
        assert!(signed.is_made_with(b"It's a Secret to Everybody", b"Hello, World!"));
        assert!(!signed.is_made_with(b"It's a Secret to Everybody", b"Hello, World?"));
    }
}
