//! Checks of Google's ID tokens. Pure: keys, the time and the accepted claims are arguments.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::error::InvalidToken;

/// Tolerated difference between clocks.
const LEEWAY_S: u64 = 30;
const KEY_ID_MAX_BYTES: usize = 200;
/// The text that Cloud Run puts in place of a signature.
const REMOVED: &str = "SIGNATURE_REMOVED_BY_GOOGLE";

/// The accepted claims.
#[derive(Clone, Debug)]
pub(super) struct AcceptedClaims {
    pub(super) audiences: Vec<String>,
    pub(super) issuers: Vec<String>,
}

#[derive(Deserialize)]
struct Claims {
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
pub(super) fn key_id(token: &str) -> Result<String, InvalidToken> {
    match token.rsplit('.').next() {
        None => return Err(InvalidToken::Unreadable),
        Some("" | REMOVED) => return Err(InvalidToken::SignatureRemoved),
        Some(_) => {}
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| InvalidToken::Unreadable)?;
    if header.alg != Algorithm::RS256 {
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
    let mut validation = Validation::new(Algorithm::RS256);
    // The claims are checked below, against the `unix_seconds` argument and exactly as Google
    // writes them.
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    let token = jsonwebtoken::decode::<Claims>(token, key, &validation).map_err(|error| {
        if matches!(error.kind(), ErrorKind::InvalidSignature) {
            InvalidToken::Signature
        } else {
            InvalidToken::Unreadable
        }
    })?;
    check(token.claims, accepted, unix_seconds)
}

fn check(claims: Claims, accepted: &AcceptedClaims, now: u64) -> Result<String, InvalidToken> {
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
    let verified = claims.email_verified == Some(true);
    let email = claims.email.filter(|email| verified && !email.is_empty());
    email.map(|email| email.to_ascii_lowercase()).ok_or(InvalidToken::Email)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn accepted() -> AcceptedClaims {
        AcceptedClaims {
            audiences: vec!["https://queue.example".into()],
            issuers: vec!["https://accounts.google.com".into()],
        }
    }

    #[track_caller]
    fn check_that(change: impl FnOnce(&mut Claims), expected: Result<&str, InvalidToken>) {
        let mut claims = Claims {
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
            assert_eq!(key_id(token), Err(InvalidToken::SignatureRemoved));
        }
        for token in ["a.b.c", "..c", "{}.{}.c"] {
            assert_eq!(key_id(token), Err(InvalidToken::Unreadable));
        }
    }
}
