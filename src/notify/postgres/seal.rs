//! Keeps every other role of the database out, by names of channels that can't be guessed and by
//! messages that can be neither read nor made without the deployment's secret.
//!
//! Postgres asks for no right to LISTEN or NOTIFY, so a name alone proves nothing. This module must
//! never print the secret, and never accept a message of another channel or another deployment.

use std::fmt;
use std::fmt::Write as _;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use uuid::Uuid;

use crate::store::PAYLOAD_BYTES_MAX;

/// Bytes of the sender and of the number, before the content.
const HEAD_BYTES: usize = 16 + 8;
/// Bytes that authenticate the content, after it.
const TAG_BYTES: usize = 16;
/// Maximum bytes of a message's content, which is what base64 leaves of a payload.
pub(super) const CONTENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX * 3 / 4 - HEAD_BYTES - TAG_BYTES;

/// The purpose of a channel. Each has a name and keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Notifications,
    Signals,
    Broadcasts,
}

impl Purpose {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Notifications => "notifications",
            Self::Signals => "signals",
            Self::Broadcasts => "broadcasts",
        }
    }
}

/// The keys that follow from the deployment's secret.
pub(super) struct ChannelKeys(hmac::Key);

/// A message whose content only a process of the deployment can have made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The process that sent it.
    pub(super) sender: Uuid,
    pub(super) content: Vec<u8>,
}

impl ChannelKeys {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The name of a channel: 128 bits that nobody can guess.
    pub(super) fn channel(&self, purpose: Purpose) -> String {
        let tag = hmac::sign(&self.0, format!("wakeq: the channel of {}", purpose.label()).as_bytes());
        tag.as_ref().iter().take(16).fold("wakeq_".to_owned(), |mut name, byte| {
            // Writing to a string does not fail.
            let _ = write!(name, "{byte:02x}");
            name
        })
    }

    /// Encrypts and authenticates a content. A sender, a random id, must use each number once; it
    /// has a key of its own, so that numbers need not be random. `None` if the content is too long.
    pub(super) fn seal(&self, purpose: Purpose, sender: Uuid, number: u64, content: &[u8]) -> Option<String> {
        if content.len() > CONTENT_BYTES_MAX {
            return None;
        }
        let mut sealed = Vec::with_capacity(HEAD_BYTES + content.len() + TAG_BYTES);
        sealed.extend_from_slice(content);
        let key = self.key_of(purpose, sender)?;
        key.seal_in_place_append_tag(nonce(number), Aad::empty(), &mut sealed).ok()?;
        let head = [sender.as_bytes().as_slice(), &number.to_be_bytes()].concat();
        sealed.splice(..0, head);
        Some(STANDARD_NO_PAD.encode(sealed))
    }

    /// The message in a payload; `None` for what no process of this deployment sent on this
    /// channel.
    pub(super) fn open(&self, purpose: Purpose, payload: &str) -> Option<Opened> {
        let bytes = STANDARD_NO_PAD.decode(payload).ok()?;
        let (head, sealed) = bytes.split_at_checked(HEAD_BYTES)?;
        let (sender, number) = head.split_at(16);
        let sender = Uuid::from_slice(sender).ok()?;
        let nonce = nonce(u64::from_be_bytes(number.try_into().ok()?));
        let mut content = sealed.to_vec();
        let length =
            self.key_of(purpose, sender)?.open_in_place(nonce, Aad::empty(), &mut content).ok()?.len();
        content.truncate(length);
        Some(Opened { sender, content })
    }

    fn key_of(&self, purpose: Purpose, sender: Uuid) -> Option<LessSafeKey> {
        let text = format!("wakeq: the {} of {sender}", purpose.label());
        let key = hmac::sign(&self.0, text.as_bytes());
        UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
    }
}

impl fmt::Debug for ChannelKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ChannelKeys(redacted)")
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Purpose; 3] = [Purpose::Notifications, Purpose::Signals, Purpose::Broadcasts];

    #[test]
    fn names_follow_from_the_secret_alone() {
        let (ours, others) = (ChannelKeys::new(&[1; 32]), ChannelKeys::new(&[2; 32]));
        let mut names: Vec<String> =
            [&ours, &others].iter().flat_map(|keys| ALL.map(|purpose| keys.channel(purpose))).collect();
        assert_eq!(names[0], ChannelKeys::new(&[1; 32]).channel(Purpose::Notifications));
        assert!(names.iter().all(|name| name.len() == 38 && name.starts_with("wakeq_")), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 6);
        assert_eq!(format!("{ours:?}"), "ChannelKeys(redacted)");
    }

    #[test]
    fn only_what_was_sealed_for_the_channel_of_this_deployment_opens() {
        let (ours, others) = (ChannelKeys::new(&[1; 32]), ChannelKeys::new(&[2; 32]));
        let (sender, content) = (Uuid::from_u128(7), b"4111 1111 1111 1111".to_vec());
        let sealed = ours.seal(Purpose::Broadcasts, sender, 1, &content).unwrap();
        let opened = Some(Opened { sender, content: content.clone() });
        assert_eq!(ours.open(Purpose::Broadcasts, &sealed), opened);
        assert_eq!(ours.open(Purpose::Signals, &sealed), None, "another channel");
        assert_eq!(others.open(Purpose::Broadcasts, &sealed), None, "another deployment");
        assert_ne!(ours.seal(Purpose::Broadcasts, sender, 2, &content).unwrap(), sealed);
        let bytes = STANDARD_NO_PAD.decode(&sealed).unwrap();
        assert!(!bytes.windows(4).any(|part| part == b"4111"), "{sealed}");
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert_eq!(
                ours.open(Purpose::Broadcasts, &STANDARD_NO_PAD.encode(&changed)),
                None,
                "byte {place}"
            );
            let cut = STANDARD_NO_PAD.encode(&bytes[..place]);
            assert_eq!(ours.open(Purpose::Broadcasts, &cut), None, "{place} bytes");
        }
        for nonsense in ["", "hello", "{}", "====", "\u{e9}"] {
            assert_eq!(ours.open(Purpose::Broadcasts, nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn the_longest_content_is_within_what_the_server_accepts() {
        let keys = ChannelKeys::new(&[1; 32]);
        let seal = |bytes| keys.seal(Purpose::Broadcasts, Uuid::nil(), 1, &vec![7; bytes]);
        let longest = seal(CONTENT_BYTES_MAX).unwrap();
        assert!((PAYLOAD_BYTES_MAX - 1..=PAYLOAD_BYTES_MAX).contains(&longest.len()), "{}", longest.len());
        assert_eq!(seal(CONTENT_BYTES_MAX + 1), None);
        assert_eq!(keys.open(Purpose::Broadcasts, &seal(0).unwrap()).unwrap().content, b"");
    }
}
