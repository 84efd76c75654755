//! Checks of the ID tokens with which people sign in. Pure: keys, the time and what is expected are
//! arguments.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::flow::SIGN_IN_S;
use crate::access::error::InvalidToken;
use crate::access::jwks::KeyKind;

/// Tolerated difference between clocks.
const LEEWAY_S: u64 = 30;
const TOKEN_MAX_BYTES: usize = 16 * 1024;
const KEY_ID_MAX_BYTES: usize = 200;
/// No longer address can be granted anything.
const EMAIL_MAX: usize = 190;

/// Google issues tokens for any address that somebody could read mail of once. It is an authority
/// only for those that it hosts.
const GOOGLE: &str = "https://accounts.google.com";
const GOOGLE_MAIL: &str = "gmail.com";

/// What a token has to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// In seconds since 1970.
    pub(super) now_s: u64,
}

#[derive(Clone, Deserialize)]
struct Claims {
    iss: String,
    aud: Audiences,
    azp: Option<String>,
    exp: u64,
    iat: u64,
    nbf: Option<u64>,
    nonce: Option<String>,
    email: Option<String>,
    email_verified: Option<Verified>,
    hd: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Several(Vec<String>),
}

/// Some providers write it as a text.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Verified {
    Flag(bool),
    Text(String),
}

impl Verified {
    fn is_true(&self) -> bool {
        match self {
            Self::Flag(flag) => *flag,
            Self::Text(text) => text == "true",
        }
    }
}

/// The kind and the id of the signing key, from the header. Nothing else is used before the token
/// is verified. A header that makes an extension critical is refused, since none is understood.
pub(super) fn signed_with(token: &str) -> Result<(KeyKind, String), InvalidToken> {
    if token.len() > TOKEN_MAX_BYTES || token.split('.').count() != 3 {
        return Err(InvalidToken::Unreadable);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| InvalidToken::Unreadable)?;
    let kinds = [KeyKind::Rsa, KeyKind::P256];
    let kind = kinds.into_iter().find(|kind| algorithm(*kind) == header.alg);
    let kind = kind.ok_or(InvalidToken::Algorithm)?;
    if header.crit.is_some() {
        return Err(InvalidToken::Critical);
    }
    let id = header.kid.filter(|id| (1..=KEY_ID_MAX_BYTES).contains(&id.len()));
    Ok((kind, id.ok_or(InvalidToken::UnknownKey)?))
}

fn algorithm(kind: KeyKind) -> Algorithm {
    match kind {
        KeyKind::Rsa => Algorithm::RS256,
        KeyKind::P256 => Algorithm::ES256,
    }
}

/// Verifies a token; returns the person's address in lower case.
pub(super) fn verify(
    token: &str,
    (kind, key): (KeyKind, &DecodingKey),
    expected: Expected<'_>,
) -> Result<String, InvalidToken> {
    let mut validation = Validation::new(algorithm(kind));
    // The claims are checked below, against the time that is given.
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_nbf, validation.validate_aud) = (false, false, false);
    let token = jsonwebtoken::decode::<Claims>(token, key, &validation).map_err(|error| {
        if matches!(error.kind(), ErrorKind::InvalidSignature) {
            InvalidToken::Signature
        } else {
            InvalidToken::Unreadable
        }
    })?;
    check(token.claims, expected)
}

fn check(claims: Claims, expected: Expected<'_>) -> Result<String, InvalidToken> {
    let now_s = expected.now_s;
    if claims.iss != expected.issuer {
        return Err(InvalidToken::Issuer);
    }
    // A token for several clients has to name the one that asked for it.
    let is_ours = match &claims.aud {
        Audiences::One(audience) => audience == expected.client_id,
        Audiences::Several(audiences) => {
            audiences.iter().any(|audience| audience == expected.client_id)
                && (audiences.len() == 1 || claims.azp.is_some())
        }
    };
    if !is_ours || claims.azp.as_ref().is_some_and(|party| party != expected.client_id) {
        return Err(InvalidToken::Audience);
    }
    let oldest_s = now_s.saturating_sub(SIGN_IN_S + LEEWAY_S);
    if claims.exp.saturating_add(LEEWAY_S) <= now_s || claims.iat < oldest_s {
        return Err(InvalidToken::Expired);
    }
    if claims.iat.max(claims.nbf.unwrap_or(0)) > now_s.saturating_add(LEEWAY_S) {
        return Err(InvalidToken::NotYet);
    }
    if claims.nonce.as_deref() != Some(expected.nonce) {
        return Err(InvalidToken::Nonce);
    }
    email(&claims).ok_or(InvalidToken::Email)
}

/// The address, if its issuer has verified it and can know whose it is.
fn email(claims: &Claims) -> Option<String> {
    claims.email_verified.as_ref().filter(|verified| verified.is_true())?;
    let email = claims.email.as_ref()?.to_ascii_lowercase();
    let is_plain = email.len() <= EMAIL_MAX && email.bytes().all(|byte| byte.is_ascii_graphic());
    let (_, domain) =
        email.rsplit_once('@').filter(|(name, domain)| !name.is_empty() && !domain.is_empty())?;
    let hosts =
        || domain == GOOGLE_MAIL || claims.hd.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(domain));
    (is_plain && (claims.iss != GOOGLE || hosts())).then_some(email)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn claims() -> Claims {
        Claims {
            iss: "https://login.example".into(),
            aud: Audiences::One("wakeq".into()),
            azp: None,
            exp: NOW + 300,
            iat: NOW,
            nbf: None,
            nonce: Some("nonce".into()),
            email: Some("Ada@Example.com".into()),
            email_verified: Some(Verified::Flag(true)),
            hd: None,
        }
    }

    #[track_caller]
    fn check_that(change: impl FnOnce(&mut Claims), expected: Result<&str, InvalidToken>) {
        let mut claims = claims();
        change(&mut claims);
        // Whom the token is expected to be from, if that is Google.
        let issuer = if claims.iss == GOOGLE { GOOGLE } else { "https://login.example" };
        let wanted = Expected { issuer, client_id: "wakeq", nonce: "nonce", now_s: NOW };
        assert_eq!(check(claims, wanted), expected.map(str::to_owned));
    }

    #[test]
    fn claims_are_compared_exactly() {
        let ada = Ok("ada@example.com");
        check_that(|_| {}, ada);
        for iss in ["", "https://login.example/", "https://login.example.evil", "http://login.example"] {
            check_that(|claims| claims.iss = iss.into(), Err(InvalidToken::Issuer));
        }
        for nonce in [None, Some(""), Some("Nonce"), Some("nonce2")] {
            check_that(|claims| claims.nonce = nonce.map(str::to_owned), Err(InvalidToken::Nonce));
        }
        for verified in [None, Some(Verified::Flag(false)), Some(Verified::Text("yes".into()))] {
            check_that(|claims| claims.email_verified = verified, Err(InvalidToken::Email));
        }
        check_that(|claims| claims.email_verified = Some(Verified::Text("true".into())), ada);
        let long = format!("{}@example.com", "a".repeat(EMAIL_MAX));
        let wrong = ["", "ada", "@example.com", "ada@", "a da@example.com", "ada@example.com\0", &long];
        for email in [None].into_iter().chain(wrong.map(Some)) {
            check_that(|claims| claims.email = email.map(str::to_owned), Err(InvalidToken::Email));
        }
    }

    #[test]
    fn a_token_is_for_the_client_that_asked_for_it() {
        let ada = Ok("ada@example.com");
        let several =
            |names: &[&str]| Audiences::Several(names.iter().map(|&name| name.to_owned()).collect());
        for (aud, azp, is_ours) in [
            (several(&["wakeq"]), None, true),
            (several(&["wakeq"]), Some("wakeq"), true),
            (several(&["wakeq", "shop"]), Some("wakeq"), true),
            (several(&["wakeq", "shop"]), None, false),
            (several(&["wakeq", "shop"]), Some("shop"), false),
            (several(&["shop"]), None, false),
            (several(&[]), None, false),
            (Audiences::One("wakeq".into()), Some("shop"), false),
            (Audiences::One("shop".into()), Some("wakeq"), false),
        ] {
            let expected = if is_ours { ada } else { Err(InvalidToken::Audience) };
            check_that(|claims| (claims.aud, claims.azp) = (aud, azp.map(str::to_owned)), expected);
        }
    }

    #[test]
    fn times_may_differ_by_the_leeway_and_no_second_more() {
        let ada = Ok("ada@example.com");
        check_that(|claims| claims.exp = NOW - 29, ada);
        check_that(|claims| claims.exp = NOW - 30, Err(InvalidToken::Expired));
        check_that(|claims| claims.iat = NOW + 30, ada);
        check_that(|claims| claims.iat = NOW + 31, Err(InvalidToken::NotYet));
        check_that(|claims| claims.nbf = Some(NOW + 31), Err(InvalidToken::NotYet));
        check_that(|claims| claims.iat = NOW - SIGN_IN_S - 30, ada);
        check_that(|claims| claims.iat = NOW - SIGN_IN_S - 31, Err(InvalidToken::Expired));
        check_that(|claims| claims.iat = u64::MAX, Err(InvalidToken::NotYet));
    }

    #[test]
    fn google_vouches_for_the_addresses_that_it_hosts() {
        for (email, hd, is_known) in [
            ("ada@gmail.com", None, true),
            ("ada@example.com", Some("example.com"), true),
            ("ada@example.com", None, false),
            ("ada@example.com", Some("other.example"), false),
        ] {
            let change = |claims: &mut Claims| {
                claims.iss = GOOGLE.into();
                (claims.email, claims.hd) = (Some(email.to_owned()), hd.map(str::to_owned));
            };
            check_that(change, if is_known { Ok(email) } else { Err(InvalidToken::Email) });
        }
    }

    #[test]
    fn other_headers_are_refused_before_keys_are_fetched() {
        for token in ["", "a.b", "a.b.c", "..c", "a.b.c.d", &"x".repeat(TOKEN_MAX_BYTES + 1)] {
            assert_eq!(signed_with(token), Err(InvalidToken::Unreadable), "{token}");
        }
    }
}
