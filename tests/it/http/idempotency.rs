//! `Idempotency-Key`: the same request again, a different one, and a concurrent one.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, Service};

fn keyed(service: &Service, path: &str, key: &str, body: &Value) -> RequestBuilder {
    service.on_canvas(Method::POST, path).header("idempotency-key", key).json(body)
}

#[tokio::test]
async fn a_repeated_request_gets_its_first_answer() {
    let service = Service::start().await;
    let batch = json!({"events": [{"name": "a"}, {"name": "b"}]});
    for (path, key, body) in [("/events", "one", json!({"name": "a"})), ("/events:batch", "many", batch)] {
        let first = Answer::of(keyed(&service, path, key, &body)).await;
        let again = Answer::of(keyed(&service, path, key, &body)).await;
        assert_eq!((first.status, again.status), (StatusCode::ACCEPTED, StatusCode::ACCEPTED));
        assert_eq!(first.text, again.text);
        assert!(!first.text.contains("true"), "{}", first.text);
        assert_eq!(first.headers.get("location"), again.headers.get("location"));
        assert_eq!(first.headers["content-type"], again.headers["content-type"]);
        assert!(!first.headers.contains_key("idempotency-replayed"));
        assert_eq!(again.headers["idempotency-replayed"], "true");
    }
    assert_eq!(service.notifier.published().len(), 3, "a repeat notifies nobody");
    assert_eq!(service.stop().await.rows().await, 3);
}

#[tokio::test]
async fn another_request_under_the_same_key_is_refused() {
    let service = Service::start().await;
    let body = json!({"name": "a"});
    assert_eq!(Answer::of(keyed(&service, "/events", "k", &body)).await.status, StatusCode::ACCEPTED);
    for request in [
        keyed(&service, "/events", "k", &json!({"name": "b"})),
        keyed(&service, "/events?value=data", "k", &body),
        keyed(&service, "/events:batch", "k", &json!({"events": [body]})),
        keyed(&service, "/events", "k", &body)
            .header("ce-specversion", "1.0")
            .header("ce-id", "1")
            .header("ce-source", "/a")
            .header("ce-type", "a"),
    ] {
        assert_eq!(Answer::of(request).await.problem(), (422, "idempotency-mismatch".into()));
    }
    assert_eq!(service.stop().await.rows().await, 1);
}

/// A key belongs to its holder, on one canvas; two API keys of a holder are the same sender.
#[tokio::test]
async fn a_key_belongs_to_its_holder_and_canvas() {
    let service = Service::start().await;
    let body = json!({"name": "a"});
    let send = |credential: String, canvas: CanvasId| {
        let request = service.request(Method::POST, &format!("/v1/canvases/{canvas}/events"));
        Answer::of(request.bearer_auth(credential).header("idempotency-key", "k").json(&body))
    };
    let billing = service.key("billing", CanvasId::DEFAULT, &[Scope::Emit]).await;
    let first = send(billing.clone(), CanvasId::DEFAULT).await;
    let by = async |holder: &str, canvas: CanvasId| {
        send(service.key(holder, canvas, &[Scope::Emit]).await, canvas).await
    };
    assert_eq!(first.text, by("billing", CanvasId::DEFAULT).await.text);
    let (stranger, elsewhere) = (by("mail", CanvasId::DEFAULT).await, by("billing", OTHER).await);
    assert!(first.json()["id"] != stranger.json()["id"] && first.json()["id"] != elsewhere.json()["id"]);
    let again = send(billing, CanvasId::DEFAULT).await;
    assert_eq!(again.text, first.text, "what was answered elsewhere is kept elsewhere");
    assert_eq!(service.stop().await.rows().await, 3);
}

/// The first request has not ended: its key is written, and not committed.
#[tokio::test]
async fn a_request_in_progress_is_not_joined() {
    let service = Service::start().await;
    let mut first = PgConnection::connect(service.stage.database.url()).await.unwrap();
    let mut transaction = first.begin().await.unwrap();
    let sql = "insert into wakeq.idempotency_keys (canvas_id, holder, key, fingerprint, answer)
               values ($1, 'key:tests', 'k', '\\x00', '')";
    sqlx::query(sql).bind(CanvasId::DEFAULT.0).execute(&mut *transaction).await.unwrap();
    let body = json!({"name": "a"});
    let second = Answer::of(keyed(&service, "/events", "k", &body)).await;
    assert_eq!(second.problem(), (409, "idempotency-in-progress".into()));
    assert!(second.headers.contains_key("retry-after"));
    transaction.rollback().await.unwrap();
    let third = Answer::of(keyed(&service, "/events", "k", &body)).await;
    assert_eq!(third.status, StatusCode::ACCEPTED, "the first has left nothing behind");
    assert_eq!(service.stop().await.rows().await, 1);
}

#[tokio::test]
async fn a_failed_request_does_not_use_up_its_idempotency_key() {
    let service = Service::start().await;
    let taken = service.post("/events", json!({"name": "a"})).await.json()["id"].clone();
    let credential = service.key("other", OTHER, &[Scope::Emit]).await;
    let send = |body: Value| {
        let request =
            service.request(Method::POST, &format!("/v1/canvases/{OTHER}/events")).bearer_auth(&credential);
        Answer::of(request.header("idempotency-key", "k").json(&body))
    };
    assert_eq!(send(json!({"name": "a b"})).await.problem().0, 400);
    assert_eq!(send(json!({"name": "a", "id": taken})).await.json()["duplicate"], false, "it is free here");
    assert_eq!(service.stop().await.rows().await, 2);
}

#[tokio::test]
async fn a_key_has_its_form() {
    let service = Service::start().await;
    let body = json!({"name": "a"});
    let long = "k".repeat(256);
    for key in ["", "two words", "ümlaut", long.as_str()] {
        let refused = Answer::of(keyed(&service, "/events", key, &body)).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{key}");
    }
    let twice = Answer::of(keyed(&service, "/events", "k", &body).header("idempotency-key", "l")).await;
    assert_eq!(twice.problem().0, 400);
    assert_eq!(Answer::of(keyed(&service, "/events", &long[1..], &body)).await.status, StatusCode::ACCEPTED);
    assert_eq!(service.stop().await.rows().await, 1);
}
