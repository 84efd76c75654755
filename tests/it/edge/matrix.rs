//! Every guarded operation of the document, with every kind of wrong credential: refused as it
//! should be, with nothing changed. Then with right ones.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use reqwest::RequestBuilder;
use serde_json::json;
use uuid::Uuid;
use wakeq::CanvasId;
use wakeq_service::access::{AccessConfig, Reach, Scope};
use wakeq_service::server::HttpConfig;

use super::contents::contents;
use super::requests::{FOREIGN, Operation, Targets, operations};
use crate::support::google_keys::{AUDIENCE, KeyServer, ROBOT, Signer, base64_url, claims, now, unsigned};
use crate::support::service::{Answer, Service, make_key};

const OTHER_ROBOT: &str = "other@project.iam.gserviceaccount.com";

/// A credential that must be refused.
struct RejectedCredential {
    kind: String,
    authorization: Vec<String>,
    status: u16,
}

impl RejectedCredential {
    fn add_to(&self, request: RequestBuilder) -> RequestBuilder {
        self.authorization.iter().fold(request, |request, value| request.header("authorization", value))
    }
}

fn rejected(kind: impl Into<String>, authorization: impl Into<String>, status: u16) -> RejectedCredential {
    RejectedCredential { kind: kind.into(), authorization: vec![authorization.into()], status }
}

struct CredentialIssuer {
    service: Service,
    signer: Signer,
    _server: KeyServer,
}

impl CredentialIssuer {
    async fn start() -> Self {
        let signer = Signer::new("one");
        let server = KeyServer::start(&[&signer]).await;
        let (audiences, jwks_url) = (vec![AUDIENCE.to_owned()], server.url.clone());
        let access = AccessConfig { audiences, jwks_url, ..AccessConfig::default() };
        let service =
            Service::with(HttpConfig { access, stranger_rate: 100_000, ..HttpConfig::default() }).await;
        Self { service, signer, _server: server }
    }

    async fn allow(&self, account: &str, reach: Reach, scopes: &[Scope]) {
        let (scopes, by) = (scopes.iter().copied().collect(), wakeq::Actor::admin("t"));
        self.service.access.allow_account(account, reach, scopes, &by).await.unwrap();
    }

    fn token(&self, email: &str) -> String {
        let mut claims = claims();
        claims["email"] = email.into();
        format!("Bearer {}", self.signer.token(&claims))
    }

    /// A holder has two live keys at most, so each of these has a holder of its own.
    async fn key(&self, canvas: CanvasId, scopes: &[Scope]) -> String {
        let holder = Uuid::new_v4().to_string();
        format!("Bearer {}", self.service.key(&holder, canvas, scopes).await)
    }

    /// A key whose row was changed directly in the database.
    async fn spoiled(&self, holder: &str, change: &str) -> String {
        let key = self.service.key(holder, CanvasId::DEFAULT, &Scope::ALL).await;
        let statement = format!("update wakeq.access_keys set {change} where holder = '{holder}'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&self.service.stage.pool).await.unwrap();
        format!("Bearer {key}")
    }

    /// Credentials that are valid for nothing.
    async fn worthless(&self) -> Vec<RejectedCredential> {
        let key = self.service.key.as_str();
        let (public, secret) = key.rsplit_once('_').unwrap();
        let flipped = if secret.ends_with('0') { '1' } else { '0' };
        let other = self.service.key("other", CanvasId::DEFAULT, &Scope::ALL).await;
        let revoked = "revoked_at = now(), revoked_by = 'test', slot = null";
        let expired = "created_at = now() - interval '2 days', expires_at = now() - interval '1 day'";
        let mut credentials = vec![
            RejectedCredential { kind: "none".into(), authorization: vec![], status: 401 },
            rejected("empty", "", 401),
            rejected("no scheme", key, 401),
            rejected("basic", format!("Basic {key}"), 401),
            rejected("bearer without a credential", "Bearer ", 401),
            rejected("not a credential", "Bearer let-me-in", 401),
            rejected("a key cut short", format!("Bearer {}", &key[..key.len() - 1]), 401),
            rejected("a key in capitals", format!("Bearer {}", key.to_uppercase()), 401),
            rejected("a key with more behind it", format!("Bearer {key} {key}"), 401),
            rejected("an unknown key", format!("Bearer wakeq_{}_{}", "f".repeat(12), "0".repeat(80)), 401),
            rejected("the right id, another key's secret", format!("Bearer {public}_{}", &other[19..]), 401),
            rejected("one digit off", format!("Bearer {}{flipped}", &key[..key.len() - 1]), 401),
            rejected("revoked", self.spoiled("revoked", revoked).await, 401),
            rejected("expired", self.spoiled("expired", expired).await, 401),
        ];
        let two = vec![format!("Bearer {key}"); 2];
        credentials.push(RejectedCredential { authorization: two, ..rejected("two", "", 401) });
        credentials.extend(self.worthless_tokens());
        credentials
    }

    fn worthless_tokens(&self) -> Vec<RejectedCredential> {
        let token = self.token(ROBOT);
        let (message, _) = token.rsplit_once('.').unwrap();
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &self.signer.public());
        let confused = unsigned(&json!({"alg": "HS256", "typ": "JWT", "kid": "one"}), &claims());
        let tag = hmac::sign(&secret, confused.as_bytes());
        let none = unsigned(&json!({"alg": "none", "typ": "JWT", "kid": "one"}), &claims());
        let with = |name: &str, value: serde_json::Value| {
            let mut claims = claims();
            claims[name] = value;
            format!("Bearer {}", self.signer.token(&claims))
        };
        let removed = format!("{message}.SIGNATURE_REMOVED_BY_GOOGLE");
        let unlisted = self.token("nobody@project.iam.gserviceaccount.com");
        let confused = format!("Bearer {confused}.{}", base64_url(tag.as_ref()));
        vec![
            rejected("a token whose signature Google removed", removed, 401),
            rejected("a token without a signature", format!("{message}."), 401),
            rejected("a token for somebody else", with("aud", "https://other.example".into()), 401),
            rejected("a token of somebody else", with("iss", "https://accounts.evil.example".into()), 401),
            rejected("an expired token", with("exp", (now() - 60).into()), 401),
            rejected("a token from the future", with("iat", (now() + 600).into()), 401),
            rejected("an unverified address", with("email_verified", false.into()), 401),
            rejected("an account that is not listed", unlisted, 401),
            rejected("a forged token", format!("Bearer {}", Signer::new("one").token(&claims())), 401),
            rejected("the public key as a secret", confused, 401),
            rejected("the algorithm `none`", format!("Bearer {none}.{}", base64_url(b"x")), 401),
        ]
    }

    /// Valid credentials that do not allow this.
    async fn too_little(&self, needed: &[Scope]) -> Vec<RejectedCredential> {
        let mut credentials = vec![
            rejected("another canvas's key", self.key(FOREIGN, &Scope::ALL).await, 404),
            rejected("another canvas's account", self.token(OTHER_ROBOT), 404),
        ];
        for alone in Scope::ALL.into_iter().filter(|scope| needed != [*scope]) {
            let key = self.key(CanvasId::DEFAULT, &[alone]).await;
            credentials.push(rejected(format!("the scope {alone} alone"), key, 403));
        }
        for missing in needed {
            let others: Vec<_> = Scope::ALL.into_iter().filter(|scope| scope != missing).collect();
            let key = self.key(CanvasId::DEFAULT, &others).await;
            credentials.push(rejected(format!("every scope but {missing}"), key, 403));
        }
        credentials
    }
}

fn slug(status: u16) -> &'static str {
    match status {
        401 => "unauthenticated",
        403 => "forbidden",
        404 => "not-found",
        other => panic!("{other}"),
    }
}

// Shows: TARGET-07, TARGET-11
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn no_wrong_credential_does_anything() {
    let issuer = CredentialIssuer::start().await;
    let service = &issuer.service;
    let targets = Targets::prepare(service).await;
    issuer.allow(OTHER_ROBOT, Reach::Canvas(FOREIGN), &Scope::ALL).await;
    let worthless = issuer.worthless().await;
    let mut guarded: Vec<_> =
        operations(service).await.into_iter().filter(|operation| !operation.scopes.is_empty()).collect();
    // It covers every canvas that the credential may read: `listening` tests those that may read
    // too few.
    let listen = guarded.iter().position(|operation| operation.id == "listen").unwrap();
    let listen = guarded.remove(listen);
    for rejected in &worthless {
        let answer = Answer::of(rejected.add_to(targets.good(service, &listen))).await;
        let expected = (rejected.status, slug(rejected.status).to_owned());
        assert_eq!(answer.problem(), expected, "listen: {}", rejected.kind);
    }
    let mut too_little = BTreeMap::new();
    for operation in &guarded {
        if !too_little.contains_key(&operation.scopes) {
            too_little.insert(operation.scopes.clone(), issuer.too_little(&operation.scopes).await);
        }
    }
    let before = contents(service).await;
    let mut refused = 0;
    for operation in &guarded {
        let own = &too_little[&operation.scopes];
        assert!(worthless.len() + own.len() >= 14);
        for rejected in worthless.iter().chain(own) {
            let answer = Answer::of(rejected.add_to(targets.good(service, operation))).await;
            // Operations on every canvas refuse a credential of single ones with 403 and the
            // reason.
            let status = if operation.everywhere && rejected.status == 404 { 403 } else { rejected.status };
            let expected = (status, slug(status).to_owned());
            assert_eq!(answer.problem(), expected, "{}: {}", operation.id, rejected.kind);
            assert_eq!(answer.headers.contains_key("www-authenticate"), rejected.status == 401);
            refused += 1;
        }
    }
    assert_eq!(contents(service).await, before, "something was changed");
    let (count, kinds) = (guarded.len(), refused / guarded.len());
    println!("{count} operations, {kinds} kinds of wrong credentials each: {refused} refused");
    right_ones_pass(&issuer, &guarded).await;
    issuer.service.stop().await;
}

/// The control: with a key and with an account that have exactly the needed scopes.
async fn right_ones_pass(issuer: &CredentialIssuer, guarded: &[Operation]) {
    let service = &issuer.service;
    let before = contents(service).await;
    for (index, operation) in guarded.iter().enumerate() {
        let robot = format!("robot{index}@project.iam.gserviceaccount.com");
        let reach = if operation.everywhere { Reach::EveryCanvas } else { Reach::Canvas(CanvasId::DEFAULT) };
        issuer.allow(&robot, reach, &operation.scopes).await;
        let key = make_key(&service.access, &robot, reach, &operation.scopes).await;
        for authorization in [format!("Bearer {key}"), issuer.token(&robot)] {
            let reset = "update wakeq.access_keys set slot = null, revoked_at = now(), revoked_by = 't'
                         where holder in ('twice', 'target', 'foreign', 'somebody') and slot is not null";
            service.stage.execute(reset).await;
            let targets = Targets::prepare(service).await;
            let answer =
                Answer::of(targets.good(service, operation).header("authorization", authorization)).await;
            assert!(answer.status.is_success(), "{}: {} {}", operation.id, answer.status, answer.text);
        }
    }
    assert_ne!(contents(service).await, before, "good requests change things, and so would refused ones");
}
