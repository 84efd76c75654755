//! Verifies deliveries to HTTP targets: [Standard Webhooks](https://www.standardwebhooks.com), over
//! the raw bytes of the body.
//!
//! It never parses a body whose signature it has not checked.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;

use crate::Error;

const TOLERANCE: Duration = Duration::from_secs(300);
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Checks deliveries with the secrets of a target.
///
/// ```
/// # fn example(headers: &std::collections::HashMap<String, String>, body: &[u8], secret: &str)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let verifier = wakeq_client::Verifier::new(&[secret])?;
/// let delivery = verifier.verify(|name| headers.get(name).map(String::as_str), body)?;
/// let value: serde_json::Value = delivery.value()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Verifier {
    keys: Vec<hmac::Key>,
}

/// Without the secrets.
impl fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Verifier").finish_non_exhaustive()
    }
}

/// A delivery that is not from wakeq, or is too old: answer it with 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// A header is missing, or not text.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// Its time is not a number.
    #[error("webhook-timestamp is not a number of seconds")]
    Time,
    /// It is a repeat, or a clock is wrong.
    #[error("webhook-timestamp is more than five minutes off: a repeat, or a wrong clock")]
    TooOld,
    /// It was signed with another secret, or its body was changed.
    #[error("no signature matches: another secret, or a body that is not as it was sent")]
    NoMatch,
}

/// A verified delivery. The signature covers id, time and body, not the other fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Delivery<'a> {
    /// The event's id, the same in every attempt: ignore one that you have processed.
    pub id: String,
    /// When this attempt was signed.
    pub sent_at: SystemTime,
    /// The handler's module.
    pub module: Option<String>,
    /// The handler's name.
    pub name: Option<String>,
    /// The handler's modifier.
    pub modifier: Option<String>,
    /// The tenant.
    pub canvas: Option<String>,
    /// From 1.
    pub attempt: Option<u32>,
    /// The event's value, as JSON.
    pub body: &'a [u8],
}

impl Delivery<'_> {
    /// Parses the event's value.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.body)
    }
}

impl Verifier {
    /// A verifier with a target's secret, `whsec_…`, or with both during a rotation.
    ///
    /// Errors: [`Error::Invalid`] if there is none, or one is not `whsec_` and 24 to 64 bytes in
    /// base64.
    pub fn new(secrets: &[impl AsRef<str>]) -> Result<Self, Error> {
        let keys: Option<Vec<_>> = secrets.iter().map(|secret| key_of(secret.as_ref())).collect();
        // Without the cause, which may show a part of it.
        let invalid = || Error::Invalid("a secret is `whsec_` and 24 to 64 bytes in base64".to_owned());
        let keys = keys.filter(|keys| !keys.is_empty()).ok_or_else(invalid)?;
        Ok(Self { keys })
    }

    /// Checks the signature and the time of a delivery: with a function that returns a header by
    /// its name in lower case, and the body as received.
    pub fn verify<'a, 'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &'a [u8],
    ) -> Result<Delivery<'a>, SignatureError> {
        self.verify_at(header, body, SystemTime::now())
    }

    /// The same, at a given time.
    pub fn verify_at<'a, 'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &'a [u8],
        now: SystemTime,
    ) -> Result<Delivery<'a>, SignatureError> {
        let needed = |name: &'static str| {
            header(name).filter(|value| !value.is_empty()).ok_or(SignatureError::Missing(name))
        };
        let (id, seconds) = (needed("webhook-id")?, needed("webhook-timestamp")?);
        let signatures = needed("webhook-signature")?;
        let is_number = seconds.len() <= 12 && seconds.bytes().all(|byte| byte.is_ascii_digit());
        let sent_at = seconds.parse().ok().filter(|_| is_number).ok_or(SignatureError::Time)?;
        let sent_at = SystemTime::UNIX_EPOCH + Duration::from_secs(sent_at);
        let off = now.duration_since(sent_at).unwrap_or_else(|error| error.duration());
        if off > TOLERANCE {
            return Err(SignatureError::TooOld);
        }
        let signed = [format!("{id}.{seconds}.").as_bytes(), body].concat();
        let given = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
        let given: Vec<_> = given.filter_map(|signature| STANDARD.decode(signature).ok()).collect();
        let matches = |key| given.iter().any(|signature| hmac::verify(key, &signed, signature).is_ok());
        if !self.keys.iter().any(matches) {
            return Err(SignatureError::NoMatch);
        }
        let [module, name, modifier] = address(header("ce-type"));
        Ok(Delivery {
            id: id.to_owned(),
            sent_at,
            module,
            name,
            modifier,
            canvas: header("ce-source").and_then(|source| source.rsplit('/').next()).map(str::to_owned),
            attempt: header("wakeq-attempt").and_then(|attempt| attempt.parse().ok()),
            body,
        })
    }
}

/// `MODULE/name/modifier`.
fn address(kind: Option<&str>) -> [Option<String>; 3] {
    let parts: Vec<&str> = kind.unwrap_or_default().split('/').collect();
    match parts[..] {
        [module, name, modifier] => [module, name, modifier].map(|part| Some(part.to_owned())),
        _ => [None, None, None],
    }
}

fn key_of(secret: &str) -> Option<hmac::Key> {
    let bytes = STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
    SECRET_BYTES.contains(&bytes.len()).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    const SENT_AT: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    /// The test vector of the Standard Webhooks libraries.
    fn known(name: &str) -> Option<&'static str> {
        match name {
            "webhook-id" => Some("msg_p5jXN8AQM9LWM0D4loKWxJek"),
            "webhook-timestamp" => Some("1614265330"),
            "webhook-signature" => Some("v2,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
            "ce-type" => Some("WORKER/greet/_"),
            "ce-source" => Some("/wakeq/canvases/00000000-0000-0000-0000-000000000007"),
            "wakeq-attempt" => Some("2"),
            _ => None,
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_known_vector_is_verified_with_either_secret_of_a_rotation() {
        for secrets in [vec![SECRET], vec![OTHER, SECRET]] {
            let verifier = Verifier::new(&secrets).unwrap();
            let delivery = verifier.verify_at(known, BODY, at(SENT_AT + 299)).unwrap();
            assert_eq!((delivery.name.as_deref(), delivery.attempt), (Some("greet"), Some(2)));
            assert_eq!(delivery.canvas.as_deref(), Some("00000000-0000-0000-0000-000000000007"));
            assert_eq!(delivery.value::<serde_json::Value>().unwrap()["test"], 2_432_232_314_u64);
        }
    }

    #[test]
    fn what_was_not_signed_or_is_old_is_refused() {
        let (mine, other) = (Verifier::new(&[SECRET]).unwrap(), Verifier::new(&[OTHER]).unwrap());
        let now = at(SENT_AT);
        let refused = |verifier: &Verifier, header: fn(&str) -> Option<&'static str>, body: &[u8], now| {
            verifier.verify_at(header, body, now).unwrap_err()
        };
        assert_eq!(refused(&other, known, BODY, now), SignatureError::NoMatch);
        assert_eq!(refused(&mine, known, b"{}", now), SignatureError::NoMatch);
        for now in [at(SENT_AT + 301), at(SENT_AT - 301)] {
            assert_eq!(refused(&mine, known, BODY, now), SignatureError::TooOld);
        }
        let other_id = |name: &str| if name == "webhook-id" { Some("msg_2") } else { known(name) };
        assert_eq!(refused(&mine, other_id, BODY, now), SignatureError::NoMatch);
        let no_id = |name: &str| known(name).filter(|_| name != "webhook-id");
        assert_eq!(refused(&mine, no_id, BODY, now), SignatureError::Missing("webhook-id"));
        let no_time = |name: &str| if name == "webhook-timestamp" { Some("+161426533") } else { known(name) };
        assert_eq!(refused(&mine, no_time, BODY, now), SignatureError::Time);
    }

    #[test]
    fn only_secrets_are_taken_and_none_is_shown() {
        let none: [&str; 0] = [];
        assert!(Verifier::new(&none).is_err());
        for secret in ["", "whsec_", "whsec_c2hvcnQ=", "whsec_!", &SECRET[6..]] {
            assert!(Verifier::new(&[secret]).is_err(), "{secret}");
        }
        assert_eq!(format!("{:?}", Verifier::new(&[SECRET]).unwrap()), "Verifier { .. }");
    }
}
