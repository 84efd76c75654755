//! Sessions of people in a browser: a key is exchanged for a token that names it, ends before long,
//! and ends with the key. Any process can tell whose a token is; whether the session was ended
//! before is for its row to say.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::KeyId;
use super::key::NoRandomness;

pub(super) const NONCE_BYTES: usize = 16;
/// SHA-256 of an issuer.
pub(super) const ISSUER_BYTES: usize = 32;
const MAC_BYTES: usize = 32;
const BODY_BYTES: usize = KeyId::BYTES + NONCE_BYTES + size_of::<u64>();

/// How many links of which it is remembered that they were used.
const LINKS_MAX: usize = 10_000;

/// What a token is made for. None is valid for another purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A session.
    Session,
    /// A link that opens a session once.
    Link,
    /// The hidden field of a session's forms.
    Form,
    /// The hidden field of the forms of a person whom a proxy has signed in.
    FormOfAccount,
    /// The session of a person whom an OpenID provider has signed in.
    Person,
    /// The hidden field of that session's forms.
    FieldOfPerson,
    /// What a browser keeps of a sign-in on its way.
    Flow,
    /// The state of that.
    FlowState,
    /// The nonce of its ID token.
    FlowNonce,
    /// Proves that this deployment has begun it.
    FlowProof,
}

/// What is remembered of an open session.
pub(super) struct KnownSession {
    /// Whether its row has to say that it is in use.
    pub(super) use_to_note: AtomicBool,
}

impl Purpose {
    fn word(self) -> &'static [u8] {
        match self {
            Self::Session => b"wakeq page session",
            Self::Link => b"wakeq page link",
            Self::Form => b"wakeq page form",
            // None is the beginning of another one.
            Self::FormOfAccount => b"wakeq page account",
            Self::Person => b"wakeq page person",
            Self::FieldOfPerson => b"wakeq page field",
            Self::Flow => b"wakeq page oidc flow",
            Self::FlowState => b"wakeq page oidc state",
            Self::FlowNonce => b"wakeq page oidc nonce",
            Self::FlowProof => b"wakeq page oidc proof",
        }
    }
}

/// A token's contents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    /// The key that it was opened with.
    pub(crate) key: KeyId,
    nonce: [u8; NONCE_BYTES],
    /// When it ends, in seconds since 1970.
    pub(crate) ends_at_s: u64,
}

impl Session {
    /// Opened with a key, until a moment.
    pub(super) fn new(key: KeyId, ends_at_s: u64) -> Result<Self, NoRandomness> {
        let mut nonce = [0; NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| NoRandomness)?;
        Ok(Self { key, nonce, ends_at_s })
    }

    /// The session that this link opens, until a moment. Its row has the id of the link, so that
    /// there is one at most, whatever process the link is used in.
    pub(super) fn of_link(self, ends_at_s: u64) -> Self {
        Self { ends_at_s, ..self }
    }

    /// What its row is known by.
    pub(super) fn id(&self) -> Uuid {
        Uuid::from_bytes(self.nonce)
    }

    fn body(&self) -> [u8; BODY_BYTES] {
        let mut body = [0; BODY_BYTES];
        let (key, rest) = body.split_at_mut(KeyId::BYTES);
        let (nonce, end) = rest.split_at_mut(NONCE_BYTES);
        key.copy_from_slice(self.key.as_bytes());
        nonce.copy_from_slice(&self.nonce);
        end.copy_from_slice(&self.ends_at_s.to_be_bytes());
        body
    }
}

/// The contents of the token of a person whom an OpenID provider has signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PersonSession {
    /// In lower case.
    pub(crate) email: String,
    /// Which provider it was: the session ends when another one is configured.
    pub(super) issuer: [u8; ISSUER_BYTES],
    nonce: [u8; NONCE_BYTES],
    /// When it ends, in seconds since 1970.
    pub(super) ends_at_s: u64,
}

impl PersonSession {
    pub(super) fn new(
        email: String,
        issuer: [u8; ISSUER_BYTES],
        ends_at_s: u64,
    ) -> Result<Self, NoRandomness> {
        let mut nonce = [0; NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| NoRandomness)?;
        Ok(Self { email, issuer, nonce, ends_at_s })
    }

    /// What its row is known by.
    pub(super) fn id(&self) -> Uuid {
        Uuid::from_bytes(self.nonce)
    }

    fn body(&self) -> Vec<u8> {
        [&self.issuer[..], &self.nonce, &self.ends_at_s.to_be_bytes(), self.email.as_bytes()].concat()
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (issuer, rest) = body.split_first_chunk::<ISSUER_BYTES>()?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let (end, email) = rest.split_first_chunk::<8>()?;
        let email = String::from_utf8(email.to_vec()).ok()?;
        Some(Self { email, issuer: *issuer, nonce: *nonce, ends_at_s: u64::from_be_bytes(*end) })
    }
}

/// How a person is signed in.
pub(crate) enum SignIn {
    /// By a session that was opened with a key.
    Session(Session),
    /// By a session that an OpenID provider has opened.
    Person(PersonSession),
    /// By a proxy, as the account with this address.
    Proxy {
        /// In lower case.
        email: String,
    },
}

/// Makes and checks sessions, and knows which links were used in this process.
pub(super) struct Sessions {
    pub(super) signer: Signer,
    /// The links that were used, and when they end, in seconds since 1970.
    used: Mutex<HashMap<[u8; NONCE_BYTES], u64>>,
}

impl Sessions {
    pub(super) fn new(secret: &[u8]) -> Self {
        Self { signer: Signer::new(secret), used: Mutex::default() }
    }

    /// Whether a link is used for the first time. Links beyond the limit can't be used, so that
    /// none is used twice.
    pub(super) fn use_link(&self, link: &Session, now_s: u64) -> bool {
        self.use_once(link.nonce, link.ends_at_s, now_s)
    }

    /// The same for whatever has a nonce and an end.
    pub(super) fn use_once(&self, nonce: [u8; NONCE_BYTES], ends_at_s: u64, now_s: u64) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, ends_at_s| *ends_at_s > now_s);
        used.len() < LINKS_MAX && used.insert(nonce, ends_at_s).is_none()
    }
}

/// Signs and verifies tokens under the deployment's secret.
pub(super) struct Signer(hmac::Key);

impl Signer {
    pub(super) fn new(secret: &[u8]) -> Self {
        // A key of its own, so that no token can pass for the check of an API key.
        let own = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"wakeq page");
        Self(hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()))
    }

    /// The token of a session, for a purpose.
    pub(super) fn token(&self, purpose: Purpose, session: &Session) -> String {
        let body = session.body();
        let mut token = body.to_vec();
        token.extend_from_slice(self.mac(purpose, &body).as_ref());
        BASE64_URL_SAFE_NO_PAD.encode(token)
    }

    /// What a token says, if it was made here for this purpose. It may have ended since.
    pub(super) fn read(&self, purpose: Purpose, token: &str) -> Option<Session> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let bytes: [u8; BODY_BYTES + MAC_BYTES] = bytes.try_into().ok()?;
        let (body, mac) = bytes.split_at(BODY_BYTES);
        verify_slices_are_equal(self.mac(purpose, body).as_ref(), mac).ok()?;
        let (key, rest) = body.split_at_checked(KeyId::BYTES)?;
        let (nonce, end) = rest.split_at_checked(NONCE_BYTES)?;
        Some(Session {
            key: KeyId::of_bytes(key.try_into().ok()?),
            nonce: nonce.try_into().ok()?,
            ends_at_s: u64::from_be_bytes(end.try_into().ok()?),
        })
    }

    /// The field of the forms that an account is shown on a day, which is counted from 1970.
    pub(super) fn field_of_account(&self, email: &str, day: u64) -> String {
        let body = [day.to_be_bytes().as_slice(), email.as_bytes()].concat();
        BASE64_URL_SAFE_NO_PAD.encode(self.mac(Purpose::FormOfAccount, &body))
    }

    /// The token of a person's session.
    pub(super) fn token_of_person(&self, session: &PersonSession) -> String {
        self.sealed(Purpose::Person, &session.body())
    }

    /// What such a token says, if it was made here. It may have ended since.
    pub(super) fn person(&self, token: &str) -> Option<PersonSession> {
        PersonSession::read(&self.opened(Purpose::Person, token)?)
    }

    /// The field of the forms of a person's session.
    pub(super) fn field_of_person(&self, session: &PersonSession) -> String {
        self.derived(Purpose::FieldOfPerson, &session.body())
    }

    /// Bytes with their MAC, as a text.
    pub(super) fn sealed(&self, purpose: Purpose, body: &[u8]) -> String {
        BASE64_URL_SAFE_NO_PAD.encode([body, self.mac(purpose, body).as_ref()].concat())
    }

    /// These bytes, if they were sealed here for this purpose.
    pub(super) fn opened(&self, purpose: Purpose, text: &str) -> Option<Vec<u8>> {
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let mac = bytes.split_off(bytes.len().checked_sub(MAC_BYTES)?);
        verify_slices_are_equal(self.mac(purpose, &bytes).as_ref(), &mac).ok()?;
        Some(bytes)
    }

    /// A text that nobody without the secret can derive from these bytes.
    pub(super) fn derived(&self, purpose: Purpose, body: &[u8]) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.mac(purpose, body))
    }

    fn mac(&self, purpose: Purpose, body: &[u8]) -> hmac::Tag {
        let mut signing = hmac::Context::with_key(&self.0);
        signing.update(purpose.word());
        signing.update(body);
        signing.sign()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_for_its_purpose_and_deployment_only() {
        let signer = Signer::new(b"of this deployment");
        let session = Session::new("0123456789ab".parse().unwrap(), 1_700_000_000).unwrap();
        let token = signer.token(Purpose::Session, &session);
        let read = signer.read(Purpose::Session, &token).unwrap();
        assert!(read == session && read.key == session.key && read.ends_at_s == 1_700_000_000);
        for purpose in [Purpose::Link, Purpose::Form, Purpose::FormOfAccount] {
            assert!(signer.read(purpose, &token).is_none());
        }
        assert!(Signer::new(b"of another").read(Purpose::Session, &token).is_none());
        let other = Session::new(session.key, session.ends_at_s).unwrap();
        assert!(signer.token(Purpose::Session, &other) != token, "no two sessions are alike");
    }

    #[test]
    fn the_field_of_an_account_is_its_own_and_of_a_day() {
        let (signer, ada) = (Signer::new(b"of this deployment"), "ada@example.com");
        let field = signer.field_of_account(ada, 20_000);
        assert_eq!(field, signer.field_of_account(ada, 20_000), "in every process");
        for (email, day) in [("bob@example.com", 20_000), (ada, 20_001), ("da@example.com", 20_000)] {
            assert_ne!(signer.field_of_account(email, day), field, "{email} {day}");
        }
        assert_ne!(Signer::new(b"of another").field_of_account(ada, 20_000), field);
    }

    #[test]
    fn the_session_of_a_person_is_read_as_it_was_made_and_for_nothing_else() {
        let signer = Signer::new(b"of this deployment");
        let ada = PersonSession::new("ada@example.com".into(), [7; ISSUER_BYTES], 1_700_000_000).unwrap();
        let token = signer.token_of_person(&ada);
        assert_eq!(signer.person(&token), Some(ada.clone()));
        assert_eq!(Signer::new(b"of another").person(&token), None);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(signer.person(&BASE64_URL_SAFE_NO_PAD.encode(changed)), None, "bit {bit}");
        }
        for purpose in [Purpose::Session, Purpose::Link, Purpose::Form] {
            assert!(signer.read(purpose, &token).is_none());
        }
        for purpose in [Purpose::Flow, Purpose::FieldOfPerson] {
            assert!(signer.opened(purpose, &token).is_none());
        }
        let key = Session::new("0123456789ab".parse().unwrap(), 1_700_000_000).unwrap();
        assert_eq!(signer.person(&signer.token(Purpose::Session, &key)), None);
        let again = PersonSession::new(ada.email.clone(), ada.issuer, ada.ends_at_s).unwrap();
        assert!(signer.field_of_person(&again) != signer.field_of_person(&ada), "each has its own");
        for nonsense in ["", "x", "AAAA"] {
            assert_eq!(signer.person(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_changed_token_is_refused() {
        let signer = Signer::new(b"of this deployment");
        let session = Session::new("0123456789ab".parse().unwrap(), 1_700_000_000).unwrap();
        let token = BASE64_URL_SAFE_NO_PAD.decode(signer.token(Purpose::Session, &session)).unwrap();
        for bit in 0..token.len() * 8 {
            let mut changed = token.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let text = BASE64_URL_SAFE_NO_PAD.encode(changed);
            assert!(signer.read(Purpose::Session, &text).is_none(), "bit {bit}");
        }
        for text in ["", "x", &BASE64_URL_SAFE_NO_PAD.encode(&token[1..])] {
            assert!(signer.read(Purpose::Session, text).is_none(), "{text:?}");
        }
    }
}
