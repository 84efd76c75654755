//! What a request says to prove who sent it: the signatures in its headers, of each kind of which
//! it has any header. Pure: no I/O and no clock.

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
    /// The signatures of a request that arrives at this time, in seconds since 1970: at least one.
    /// A fault of one kind does not matter if the request is signed by another kind.
    pub(super) fn read(headers: &'a HeaderMap, now_s: u64) -> Result<Vec<Self>, Unsigned> {
        let read = [
            Standard::read(headers, now_s).map(|read| read.map(Self::Standard)),
            Stripe::read(headers, now_s).map(|read| read.map(Self::Stripe)),
            GitHub::read(headers).map(|read| read.map(Self::GitHub)),
        ];
        let (mut proofs, mut fault) = (Vec::new(), None);
        for read in read.into_iter().flatten() {
            match read {
                Ok(proof) => proofs.push(proof),
                Err(unsigned) => fault = fault.or(Some(unsigned)),
            }
        }
        if proofs.is_empty() { Err(fault.unwrap_or(Unsigned::Nothing)) } else { Ok(proofs) }
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
        let both = headers(&[id, ("stripe-signature", stripe.as_str())]);
        let proofs = Proof::read(&both, NOW_S + 300).unwrap();
        assert_eq!(proofs.iter().map(Proof::kind).collect::<Vec<_>>(), [HookKind::Stripe]);
        assert_eq!(Proof::read(&both, NOW_S + 301).unwrap_err(), Unsigned::Missing("webhook-timestamp"));
    }
}
