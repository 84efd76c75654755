//! Google's ID tokens, with a server of our own for the public keys: what passes, what never does,
//! and how often the keys are fetched.

use std::time::Duration;

use aws_lc_rs::hmac;
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{
    Access, AccessConfig, AccessError, Clock, CredentialFilter, Denied, FetchError, InvalidToken, Principal,
    Reach, Refusal, Scope, Unauthenticated, VerifierUnavailable, authorize,
};
use wiremock::ResponseTemplate;

use crate::support::Stage;
use crate::support::google_keys::{
    AUDIENCE, Answer, KeyServer, ROBOT, Signer, base64_url, claims, now, unsigned,
};

const CANVAS: CanvasId = CanvasId(Uuid::from_u128(0xca9));
const MINUTES: Duration = Duration::from_secs(60);

/// A service that accepts tokens, with the robot allowed to read.
struct Service {
    stage: Stage,
    server: KeyServer,
    signer: Signer,
    clock: Clock,
    access: Access,
}

impl Service {
    async fn start() -> Self {
        let (stage, _) = Stage::memory().await;
        let signer = Signer::new("one");
        let server = KeyServer::start(&[&signer]).await;
        let clock = Clock::default();
        let config = AccessConfig {
            audiences: vec![AUDIENCE.to_owned()],
            jwks_url: server.url.clone(),
            clock: clock.clone(),
            ..AccessConfig::default()
        };
        let access = Access::new(stage.store.clone(), config).unwrap();
        let read = [Scope::Read].into_iter().collect();
        access.allow_account(ROBOT, Reach::Canvas(CANVAS), read, &by("cli:ada")).await.unwrap();
        Self { stage, server, signer, clock, access }
    }

    async fn ask(&self, token: &str) -> Result<Principal, Unauthenticated> {
        self.access.authenticate(Some(&format!("Bearer {token}"))).await
    }

    async fn good(&self) -> Result<Principal, Unauthenticated> {
        self.ask(&self.signer.token(&claims())).await
    }

    async fn refusal(&self, token: &str) -> Refusal {
        match self.ask(token).await {
            Err(Unauthenticated::Unknown(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    async fn invalid(&self, token: &str) -> InvalidToken {
        let refusal = self.refusal(token).await;
        let Refusal::Token(reason) = refusal else { panic!("{refusal}") };
        reason
    }

    /// Why a token with a changed claim is refused.
    async fn with(&self, claim: &str, value: Value) -> InvalidToken {
        let mut claims = claims();
        claims[claim] = value;
        self.invalid(&self.signer.token(&claims)).await
    }
}

fn by(name: &str) -> Actor {
    Actor::admin(name)
}

fn fetch_error(answer: Result<Principal, Unauthenticated>) -> FetchError {
    match answer {
        Err(Unauthenticated::Unavailable(VerifierUnavailable::Keys(error))) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_listed_account_is_recognized() {
    let service = Service::start().await;
    let principal = service.good().await.unwrap();
    assert_eq!((principal.name(), principal.key()), (format!("account:{ROBOT}").as_str(), None));
    assert_eq!(authorize(&principal, CANVAS, Scope::Read), Ok(()));
    assert_eq!(authorize(&principal, CANVAS, Scope::Emit), Err(Denied::Forbidden { needed: Scope::Emit }));
    assert_eq!(authorize(&principal, CanvasId::DEFAULT, Scope::Read), Err(Denied::NotFound));
    let mut short = claims();
    short["iss"] = "accounts.google.com".into();
    service.ask(&service.signer.token(&short)).await.unwrap();
    assert_eq!(service.server.fetches(), 1);
}

#[tokio::test]
async fn rejects_tokens_with_wrong_issuer_audience_or_time() {
    let service = Service::start().await;
    for audience in ["https://other.example", "https://queue.example/", ""] {
        assert_eq!(service.with("aud", audience.into()).await, InvalidToken::Audience);
    }
    assert_eq!(service.with("aud", json!([AUDIENCE])).await, InvalidToken::Unreadable);
    let issuer = "https://accounts.google.com.evil.example";
    assert_eq!(service.with("iss", issuer.into()).await, InvalidToken::Issuer);
    assert_eq!(service.with("exp", (now() - 60).into()).await, InvalidToken::Expired);
    assert_eq!(service.with("iat", (now() + 120).into()).await, InvalidToken::NotYet);
    assert_eq!(service.with("nbf", (now() + 120).into()).await, InvalidToken::NotYet);
    assert_eq!(service.with("email_verified", false.into()).await, InvalidToken::Email);
    assert_eq!(service.with("email_verified", "true".into()).await, InvalidToken::Unreadable);
    for missing in ["aud", "iss", "exp", "iat", "email", "email_verified"] {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(missing);
        let is_email = missing.starts_with("email");
        let expected = if is_email { InvalidToken::Email } else { InvalidToken::Unreadable };
        assert_eq!(service.invalid(&service.signer.token(&claims)).await, expected, "{missing}");
    }
    let token = service.signer.token(&claims());
    service.ask(&token).await.unwrap();
    service.clock.advance(Duration::from_secs(3 * 24 * 3600 + 60));
    service.server.answers(Answer::Keys);
    assert_eq!(service.invalid(&token).await, InvalidToken::Expired);
}

#[tokio::test]
async fn only_rs256_with_googles_key_counts() {
    let service = Service::start().await;
    let (one, claims) = (&service.signer, claims());
    let header = |algorithm: &str| json!({"alg": algorithm, "typ": "JWT", "kid": "one"});

    let secret = hmac::Key::new(hmac::HMAC_SHA256, &one.public());
    let message = unsigned(&header("HS256"), &claims);
    let confused = format!("{message}.{}", base64_url(hmac::sign(&secret, message.as_bytes()).as_ref()));
    assert_eq!(service.invalid(&confused).await, InvalidToken::Algorithm);
    for algorithm in ["RS384", "RS512", "PS256", "ES256", "EdDSA"] {
        let token = one.token_with(&header(algorithm), &claims);
        assert_eq!(service.invalid(&token).await, InvalidToken::Algorithm);
    }
    for none in ["none", "None", "NONE", ""] {
        let signature = base64_url(b"x");
        let token = format!("{}.{signature}", unsigned(&header(none), &claims));
        assert_eq!(service.invalid(&token).await, InvalidToken::Unreadable);
        let token = format!("{}.", unsigned(&header(none), &claims));
        assert_eq!(service.invalid(&token).await, InvalidToken::SignatureRemoved);
    }
    let keyless = one.token_with(&json!({"alg": "RS256"}), &claims);
    assert_eq!(service.invalid(&keyless).await, InvalidToken::UnknownKey);
    for critical in [json!(["b64"]), json!([])] {
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": "one", "crit": critical, "b64": true});
        assert_eq!(service.invalid(&one.token_with(&header, &claims)).await, InvalidToken::Critical);
    }
    assert_eq!(service.server.fetches(), 0, "nothing so far was worth a fetch");

    let forged = Signer::new("one").token(&claims);
    assert_eq!(service.invalid(&forged).await, InvalidToken::Signature);
    let good = one.token(&claims);
    let (message, signature) = good.rsplit_once('.').unwrap();
    let mut other = claims.clone();
    other["email"] = "admin@project.iam.gserviceaccount.com".into();
    let other = unsigned(&header("RS256"), &other);
    assert_eq!(service.invalid(&format!("{other}.{signature}")).await, InvalidToken::Signature);
    assert_eq!(service.invalid(&format!("{message}.{}", &signature[..100])).await, InvalidToken::Signature);
    service.ask(&good).await.unwrap();
}

/// What Cloud Run leaves of a token after its own check.
#[tokio::test]
async fn a_stripped_signature_never_passes() {
    let service = Service::start().await;
    let token = service.signer.token(&claims());
    service.ask(&token).await.unwrap();
    let (message, signature) = token.rsplit_once('.').unwrap();
    for left in ["SIGNATURE_REMOVED_BY_GOOGLE", ""] {
        assert_eq!(service.invalid(&format!("{message}.{left}")).await, InvalidToken::SignatureRemoved);
    }
    for left in ["SIGNATURE_REMOVED", "AAAA", "=", "%", &"A".repeat(342), &format!("{signature}A")] {
        let reason = service.invalid(&format!("{message}.{left}")).await;
        assert!(matches!(reason, InvalidToken::Signature | InvalidToken::Unreadable), "{left}: {reason:?}");
    }
    for text in [message, "a.b", "a.b.c.d", "...."] {
        assert!(matches!(service.ask(text).await, Err(Unauthenticated::Malformed)), "{text}");
    }
}

#[tokio::test]
async fn only_listed_accounts_are_let_in_whatever_the_case() {
    let service = Service::start().await;
    let token_of = |email: &str| {
        let mut claims = claims();
        claims["email"] = email.into();
        service.signer.token(&claims)
    };
    let stranger = "stranger@project.iam.gserviceaccount.com";
    let refused = Refusal::NotListed { email: stranger.to_owned() };
    assert_eq!(service.refusal(&token_of(stranger)).await, refused);
    service.ask(&token_of(&ROBOT.to_uppercase())).await.unwrap();

    let emit = [Scope::Emit].into_iter().collect();
    let access = &service.access;
    let mixed = "Stranger@Project.iam.gserviceaccount.com";
    assert!(access.allow_account(mixed, Reach::EveryCanvas, emit, &by("a")).await.unwrap());
    let principal = service.ask(&token_of(stranger)).await.unwrap();
    assert_eq!(authorize(&principal, CanvasId::DEFAULT, Scope::Emit), Ok(()));
    let admin = [Scope::Admin].into_iter().collect();
    let reach = Reach::Canvas(CANVAS);
    assert!(access.allow_account(stranger, reach, admin, &by("a")).await.unwrap());
    assert!(!access.allow_account(stranger, reach, admin, &by("a")).await.unwrap(), "again");
    let principal = service.ask(&token_of(stranger)).await.unwrap();
    assert_eq!(authorize(&principal, CANVAS, Scope::Admin), Ok(()));
    assert_eq!(authorize(&principal, CANVAS, Scope::Emit), Ok(()), "from the grant for every canvas");
    assert_eq!(access.accounts(CredentialFilter::Everything, None, 100).await.unwrap().len(), 3);
    assert_eq!(access.accounts(CANVAS.into(), None, 100).await.unwrap().len(), 2);

    assert!(access.remove_account(stranger, Reach::EveryCanvas, &by("a")).await.unwrap());
    assert!(!access.remove_account(stranger, Reach::EveryCanvas, &by("a")).await.unwrap());
    let principal = service.ask(&token_of(stranger)).await.unwrap();
    assert_eq!(authorize(&principal, CanvasId::DEFAULT, Scope::Emit), Err(Denied::NotFound));
    assert!(access.remove_account(stranger, Reach::Canvas(CANVAS), &by("a")).await.unwrap());
    assert_eq!(service.refusal(&token_of(stranger)).await, refused);
    assert!(access.allow_account(stranger, reach, admin, &by("a")).await.unwrap(), "let in again");
    for email in ["ada@localhost", "allUsers", ""] {
        let refused = access.allow_account(email, Reach::EveryCanvas, emit, &by("a")).await;
        assert!(matches!(refused, Err(AccessError::Invalid(_))), "{email}");
    }
}

/// What a person was granted is for the pages behind Google's proxy. An ID token does not show
/// whether the address still belongs to the person.
#[tokio::test]
async fn a_person_has_no_access_by_an_id_token() {
    let service = Service::start().await;
    let emit = [Scope::Emit].into_iter().collect();
    for email in ["ada@gmail.com", "robot@evilgserviceaccount.com"] {
        service.access.allow_account(email, Reach::EveryCanvas, emit, &by("a")).await.unwrap();
        let mut claims = claims();
        claims["email"] = email.into();
        let refused = service.refusal(&service.signer.token(&claims)).await;
        assert_eq!(refused, Refusal::NotListed { email: email.to_owned() });
    }
    service.good().await.unwrap();
}

/// In another process, a removed account is refused within the cache's time.
#[tokio::test]
async fn a_removed_account_is_soon_forgotten() {
    let service = Service::start().await;
    service.good().await.unwrap();
    let elsewhere = Access::new(service.stage.store.clone(), AccessConfig::default()).unwrap();
    assert!(elsewhere.remove_account(ROBOT, Reach::Canvas(CANVAS), &by("a")).await.unwrap());
    service.good().await.unwrap();
    service.clock.advance(Duration::from_secs(30));
    let gone = service.refusal(&service.signer.token(&claims())).await;
    assert_eq!(gone, Refusal::NotListed { email: ROBOT.to_owned() });
    let off = elsewhere.authenticate(Some(&format!("Bearer {}", service.signer.token(&claims())))).await;
    assert!(matches!(off, Err(Unauthenticated::Unknown(Refusal::Token(InvalidToken::Off)))), "{off:?}");
}

#[tokio::test]
async fn sixty_four_at_once_on_a_cold_cache_pass_with_one_fetch() {
    let service = Service::start().await;
    service.server.close();
    let all = join_all((0..64).map(|_| service.good()));
    let (answers, ()) = tokio::join!(all, async {
        service.server.asked().await;
        service.server.open();
    });
    for answer in answers {
        answer.unwrap();
    }
    assert_eq!(service.server.fetches(), 1);
}

/// The first caller may hang up: the others get their answer from the same fetch.
#[tokio::test]
async fn a_fetch_outlives_the_caller_that_began_it() {
    let service = Service::start().await;
    service.server.close();
    tokio::select! {
        biased;
        _ = service.good() => panic!("the server has not answered"),
        () = service.server.asked() => {}
    }
    service.server.open();
    service.good().await.unwrap();
    assert_eq!(service.server.fetches(), 1);
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn unknown_keys_cost_one_fetch_a_minute() {
    let service = Service::start().await;
    service.good().await.unwrap();
    let header = |index| json!({"alg": "RS256", "kid": format!("unknown-{index}")});
    let stranger = |index| Signer::new("x").token_with(&header(index), &claims());
    let strangers: Vec<_> = (0..20).map(stranger).collect();
    for (minute, fetches) in [(0, 2), (1, 3), (2, 4)] {
        for token in &strangers {
            assert_eq!(service.invalid(token).await, InvalidToken::UnknownKey);
        }
        assert_eq!(service.server.fetches(), fetches, "minute {minute}");
        service.good().await.unwrap();
        service.clock.advance(MINUTES);
    }
    let at_once = join_all(strangers.iter().map(|token| service.invalid(token))).await;
    assert!(at_once.iter().all(|reason| *reason == InvalidToken::UnknownKey));
    assert_eq!(service.server.fetches(), 5);
}

#[tokio::test]
async fn a_new_key_is_found_when_it_is_first_seen() {
    let service = Service::start().await;
    service.good().await.unwrap();
    let two = Signer::new("two");
    service.server.add(&two);
    service.ask(&two.token(&claims())).await.unwrap();
    service.good().await.unwrap();
    assert_eq!(service.server.fetches(), 2);
}

#[tokio::test]
async fn requests_do_not_wait_for_key_refreshes_and_survive_failed_ones() {
    let service = Service::start().await;
    service.good().await.unwrap();
    service.clock.advance(9 * MINUTES);
    service.good().await.unwrap();
    assert_eq!(service.server.fetches(), 1);

    service.server.close();
    service.clock.advance(2 * MINUTES);
    for answer in join_all((0..10).map(|_| service.good())).await {
        answer.unwrap();
    }
    service.server.asked().await; // the first one
    service.server.asked().await;
    service.good().await.unwrap();
    assert_eq!(service.server.fetches(), 2, "still unanswered");

    service.server.answers(Answer::Other(ResponseTemplate::new(500)));
    service.server.open();
    let unknown = Signer::new("unknown").token(&claims());
    assert_eq!(fetch_error(service.ask(&unknown).await), FetchError::Status(500), "waits for the refresh");
    for _ in 0..10 {
        service.good().await.unwrap();
    }
    assert_eq!(service.server.fetches(), 2, "not tried again at once");
    service.clock.advance(MINUTES);
    service.good().await.unwrap();
    service.server.asked().await;
    assert_eq!(fetch_error(service.ask(&unknown).await), FetchError::Status(500));
    service.clock.advance(48 * 60 * MINUTES);
    assert_eq!(fetch_error(service.good().await), FetchError::Status(500), "two days without a fetch");
}

// Shows: CARD-02
#[tokio::test]
async fn invalid_key_set_answers_are_reported() {
    let service = Service::start().await;
    let answer = ResponseTemplate::new;
    let long = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(300_000));
    for (answer, error) in [
        (answer(503), FetchError::Status(503)),
        (answer(302).insert_header("location", "https://evil.example/"), FetchError::Status(302)),
        (answer(200).set_body_string("<html>"), FetchError::NoKeys),
        (answer(200).set_body_string("{\"keys\":[]}"), FetchError::NoKeys),
        (answer(200).set_body_string(long), FetchError::NoKeys),
    ] {
        service.server.answers(Answer::Other(answer));
        assert_eq!(fetch_error(service.good().await), error);
        let fetches = service.server.fetches();
        assert_eq!(fetch_error(service.good().await), error);
        assert_eq!(service.server.fetches(), fetches, "not within the same second");
        service.clock.advance(Duration::from_secs(1));
    }
    service.server.answers(Answer::Keys);
    service.good().await.unwrap();
}

#[tokio::test]
async fn without_googles_keys_tokens_cannot_be_checked() {
    let (stage, _) = Stage::memory().await;
    let signer = Signer::new("one");
    let jwks_url = "http://127.0.0.1:1/certs".to_owned();
    let config = AccessConfig { audiences: vec![AUDIENCE.to_owned()], jwks_url, ..AccessConfig::default() };
    let access = Access::new(stage.store.clone(), config).unwrap();
    let answer = access.authenticate(Some(&format!("Bearer {}", signer.token(&claims())))).await;
    assert!(matches!(fetch_error(answer), FetchError::Failed(_)));
}
