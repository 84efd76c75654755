//! API keys: their text, generation, checksum and stored hash. A secret is only revealed by
//! [`ApiKey::reveal`], and only compared in constant time.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;

const PREFIX: &str = "wakeq_";
const ID_DIGITS: usize = 12;
const SECRET_BYTES: usize = 32;
const CHECK_BYTES: usize = 8;

/// The public part of a key: 12 hexadecimal digits, used wherever the key is referred to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; ID_DIGITS / 2]);

/// The text is not the public part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is named by its first part: `wakeq_` and 12 digits of 0-9 a-f")]
pub struct InvalidKeyId;

impl KeyId {
    pub(super) const BYTES: usize = ID_DIGITS / 2;

    pub(super) fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl FromStr for KeyId {
    type Err = InvalidKeyId;

    /// Parses `wakeq_0123456789ab`, or the digits alone.
    fn from_str(text: &str) -> Result<Self, InvalidKeyId> {
        hex_bytes(text.strip_prefix(PREFIX).unwrap_or(text)).map(Self).ok_or(InvalidKeyId)
    }
}

impl fmt::Display for KeyId {
    /// The digits alone.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&hex_text(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PREFIX}{self}")
    }
}

/// A complete key, including its secret. It can be parsed from an `Authorization` header, but is
/// only printed by [`ApiKey::reveal`]: once, when it is created.
///
/// ```
/// use wakeq_service::access::ApiKey;
///
/// let text = format!("wakeq_0123456789ab_{}", "5".repeat(80));
/// let key = ApiKey::parse(&text).unwrap();
/// assert_eq!(format!("{key:?}"), "ApiKey(wakeq_0123456789ab)");
/// assert_eq!(*key.reveal(), *text);
/// ```
pub struct ApiKey {
    id: KeyId,
    secret: [u8; SECRET_BYTES],
    check: [u8; CHECK_BYTES],
}

/// The operating system returned no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system provided no random numbers: no key was created")]
pub struct NoRandomness;

impl ApiKey {
    /// Generates a key for this deployment: 48 random bits for the public part, 256 for the secret.
    pub(super) fn generate(checks: &KeyChecks) -> Result<Self, NoRandomness> {
        let (mut id, mut secret) = ([0; ID_DIGITS / 2], [0; SECRET_BYTES]);
        aws_lc_rs::rand::fill(&mut id).map_err(|_| NoRandomness)?;
        aws_lc_rs::rand::fill(&mut secret).map_err(|_| NoRandomness)?;
        let id = KeyId(id);
        Ok(Self { id, secret, check: checks.of(id, &secret) })
    }

    /// Parses `wakeq_<12 digits>_<80 digits>`, in lower-case hexadecimal; the last 16 digits are
    /// the check. Only the form is validated: the check is not verified, nor whether the key
    /// exists.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, rest) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let (secret, check) = rest.split_at_checked(2 * SECRET_BYTES)?;
        Some(Self { id: KeyId(hex_bytes(id)?), secret: hex_bytes(secret)?, check: hex_bytes(check)? })
    }

    /// The public part.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The complete key as text. Give it to its holder only.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}{}", self.id, hex_text(&self.secret), hex_text(&self.check))
    }

    /// The hash of the secret, which is what the database stores.
    pub(super) fn hash(&self) -> KeyHash {
        let mut hash = [0; SECRET_BYTES];
        hash.copy_from_slice(digest(&SHA256, &self.secret).as_ref());
        KeyHash(hash)
    }

    /// Whether a text is meant to be a key: it has the prefix.
    pub(super) fn has_prefix(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ApiKey({:?})", self.id)
    }
}

/// Creates and verifies the check at the end of keys: an HMAC under the deployment's secret. Only
/// the deployment can make a key that passes, so made-up keys are refused without a query.
pub(super) struct KeyChecks(hmac::Key);

impl KeyChecks {
    /// `secret` is the deployment's secret for key checks.
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Whether the deployment made this key, compared in constant time. The key may have been
    /// revoked since.
    pub(super) fn verify(&self, key: &ApiKey) -> bool {
        verify_slices_are_equal(&self.of(key.id, &key.secret), &key.check).is_ok()
    }

    fn of(&self, id: KeyId, secret: &[u8; SECRET_BYTES]) -> [u8; CHECK_BYTES] {
        let mut signing = hmac::Context::with_key(&self.0);
        signing.update(&id.0);
        signing.update(secret);
        let mut check = [0; CHECK_BYTES];
        check.copy_from_slice(&signing.sign().as_ref()[..CHECK_BYTES]);
        check
    }
}

impl fmt::Debug for KeyChecks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyChecks(redacted)")
    }
}

/// The SHA-256 of a secret. Has no `==`, because it may only be compared in constant time.
#[derive(Clone, Copy)]
pub(super) struct KeyHash([u8; SECRET_BYTES]);

impl KeyHash {
    /// No known secret has this hash: it stands in for the hash of a key that does not exist.
    pub(super) const OF_NOTHING: Self = Self([0; SECRET_BYTES]);

    /// `None` unless the column has exactly 32 bytes.
    pub(super) fn of_row(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The value of the column.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares both in constant time.
    pub(super) fn matches(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyHash(redacted)")
    }
}

fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes exactly `N` bytes from lower-case hexadecimal digits.
fn hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn checks() -> KeyChecks {
        KeyChecks::new(b"of this deployment")
    }

    fn generate() -> ApiKey {
        ApiKey::generate(&checks()).unwrap()
    }

    #[test]
    fn a_key_is_read_as_it_was_revealed() {
        let key = generate();
        let text = key.reveal();
        assert_eq!(text.len(), 6 + 12 + 1 + 64 + 16);
        let read = ApiKey::parse(&text).unwrap();
        assert_eq!((read.id(), read.secret), (key.id(), key.secret));
        assert!(read.hash().matches(&key.hash()));
        assert_eq!(key.id().to_string().parse(), Ok(key.id()));
        assert_eq!(format!("{:?}", key.id()).parse(), Ok(key.id()));
    }

    #[test]
    fn no_two_keys_are_alike() {
        let keys: HashSet<_> = (0..1000).map(|_| generate().reveal()).collect();
        assert_eq!(keys.len(), 1000);
    }

    /// Known answer: SHA-256 of 32 zero bytes.
    #[test]
    fn the_stored_hash_is_the_plain_sha_256_of_the_secret() {
        let key = ApiKey::parse(&format!("wakeq_{}_{}", "0".repeat(12), "0".repeat(80))).unwrap();
        let expected = "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925";
        assert_eq!(hex_text(key.hash().as_bytes()), expected);
        assert!(!key.hash().matches(&KeyHash::OF_NOTHING));
    }

    #[test]
    fn one_flipped_bit_is_another_secret() {
        let key = generate();
        for bit in 0..256 {
            let mut secret = key.secret;
            secret[bit / 8] ^= 1 << (bit % 8);
            assert!(!ApiKey { secret, ..generate() }.hash().matches(&key.hash()), "bit {bit}");
        }
    }

    #[test]
    fn a_check_holds_for_one_key_of_one_deployment() {
        let key = generate();
        let text = key.reveal();
        assert!(checks().verify(&ApiKey::parse(&text).unwrap()));
        assert!(!KeyChecks::new(b"of another deployment").verify(&key), "another deployment's");
        for at in (6..text.len()).filter(|at| *at != 18) {
            let digit = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
            let mut changed = text.clone();
            changed.replace_range(at..=at, digit);
            assert!(!checks().verify(&ApiKey::parse(&changed).unwrap()), "digit {at}");
        }
        assert!(!checks().verify(&ApiKey { id: generate().id, ..generate() }), "of another key");
    }

    /// Known answer: the first eight bytes of the HMAC-SHA-256 of 38 zero bytes under `key`.
    #[test]
    fn the_check_is_the_beginning_of_an_hmac() {
        let check = KeyChecks::new(b"key").of(KeyId([0; 6]), &[0; SECRET_BYTES]);
        assert_eq!(hex_text(&check), "ebf44358c861ec14");
    }

    #[test]
    fn rejects_malformed_keys() {
        let (id, secret) = ("0123456789ab", "5".repeat(80));
        let good = format!("wakeq_{id}_{secret}");
        assert!(ApiKey::parse(&good).is_some());
        let bad = [
            String::new(),
            "wakeq_".into(),
            format!("wakeq_{id}"),
            format!("wakeq_{id}_"),
            format!("Wakeq_{id}_{secret}"),
            format!("wakeq-{id}-{secret}"),
            format!("{id}_{secret}"),
            format!("wakeq_{}_{secret}", id.to_uppercase()),
            format!("wakeq_{id}_{}", "A".repeat(80)),
            format!("wakeq_{id}_{}", "g".repeat(80)),
            format!("wakeq_{id}_{}", "5".repeat(79)),
            format!("wakeq_{id}_{}", "5".repeat(81)),
            format!("wakeq_{id}_{}", "5".repeat(64)),
            format!("wakeq_{id}_{}", "é".repeat(40)),
            format!("wakeq_{id}_{}é{}", "5".repeat(63), "5".repeat(15)),
            format!("wakeq_{}_{secret}", &id[1..]),
            format!("wakeq_{id}{secret}"),
            format!("wakeq_{id}__{secret}"),
            format!("wakeq_{id}_{secret}_"),
            format!(" {good}"),
            format!("{good} "),
            format!("{good}\n"),
            format!("{good}\0"),
        ];
        for text in bad {
            assert!(ApiKey::parse(&text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn debug_output_never_shows_the_secret() {
        let key = generate();
        let secret = hex_text(&key.secret);
        let shown = format!("{key:?} {:?} {} {:?}", key.id(), key.id(), key.hash());
        assert!(
            !shown.contains(&secret[..8]) && !shown.contains(&hex_text(key.hash().as_bytes())[..8]),
            "{shown}"
        );
    }
}
