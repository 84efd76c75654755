//! Signing secrets at rest: encrypted under a key of the deployment, and bound to their handler.
//!
//! This module must never print a key or a secret, nor accept a ciphertext of another handler.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::{HandlerAddress, NoSecret, Secret};

/// Bytes of an AES-256 key.
const KEY_BYTES: usize = 32;
/// Maximum number of keys: two are enough for a rotation.
const KEYS_MAX: usize = 10;
const NONCE_BYTES: usize = 12;

/// The keys under which the signing secrets of targets are encrypted in the database; the same for
/// every process of a deployment. The first key encrypts, each key decrypts, so that one can be
/// replaced while the others are still in use.
///
/// Parsed from 32 random bytes in base64 or hex, several keys separated by commas, 10 at most.
/// Without a key, no target can be registered or called, unless [`SecretKeys::in_clear`] allows
/// secrets in clear: it is for deployments that deliberately store them so.
///
/// ```
/// use wakeq::targets::SecretKeys;
///
/// let new = SecretKeys::generate().unwrap();
/// let keys: SecretKeys = format!("{new},{}", "ab".repeat(32)).parse().unwrap();
/// assert_eq!(keys.ids().len(), 2);
/// assert_eq!(format!("{keys:?}"), format!("SecretKeys({})", keys.ids().join(", ")));
/// assert!("too short".parse::<SecretKeys>().is_err());
/// ```
#[derive(Clone, Default)]
pub struct SecretKeys {
    keys: Vec<Arc<SealingKey>>,
    in_clear: bool,
}

struct SealingKey {
    id: String,
    sealing: RandomizedNonceKey,
}

/// A newly generated key, to be configured. `to_string` reveals it, `Debug` does not.
pub struct NewSecretKey([u8; KEY_BYTES]);

/// A text that is not a list of keys. The error repeats nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a key for signing secrets is 32 random bytes in base64 or hex, and several are separated by commas, {KEYS_MAX} at \
     most: `wakeq secrets new-key` makes one"
)]
pub struct InvalidSecretKeys;

/// Why a secret was not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No key is configured, and secrets may not be stored in plain text.
    #[error("there is no key for signing secrets")]
    NoKey,
    /// The operating system provided no random numbers.
    #[error(transparent)]
    NoRandomness(#[from] NoSecret),
}

/// Why a secret in the database can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(
        "it is encrypted under the key {0}, which this process does not have: give it in WAKEQ_SECRET_KEY"
    )]
    NoKey(String),
    #[error(
        "it is in plain text, which this process does not accept: run `wakeq secrets rotate`, or \
         set WAKEQ_ALLOW_PLAIN_SECRETS=1"
    )]
    InClear,
    #[error("it was not encrypted for this handler: register the target again, with --rotate-secret")]
    Forged,
}

/// A secret as stored in a row: its bytes and the id of the key that encrypted them. Without a key,
/// the bytes are the secret itself.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SealedSecret {
    pub(crate) key: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

impl SecretKeys {
    /// Generates a key of 256 random bits.
    pub fn generate() -> Result<NewSecretKey, NoSecret> {
        let mut bytes = [0; KEY_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| NoSecret)?;
        Ok(NewSecretKey(bytes))
    }

    /// Also accepts secrets that are stored in clear. Without a key, new ones are stored in clear.
    pub fn in_clear(self) -> Self {
        Self { in_clear: true, ..self }
    }

    /// The ids of the keys, in order: 16 hexadecimal digits each. An id is stored beside what its
    /// key encrypted, and reveals nothing about the key.
    pub fn ids(&self) -> Vec<&str> {
        self.keys.iter().map(|key| key.id.as_str()).collect()
    }

    /// Whether secrets may be stored in clear.
    pub fn allows_clear(&self) -> bool {
        self.in_clear
    }

    /// Encrypts a secret of this handler under the first key.
    pub(crate) fn seal(&self, address: &HandlerAddress, secret: &Secret) -> Result<SealedSecret, SealError> {
        let mut bytes = secret.as_bytes().to_vec();
        let Some(key) = self.keys.first() else {
            return if self.in_clear { Ok(SealedSecret { key: None, bytes }) } else { Err(SealError::NoKey) };
        };
        let nonce = key.sealing.seal_in_place_append_tag(bound_to(address), &mut bytes);
        let nonce = nonce.map_err(|_| NoSecret)?;
        let sealed = [nonce.as_ref().as_slice(), &bytes].concat();
        Ok(SealedSecret { key: Some(key.id.clone()), bytes: sealed })
    }

    /// Decrypts the secret of this handler; refuses one that was encrypted for another.
    pub(crate) fn open(&self, address: &HandlerAddress, sealed: &SealedSecret) -> Result<Secret, OpenError> {
        match &sealed.key {
            None if self.in_clear => self.open_any(address, sealed),
            None => Err(OpenError::InClear),
            Some(_) => self.open_any(address, sealed),
        }
    }

    /// Like [`Self::open`], but also accepts a secret in clear, whatever these keys allow: for
    /// callers that encrypt it again.
    pub(crate) fn open_any(
        &self,
        address: &HandlerAddress,
        sealed: &SealedSecret,
    ) -> Result<Secret, OpenError> {
        let SealedSecret { key, bytes } = sealed;
        let Some(id) = key else {
            return Secret::from_bytes(bytes.clone()).map_err(|_| OpenError::Forged);
        };
        let found = self.keys.iter().find(|key| key.id == *id);
        let key = found.ok_or_else(|| OpenError::NoKey(id.clone()))?;
        let (nonce, rest) = bytes.split_at_checked(NONCE_BYTES).ok_or(OpenError::Forged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| OpenError::Forged)?;
        let mut rest = rest.to_vec();
        let opened = key.sealing.open_in_place(nonce, bound_to(address), &mut rest);
        let opened = opened.map_err(|_| OpenError::Forged)?;
        Secret::from_bytes(opened.to_vec()).map_err(|_| OpenError::Forged)
    }
}

/// The data that a ciphertext is authenticated with: unique per handler, as names have no slash.
fn bound_to(address: &HandlerAddress) -> Aad<Vec<u8>> {
    Aad::from(format!("wakeq signing secret {}/{address}", address.scope.canvas).into_bytes())
}

impl FromStr for SecretKeys {
    type Err = InvalidSecretKeys;

    fn from_str(text: &str) -> Result<Self, InvalidSecretKeys> {
        let texts: Vec<&str> = text.split(',').map(str::trim).collect();
        if texts.len() > KEYS_MAX {
            return Err(InvalidSecretKeys);
        }
        let keys: Result<Vec<_>, _> =
            texts.into_iter().map(|text| SealingKey::read(text).map(Arc::new)).collect();
        Ok(Self { keys: keys?, in_clear: false })
    }
}

impl SealingKey {
    fn read(text: &str) -> Result<Self, InvalidSecretKeys> {
        let bytes = if text.len() == 2 * KEY_BYTES {
            from_hex(text)
        } else {
            STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok()
        };
        let bytes = bytes.filter(|bytes| bytes.len() == KEY_BYTES).ok_or(InvalidSecretKeys)?;
        let sealing = RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| InvalidSecretKeys)?;
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &bytes), b"wakeq: the id of this key");
        let id = tag.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { id, sealing })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    digits?
        .chunks(2)
        .map(|pair| u8::try_from(pair.iter().fold(0, |byte, digit| 16 * byte + digit)).ok())
        .collect()
}

impl fmt::Debug for SecretKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_clear = if self.in_clear { "; or in plain text" } else { "" };
        write!(formatter, "SecretKeys({}{in_clear})", self.ids().join(", "))
    }
}

impl fmt::Display for NewSecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for NewSecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NewSecretKey")
    }
}

impl fmt::Debug for SealedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SealedSecret({:?})", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CanvasId, HandlerScope, Name};

    fn address(canvas: u128, name: &str, modifier: &str) -> HandlerAddress {
        let canvas = CanvasId(uuid::Uuid::from_u128(canvas));
        let scope = HandlerScope { canvas, module: Name::worker(), name: name.parse().unwrap() };
        HandlerAddress { scope, modifier: modifier.parse().unwrap() }
    }

    fn keys(text: &str) -> SecretKeys {
        text.parse().unwrap()
    }

    #[test]
    fn a_sealed_secret_opens_only_for_its_handler() {
        let (keys, secret) = (keys(&"07".repeat(32)), Secret::generate().unwrap());
        let ours = address(1, "greet", "_");
        let sealed = keys.seal(&ours, &secret).unwrap();
        assert_eq!(sealed.key.as_deref(), Some(keys.ids()[0]));
        assert_eq!(sealed.bytes.len(), 12 + 32 + 16);
        assert!(!sealed.bytes.windows(8).any(|part| secret.as_bytes().starts_with(part)));
        assert_eq!(keys.open(&ours, &sealed).unwrap().as_bytes(), secret.as_bytes());
        let again = keys.seal(&ours, &secret).unwrap();
        assert_ne!(again, sealed, "a nonce of its own each time");
        for others in [address(2, "greet", "_"), address(1, "greet2", "_"), address(1, "greet", "eu")] {
            assert_eq!(keys.open(&others, &sealed).unwrap_err(), OpenError::Forged, "{others}");
        }
        for changed in [&sealed.bytes[..11], &sealed.bytes[..30], &[0; 60]] {
            let changed = SealedSecret { bytes: changed.to_vec(), ..sealed.clone() };
            assert_eq!(keys.open(&ours, &changed).unwrap_err(), OpenError::Forged);
        }
    }

    #[test]
    fn the_first_key_encrypts_and_each_decrypts() {
        let (old, new) = (STANDARD.encode([1; 32]), "02".repeat(32));
        let (ours, secret) = (address(1, "greet", "_"), Secret::generate().unwrap());
        let sealed = keys(&old).seal(&ours, &secret).unwrap();
        let both = keys(&format!("{new}, {old}"));
        assert_eq!(both.open(&ours, &sealed).unwrap().as_bytes(), secret.as_bytes());
        assert_eq!(both.seal(&ours, &secret).unwrap().key.as_deref(), Some(keys(&new).ids()[0]));
        let refused = keys(&new).open(&ours, &sealed).unwrap_err();
        assert_eq!(refused, OpenError::NoKey(keys(&old).ids()[0].to_owned()));
    }

    #[test]
    fn rejects_plain_secrets_unless_allowed() {
        let (none, ours) = (SecretKeys::default(), address(1, "greet", "_"));
        let secret = Secret::generate().unwrap();
        assert_eq!(none.seal(&ours, &secret).unwrap_err(), SealError::NoKey);
        let clear = none.clone().in_clear().seal(&ours, &secret).unwrap();
        assert_eq!((clear.key.as_deref(), clear.bytes.as_slice()), (None, secret.as_bytes()));
        let keys = keys(&"07".repeat(32));
        for strict in [&none, &keys] {
            assert_eq!(strict.open(&ours, &clear).unwrap_err(), OpenError::InClear);
            assert!(strict.clone().in_clear().open(&ours, &clear).is_ok());
        }
        assert!(keys.in_clear().seal(&ours, &secret).unwrap().key.is_some(), "what has a key uses it");
    }

    #[test]
    fn rejects_invalid_keys_and_shows_none() {
        let long = vec!["00".repeat(32); 11].join(",");
        for text in ["", ",", "abc", &"0".repeat(63), &"g".repeat(64), &STANDARD.encode([1; 31]), &long] {
            assert_eq!(text.parse::<SecretKeys>().unwrap_err(), InvalidSecretKeys, "{text}");
        }
        let shown = format!("{:?} {:?}", keys(&"ab".repeat(32)), SecretKeys::generate().unwrap());
        assert!(!shown.contains("abab"), "{shown}");
    }
}
