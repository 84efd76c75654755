//! People whom Google's identity-aware proxy lets through: they are signed in to the pages, and to
//! nothing else.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{AccessConfig, Clock, Reach, Scope};
use wakeq_service::server::HttpConfig;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::google_keys::{
    AUDIENCE, KeyServer, ProxySigner, ROBOT, Signer, base64_url, claims as id_claims, now, unsigned,
};
use crate::support::service::{Answer, Service};

const HEADER: &str = "x-goog-iap-jwt-assertion";
const BACKEND: &str = "/projects/123/global/backendServices/456";
const ADA: &str = "ada@queue.example";

/// A service behind the proxy, for which Ada may read and operate on the default canvas.
struct Behind {
    service: Service,
    signer: ProxySigner,
    id_signer: Signer,
    clock: Clock,
    _servers: [KeyServer; 2],
}

impl Behind {
    async fn start() -> Self {
        let (signer, id_signer) = (ProxySigner::new("one"), Signer::new("one"));
        let servers = [KeyServer::of_proxy(&signer).await, KeyServer::start(&[&id_signer]).await];
        let clock = Clock::default();
        let access = AccessConfig {
            iap_audience: Some(BACKEND.to_owned()),
            iap_jwks_url: servers[0].url.clone(),
            audiences: vec![AUDIENCE.to_owned()],
            jwks_url: servers[1].url.clone(),
            clock: clock.clone(),
            ..AccessConfig::default()
        };
        let service =
            Service::with(HttpConfig { access, stranger_rate: 10_000, ..HttpConfig::default() }).await;
        let behind = Self { service, signer, id_signer, clock, _servers: servers };
        behind.allow(ADA, &[Scope::Read, Scope::Operate]).await;
        behind
    }

    async fn allow(&self, email: &str, scopes: &[Scope]) {
        let (scopes, by) = (scopes.iter().copied().collect(), Actor::admin("tests"));
        let reach = Reach::Canvas(CanvasId::DEFAULT);
        self.service.access.allow_account(email, reach, scopes, &by).await.unwrap();
    }

    /// Somebody who comes through the proxy.
    fn visitor(&self, email: &str) -> Visitor {
        let mut claims = claims();
        claims["email"] = email.into();
        self.with(&self.signer.assertion(&claims))
    }

    fn with(&self, assertion: &str) -> Visitor {
        Visitor::stranger(&self.service).sending(HEADER, assertion)
    }

    async fn delayed_event(&self) -> String {
        let event = json!({"name": "mail", "value": 1, "delay_s": 3600});
        self.service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
    }
}

/// What the proxy says about Ada, for three days.
fn claims() -> Value {
    json!({"iss": "https://cloud.google.com/iap", "aud": BACKEND, "sub": "accounts.google.com:1", "hd": "queue.example",
           "iat": now(), "exp": now() + 3 * 24 * 3600, "email": ADA})
}

#[tokio::test]
async fn a_person_is_signed_in_with_what_was_granted() {
    let behind = Behind::start().await;
    let id = behind.delayed_event().await;
    let ada = behind.visitor("Ada@Queue.example");
    let home = ada.get("/").await.found();
    assert_eq!(home.path, on_canvas(CanvasId::DEFAULT, ""));
    home.says("account:ada@queue.example").says("WORKER/mail");
    assert!(!home.offers("/keys"), "admin was not granted");
    assert_eq!(ada.page("/keys").await.status, StatusCode::FORBIDDEN);
    assert_eq!(ada.get(&on_canvas(OTHER, "")).await.status, StatusCode::NOT_FOUND);
    let page = ada.page(&format!("/events/{id}")).await.found();
    ada.send(&page, "/run-now", &[]).await.found().says("The event is due now.");
    let (reach, by) = (Reach::Canvas(CanvasId::DEFAULT), Actor::admin("tests"));
    assert!(behind.service.access.remove_account(ADA, reach, &by).await.unwrap());
    // Another process has removed it: it is noticed when the look-up is old.
    behind.clock.advance(std::time::Duration::from_secs(30));
    assert!(ada.page("").await.path.starts_with("/sign-in"));
}

/// The field of a form is the person's own, and of the day or the one before.
#[tokio::test]
async fn a_form_carries_the_field_of_its_person() {
    let behind = Behind::start().await;
    behind.allow("bob@queue.example", &[Scope::Read, Scope::Operate]).await;
    let id = behind.delayed_event().await;
    let (ada, bob) = (behind.visitor(ADA), behind.visitor("bob@queue.example"));
    let path = format!("/events/{id}");
    let own = ada.page(&path).await.found().form("/run-now").token();
    let other = bob.page(&path).await.found().form("/run-now").token();
    let action = on_canvas(CanvasId::DEFAULT, &format!("{path}/run-now"));
    for fields in [vec![], vec![("form_token", other.as_str())], vec![("form_token", "")]] {
        assert_eq!(ada.post(&action, &fields).await.status, StatusCode::FORBIDDEN, "{fields:?}");
    }
    let led = behind.visitor(ADA).sending("sec-fetch-site", "cross-site");
    assert_eq!(led.post(&action, &[("form_token", own.as_str())]).await.status, StatusCode::FORBIDDEN);
    ada.page(&path).await.found().says("delayed");
    let day = std::time::Duration::from_secs(24 * 3600);
    behind.clock.advance(2 * day);
    assert_eq!(
        ada.post(&action, &[("form_token", own.as_str())]).await.status,
        StatusCode::FORBIDDEN,
        "it is old"
    );
    let yesterdays = ada.page(&path).await.found().form("/run-now").token();
    behind.clock.advance(day - std::time::Duration::from_secs(600));
    ada.post(&action, &[("form_token", yesterdays.as_str())]).await.found().says("The event is due now.");
}

#[tokio::test]
async fn a_wrong_assertion_signs_nobody_in() {
    let behind = Behind::start().await;
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        behind.signer.assertion(&claims)
    };
    let forger = ProxySigner::new("one");
    let none = unsigned(&json!({"alg": "none", "kid": "one"}), &claims());
    let mut of_google = id_claims();
    of_google["email"] = ADA.into();
    for (kind, assertion) in [
        ("of another backend", with("aud", "/projects/123/global/backendServices/457".into())),
        ("of another issuer", with("iss", "https://accounts.google.com".into())),
        ("expired", with("exp", (now() - 60).into())),
        ("from the future", with("iat", (now() + 600).into())),
        ("not verified", with("email_verified", false.into())),
        ("without an address", with("email", Value::Null)),
        ("of another person", with("email", "eve@queue.example".into())),
        ("with a prefix", with("email", format!("accounts.google.com:{ADA}").into())),
        ("forged", forger.assertion(&claims())),
        ("an ID token", behind.id_signer.token(&of_google)),
        ("claims of the proxy signed as an ID token", behind.id_signer.token(&claims())),
        ("not signed", format!("{none}.{}", base64_url(b"x"))),
        ("nothing", String::new()),
        ("nonsense", "a.b.c".to_owned()),
    ] {
        let page = behind.with(&assertion).page("").await;
        assert!(page.path.starts_with("/sign-in"), "{kind}: {}", page.html);
    }
    let two = behind.visitor("eve@queue.example").sending(HEADER, behind.signer.assertion(&claims()));
    assert!(two.page("").await.path.starts_with("/sign-in"), "two assertions");
    let eve = behind.visitor("eve@queue.example").page("").await;
    eve.says("Google says that you are eve@queue.example").says("wakeq accounts allow eve@queue.example");
}

/// Neither an assertion nor an ID token lets a person use the API; a service account may.
#[tokio::test]
async fn a_persons_grants_are_for_pages_only() {
    let behind = Behind::start().await;
    behind.allow(ROBOT, &[Scope::Read]).await;
    let service = &behind.service;
    let path = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    let asked = service.request(Method::GET, &path).header(HEADER, behind.signer.assertion(&claims()));
    assert_eq!(Answer::of(asked).await.problem(), (401, "unauthenticated".into()));
    let assertion = behind.signer.assertion(&claims());
    assert_eq!(Answer::of(service.request(Method::GET, &path).bearer_auth(assertion)).await.problem().0, 401);
    for (email, status) in [(ADA, 401), (ROBOT, 200)] {
        let mut claims = id_claims();
        claims["email"] = email.into();
        let token = behind.id_signer.token(&claims);
        let asked = service.request(Method::GET, &path).bearer_auth(token);
        assert_eq!(Answer::of(asked).await.status.as_u16(), status, "{email}");
    }
}

/// A session that was opened with a key counts before the proxy's word, until it is closed.
#[tokio::test]
async fn a_session_counts_first() {
    let behind = Behind::start().await;
    let ada = behind.visitor(ADA);
    ada.page("").await.found().says("account:ada@queue.example");
    ada.post("/sign-in", &[("key", behind.service.key.as_str())]).await.found().says("key:tests");
    ada.page("/keys").await.found();
    let out = Answer::of(ada.request(Method::POST, "/sign-out")).await;
    assert_eq!(out.headers["location"], "/sign-in");
    ada.set_cookie("wakeq_session", "");
    ada.page("").await.found().says("account:ada@queue.example");
    let fresh = behind.visitor(ADA);
    let out = Answer::of(fresh.request(Method::POST, "/sign-out")).await;
    assert_eq!(out.headers["location"], "/_gcp_iap/clear_login_cookie");
}

/// Without the setting, the header is nobody's word.
#[tokio::test]
async fn an_assertion_is_ignored_without_the_setting() {
    let behind = Behind::start().await;
    let service = Service::start().await;
    let (scopes, by) = ([Scope::Read].into_iter().collect(), Actor::admin("tests"));
    service.access.allow_account(ADA, Reach::Canvas(CanvasId::DEFAULT), scopes, &by).await.unwrap();
    let visitor = Visitor::stranger(&service).sending(HEADER, behind.signer.assertion(&claims()));
    let page = visitor.page("").await;
    assert!(page.path.starts_with("/sign-in"));
    page.says_nothing_of("Google says");
}
