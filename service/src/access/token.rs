//! Checks of tokens that Google has signed: ID tokens, and assertions of its identity-aware proxy.
//! Pure: keys, the time and the accepted claims are arguments.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::error::InvalidToken;

/// Tolerated difference between clocks.
const LEEWAY_S: u64 = 30;
const KEY_ID_MAX_BYTES: usize = 200;
/// The address of every service account is in this domain or below it.
const ACCOUNTS_DOMAIN: &str = "gserviceaccount.com";
/// The text that Cloud Run puts in place of a signature.
const REMOVED: &str = "SIGNATURE_REMOVED_BY_GOOGLE";

/// The accepted claims.
#[derive(Clone, Debug)]
pub(super) struct AcceptedClaims {
    pub(super) audiences: Vec<String>,
    pub(super) issuers: Vec<String>,
    pub(super) kind: TokenKind,
}

/// What a token is. None of one kind is accepted as one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// An ID token, which says whether its address is verified.
    Id,
    /// An assertion of the proxy, which asserts verified addresses only.
    Assertion,
}

impl TokenKind {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::Id => Algorithm::RS256,
            Self::Assertion => Algorithm::ES256,
        }
    }
}

#[derive(Deserialize)]
struct GoogleClaims {
    iss: String,
    aud: String,
    exp: u64,
    iat: u64,
    nbf: Option<u64>,
    email: Option<String>,
    email_verified: Option<bool>,
}

/// Whether a text has the form of a token.
pub(super) fn looks_like_token(text: &str) -> bool {
    text.split('.').count() == 3
}

/// The id of the signing key, from the header. Nothing else is used before the token is verified. A
/// header that makes an extension critical is refused, since none is understood here (RFC 7515,
/// section 4.1.11).
pub(super) fn key_id(token: &str, kind: TokenKind) -> Result<String, InvalidToken> {
    match token.rsplit('.').next() {
        None => return Err(InvalidToken::Unreadable),
        Some("" | REMOVED) => return Err(InvalidToken::SignatureRemoved),
        Some(_) => {}
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| InvalidToken::Unreadable)?;
    if header.alg != kind.algorithm() {
        return Err(InvalidToken::Algorithm);
    }
    if header.crit.is_some() {
        return Err(InvalidToken::Critical);
    }
    let id = header.kid.filter(|id| (1..=KEY_ID_MAX_BYTES).contains(&id.len()));
    id.ok_or(InvalidToken::UnknownKey)
}

/// Verifies a token; returns its account's address in lower case.
pub(super) fn verify(
    token: &str,
    key: &DecodingKey,
    accepted: &AcceptedClaims,
    unix_seconds: u64,
) -> Result<String, InvalidToken> {
    let mut validation = Validation::new(accepted.kind.algorithm());
    // The claims are checked below, against the `unix_seconds` argument and exactly as Google
    // writes them.
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    let token = jsonwebtoken::decode::<GoogleClaims>(token, key, &validation).map_err(|error| {
        if matches!(error.kind(), ErrorKind::InvalidSignature) {
            InvalidToken::Signature
        } else {
            InvalidToken::Unreadable
        }
    })?;
    check(token.claims, accepted, unix_seconds)
}

fn check(claims: GoogleClaims, accepted: &AcceptedClaims, now: u64) -> Result<String, InvalidToken> {
    if !accepted.audiences.contains(&claims.aud) {
        return Err(InvalidToken::Audience);
    }
    if !accepted.issuers.contains(&claims.iss) {
        return Err(InvalidToken::Issuer);
    }
    if claims.exp.saturating_add(LEEWAY_S) <= now {
        return Err(InvalidToken::Expired);
    }
    if claims.iat.max(claims.nbf.unwrap_or(0)) > now.saturating_add(LEEWAY_S) {
        return Err(InvalidToken::NotYet);
    }
    let verified = match accepted.kind {
        TokenKind::Id => claims.email_verified == Some(true),
        TokenKind::Assertion => claims.email_verified != Some(false),
    };
    let email = claims.email.filter(|email| verified && !email.is_empty());
    email.map(|email| email.to_ascii_lowercase()).ok_or(InvalidToken::Email)
}

/// Whether an address, in lower case, is that of a service account, which only Google can give.
pub(super) fn is_service_account(email: &str) -> bool {
    let below = email.split_once('@').and_then(|(_, domain)| domain.strip_suffix(ACCOUNTS_DOMAIN));
    below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn accepted() -> AcceptedClaims {
        AcceptedClaims {
            audiences: vec!["https://queue.example".into()],
            issuers: vec!["https://accounts.google.com".into()],
            kind: TokenKind::Id,
        }
    }

    #[track_caller]
    fn check_that(change: impl FnOnce(&mut GoogleClaims), expected: Result<&str, InvalidToken>) {
        let mut claims = GoogleClaims {
            iss: "https://accounts.google.com".into(),
            aud: "https://queue.example".into(),
            exp: NOW + 3600,
            iat: NOW,
            nbf: None,
            email: Some("Robot@p.iam.gserviceaccount.com".into()),
            email_verified: Some(true),
        };
        change(&mut claims);
        assert_eq!(check(claims, &accepted(), NOW), expected.map(str::to_owned));
    }

    #[test]
    fn token_claims_are_compared_exactly() {
        let robot = Ok("robot@p.iam.gserviceaccount.com");
        check_that(|_| {}, robot);
        for aud in [
            "",
            "https://queue.example/",
            "https://queue.example.evil",
            "HTTPS://queue.example",
            "https://queue",
        ] {
            check_that(|claims| claims.aud = aud.into(), Err(InvalidToken::Audience));
        }
        for iss in
            ["", "http://accounts.google.com", "https://accounts.google.com/", "https://accounts.google.co"]
        {
            check_that(|claims| claims.iss = iss.into(), Err(InvalidToken::Issuer));
        }
        for verified in [None, Some(false)] {
            check_that(|claims| claims.email_verified = verified, Err(InvalidToken::Email));
        }
        for email in [None, Some(String::new())] {
            check_that(|claims| claims.email = email, Err(InvalidToken::Email));
        }
    }

    #[test]
    fn an_assertion_need_not_say_that_its_address_is_verified() {
        let mut accepted = accepted();
        for (kind, verified, is_accepted) in [
            (TokenKind::Assertion, None, true),
            (TokenKind::Assertion, Some(true), true),
            (TokenKind::Assertion, Some(false), false),
            (TokenKind::Id, None, false),
            (TokenKind::Id, Some(true), true),
        ] {
            accepted.kind = kind;
            let claims = GoogleClaims {
                iss: accepted.issuers[0].clone(),
                aud: accepted.audiences[0].clone(),
                exp: NOW + 600,
                iat: NOW,
                nbf: None,
                email: Some("Ada@example.com".into()),
                email_verified: verified,
            };
            let found = check(claims, &accepted, NOW);
            assert_eq!(found.is_ok(), is_accepted, "{kind:?} {verified:?} {found:?}");
        }
    }

    #[test]
    fn times_may_differ_by_the_leeway_and_no_second_more() {
        let robot = Ok("robot@p.iam.gserviceaccount.com");
        check_that(|claims| claims.exp = NOW - 29, robot);
        check_that(|claims| claims.exp = NOW - 30, Err(InvalidToken::Expired));
        check_that(|claims| claims.exp = 0, Err(InvalidToken::Expired));
        check_that(|claims| claims.exp = u64::MAX, robot);
        check_that(|claims| claims.iat = NOW + 30, robot);
        check_that(|claims| claims.iat = NOW + 31, Err(InvalidToken::NotYet));
        check_that(|claims| claims.iat = u64::MAX, Err(InvalidToken::NotYet));
        check_that(|claims| claims.nbf = Some(NOW + 30), robot);
        check_that(|claims| claims.nbf = Some(NOW + 31), Err(InvalidToken::NotYet));
    }

    #[test]
    fn detects_a_removed_signature_before_fetching_keys() {
        for token in ["a.b.", "a.b.SIGNATURE_REMOVED_BY_GOOGLE"] {
            assert_eq!(key_id(token, TokenKind::Id), Err(InvalidToken::SignatureRemoved));
        }
        for token in ["a.b.c", "..c", "{}.{}.c"] {
            assert_eq!(key_id(token, TokenKind::Id), Err(InvalidToken::Unreadable));
        }
    }
}
