//! Refusals: what they say, that they are in the canvas's record, and that they are limited.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use sqlx::Row;
use wakeq::CanvasId;
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use super::raw::Raw;
use super::requests::FOREIGN;
use crate::support::Statements;
use crate::support::service::{Answer, Service};

#[tokio::test]
async fn refusals_are_in_the_record_when_the_server_has_ended() {
    let service = Service::start().await;
    let operator = service.key("operator", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let block = format!("/v1/admin/canvases/{}/handlers/WORKER/greet/block", CanvasId::DEFAULT);
    let own = Answer::of(service.request(Method::PUT, &block).bearer_auth(&service.key)).await;
    own.json();
    for times in 0..3 {
        let lift = service.request(Method::DELETE, &block).header("x-request-id", format!("try-{times}"));
        assert_eq!(Answer::of(lift.bearer_auth(&operator)).await.problem(), (403, "forbidden".into()));
    }
    let foreign = format!("/v1/canvases/{FOREIGN}/events");
    let foreign = Answer::of(service.request(Method::GET, &foreign).bearer_auth(&operator)).await;
    assert_eq!(foreign.problem(), (404, "not-found".into()));
    let unknown = format!("wakeq_{}_{}", "a".repeat(12), "b".repeat(80));
    let list = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    let stranger = Answer::of(service.request(Method::GET, &list).bearer_auth(unknown)).await;
    assert_eq!(stranger.problem(), (401, "unauthenticated".into()));

    let stage = service.stop().await;
    let rows = "select canvas_id::text, actor, action, coalesce(name::text, ''), coalesce(detail, ''), times, request_id
                from wakeq.audit_log where outcome = 'refused' order by actor, canvas_id";
    let rows = sqlx::query(rows).fetch_all(&stage.pool).await.unwrap();
    let row = |index: usize| -> (String, String, String, String, String, i32) {
        let row = &rows[index];
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5))
    };
    assert_eq!(rows.len(), 3);
    let with = format!("with {} from 127.0.0.1; ", &operator[..18]);
    let words = format!("{with}this needs the scope `admin`, which was not granted");
    let (default, actor) = (CanvasId::DEFAULT.to_string(), "key:operator".to_owned());
    let lifts = (default.clone(), actor, "unblock_handler".into(), "greet".into(), words, 3);
    assert_eq!(row(0), lifts);
    assert_eq!(rows[0].get::<String, _>(6), "try-0");
    let (stranger, action) = ("unauthenticated".to_owned(), "list_handlers".to_owned());
    let words = format!(
        "from 127.0.0.1; key wakeq_{} was not made by this deployment, or is mistyped",
        "a".repeat(12)
    );
    assert_eq!(row(1), (default, stranger.clone(), action, String::new(), words, 1));
    // The other canvas's record does not say who it was.
    let words = "from 127.0.0.1; the credential of another canvas".to_owned();
    assert_eq!(row(2), (FOREIGN.to_string(), stranger, "list_events".into(), String::new(), words, 1));
    let blocked: i64 = stage.pool.value("select count(*) from wakeq.scheduling_rules").await;
    assert_eq!(blocked, 1, "the block stands");
}

/// The elements of a list have no names, so a list is not taken for a body's fields.
#[tokio::test]
async fn a_list_is_not_taken_for_the_fields_in_their_order() {
    let service = Service::start().await;
    let pause = "/handlers/WORKER/greet/pause";
    for body in [json!([null, null]), json!(["reason"]), json!(null), json!("reason")] {
        assert_eq!(service.put(pause, body).await.problem(), (400, "bad-request".into()));
    }
    assert_eq!(service.delete(pause).await.json()["lifted"], false);
    let empty = Answer::of(service.on_canvas(Method::PUT, pause)).await;
    assert_eq!(empty.json()["new"], true, "every field may be left out");
    assert_eq!(service.delete(pause).await.json()["lifted"], true);
    service.stop().await;
}

/// A proxy whose rules are about a path sees the same canvas and the same event as the server.
#[tokio::test]
async fn a_uuid_is_written_plainly_at_its_own_place() {
    let service = Service::start().await;
    let (other, encoded) = ("bbbbbbbb-0000-4000-8000-00000000000b", "%62bbbbbbb-0000-4000-8000-00000000000b");
    let key = service.wide_key("everywhere", &Scope::ALL).await;
    for (path, status, words) in [
        (format!("/v1/canvases/{other}/events"), 200, "items"),
        (format!("/v1/canvases/{encoded}/events"), 404, "the canvas in the path is not a uuid"),
        (format!("/v1/canvases/{encoded}/events/{other}"), 404, "the canvas in the path is not a uuid"),
        (format!("/v1/canvases/{other}/events/{encoded}"), 400, "an event's id is a uuid"),
        (format!("/v1/canvases/{}/events", CanvasId::OF_QUEUES), 404, "no such resource on this canvas"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
        let answer = Raw::sending(&service, request).await.answer().await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(words), "{path}: {}", answer.body);
    }
    let two = "GET /livez HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n";
    assert_eq!(Raw::sending(&service, two).await.answer().await.problem(), (400, "bad-request".into()));
    // A bare line feed ends a line, as RFC 9112 allows.
    let bare = "GET /livez HTTP/1.1\nhost: a\n\n";
    assert_eq!(Raw::sending(&service, bare).await.answer().await.status, 204);
    service.stop().await;
}

/// What a person who errs is told.
#[tokio::test]
async fn refusals_say_what_there_is() {
    let service = Service::start().await;
    let handlers = Answer::of(service.on_canvas(Method::PATCH, "/handlers")).await;
    assert_eq!(handlers.headers["allow"], "GET,HEAD");
    handlers.says((405, "method-not-allowed"), "see the documentation");
    let nothing = Answer::of(service.request(Method::GET, "/v1/nothing")).await;
    nothing.says((404, "not-found"), "this API has no such path");
    service.get("/handlers/worker/quick").await.says((404, "not-found"), "modules are case-sensitive");
    assert_eq!(service.get("/handlers/WORKER/quick").await.json()["waiting"], 0);
    let purge = async |body| service.post("/handlers/WORKER/quick/purge", body).await;
    assert_eq!(purge(json!({"all": true})).await.json()["purged"], 0);
    let both = purge(json!({"all": true, "before": "2030-01-31T08:00:00Z"})).await;
    both.says((400, "bad-request"), "give `before`, or `all`");
    for name in [".", ".."] {
        let refused = service.post("/events", json!({"name": name})).await;
        refused.says((400, "bad-request"), "and not . or .. alone");
        service
            .post("/events", json!({"name": "a", "object": name}))
            .await
            .says((400, "bad-request"), "not . or .. alone");
    }
    service.stop().await;
}

/// Requests that no guard sees count for their address, too.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn documents_and_unknown_paths_are_limited_by_address() {
    for path in ["/openapi.json", "/docs/", "/llms.txt", "/v1/nothing"] {
        let service = Service::with(HttpConfig { stranger_rate: 1, ..HttpConfig::default() }).await;
        let asked = (0..20).map(|_| Answer::of(service.request(Method::GET, path)));
        let answers = join_all(asked).await;
        assert!(answers.iter().any(|answer| answer.status == 429), "{path}");
        assert!(service.get("/events").await.status.is_success(), "with a key");
        service.stop().await;
    }
}
