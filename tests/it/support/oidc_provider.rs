//! An OpenID provider on this machine: it knows one client, signs whoever comes in as the person
//! that a test has chosen, and is as strict about codes, proofs and secrets as it should be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use wakeq_service::access::OidcConfig;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::google_keys::{ProxySigner, Signer, base64_url, now};

pub(crate) const CLIENT: &str = "wakeq";
const SECRET: &str = "of the client: 50%";
const REDIRECT: &str = "https://queue.example/sign-in/oidc/callback";

/// What the provider does next; a test changes it.
pub(crate) struct Behavior {
    /// Claims that differ from those of Ada; null removes one.
    pub(crate) claims: Value,
    /// Whether it signs with ES256.
    pub(crate) signs_with_p256: bool,
    /// The token that it gives out, if it makes none itself.
    pub(crate) token: Option<String>,
    /// What it answers at a path, in place of what it should.
    pub(crate) answers: HashMap<&'static str, ResponseTemplate>,
    /// Fields of its discovery document that differ.
    pub(crate) document: Value,
}

/// A code that was given out.
struct Issued {
    nonce: String,
    challenge: String,
}

struct State {
    issuer: String,
    rsa: Signer,
    p256: ProxySigner,
    behavior: Behavior,
    codes: HashMap<String, Issued>,
    /// Paths that were asked for.
    asked: Vec<String>,
}

/// A running provider.
pub(crate) struct OidcProvider {
    state: Arc<Mutex<State>>,
    _server: MockServer,
}

impl OidcProvider {
    pub(crate) async fn start() -> Self {
        let server = MockServer::builder().start().await;
        let behavior = Behavior {
            claims: json!({}),
            signs_with_p256: false,
            token: None,
            answers: HashMap::new(),
            document: json!({}),
        };
        let state = Arc::new(Mutex::new(State {
            issuer: server.uri(),
            rsa: Signer::new("rsa"),
            p256: ProxySigner::new("p256"),
            behavior,
            codes: HashMap::new(),
            asked: Vec::new(),
        }));
        for (verb, at) in [
            ("GET", "/.well-known/openid-configuration"),
            ("GET", "/keys"),
            ("GET", "/authorize"),
            ("POST", "/token"),
        ] {
            let state = Arc::clone(&state);
            let answer = move |request: &Request| state.lock().unwrap().answer(at, request);
            Mock::given(method(verb)).and(path(at)).respond_with(answer).mount(&server).await;
        }
        Self { state, _server: server }
    }

    /// The client that it knows.
    pub(crate) fn client(&self) -> OidcConfig {
        OidcConfig {
            issuer: self.state().issuer.clone(),
            client_id: CLIENT.to_owned(),
            client_secret: Some(SECRET.to_owned()),
            redirect_url: REDIRECT.to_owned(),
        }
    }

    /// Changes what it does from now on.
    pub(crate) fn will(&self, change: impl FnOnce(&mut Behavior)) {
        change(&mut self.state().behavior);
    }

    /// Whom it signs in from now on.
    pub(crate) fn knows(&self, email: &str) {
        self.will(|behavior| behavior.claims = json!({"email": email}));
    }

    /// How often a path was asked for.
    pub(crate) fn asked(&self, path: &str) -> usize {
        self.state().asked.iter().filter(|asked| *asked == path).count()
    }

    /// The address to which it sends back whoever has come to this one.
    pub(crate) async fn signs_in(&self, address: &str) -> String {
        let none = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().no_proxy().redirect(none).build().unwrap();
        let answer = client.get(address).send().await.unwrap();
        assert_eq!(answer.status(), 302, "{address}");
        let back = answer.headers()["location"].to_str().unwrap();
        back.strip_prefix("https://queue.example").unwrap().to_owned()
    }

    /// The claims about Ada for a nonce, as they were changed.
    pub(crate) fn claims(&self, nonce: &str) -> Value {
        self.state().claims(nonce)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn answer(&mut self, at: &'static str, request: &Request) -> ResponseTemplate {
        self.asked.push(at.to_owned());
        if let Some(answer) = self.behavior.answers.get(at) {
            return answer.clone();
        }
        match at {
            "/keys" => {
                ResponseTemplate::new(200).set_body_json(json!({"keys": [self.rsa.jwk(), self.p256.jwk()]}))
            }
            "/authorize" => self.authorize(request),
            "/token" => self.exchange(request),
            _ => ResponseTemplate::new(200).set_body_json(self.document()),
        }
    }

    fn document(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        let mut document = json!({
            "issuer": self.issuer, "authorization_endpoint": at("/authorize?tenant=ours"),
            "token_endpoint": at("/token"), "jwks_uri": at("/keys"),
            "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
            "authorization_response_iss_parameter_supported": true,
        });
        change(&mut document, &self.behavior.document);
        document
    }

    fn authorize(&mut self, request: &Request) -> ResponseTemplate {
        let given: HashMap<String, String> = request.url.query_pairs().into_owned().collect();
        for (name, value) in [
            ("tenant", "ours"),
            ("response_type", "code"),
            ("client_id", CLIENT),
            ("redirect_uri", REDIRECT),
            ("scope", "openid email"),
            ("code_challenge_method", "S256"),
        ] {
            assert_eq!(given[name], value, "{name}");
        }
        let code = format!("code {}+/", self.codes.len());
        let issued = Issued { nonce: given["nonce"].clone(), challenge: given["code_challenge"].clone() };
        self.codes.insert(code.clone(), issued);
        let mut back = url::Url::parse(REDIRECT).unwrap();
        let mut pairs = back.query_pairs_mut();
        pairs.append_pair("code", &code).append_pair("state", &given["state"]);
        pairs.append_pair("iss", &self.issuer);
        drop(pairs);
        ResponseTemplate::new(302).insert_header("location", back.as_str())
    }

    /// Takes a code once, from the client that has its secret, with the proof of who has begun.
    fn exchange(&mut self, request: &Request) -> ResponseTemplate {
        let given: HashMap<String, String> =
            url::form_urlencoded::parse(&request.body).into_owned().collect();
        let encoded: String = url::form_urlencoded::byte_serialize(SECRET.as_bytes()).collect();
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{CLIENT}:{encoded}")));
        if request.headers.get("authorization").is_none_or(|sent| sent.as_bytes() != basic.as_bytes()) {
            return ResponseTemplate::new(401).set_body_json(json!({"error": "invalid_client"}));
        }
        let issued = self.codes.remove(&given["code"]);
        let proof = base64_url(digest(&SHA256, given["code_verifier"].as_bytes()).as_ref());
        let issued = issued.filter(|issued| {
            issued.challenge == proof
                && given["redirect_uri"] == REDIRECT
                && given["grant_type"] == "authorization_code"
        });
        let Some(issued) = issued else {
            return ResponseTemplate::new(400).set_body_json(json!({"error": "invalid_grant"}));
        };
        let claims = self.claims(&issued.nonce);
        let signed = match self.behavior.signs_with_p256 {
            true => self.p256.assertion(&claims),
            false => self.rsa.token(&claims),
        };
        let token = self.behavior.token.clone().unwrap_or(signed);
        let body =
            json!({"access_token": "unused", "token_type": "Bearer", "expires_in": 60, "id_token": token});
        ResponseTemplate::new(200).set_body_json(body)
    }

    fn claims(&self, nonce: &str) -> Value {
        let mut claims = json!({
            "iss": self.issuer, "aud": CLIENT, "sub": "1", "iat": now(), "exp": now() + 300, "nonce": nonce,
            "email": "Ada@Queue.example", "email_verified": true,
        });
        change(&mut claims, &self.behavior.claims);
        claims
    }
}

fn change(object: &mut Value, fields: &Value) {
    for (name, value) in fields.as_object().unwrap() {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            object[name] = value.clone();
        }
    }
}
