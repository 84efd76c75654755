//! Pauses and blocks of whole canvases over HTTP, and the block of everything: who may set and lift
//! which, and that a tenant reaches no other.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, NONE, Service, has};

const FORBIDDEN: (u16, &str) = (403, "forbidden");

/// The path of a switch of this kind on a canvas.
fn path(canvas: CanvasId, kind: &str) -> String {
    let admin = if kind == "block" { "/admin" } else { "" };
    format!("{admin}/canvases/{canvas}/{kind}")
}

async fn ask(service: &Service, key: &str, method: Method, path: &str, body: Value) -> Answer {
    service.ask(key, method, path, body).await
}

/// What stops the default canvas as a whole: kind, and what it stops.
async fn switches(service: &Service) -> Vec<(String, String)> {
    let listed = service.get("/switches").await.json();
    assert_eq!(listed["next_cursor"], NONE);
    let word = |rule: &Value, field: &str| rule[field].as_str().unwrap().to_owned();
    listed["items"].as_array().unwrap().iter().map(|rule| (word(rule, "kind"), word(rule, "stops"))).collect()
}

/// Operators of the canvas pause it, its admins block it, and admins of every canvas block
/// everything; each lifts its own.
#[tokio::test]
async fn each_stops_what_it_may() {
    let service = Service::start().await;
    let operator = service.key("ada", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    let reader = service.key("eve", CanvasId::DEFAULT, &[Scope::Read]).await;
    let wide = service.wide_key("wide", &[Scope::Admin]).await;
    let (pause, block) = (path(CanvasId::DEFAULT, "pause"), path(CanvasId::DEFAULT, "block"));
    for (key, path) in
        [(&reader, &*pause), (&reader, &*block), (&operator, &*block), (&operator, "/admin/block")]
    {
        for method in [Method::PUT, Method::DELETE] {
            ask(&service, key, method, path, NONE).await.says(FORBIDDEN, "");
        }
    }
    assert_eq!(switches(&service).await, []);
    let id =
        service.post("/events", json!({"name": "greet"})).await.json()["id"].as_str().unwrap().to_owned();
    let reason = json!({"reason": "wrong prices", "for_s": 600});
    let paused = ask(&service, &operator, Method::PUT, &pause, reason).await.json();
    assert_eq!((&paused["new"], &paused["also"]), (&json!(true), &NONE));
    has(
        &paused["rule"],
        json!({"kind": "pause", "stops": "canvas", "created_by": "key:ada", "reason": "wrong prices"}),
    );
    let blocked = ask(&service, &service.key, Method::PUT, &block, NONE).await.json();
    assert_eq!((&blocked["new"], &blocked["also"]), (&json!(true), &json!("pause")));
    has(
        &ask(&service, &wide, Method::PUT, "/admin/block", NONE).await.json()["rule"],
        json!({"stops": "everything"}),
    );
    let expected = [("block", "everything"), ("block", "canvas"), ("pause", "canvas")];
    assert_eq!(switches(&service).await, expected.map(|(kind, stops)| (kind.to_owned(), stops.to_owned())));
    let paged = service.items("/switches?limit=1").await;
    let kinds: Vec<_> = paged.iter().map(|rule| (&rule["kind"], &rule["stops"])).collect();
    let expected = expected.map(|(kind, stops)| (json!(kind), json!(stops)));
    assert_eq!(kinds, expected.iter().map(|(kind, stops)| (kind, stops)).collect::<Vec<_>>());
    for query in ["limit=0", "limit=1001", "cursor=%20", "kind=block"] {
        assert_eq!(service.get(&format!("/switches?{query}")).await.problem().0, 400, "{query}");
    }
    let explained = service.get(&format!("/events/{id}")).await.json();
    assert_eq!((&explained["state"], &explained["rule"]["stops"]), (&json!("blocked"), &json!("everything")));
    let shown = service.get("/handlers/WORKER/greet").await.json();
    assert_eq!((&shown["paused"], shown["rules"].as_array().unwrap().len()), (&json!(1), 3));

    let lifted = ask(&service, &operator, Method::DELETE, &pause, NONE).await.json();
    has(&lifted, json!({"lifted": true, "still": "block", "woken": 0}));
    assert_eq!(lifted["under"]["stops"], "everything");
    let lifted = ask(&service, &wide, Method::DELETE, "/admin/block", NONE).await.json();
    assert_eq!(lifted, json!({"lifted": true, "still": NONE, "woken": 0, "waking": false}));
    let lifted = ask(&service, &service.key, Method::DELETE, &block, NONE).await.json();
    assert_eq!(lifted, json!({"lifted": true, "still": NONE, "woken": 0, "waking": false}));
    assert_eq!(switches(&service).await, []);
    let refused =
        ask(&service, &operator, Method::PUT, &pause, json!({"until": "2001-01-01T00:00:00Z"})).await;
    refused.says((400, "bad-request"), "in the past");
    service.stop().await;
}

/// A tenant with every scope on its own canvas neither sees nor stops another, nor everything; a
/// handler's path does not reach a switch.
#[tokio::test]
async fn a_tenant_stops_only_its_own_canvas() {
    let service = Service::start().await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let mine = [path(CanvasId::DEFAULT, "pause"), path(CanvasId::DEFAULT, "block")];
    for method in [Method::PUT, Method::DELETE] {
        for path in &mine {
            ask(&service, &theirs, method.clone(), path, NONE).await.says((404, "not-found"), "");
        }
        ask(&service, &theirs, method.clone(), "/admin/block", NONE).await.says(FORBIDDEN, "");
        let handler = format!("/canvases/{OTHER}/handlers/CANVAS/_/pause");
        ask(&service, &theirs, method, &handler, NONE).await.says((400, "bad-request"), "whole canvas");
    }
    let list = format!("/canvases/{}/switches", CanvasId::DEFAULT);
    ask(&service, &theirs, Method::GET, &list, NONE).await.says((404, "not-found"), "");
    let all = "/canvases/ffffffff-ffff-ffff-ffff-ffffffffffff/pause";
    let wide = service.wide_key("wide", &Scope::ALL).await;
    ask(&service, &wide, Method::PUT, all, NONE).await.says((404, "not-found"), "");
    ask(&service, &theirs, Method::PUT, &path(OTHER, "pause"), NONE).await.json();
    assert_eq!(switches(&service).await, []);
    assert!(service.items("/switches?cursor=block-canvas").await.is_empty());
    assert_eq!(service.stage.count("select count(*) from wakeq.scheduling_rules").await, 1);
    service.stop().await;
}
