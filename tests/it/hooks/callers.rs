//! Who may call a hook: the sender that knows its secret, and nobody else.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{CanvasId, EventId, Name};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use super::signing::{Webhook, put, secret, webhook};
use crate::support::OTHER;
use crate::support::service::{Answer, Service};

const KINDS: [&str; 3] = ["standard", "stripe", "github"];

/// What the answer says, without the request's id.
fn said(answer: &Answer) -> Value {
    let mut body: Value = serde_json::from_str(&answer.text).unwrap();
    body["request_id"] = Value::Null;
    body
}

/// The id that the event of a webhook has.
fn id_of(canvas: CanvasId, hook: &str, webhook: &Webhook) -> Value {
    let hook: Name = hook.parse().unwrap();
    json!(EventId::chosen(canvas, EventId::of_webhook(&hook, &webhook.id)).to_string())
}

/// Each kind is verified, and becomes an event with the body as its value. A repeat adds nothing,
/// whatever its time and signature.
#[tokio::test]
async fn a_signed_webhook_is_emitted_once() {
    let service = Service::start().await;
    for kind in KINDS {
        put(&service, kind, kind, json!({})).await;
        let sent = webhook(kind, "evt_1");
        let first = sent.sent(&service, kind).await;
        assert_eq!(first.status, 202, "{kind}: {}", first.text);
        let first = first.json();
        assert_eq!(
            (&first["id"], &first["duplicate"]),
            (&id_of(CanvasId::DEFAULT, kind, &sent), &json!(false))
        );
        let repeated = sent.clone().aged(Duration::from_secs(7)).sent(&service, kind).await.json();
        assert_eq!((&repeated["id"], &repeated["duplicate"]), (&first["id"], &json!(true)), "{kind}");
        let other = webhook(kind, "evt_2").sent(&service, kind).await.json();
        assert_eq!(other["duplicate"], false, "{kind}");
        let id = first["id"].as_str().unwrap();
        let event = service.get(&format!("/events/{id}?view=full")).await;
        assert_eq!(event.json()["name"], "receive");
        assert!(event.text.contains(&format!("\"value\":{}", sent.body)), "{kind}: {}", event.text);
    }
    // The same id at another hook is another event.
    put(&service, "more", "github", json!({})).await;
    assert_eq!(webhook("github", "evt_1").sent(&service, "more").await.json()["duplicate"], false);
    assert_eq!(service.stage.rows().await, 7);
    service.stop().await;
}

/// A wrong secret, another body, another kind, a hook that was deleted and one that never was have
/// the same answer. It says nothing of secrets, and nothing is emitted.
#[tokio::test]
async fn what_no_hook_accepts_is_refused_alike() {
    let service = Service::start().await;
    for kind in KINDS {
        put(&service, kind, kind, json!({})).await;
    }
    put(&service, "deleted", "github", json!({})).await;
    assert_eq!(service.delete("/hooks/deleted").await.status, 204);
    let unknown = webhook("github", "1").sent(&service, "unknown").await;
    assert_eq!(unknown.problem(), (401, "unauthenticated".into()));
    for kind in KINDS {
        let other =
            if kind == "standard" { "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD" } else { "whsec_another_one" };
        // The bytes of the key that stands for a secret where there is none.
        let none = if kind == "standard" { format!("whsec_{}=", "A".repeat(43)) } else { "\0".repeat(32) };
        let sent = webhook(kind, "1");
        let changed = sent.to(&service, CanvasId::DEFAULT, kind).body(sent.body.replace("500", "501"));
        for (what, answer) in [
            ("a wrong secret", sent.clone().signed_with(other).sent(&service, kind).await),
            ("another body", Answer::of(changed).await),
            ("another hook", sent.sent(&service, if kind == "github" { "stripe" } else { "github" }).await),
            ("a deleted hook", sent.sent(&service, "deleted").await),
            ("an unknown hook", sent.sent(&service, "unknown").await),
            ("no secret, and no hook", sent.clone().signed_with(&none).sent(&service, "unknown").await),
            ("no second secret", sent.clone().signed_with(&none).sent(&service, kind).await),
        ] {
            assert_eq!(answer.problem(), (401, "unauthenticated".into()), "{kind}: {what}");
            assert_eq!(said(&answer), said(&unknown), "{kind}: {what}");
            assert!(!answer.text.contains(secret(kind)), "{}", answer.text);
        }
        assert_eq!(sent.sent(&service, kind).await.status, 202, "the right one");
    }
    assert_eq!(service.stage.rows().await, 3);
    let stage = service.stop().await;
    let recorded = "select count(*) from wakeq.audit_log
                     where action = 'receive_webhook' and outcome = 'refused' and actor = 'unauthenticated'
                       and detail like '%the canvas has no hook unknown'";
    assert!(stage.count(recorded).await >= 1, "the canvas's admins see why");
}

/// What is missing or too old follows from the request alone, so the answer is the same at a hook
/// that does not exist.
#[tokio::test]
async fn a_request_without_a_fresh_signature_is_told_what_it_lacks() {
    let service = Service::start().await;
    for kind in KINDS {
        put(&service, kind, kind, json!({})).await;
    }
    let without = |kind: &'static str, name: &str, hook: &str| {
        let sent = webhook(kind, "1");
        let path = format!("/v1/canvases/{}/hooks/{hook}", CanvasId::DEFAULT);
        let request = service.request(Method::POST, &path).body(sent.body.clone());
        let headers = sent.headers().into_iter().filter(|(header, _)| *header != name);
        headers.fold(request, |request, (name, value)| request.header(name, value))
    };
    for (kind, header, words) in [
        ("standard", "webhook-id", "the header webhook-id is missing"),
        ("standard", "webhook-timestamp", "the header webhook-timestamp is missing"),
        ("standard", "webhook-signature", "the header webhook-signature is missing"),
        ("stripe", "stripe-signature", "the request has no signature: send the headers"),
        ("github", "x-github-delivery", "the header x-github-delivery is missing"),
        ("github", "x-hub-signature-256", "the header x-hub-signature-256 is missing"),
    ] {
        for hook in [kind, "unknown"] {
            Answer::of(without(kind, header, hook)).await.says((401, "unauthenticated"), words);
        }
    }
    for hook in ["github", "stripe", "unknown"] {
        let sent = webhook("github", "1");
        let request = sent.to(&service, CanvasId::DEFAULT, hook);
        let more = webhook("stripe", "1").body(sent.body.clone()).headers().into_iter();
        let both = more.fold(request, |request, (name, value)| request.header(name, value));
        Answer::of(both).await.says((401, "unauthenticated"), "signatures of more than one kind");
    }
    for kind in ["standard", "stripe"] {
        for hook in [kind, "unknown"] {
            let stale = webhook(kind, "1").aged(Duration::from_secs(320)).sent(&service, hook).await;
            stale.says((401, "unauthenticated"), "more than five minutes off");
            let mut ahead = webhook(kind, "1");
            ahead.at += 320;
            ahead.sent(&service, hook).await.says((401, "unauthenticated"), "more than five minutes off");
        }
        let old = webhook(kind, "1").aged(Duration::from_secs(240)).sent(&service, kind).await;
        assert_eq!(old.status, 202, "{kind}: within the tolerance");
    }
    assert_eq!(service.stage.rows().await, 2);
    service.stop().await;
}

/// A key is no signature, and a signature no key.
#[tokio::test]
async fn a_key_opens_no_hook() {
    let service = Service::start().await;
    put(&service, "github", "github", json!({})).await;
    let keyed = service.post("/hooks/github", json!({"a": 1})).await;
    keyed.says((401, "unauthenticated"), "the request has no signature");
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let path = format!("/v1/canvases/{}/hooks/github", CanvasId::DEFAULT);
        let headers = webhook("github", "1").headers().into_iter();
        let request = service.request(method.clone(), &path);
        let signed = headers.fold(request, |request, (name, value)| request.header(name, value));
        assert_eq!(Answer::of(signed).await.problem(), (401, "unauthenticated".into()), "{method}");
    }
    service.stop().await;
}

/// Two canvases have hooks of the same name, and even of the same secret: each emits on its own
/// canvas, and neither is seen on the other.
#[tokio::test]
async fn a_hook_is_of_one_canvas() {
    let service = Service::start().await;
    let key = service.key("theirs", OTHER, &Scope::ALL).await;
    put(&service, "ours", "github", json!({})).await;
    let sent = webhook("github", "evt_1");
    let there = Answer::of(sent.to(&service, OTHER, "ours")).await;
    assert_eq!(there.problem(), (401, "unauthenticated".into()));
    let (list, path) = (format!("/canvases/{OTHER}/hooks"), format!("/canvases/{OTHER}/hooks/ours"));
    assert_eq!(service.ask(&key, Method::GET, &list, Value::Null).await.json()["items"], json!([]));
    for method in [Method::GET, Method::DELETE] {
        let gone = service.ask(&key, method, &path, Value::Null).await;
        assert_eq!(gone.problem(), (404, "not-found".into()));
    }
    let body = json!({"kind": "github", "handler": {"name": "receive"}, "secret": secret("github")});
    assert_eq!(service.ask(&key, Method::PUT, &path, body).await.status, 201);
    for (canvas, hook) in [(CanvasId::DEFAULT, "ours"), (OTHER, "ours")] {
        let emitted = Answer::of(sent.to(&service, canvas, hook)).await.json();
        assert_eq!((&emitted["id"], &emitted["duplicate"]), (&id_of(canvas, hook, &sent), &json!(false)));
    }
    let events = format!("/canvases/{OTHER}/events");
    let events = service.ask(&key, Method::GET, &events, Value::Null).await.json();
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    assert_eq!(service.ask(&key, Method::DELETE, &path, Value::Null).await.status, 204);
    assert_eq!(sent.sent(&service, "ours").await.json()["duplicate"], true, "ours is still there");
    for path in [CanvasId::OF_QUEUES.to_string(), "nobody".to_owned()] {
        let request = service.request(Method::POST, &format!("/v1/canvases/{path}/hooks/ours"));
        assert_eq!(Answer::of(request).await.problem(), (404, "not-found".into()));
    }
    service.stop().await;
}

/// Requests that are refused count for their address alone: they keep no webhook of the canvas's
/// own sender out.
#[tokio::test]
async fn strangers_use_up_only_their_own_rate() {
    let config = HttpConfig { stranger_rate: 1, canvas_rate: 1, ..HttpConfig::default() };
    let service = Service::with(config).await;
    put(&service, "github", "github", json!({})).await;
    let wrong = webhook("github", "1").signed_with("not_the_right_secret");
    let answers = join_all((0..12).map(|_| wrong.sent(&service, "github"))).await;
    let limited = answers.iter().filter(|answer| answer.status == 429).count();
    assert!(limited >= 8 && answers.iter().all(|answer| !answer.status.is_success()), "{limited}");
    assert_eq!(webhook("github", "1").sent(&service, "github").await.status, 202);
    service.stop().await;
}

/// What is emitted counts for the canvas as any emit does.
#[tokio::test]
async fn webhooks_count_for_their_canvas() {
    let service = Service::start().await;
    put(&service, "github", "github", json!({})).await;
    let root = service.wide_key("root", &[Scope::Admin]).await;
    let quota = format!("/admin/quotas/{}/events", CanvasId::DEFAULT);
    assert_eq!(service.ask(&root, Method::PUT, &quota, json!({"limit": 0})).await.status, 204);
    let full = webhook("github", "1").sent(&service, "github").await;
    assert_eq!(
        (full.problem(), full.headers.contains_key("retry-after")),
        ((429, "quota-exceeded".into()), true)
    );
    service.ask(&root, Method::DELETE, &quota, Value::Null).await.json();
    assert_eq!(webhook("github", "1").sent(&service, "github").await.json()["duplicate"], false);
    service.stop().await;
    let config = HttpConfig { canvas_event_rate: 1, lone_canvas_event_rate: 1, ..HttpConfig::default() };
    let service = Service::with(config).await;
    put(&service, "github", "github", json!({})).await;
    let sent = (0..6).map(|number| webhook("github", &number.to_string()));
    let sent: Vec<_> = sent.collect();
    let answers = join_all(sent.iter().map(|sent| sent.sent(&service, "github"))).await;
    assert!(
        answers.iter().any(|answer| answer.status == 429)
            && answers.iter().any(|answer| answer.status == 202)
    );
    service.stop().await;
}
