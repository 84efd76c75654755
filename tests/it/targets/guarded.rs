//! What targets must not be, namely the deployment itself; and what signs for them, secrets that
//! are encrypted and rotated while deliveries run; on two canvases.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::machine::Outcome;
use wakeq::targets::NewTarget;
use wakeq::{Actor, Admin, AdminError, CanvasId, Event, EventId, Handlers, Store, StoreConfig, WorkerConfig};
use wakeq_service::access::{AccessConfig, Scope};
use wakeq_service::delivery::DeliveryConfig;
use wakeq_service::server::HttpConfig;
use wiremock::ResponseTemplate;

use crate::cli::Terminal;
use crate::support::receiver::{PendingRequest, Receiver, address, answering, calling, target, to_loopback};
use crate::support::service::{Answer, Service};
use crate::support::{RunningWorker, Stage, Statements, fit};

const THEIRS: CanvasId = CanvasId(Uuid::from_u128(7));
const GREET: &str = "/handlers/WORKER/greet";

fn worker(store: &Store, stage: &Stage) -> RunningWorker {
    calling(store, stage, Handlers::new(), WorkerConfig::default())
}

async fn emit(stage: &Stage, canvas: CanvasId, value: usize) -> EventId {
    stage.queue.emit(Event::new("greet", &value).unwrap().canvas(canvas)).await.unwrap().id
}

/// Neither by its origin in any spelling nor by an audience, and on no canvas; whatever the
/// registering process itself knows.
#[tokio::test]
async fn a_target_is_not_the_deployment_itself() {
    let audiences = vec!["https://api.example".to_owned(), "wakeq-prod".to_owned()];
    let allowed = "*=wakeq-prod=https://shop.example".parse().unwrap();
    let service = Service::with(HttpConfig {
        own_origins: vec!["https://queue.example".to_owned()],
        access: AccessConfig { audiences, ..AccessConfig::default() },
        delivery: DeliveryConfig { audiences: vec![allowed], ..to_loopback() },
        ..HttpConfig::default()
    })
    .await;
    let their_key = service.key("theirs", THEIRS, &Scope::ALL).await;
    let elsewhere = format!("/v1/canvases/{}/events", CanvasId::DEFAULT);
    for (url, audience) in [
        (format!("https://queue.example{elsewhere}"), None),
        (format!("https://QUEUE.example.:8443{elsewhere}"), None),
        (format!("http://api.example{elsewhere}"), None),
        ("https://shop.example/".to_owned(), Some("wakeq-prod")),
    ] {
        let body = json!({"url": url, "audience": audience});
        let theirs = format!("/canvases/{THEIRS}{GREET}");
        let answers = [
            service.put(GREET, body.clone()).await,
            service.ask(&their_key, Method::PUT, &theirs, body).await,
        ];
        for refused in answers {
            assert_eq!(refused.problem(), (400, "bad-request".into()), "{url}");
            assert!(refused.text.contains("this deployment itself"), "{}", refused.text);
        }
        let another_process = &service.stage.admin;
        let target = NewTarget { audience: audience.map(str::to_owned), ..target(&url) };
        let ada = Actor::user("ada");
        let refused = another_process.put_target(&address(THEIRS, "greet"), &target, &ada).await.unwrap_err();
        assert!(matches!(refused, AdminError::OwnTarget(_)), "{refused}");
    }

    let receiver = Receiver::start().await;
    assert_eq!(service.put(GREET, json!({"url": receiver.url})).await.status, 201);
    let moved = "update wakeq.http_targets set url = 'https://queue.example/v1/wake'";
    service.stage.pool.run(moved).await;
    let mut running = worker(&service.stage.store, &service.stage);
    let id = emit(&service.stage, CanvasId::DEFAULT, 1).await;
    running.until(id, Outcome::RetryAllowed).await;
    let shown = service.get(&format!("/events/{id}")).await.json();
    assert!(shown["last_error"].as_str().unwrap().contains("this deployment itself"), "{shown}");
    running.stop().await;
    service.stop().await;
}

/// A target that leads to the API by an unknown name: the API refuses what this deployment sent,
/// whatever credential it carries, and accepts what others sent.
#[tokio::test]
async fn a_delivery_that_comes_back_is_refused() {
    let service = Service::with(HttpConfig { delivery: to_loopback(), ..HttpConfig::default() }).await;
    let target = answering([ResponseTemplate::new(200)]).await;
    service.put(GREET, json!({"url": target.uri()})).await.json();
    let mut running = worker(&service.stage.store, &service.stage);
    running.until(emit(&service.stage, CanvasId::DEFAULT, 1).await, Outcome::Deleted).await;
    let requests = target.received_requests().await.unwrap();
    let sender = requests[0].headers["wakeq-delivery"].to_str().unwrap();
    let post = async |sender: &str| {
        let request = service.on_canvas(Method::POST, "/events").header("wakeq-delivery", sender);
        Answer::of(request.json(&json!({"name": "other"}))).await
    };
    let refused = post(sender).await;
    assert_eq!(refused.problem(), (403, "forbidden".into()));
    assert!(refused.text.contains("this deployment's own"), "{}", refused.text);
    assert_eq!(post("of another deployment").await.status, 202);

    let here = format!("http://{}/v1/canvases/{THEIRS}/events", service.address);
    service.put(GREET, json!({"url": here})).await.json();
    let id = emit(&service.stage, CanvasId::DEFAULT, 2).await;
    running.until(id, Outcome::RetryAllowed).await;
    let shown = service.get(&format!("/events/{id}")).await.json();
    assert!(shown["last_error"].as_str().unwrap().contains("403"), "before it is asked who calls: {shown}");
    running.stop().await;
    service.stop().await;
}

/// Without a key nothing is registered, unless secrets in clear are explicitly allowed.
#[tokio::test]
async fn without_a_key_no_target_is_registered() {
    let (stage, _) = Stage::memory().await;
    let with = async |keys: wakeq::targets::SecretKeys| {
        let config =
            StoreConfig { allow_unsafe_durability: true, secret_keys: keys, ..StoreConfig::default() };
        let store = Store::connect(stage.database.url(), config).await.unwrap();
        let admin = Admin::new(store, stage.notifier.clone());
        let (address, target) = (address(THEIRS, "greet"), target("https://a.example/"));
        admin.put_target(&address, &target, &Actor::user("ada")).await
    };
    let refused = with(wakeq::targets::SecretKeys::default()).await.unwrap_err();
    assert!(matches!(refused, AdminError::NoSecretKey), "{refused}");
    assert!(refused.to_string().contains("wakeq secrets new-key"), "{refused}");
    assert!(with(wakeq::targets::SecretKeys::default().in_clear()).await.unwrap().new);
}

/// The key is replaced while deliveries run: each is signed with its own canvas's secret, before,
/// meanwhile and after.
#[tokio::test]
async fn a_key_is_replaced_while_deliveries_run() {
    let (old, new) = ("01".repeat(32), "02".repeat(32));
    let both = format!("{new},{old}");
    let store = StoreConfig { secret_keys: old.parse().unwrap(), ..StoreConfig::default() };
    let service = Service::over(store, HttpConfig { delivery: to_loopback(), ..HttpConfig::default() }).await;
    let mut receiver = Receiver::start().await;
    let their_key = service.key("theirs", THEIRS, &Scope::ALL).await;
    let theirs = format!("/canvases/{THEIRS}{GREET}");
    let body = json!({"url": receiver.url});
    let puts =
        [service.put(GREET, body.clone()).await, service.ask(&their_key, Method::PUT, &theirs, body).await];
    let secret = |answer: &Answer| answer.json()["secret"].as_str().unwrap().to_owned();
    let secrets = BTreeMap::from([(CanvasId::DEFAULT, secret(&puts[0])), (THEIRS, secret(&puts[1]))]);
    let connected = async |keys: &str| {
        let config = StoreConfig { secret_keys: keys.parse().unwrap(), ..StoreConfig::default() };
        Store::connect(service.stage.database.url(), fit(config)).await.unwrap()
    };
    let take = |arrived: PendingRequest| {
        let canvas = arrived.header("ce-source").trim_start_matches("/canvases/").parse().unwrap();
        assert_eq!(arrived.signed_by(&secrets[&canvas]), (1, Some(0)));
        arrived.answer("200 OK", &[]);
    };

    let running = worker(&connected(&both).await, &service.stage);
    for value in 0..10 {
        emit(&service.stage, if value % 2 == 0 { CanvasId::DEFAULT } else { THEIRS }, value).await;
    }
    for _ in 0..5 {
        take(receiver.next().await);
    }
    let terminal = Terminal::on(&service.stage.database).set("WAKEQ_SECRET_KEY", &both);
    let rotated = terminal.run(&["secrets", "--json", "rotate"]).await;
    assert_eq!(rotated.code, Some(0), "{}", rotated.err);
    let rotated: Value = serde_json::from_str(&rotated.out).unwrap();
    assert_eq!(rotated, json!({"changed": 2, "hooks": 0, "unopened": []}));
    for _ in 0..5 {
        take(receiver.next().await);
    }
    running.stop().await;

    let mut running = worker(&connected(&new).await, &service.stage);
    for canvas in [CanvasId::DEFAULT, THEIRS] {
        let id = emit(&service.stage, canvas, 0).await;
        take(receiver.next().await);
        running.until(id, Outcome::Deleted).await;
    }
    running.stop().await;
    let mut running = worker(&connected(&old).await, &service.stage);
    running.until(emit(&service.stage, THEIRS, 0).await, Outcome::Deferred).await;
    assert!(receiver.is_quiet(), "a process without the key signs nothing, and costs the event no attempt");
    running.stop().await;
    service.stop().await;
}
