//! What a request says to prove who sent it: the signatures in its headers, of one kind. Pure: no
//! I/O and no clock.

use axum::http::HeaderMap;

use super::github::GitHub;
use super::signature::Unsigned;
use super::standard::Standard;
use super::stripe::Stripe;
use wakeq::hooks::HookKind;

/// The signature of a request, by one kind of sender.
#[derive(Debug)]
pub(super) enum Proof<'a> {
    Standard(Standard<'a>),
    Stripe(Stripe<'a>),
    GitHub(GitHub<'a>),
}

impl<'a> Proof<'a> {
    /// The signature of a request that arrives at this time, in seconds since 1970. A request with
    /// headers of several kinds has none, whatever they say: else the time that it takes would tell
    /// of which kind the hook is.
    pub(super) fn read(headers: &'a HeaderMap, now_s: u64) -> Result<Self, Unsigned> {
        let read = [
            Standard::read(headers, now_s).map(|read| read.map(Self::Standard)),
            Stripe::read(headers, now_s).map(|read| read.map(Self::Stripe)),
            GitHub::read(headers).map(|read| read.map(Self::GitHub)),
        ];
        let mut read = read.into_iter().flatten();
        let first = read.next().unwrap_or(Err(Unsigned::Nothing));
        if read.next().is_some() { Err(Unsigned::Several) } else { first }
    }

    /// The kind of sender that signs like this.
    pub(super) fn kind(&self) -> HookKind {
        match self {
            Self::Standard(_) => HookKind::Standard,
            Self::Stripe(_) => HookKind::Stripe,
            Self::GitHub(_) => HookKind::GitHub,
        }
    }

    /// Whether a signature was made with this key, of this body.
    pub(super) fn is_made_with(&self, key: &[u8], body: &[u8]) -> bool {
        match self {
            Self::Standard(signed) => signed.is_made_with(key, body),
            Self::Stripe(signed) => signed.is_made_with(key, body),
            Self::GitHub(signed) => signed.is_made_with(key, body),
        }
    }

    /// The sender's id of the webhook, if a header has it.
    pub(super) fn id(&self) -> Option<&'a str> {
        match self {
            Self::Standard(signed) => Some(signed.id),
            Self::Stripe(_) => None,
            Self::GitHub(signed) => Some(signed.id),
        }
    }

    /// The sender's name for the kind of event, if a header has it.
    pub(super) fn event_type(&self) -> Option<&'a str> {
        match self {
            Self::Standard(_) | Self::Stripe(_) => None,
            Self::GitHub(signed) => signed.event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;
    const HEX: &str = "00000000000000000000000000000000000000000000000000000000000000ff";

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn refused(lines: &[(&'static str, &str)]) -> Unsigned {
        Proof::read(&headers(lines), NOW_S).unwrap_err()
    }

    #[test]
    fn a_request_says_which_header_it_lacks() {
        let github = format!("sha256={HEX}");
        let stripe = format!("t={NOW_S},v1={HEX}");
        let id = ("webhook-id", "msg_1");
        let time = ("webhook-timestamp", "1700000000");
        for (lines, expected) in [
            (vec![], Unsigned::Nothing),
            (vec![("x-hub-signature", "sha1=0")], Unsigned::Nothing),
            (vec![id], Unsigned::Missing("webhook-timestamp")),
            (vec![id, time], Unsigned::Missing("webhook-signature")),
            (vec![time], Unsigned::Missing("webhook-id")),
            (vec![id, id], Unsigned::Repeated("webhook-id")),
            (vec![id, ("webhook-timestamp", "1699999699")], Unsigned::Stale("webhook-timestamp")),
            (vec![id, ("webhook-timestamp", "1700000301")], Unsigned::Stale("webhook-timestamp")),
            (vec![("x-hub-signature-256", github.as_str())], Unsigned::Missing("x-github-delivery")),
            (vec![("x-github-delivery", "1")], Unsigned::Missing("x-hub-signature-256")),
            (
                vec![("stripe-signature", "v1=0")],
                Unsigned::Malformed("stripe-signature", "t=…,v1=…, with 64 hexadecimal digits"),
            ),
        ] {
            assert_eq!(refused(&lines), expected, "{lines:?}");
        }
        let signed = ("stripe-signature", stripe.as_str());
        let alone = headers(&[signed]);
        assert_eq!(Proof::read(&alone, NOW_S + 300).unwrap().kind(), HookKind::Stripe);
        assert_eq!(Proof::read(&alone, NOW_S + 301).unwrap_err(), Unsigned::Stale("stripe-signature"));
        assert_eq!(refused(&[id, signed]), Unsigned::Several, "whether it would be one or not");
        assert_eq!(refused(&[signed, ("x-hub-signature-256", github.as_str())]), Unsigned::Several);
    }
}
