//! Stands in for Google: a server of public keys that counts its fetches, and tokens signed with
//! the private ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::SystemTime;

use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

pub(crate) const AUDIENCE: &str = "https://queue.example";
pub(crate) const ROBOT: &str = "robot@project.iam.gserviceaccount.com";

/// A key pair, and the id of its public key.
pub(crate) struct Signer {
    id: String,
    pair: KeyPair,
}

impl Signer {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), pair: KeyPair::generate(KeySize::Rsa2048).unwrap() }
    }

    /// The public key as DER, PKCS #1.
    pub(crate) fn public(&self) -> Vec<u8> {
        self.pair.public_key().as_ref().to_vec()
    }

    pub(crate) fn jwk(&self) -> Value {
        // SEQUENCE, INTEGER of 257 bytes with a leading zero, INTEGER 65,537: always the same for
        // 2,048 bits.
        let (public, ends) = (self.public(), [2, 3, 1, 0, 1]);
        assert!(public.len() == 270 && public.ends_with(&ends));
        let modulus = base64_url(&public[9..265]);
        json!({"kty": "RSA", "alg": "RS256", "use": "sig", "kid": self.id, "n": modulus, "e": "AQAB"})
    }

    /// A token with these claims, signed as Google does.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": "RS256", "typ": "JWT", "kid": self.id}), claims)
    }

    /// The same with another header.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let mut signature = vec![0; self.pair.public_modulus_len()];
        let random = aws_lc_rs::rand::SystemRandom::new();
        self.pair.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
        format!("{message}.{}", base64_url(&signature))
    }
}

/// A key pair of Google's identity-aware proxy, and the id of its public key.
pub(crate) struct ProxySigner {
    id: String,
    pair: EcdsaKeyPair,
}

impl ProxySigner {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap() }
    }

    pub(crate) fn jwk(&self) -> Value {
        // An uncompressed point: 4, then both of its coordinates.
        let point = self.pair.public_key().as_ref();
        let (x, y) = (base64_url(&point[1..33]), base64_url(&point[33..65]));
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.id, "x": x, "y": y})
    }

    /// An assertion with these claims, signed as the proxy does.
    pub(crate) fn assertion(&self, claims: &Value) -> String {
        let message = unsigned(&json!({"alg": "ES256", "typ": "JWT", "kid": self.id}), claims);
        let random = aws_lc_rs::rand::SystemRandom::new();
        let signature = self.pair.sign(&random, message.as_bytes()).unwrap();
        format!("{message}.{}", base64_url(signature.as_ref()))
    }
}

/// `header.payload`.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64_url(header.to_string().as_bytes()), base64_url(claims.to_string().as_bytes()))
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// Google's claims about the robot, valid for three days.
pub(crate) fn claims() -> Value {
    json!({
        "iss": "https://accounts.google.com", "aud": AUDIENCE, "sub": "1", "azp": "1",
        "iat": now(), "exp": now() + 3 * 24 * 3600, "email": ROBOT, "email_verified": true,
    })
}

pub(crate) fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        let digits = (0..=chunk.len()).map(|index| (bits >> (18 - 6 * index)) as usize & 63);
        text.extend(digits.map(|digit| char::from(DIGITS[digit])));
    }
    text
}

/// What the server answers.
#[derive(Clone)]
pub(crate) enum Answer {
    Keys,
    Other(ResponseTemplate),
}

/// A server on this machine.
pub(crate) struct KeyServer {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _server: MockServer,
}

struct Shared {
    state: Mutex<State>,
    opened: Condvar,
    fetches: AtomicUsize,
    asked: Semaphore,
}

struct State {
    keys: Vec<Value>,
    answer: Answer,
    closed: bool,
}

impl KeyServer {
    /// Serves these keys, valid for ten minutes.
    pub(crate) async fn start(signers: &[&Signer]) -> Self {
        Self::with(signers.iter().map(|signer| signer.jwk()).collect()).await
    }

    /// The same for the proxy.
    pub(crate) async fn of_proxy(signer: &ProxySigner) -> Self {
        Self::with(vec![signer.jwk()]).await
    }

    async fn with(keys: Vec<Value>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { keys, answer: Answer::Keys, closed: false }),
            opened: Condvar::new(),
            fetches: AtomicUsize::new(0),
            asked: Semaphore::new(0),
        });
        let server = MockServer::builder().start().await;
        let asked = Arc::clone(&shared);
        let certs = Mock::given(method("GET")).and(path("/certs"));
        certs.respond_with(move |_: &Request| asked.answer()).mount(&server).await;
        Self { url: format!("{}/certs", server.uri()), shared, _server: server }
    }

    pub(crate) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::SeqCst)
    }

    pub(crate) fn add(&self, signer: &Signer) {
        self.shared.state.lock().unwrap().keys.push(signer.jwk());
    }

    pub(crate) fn answers(&self, answer: Answer) {
        self.shared.state.lock().unwrap().answer = answer;
    }

    /// Holds all answers from now on, until [`KeyServer::open`].
    pub(crate) fn close(&self) {
        self.shared.state.lock().unwrap().closed = true;
    }

    pub(crate) fn open(&self) {
        self.shared.state.lock().unwrap().closed = false;
        self.shared.opened.notify_all();
    }

    /// Returns once for each fetch that has arrived.
    pub(crate) async fn asked(&self) {
        let asked = tokio::time::timeout(super::TIMEOUT, self.shared.asked.acquire()).await;
        asked.expect("nobody fetched the keys").unwrap().forget();
    }
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        // The server's shutdown waits for the answers it owes.
        self.open();
    }
}

impl Shared {
    /// Waits on the server's own thread.
    fn answer(&self) -> ResponseTemplate {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        self.asked.add_permits(1);
        let state = self.opened.wait_while(self.state.lock().unwrap(), |state| state.closed).unwrap();
        match &state.answer {
            Answer::Keys => ResponseTemplate::new(200)
                .insert_header("cache-control", "public, max-age=600")
                .set_body_json(json!({"keys": state.keys})),
            Answer::Other(answer) => answer.clone(),
        }
    }
}
