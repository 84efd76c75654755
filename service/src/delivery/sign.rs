//! Signatures according to Standard Webhooks: HMAC-SHA256 of id, timestamp and body, one per
//! secret. Pure; knows no headers.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wakeq::targets::{Secret, Secrets};

/// The value of `webhook-signature`: a signature with the current secret, and one with the previous
/// secret while it is valid.
pub(super) fn signatures(secrets: &Secrets, id: &str, timestamp_s: u64, body: &[u8]) -> String {
    let current = signature(&secrets.current, id, timestamp_s, body);
    match &secrets.previous {
        Some(previous) => format!("{current} {}", signature(previous, id, timestamp_s, body)),
        None => current,
    }
}

fn signature(secret: &Secret, id: &str, timestamp_s: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()));
    context.update(format!("{id}.{timestamp_s}.").as_bytes());
    context.update(body);
    format!("v1,{}", STANDARD.encode(context.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn signed(current: &str, previous: Option<&str>, id: &str, timestamp_s: u64, body: &str) -> String {
        let read = |text: &str| text.parse::<Secret>().unwrap();
        let secrets = Secrets { current: read(current), previous: previous.map(read) };
        signatures(&secrets, id, timestamp_s, body.as_bytes())
    }

    /// The test vector of the Standard Webhooks libraries.
    #[test]
    fn the_known_vector_is_met() {
        let signed =
            signed(OLD, None, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn during_a_rotation_both_secrets_sign() {
        let both = signed(NEW, Some(OLD), "id", 7, "{}");
        let (new, old) = (signed(NEW, None, "id", 7, "{}"), signed(OLD, None, "id", 7, "{}"));
        assert_eq!(both, format!("{new} {old}"));
        assert_ne!(new, old);
    }

    #[test]
    fn every_part_is_signed() {
        let base = signed(OLD, None, "id", 7, "{}");
        for other in [
            signed(OLD, None, "ID", 7, "{}"),
            signed(OLD, None, "id", 8, "{}"),
            signed(OLD, None, "id", 7, "{ }"),
        ] {
            assert_ne!(base, other);
        }
    }
}
