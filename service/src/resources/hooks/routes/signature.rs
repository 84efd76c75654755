//! What the kinds of signatures share: reading headers, checking times and comparing, in constant
//! time. Pure: no I/O and no clock.
//!
//! The faults follow from the request alone, so that they reveal nothing of a hook.

use std::time::Duration;

use aws_lc_rs::{constant_time, hmac};
use axum::http::HeaderMap;

/// How far the time of a signature may be from this machine's.
pub(super) const TOLERANCE: Duration = Duration::from_secs(300);
/// Maximum number of signatures that are looked at: a sender has two during a rotation.
pub(super) const SIGNATURES_MAX: usize = 20;
/// Longest id of a webhook, in bytes.
pub(super) const ID_BYTES_MAX: usize = 256;

/// Why a request has no signature that could be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsigned {
    #[error(
        "the request has no signature: send the headers webhook-id, webhook-timestamp and webhook-signature (Standard \
         Webhooks), Stripe-Signature, or X-GitHub-Delivery and X-Hub-Signature-256 (GitHub, whose webhook needs a \
         secret)"
    )]
    Nothing,
    #[error("the request has signatures of more than one kind: send the headers of one")]
    Several,
    #[error("the header {0} is missing")]
    Missing(&'static str),
    #[error("the header {0} is given twice")]
    Repeated(&'static str),
    #[error("the header {0} is not of the form {1}")]
    Malformed(&'static str, &'static str),
    #[error("the time in the header {0} is more than five minutes off: check the sender's clock")]
    Stale(&'static str),
}

/// The only header of this name, as visible ASCII; `None` if there is none.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, Unsigned> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Unsigned::Repeated(name));
    }
    value.to_str().map(Some).map_err(|_| Unsigned::Malformed(name, "visible ASCII"))
}

/// The id in a header.
pub(super) fn id<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Unsigned> {
    let id = one(headers, name)?.ok_or(Unsigned::Missing(name))?;
    let is_id = (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    if is_id { Ok(id) } else { Err(Unsigned::Malformed(name, "1 to 256 visible characters")) }
}

/// Checks that a time, in seconds since 1970, is not too far from now. It is written in digits.
pub(super) fn check_time(name: &'static str, text: &str, now_s: u64) -> Result<(), Unsigned> {
    let is_number = (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let time_s: Option<u64> = text.parse().ok().filter(|_| is_number);
    match time_s {
        Some(time_s) if time_s.abs_diff(now_s) <= TOLERANCE.as_secs() => Ok(()),
        Some(_) => Err(Unsigned::Stale(name)),
        None => Err(Unsigned::Malformed(name, "seconds since 1970")),
    }
}

/// Whether one of these signatures is the HMAC-SHA256 of these parts under the key. All of them are
/// compared, each in constant time.
pub(super) fn has_hmac(signatures: &[[u8; 32]], key: &[u8], parts: &[&[u8]]) -> bool {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| context.update(part));
    let expected = context.sign();
    let is_equal = |signature: &[u8; 32]| {
        constant_time::verify_slices_are_equal(expected.as_ref(), signature.as_slice()).is_ok()
    };
    signatures.iter().fold(false, |found, signature| found | is_equal(signature))
}

/// The 32 bytes that 64 hexadecimal digits stand for.
pub(super) fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = 16 * digit(pair[0])? + digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    const NOW_S: u64 = 1_700_000_000;
    const HEX: &str = "00000000000000000000000000000000000000000000000000000000000000ff";

    #[test]
    fn times_are_digits_and_ids_are_short() {
        for text in ["", "-1", "+1700000000", "1.7e9", "17000000001700000000", "1700000000 "] {
            let expected = Err(Unsigned::Malformed("t", "seconds since 1970"));
            assert_eq!(check_time("t", text, NOW_S), expected, "{text}");
        }
        const ID: HeaderName = HeaderName::from_static("webhook-id");
        let (long, longest) = ("i".repeat(257), "i".repeat(256));
        let of =
            |text: &str| id(&HeaderMap::from_iter([(ID, text.parse().unwrap())]), "webhook-id").map(str::len);
        assert_eq!(of(&longest), Ok(256));
        for text in ["", "a b", long.as_str()] {
            assert!(matches!(of(text), Err(Unsigned::Malformed(..))), "{text}");
        }
        assert_eq!(
            (from_hex(HEX).unwrap()[31], from_hex("00"), from_hex(&"g0".repeat(32))),
            (255, None, None)
        );
    }

    #[test]
    fn any_of_the_signatures_may_be_the_right_one() {
        let key = b"key";
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), b"a.b");
        let tag: [u8; 32] = tag.as_ref().try_into().unwrap();
        let parts: [&[u8]; 2] = [b"a.", b"b"];
        assert!(has_hmac(&[[0; 32], tag], key, &parts) && has_hmac(&[tag, [0; 32]], key, &parts));
        assert!(!has_hmac(&[tag], b"other", &parts) && !has_hmac(&[], key, &parts));
    }
}
