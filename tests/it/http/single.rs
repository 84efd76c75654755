//! Single things that lists have: a quota, a key, and a canvas in a queue.

use reqwest::Method;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{NONE, Service, has};

#[tokio::test]
async fn a_quota_is_shown_as_the_list_has_it() {
    let service = Service::start().await;
    let root = service.wide_key("root", &Scope::ALL).await;
    for name in ["crons", "events"] {
        let path = format!("/admin/quotas/{}/{name}", CanvasId::DEFAULT);
        let set = service.ask(&root, Method::PUT, &path, json!({"limit": 7})).await;
        assert_eq!(set.status, 204, "{set:?}");
    }
    service.stage.emit("greet").await;
    let listed = service.get("/quotas").await.json();
    let listed = listed["items"].as_array().unwrap();
    assert_eq!(listed.len(), 18);
    for quota in listed {
        let path = format!("/quotas/{}", quota["quota"].as_str().unwrap());
        let one = service.get(&path).await.json();
        // Reads are recorded and keys are made meanwhile.
        if quota["quota"] != "audit-lines" {
            assert_eq!(one, *quota, "{path}");
        }
    }
    let key = service.key("theirs", OTHER, &[Scope::Read]).await;
    let path = format!("/canvases/{OTHER}/quotas/events");
    let theirs = service.ask(&key, Method::GET, &path, NONE).await.json();
    has(&theirs, json!({"quota": "events", "used": 0, "set": false}));
    let ours = format!("/canvases/{}/quotas/events", CanvasId::DEFAULT);
    assert_eq!(service.ask(&key, Method::GET, &ours, NONE).await.problem().0, 404);
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit]).await;
    assert_eq!(service.ask(&emitter, Method::GET, &ours, NONE).await.problem().0, 403);
    service.get("/quotas/nonsense").await.says((400, "bad-request"), "there is no such quota");
    service.stop().await;
}

/// Of this canvas: a key of another, or of every canvas, is missing as one that never was.
#[tokio::test]
async fn a_key_is_shown_without_its_secret() {
    let service = Service::start().await;
    let keys = format!("/admin/canvases/{}/keys", CanvasId::DEFAULT);
    let text = service.key("billing", CanvasId::DEFAULT, &[Scope::Read, Scope::Emit]).await;
    let id = &text[6..18];
    for id in [id.to_owned(), format!("wakeq_{id}")] {
        let shown = service.admin(Method::GET, &format!("/keys/{id}"), NONE).await;
        has(
            &shown.json(),
            json!({"id": &text[6..18], "holder": "billing", "state": "live", "revoked_at": null}),
        );
        assert!(!shown.text.contains(&text[20..40]), "{}", shown.text);
    }
    service.admin(Method::DELETE, &format!("/keys/{id}"), NONE).await;
    let shown = service.admin(Method::GET, &format!("/keys/{id}"), NONE).await.json();
    assert!(shown["state"] == "revoked" && shown["revoked_at"].is_string(), "{shown}");

    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let everywhere = service.wide_key("everywhere", &Scope::ALL).await;
    for other in [&theirs[6..18], &everywhere[6..18], "000000000000"] {
        let missing = service.admin(Method::GET, &format!("/keys/{other}"), NONE).await;
        missing.says((404, "not-found"), "no such resource on this canvas");
    }
    let other = format!("/admin/canvases/{OTHER}/keys/{id}");
    assert_eq!(service.ask(&theirs, Method::GET, &other, NONE).await.problem().0, 404);
    assert_eq!(service.ask(&theirs, Method::GET, &format!("{keys}/{id}"), NONE).await.problem().0, 404);
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    assert_eq!(service.ask(&reader, Method::GET, &format!("{keys}/{id}"), NONE).await.problem().0, 403);
    assert_eq!(service.admin(Method::GET, "/keys/nonsense", NONE).await.problem().0, 400);
    service.stop().await;
}

/// With its copies and settings, and also without either.
#[tokio::test]
async fn a_canvas_is_shown_in_a_queue() {
    let service = Service::start().await;
    let root = service.wide_key("root", &Scope::ALL).await;
    let facet = |canvas: CanvasId| format!("/admin/queues/emails/facets/{canvas}");
    let ask = async |path: &str| service.ask(&root, Method::GET, path, NONE).await;
    assert_eq!(ask(&facet(OTHER)).await.problem().0, 404, "there is no queue yet");
    let queue = json!({"patterns": [".*:mail:.*"]});
    service.ask(&root, Method::PUT, "/admin/queues/emails", queue).await.json();
    service.post("/events", json!({"module": "mail", "name": "send"})).await.json();
    let none = json!({"canvas": OTHER.to_string(), "waiting": 0, "running": 0, "weight": null, "in_flight_max": null});
    has(&ask(&facet(OTHER)).await.json(), none);
    let settings = json!({"weight": 3, "in_flight_max": 2});
    service.ask(&root, Method::PUT, &facet(OTHER), settings).await.json();
    has(
        &ask(&facet(OTHER)).await.json(),
        json!({"canvas": OTHER.to_string(), "waiting": 0, "weight": 3, "in_flight_max": 2}),
    );
    let own = ask(&facet(CanvasId::DEFAULT)).await.json();
    has(&own, json!({"canvas": CanvasId::DEFAULT.to_string(), "waiting": 1, "weight": null}));
    let listed = ask("/admin/queues/emails/facets").await.json();
    assert_eq!(listed["items"], json!([own]));
    let of_canvas = service.ask(&service.key, Method::GET, &facet(CanvasId::DEFAULT), NONE).await;
    assert!(of_canvas.status.is_client_error(), "a key of one canvas: {of_canvas:?}");
    assert_eq!(ask("/admin/queues/emails/facets/x").await.problem().0, 400);
    service.stop().await;
}
