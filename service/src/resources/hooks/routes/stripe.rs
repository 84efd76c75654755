//! Signatures of Stripe: `Stripe-Signature` has the time and one or more signatures of the scheme
//! `v1`, each the HMAC-SHA256 of time and body in hexadecimal digits.

use axum::http::HeaderMap;

use super::signature::{SIGNATURES_MAX, Unsigned, check_time, from_hex, has_hmac, one};

const SIGNATURE: &str = "stripe-signature";
const FORM: &str = "t=…,v1=…, with 64 hexadecimal digits";

/// The header of a webhook.
#[derive(Debug)]
pub(super) struct Stripe<'a> {
    time: &'a str,
    signatures: Vec<[u8; 32]>,
}

impl<'a> Stripe<'a> {
    /// Reads it; `None` if the request does not have it.
    pub(super) fn read(headers: &'a HeaderMap, now_s: u64) -> Option<Result<Self, Unsigned>> {
        headers.contains_key(SIGNATURE).then(|| Self::of(headers, now_s))
    }

    fn of(headers: &'a HeaderMap, now_s: u64) -> Result<Self, Unsigned> {
        let given = one(headers, SIGNATURE)?.ok_or(Unsigned::Missing(SIGNATURE))?;
        let fields = || given.split(',').filter_map(|field| field.trim().split_once('='));
        let mut times = fields().filter(|(name, _)| *name == "t").map(|(_, time)| time);
        let (Some(time), None) = (times.next(), times.next()) else {
            return Err(Unsigned::Malformed(SIGNATURE, FORM));
        };
        check_time(SIGNATURE, time, now_s)?;
        // Other schemes are passed over, as Stripe says.
        let signatures = fields().filter(|(name, _)| *name == "v1");
        let signatures = signatures.filter_map(|(_, text)| from_hex(text));
        let signatures: Vec<_> = signatures.take(SIGNATURES_MAX).collect();
        if signatures.is_empty() {
            return Err(Unsigned::Malformed(SIGNATURE, FORM));
        }
        Ok(Self { time, signatures })
    }

    pub(super) fn is_made_with(&self, key: &[u8], body: &[u8]) -> bool {
        let head = format!("{}.", self.time);
        has_hmac(&self.signatures, key, &[head.as_bytes(), body])
    }
}
