//! People who sign in at an OpenID provider, and those who only pretend to.

use std::time::Duration;

use reqwest::header::{LOCATION, SET_COOKIE};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{AccessConfig, Clock, OidcConfig, Reach, Scope};
use wakeq_service::server::HttpConfig;
use wiremock::ResponseTemplate;

use super::visitor::{Shown, Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::google_keys::{ROBOT, Signer, base64_url, now, unsigned};
use crate::support::oidc_provider::OidcProvider;
use crate::support::service::{Answer, Service};

const ADA: &str = "ada@queue.example";
const BOB: &str = "bob@queue.example";
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// A service whose people sign in at a provider: Ada may read and operate on the default canvas,
/// and Bob may do everything on another one.
struct Office {
    provider: OidcProvider,
    service: Service,
    clock: Clock,
}

impl Office {
    async fn open() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut OidcConfig)) -> Self {
        let (provider, clock) = (OidcProvider::start().await, Clock::default());
        let mut client = provider.client();
        change(&mut client);
        let access = AccessConfig { oidc: Some(client), clock: clock.clone(), ..AccessConfig::default() };
        let service =
            Service::with(HttpConfig { access, stranger_rate: 10_000, ..HttpConfig::default() }).await;
        let office = Self { provider, service, clock };
        office.allow(ADA, CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
        office.allow(BOB, OTHER, &Scope::ALL).await;
        office
    }

    async fn allow(&self, email: &str, canvas: CanvasId, scopes: &[Scope]) {
        let (scopes, by) = (scopes.iter().copied().collect(), Actor::admin("tests"));
        self.service.access.allow_account(email, Reach::Canvas(canvas), scopes, &by).await.unwrap();
    }

    fn visitor(&self) -> Visitor {
        Visitor::stranger(&self.service)
    }

    /// Sends a visitor to the provider; returns where to it is sent back.
    async fn begins(&self, visitor: &Visitor, next: &str) -> String {
        let path = format!("/sign-in/oidc?next={next}");
        let answer = Answer::of(visitor.request(Method::GET, &path)).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        let line = answer.headers[SET_COOKIE].to_str().unwrap();
        assert!(line.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax"), "{line}");
        let value = line.strip_prefix("wakeq_oidc=").unwrap().split(';').next().unwrap();
        visitor.set_cookie("wakeq_oidc", value);
        self.provider.signs_in(answer.headers[LOCATION].to_str().unwrap()).await
    }

    /// Lets a visitor sign in as whoever the provider knows.
    async fn signs_in(&self, visitor: &Visitor) -> Shown {
        let back = self.begins(visitor, "").await;
        visitor.get(&back).await
    }

    /// Nobody is signed in, and told so.
    #[track_caller]
    fn nobody(visitor: &Visitor, shown: &Shown, words: &str) {
        assert!(shown.status.is_client_error(), "{} {}", shown.status, shown.html);
        shown.says(words);
        assert_eq!(visitor.cookie("wakeq_session"), None);
        assert_eq!(visitor.cookie("wakeq_oidc"), None, "it is of use once");
    }
}

/// With either algorithm. The page that was asked for first is shown in the end.
#[tokio::test]
async fn a_person_is_signed_in_with_what_was_granted() {
    let office = Office::open().await;
    for signs_with_p256 in [false, true] {
        office.provider.will(|behavior| behavior.signs_with_p256 = signs_with_p256);
        let ada = office.visitor();
        let form = ada.page("/handlers").await.found();
        form.says("Sign in with 127.0.0.1").says("/sign-in/oidc?next=");
        let back = office.begins(&ada, &on_canvas(CanvasId::DEFAULT, "/handlers")).await;
        let shown = ada.get(&back).await.found();
        assert_eq!(shown.path, on_canvas(CanvasId::DEFAULT, "/handlers"));
        shown.says("account:ada@queue.example");
        assert!(!shown.offers("/keys"), "admin was not granted");
        assert_eq!(ada.page("/keys").await.status, StatusCode::FORBIDDEN);
        assert_eq!(ada.get(&on_canvas(OTHER, "")).await.status, StatusCode::NOT_FOUND);
        let event = json!({"name": "mail", "value": 1, "delay_s": 3600});
        let id = office.service.post("/events", event).await.json()["id"].clone();
        let page = ada.page(&format!("/events/{}", id.as_str().unwrap())).await.found();
        page.says("Hidden: to see values");
        ada.send(&page, "/run-now", &[]).await.found().says("The event is due now.");
        ada.post("/sign-out", &[]).await.found();
        assert_eq!(ada.cookie("wakeq_session"), None);
        assert!(ada.page("").await.path.starts_with("/sign-in"));
    }
    assert_eq!(office.provider.asked(DISCOVERY), 1, "it is kept");
    assert_eq!(office.provider.asked("/keys"), 2, "once for each algorithm");
}

/// A person of another canvas sees nothing of the first one, and forms are each person's own.
#[tokio::test]
async fn people_of_two_canvases_see_their_own() {
    let office = Office::open().await;
    let event = json!({"name": "mine-alone", "value": 1, "delay_s": 3600});
    let id = office.service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned();
    let (ada, bob) = (office.visitor(), office.visitor());
    office.signs_in(&ada).await.found().says("mine-alone");
    office.provider.knows(BOB);
    let home = office.signs_in(&bob).await.found();
    assert_eq!(home.path, on_canvas(OTHER, ""));
    home.says("account:bob@queue.example").says_nothing_of("mine-alone");
    for path in ["", "/events", "/handlers", &format!("/events/{id}")] {
        assert_eq!(bob.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(ada.get(&on_canvas(OTHER, path)).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let own = ada.page(&format!("/events/{id}")).await.found().form("/run-now").token();
    let others = bob.get(&on_canvas(OTHER, "/new-event")).await.found().form("/new-event").token();
    let run = on_canvas(CanvasId::DEFAULT, &format!("/events/{id}/run-now"));
    for fields in [vec![], vec![("form_token", others.as_str())], vec![("form_token", "")]] {
        assert_eq!(ada.post(&run, &fields).await.status, StatusCode::FORBIDDEN, "{fields:?}");
    }
    assert_eq!(bob.post(&run, &[("form_token", &own)]).await.status, StatusCode::NOT_FOUND);
    ada.page(&format!("/events/{id}")).await.found().says("delayed");
    ada.post(&run, &[("form_token", &own)]).await.found().says("The event is due now.");
}

/// A person's sessions are the person's own, and end when the person says so.
#[tokio::test]
async fn people_end_their_sessions() {
    let office = Office::open().await;
    let (ada, elsewhere, bob) = (office.visitor(), office.visitor(), office.visitor());
    office.signs_in(&ada).await.found();
    office.signs_in(&elsewhere).await.found();
    office.provider.knows(BOB);
    office.signs_in(&bob).await.found();
    let list = ada.get("/sessions").await.found();
    ada.send(&list, "/end-others", &[]).await.found().says("1 other session has ended.");
    assert!(elsewhere.page("").await.path.starts_with("/sign-in"));
    let copy = office.visitor();
    copy.set_cookie("wakeq_session", &ada.cookie("wakeq_session").unwrap());
    copy.page("").await.found().says("account:ada@queue.example");
    ada.post("/sign-out", &[]).await.found();
    assert!(copy.page("").await.path.starts_with("/sign-in"));
    bob.get(&on_canvas(OTHER, "")).await.found().says("account:bob@queue.example");
}

#[tokio::test]
async fn a_session_ends_with_its_time_and_with_the_grant() {
    let office = Office::open().await;
    let (ada, bob) = (office.visitor(), office.visitor());
    office.signs_in(&ada).await.found();
    office.provider.knows(BOB);
    office.signs_in(&bob).await.found();
    let (reach, by) = (Reach::Canvas(CanvasId::DEFAULT), Actor::admin("tests"));
    assert!(office.service.access.remove_account(ADA, reach, &by).await.unwrap());
    // Another process has removed it: it is noticed when the look-up is old.
    office.clock.advance(Duration::from_secs(30));
    let gone = ada.page("").await;
    assert!(gone.path.starts_with("/sign-in"));
    gone.says("You have signed in as ada@queue.example, who has no rights here");
    bob.get("/").await.found().says("account:bob@queue.example");
    office.clock.advance(Duration::from_secs(12 * 3600));
    assert!(bob.get("/").await.path.starts_with("/sign-in"));
    let forger = office.visitor();
    let session = bob.cookie("wakeq_session").unwrap();
    for made_up in [&session[1..], &format!("{session}A"), "", BOB] {
        forger.set_cookie("wakeq_session", made_up);
        assert!(forger.get("/").await.path.starts_with("/sign-in"), "{made_up}");
    }
}

/// What was granted to a person counts in the pages, and the session is no credential elsewhere.
#[tokio::test]
async fn a_session_is_for_pages_only() {
    let office = Office::open().await;
    let ada = office.visitor();
    office.signs_in(&ada).await.found();
    let session = ada.cookie("wakeq_session").unwrap();
    let path = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    for credential in [session.clone(), office.provider.claims("x").to_string()] {
        let asked = office.service.request(Method::GET, &path).bearer_auth(credential);
        assert_eq!(Answer::of(asked).await.problem(), (401, "unauthenticated".into()));
    }
    let cookie =
        office.service.request(Method::GET, &path).header("cookie", format!("wakeq_session={session}"));
    assert_eq!(Answer::of(cookie).await.problem(), (401, "unauthenticated".into()));
}

/// Somebody else's answer, in a browser that has not begun: nobody is signed in as another person
/// without knowing it.
#[tokio::test]
async fn only_the_browser_that_has_begun_goes_on() {
    let office = Office::open().await;
    let (ada, eve) = (office.visitor(), office.visitor());
    office.provider.knows(BOB);
    let of_eve = office.begins(&eve, "").await;
    let begin_again = "Begin again.";
    let shown = ada.get(&of_eve).await;
    Office::nobody(&ada, &shown, begin_again);
    // With a flow of her own, too: the state is that of another.
    office.begins(&ada, "").await;
    let shown = ada.get(&of_eve).await;
    Office::nobody(&ada, &shown, begin_again);
    // A code of another flow has another proof, whatever the state.
    let own = office.begins(&ada, "").await;
    let parameter = |url: &str, name: &str| {
        url.split(['?', '&'])
            .find_map(|pair| pair.strip_prefix(&format!("{name}=")).map(str::to_owned))
            .unwrap()
    };
    let mixed = own.replace(&parameter(&own, "code"), &parameter(&of_eve, "code"));
    let shown = ada.get(&mixed).await;
    Office::nobody(&ada, &shown, begin_again);
    assert_eq!(office.provider.asked("/token"), 1, "only the last one has been asked about");
    // A cookie that was made up, and one of another purpose.
    let back = office.begins(&ada, "").await;
    for made_up in ["", "x", office.service.key.as_str()] {
        ada.set_cookie("wakeq_oidc", made_up);
        let shown = ada.get(&back).await;
        Office::nobody(&ada, &shown, begin_again);
    }
}

/// Neither an answer nor a code counts twice, and a sign-in takes ten minutes at most.
#[tokio::test]
async fn an_answer_counts_once_and_in_time() {
    let office = Office::open().await;
    let ada = office.visitor();
    let back = office.begins(&ada, "").await;
    let kept = ada.cookie("wakeq_oidc").unwrap();
    ada.get(&back).await.found().says("account:ada@queue.example");
    assert_eq!(ada.cookie("wakeq_oidc"), None);
    let thief = office.visitor();
    thief.set_cookie("wakeq_oidc", &kept);
    let shown = thief.get(&back).await;
    Office::nobody(&thief, &shown, "Begin again.");
    let late = office.visitor();
    let back = office.begins(&late, "").await;
    office.clock.advance(Duration::from_secs(600));
    let shown = late.get(&back).await;
    Office::nobody(&late, &shown, "Begin again.");
}

#[tokio::test]
async fn an_answer_of_another_issuer_or_a_refusal_signs_nobody_in() {
    let office = Office::open().await;
    let visitor = office.visitor();
    let issuer = office.provider.client().issuer;
    let named: String = url::form_urlencoded::byte_serialize(issuer.as_bytes()).collect();
    let named = format!("&iss={named}");
    for (with, words) in
        [("&iss=https%3A%2F%2Fevil.example", "Begin again."), ("&iss=", "Begin again."), ("", "Begin again.")]
    {
        let back = office.begins(&visitor, "").await;
        assert!(back.ends_with(&named), "{back}");
        let shown = visitor.get(&back.replace(&named, with)).await;
        Office::nobody(&visitor, &shown, words);
    }
    let back = office.begins(&visitor, "").await;
    let state = back.split("&state=").nth(1).unwrap().split('&').next().unwrap();
    let refusal =
        format!("/sign-in/oidc/callback?error=access_denied&error_description=%3Cb%3E&state={state}{named}");
    let shown = visitor.get(&refusal).await;
    Office::nobody(&visitor, &shown, "did not let you in");
    shown.says_nothing_of("<b>").says_nothing_of("access_denied");
    assert_eq!(office.provider.asked("/token"), 0);
    let refused = "select count(*) from wakeq.audit_log
                    where action = 'sign-in' and outcome = 'refused' and canvas_id is null";
    assert!(office.service.stop().await.count(refused).await > 0, "it is recorded");
}

#[tokio::test]
async fn a_wrong_token_signs_nobody_in() {
    let office = Office::open().await;
    let visitor = office.visitor();
    for (kind, claims) in [
        ("for another client", json!({"aud": "shop"})),
        ("for several clients", json!({"aud": ["wakeq", "shop"]})),
        ("for another party", json!({"azp": "shop"})),
        ("of another issuer", json!({"iss": "https://evil.example"})),
        ("of another sign-in", json!({"nonce": "another"})),
        ("without a nonce", json!({"nonce": null})),
        ("expired", json!({"exp": now() - 60})),
        ("old", json!({"iat": now() - 3600})),
        ("from the future", json!({"iat": now() + 600})),
        ("not verified", json!({"email_verified": false})),
        ("that does not say so", json!({"email_verified": null})),
        ("without an address", json!({"email": null})),
    ] {
        office.provider.will(|behavior| behavior.claims = claims);
        let shown = office.signs_in(&visitor).await;
        Office::nobody(&visitor, &shown, "is not accepted here");
        assert_eq!(shown.status, StatusCode::UNAUTHORIZED, "{kind}");
    }
    let claims = office.provider.claims("nonce");
    for (kind, token) in [
        ("forged", Signer::new("rsa").token(&claims)),
        ("of an unknown key", Signer::new("other").token(&claims)),
        ("not signed", format!("{}.{}", unsigned(&json!({"alg": "none"}), &claims), base64_url(b"x"))),
        ("with a shared secret", format!("{}.eA", unsigned(&json!({"alg": "HS256", "kid": "rsa"}), &claims))),
        ("nonsense", "a.b.c".to_owned()),
        ("too long", "x".repeat(17_000)),
    ] {
        office.provider.will(|behavior| (behavior.claims, behavior.token) = (json!({}), Some(token)));
        let shown = office.signs_in(&visitor).await;
        Office::nobody(&visitor, &shown, "is not accepted here");
        assert_eq!(shown.status, StatusCode::UNAUTHORIZED, "{kind}");
    }
}

/// A person without a grant is told what to do, and so is one whose address only Google can vouch
/// for.
#[tokio::test]
async fn nobody_without_a_grant_gets_in() {
    let office = Office::open().await;
    office.allow(ROBOT, CanvasId::DEFAULT, &[Scope::Read]).await;
    for email in ["eve@queue.example", ROBOT] {
        office.provider.knows(email);
        let visitor = office.visitor();
        let shown = office.signs_in(&visitor).await;
        Office::nobody(&visitor, &shown, &format!("wakeq accounts allow {email} --scope read"));
        assert_eq!(shown.status, StatusCode::FORBIDDEN);
    }
    let evil = "<script>@evil.example";
    office.provider.knows(evil);
    let visitor = office.visitor();
    office.signs_in(&visitor).await.says("&lt;script&gt;").says_nothing_of("<script>@");
}

/// Whoever was not let in has used nothing up, since anybody may have an account at the provider.
#[tokio::test]
async fn who_was_not_let_in_is_not_remembered() {
    const EVE: &str = "eve@queue.example";
    let office = Office::open().await;
    office.provider.knows(EVE);
    let eve = office.visitor();
    let begun = Answer::of(eve.request(Method::GET, "/sign-in/oidc")).await;
    let line = begun.headers[SET_COOKIE].to_str().unwrap();
    let kept = line.strip_prefix("wakeq_oidc=").unwrap().split(';').next().unwrap();
    let address = begun.headers[LOCATION].to_str().unwrap();
    let again = async || {
        eve.set_cookie("wakeq_oidc", kept);
        let back = office.provider.signs_in(address).await;
        eve.get(&back).await
    };
    Office::nobody(&eve, &again().await, "who has no rights here");
    office.allow(EVE, CanvasId::DEFAULT, &[Scope::Read]).await;
    office.clock.advance(Duration::from_secs(30));
    again().await.found().says("account:eve@queue.example");
    again().await.says("Begin again.");
}

/// The sign-in page works with a key whatever the provider does, and with the provider once it is
/// itself again.
#[tokio::test]
async fn a_provider_that_misbehaves_keeps_no_key_out() {
    let document = |fields: Value| (None, fields);
    let office = Office::open().await;
    let key = office.service.key.clone();
    for (answer, fields) in [
        (Some(ResponseTemplate::new(500)), json!({})),
        (Some(ResponseTemplate::new(302).insert_header("location", "/elsewhere")), json!({})),
        (Some(ResponseTemplate::new(200).set_body_string("x".repeat(300_000))), json!({})),
        document(json!({"issuer": "https://evil.example"})),
        document(json!({"token_endpoint": "http://evil.example/token"})),
        document(json!({"authorization_endpoint": "javascript:alert(1)"})),
        document(json!({"jwks_uri": null})),
    ] {
        office.provider.will(|behavior| {
            behavior.document = fields.clone();
            behavior.answers = answer.map(|answer| (DISCOVERY, answer)).into_iter().collect();
        });
        office.clock.advance(Duration::from_secs(1));
        let visitor = office.visitor();
        let shown = visitor.get("/sign-in/oidc").await;
        assert_eq!(shown.status, StatusCode::SERVICE_UNAVAILABLE, "{fields} {}", shown.html);
        shown.says("does not answer").says("sign in with a key");
        visitor.post("/sign-in", &[("key", key.as_str())]).await.found().says("key:tests");
    }
    office.provider.will(|behavior| {
        behavior.document = json!({});
        behavior.answers.clear();
    });
    office.clock.advance(Duration::from_secs(1));
    office.signs_in(&office.visitor()).await.found().says("account:ada@queue.example");
    // What it has said before counts while it says nothing.
    office.provider.will(|behavior| behavior.answers = [(DISCOVERY, ResponseTemplate::new(503))].into());
    office.clock.advance(Duration::from_secs(2 * 3600));
    office.provider.will(|behavior| behavior.claims = json!({"iat": now() + 7200, "exp": now() + 7500}));
    office.signs_in(&office.visitor()).await.found().says("account:ada@queue.example");
    assert!(office.provider.asked(DISCOVERY) > 8);
}

/// The same while somebody is at the provider: codes and keys.
#[tokio::test]
async fn a_provider_that_fails_on_the_way_back_signs_nobody_in() {
    let office = Office::open().await;
    for (at, answer) in [
        ("/token", ResponseTemplate::new(503)),
        ("/token", ResponseTemplate::new(302).insert_header("location", "/keys")),
        ("/token", ResponseTemplate::new(200).set_body_string("x".repeat(300_000))),
        ("/token", ResponseTemplate::new(200).set_body_json(json!({"access_token": "a"}))),
        ("/keys", ResponseTemplate::new(200).set_body_json(json!({"keys": []}))),
    ] {
        office.provider.will(|behavior| behavior.answers = [(at, answer)].into());
        let visitor = office.visitor();
        let shown = office.signs_in(&visitor).await;
        assert_eq!(shown.status, StatusCode::SERVICE_UNAVAILABLE, "{at} {}", shown.html);
        shown.says("sign in with a key");
        assert_eq!(visitor.cookie("wakeq_session"), None);
    }
    office.provider.will(|behavior| behavior.answers.clear());
    office.clock.advance(Duration::from_secs(1));
    office.signs_in(&office.visitor()).await.found().says("account:ada@queue.example");
    let other = Office::with(|client| client.client_secret = Some("another".into())).await;
    let visitor = other.visitor();
    let shown = other.signs_in(&visitor).await;
    Office::nobody(&visitor, &shown, "Begin again.");
}

/// One goes on to a page of ours, and another site sends nobody to the provider.
#[tokio::test]
async fn a_sign_in_leads_to_pages_of_ours_only() {
    let office = Office::open().await;
    for next in
        ["%2F%2Fevil.example", "https%3A%2F%2Fevil.example", "%2F%5Cevil.example", "%2F%09%2Fevil.example"]
    {
        let ada = office.visitor();
        let back = office.begins(&ada, next).await;
        let ended = Answer::of(ada.request(Method::GET, &back)).await;
        assert_eq!(
            (ended.status, &ended.headers[LOCATION]),
            (StatusCode::SEE_OTHER, &"/".parse().unwrap()),
            "{next}"
        );
        let cookies: Vec<_> =
            ended.headers.get_all(SET_COOKIE).iter().map(|line| line.to_str().unwrap()).collect();
        assert!(cookies[0].ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"), "{cookies:?}");
        assert!(cookies[1].starts_with("wakeq_oidc=; Path=/; Max-Age=0; "), "{cookies:?}");
    }
    for site in ["cross-site", "same-site"] {
        let led = office.visitor().sending("sec-fetch-site", site);
        let shown = led.get("/sign-in/oidc?next=%2Fkeys").await.found();
        shown.says("Sign in with 127.0.0.1");
        assert_eq!(led.cookie("wakeq_oidc"), None);
    }
}

/// Without the setting there is no way there, and its sessions count for nothing.
#[tokio::test]
async fn without_a_provider_people_sign_in_with_keys() {
    let office = Office::open().await;
    let ada = office.visitor();
    office.signs_in(&ada).await.found();
    let service = Service::start().await;
    let visitor = Visitor::stranger(&service);
    visitor.get("/sign-in").await.found().says_nothing_of("Sign in with");
    for path in ["/sign-in/oidc", "/sign-in/oidc/callback?code=a&state=b"] {
        let shown = visitor.get(path).await;
        assert_eq!(shown.status, StatusCode::NOT_FOUND, "{path}");
        shown.says("with keys only");
    }
    visitor.set_cookie("wakeq_session", &ada.cookie("wakeq_session").unwrap());
    assert!(visitor.page("").await.path.starts_with("/sign-in"));
}
