//! Signatures of Standard Webhooks: `webhook-signature` has one or more, each `v1,` and the base64
//! of the HMAC-SHA256 of id, time and body.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::signature::{SIGNATURES_MAX, Unsigned, check_time, has_hmac, id, one};

const ID: &str = "webhook-id";
const TIME: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";
/// The version of symmetric signatures. Others are passed over, as the specification says.
const VERSION: &str = "v1,";

/// The headers of a webhook.
#[derive(Debug)]
pub(super) struct Standard<'a> {
    pub(super) id: &'a str,
    time: &'a str,
    signatures: Vec<[u8; 32]>,
}

impl<'a> Standard<'a> {
    /// Reads them; `None` if the request has none of them.
    pub(super) fn read(headers: &'a HeaderMap, now_s: u64) -> Option<Result<Self, Unsigned>> {
        let has_any = [ID, TIME, SIGNATURE].into_iter().any(|name| headers.contains_key(name));
        has_any.then(|| Self::of(headers, now_s))
    }

    fn of(headers: &'a HeaderMap, now_s: u64) -> Result<Self, Unsigned> {
        let id = id(headers, ID)?;
        let time = one(headers, TIME)?.ok_or(Unsigned::Missing(TIME))?;
        check_time(TIME, time, now_s)?;
        let given = one(headers, SIGNATURE)?.ok_or(Unsigned::Missing(SIGNATURE))?;
        let signatures = given.split(' ').filter_map(|signature| signature.strip_prefix(VERSION));
        let signatures = signatures.filter_map(|text| STANDARD.decode(text).ok()?.try_into().ok());
        let signatures: Vec<_> = signatures.take(SIGNATURES_MAX).collect();
        if signatures.is_empty() {
            return Err(Unsigned::Malformed(SIGNATURE, "v1,… v1,…, each with 32 bytes in base64"));
        }
        Ok(Self { id, time, signatures })
    }

    pub(super) fn is_made_with(&self, key: &[u8], body: &[u8]) -> bool {
        let head = format!("{}.{}.", self.id, self.time);
        has_hmac(&self.signatures, key, &[head.as_bytes(), body])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeq::hooks::{HookKind, HookSecret};

    /// The test vector of the Standard Webhooks libraries.
    #[test]
    fn the_vector_of_the_specification_is_verified() {
        let secret = HookSecret::new(HookKind::Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(ID, "msg_p5jXN8AQM9LWM0D4loKWxJek".parse().unwrap());
        headers.insert(TIME, "1614265330".parse().unwrap());
        let signatures = "v1a,AAAA v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        headers.insert(SIGNATURE, signatures.parse().unwrap());
        let signed = Standard::read(&headers, 1_614_265_330).unwrap().unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert!(signed.is_made_with(secret.key(), body));
        assert!(!signed.is_made_with(secret.key(), br#"{"test": 2432232315}"#));
        headers.insert(SIGNATURE, "v1a,AAAA v1,AAAA".parse().unwrap());
        let refused = Standard::read(&headers, 1_614_265_330).unwrap().unwrap_err();
        assert!(matches!(refused, Unsigned::Malformed(SIGNATURE, _)));
    }
}
