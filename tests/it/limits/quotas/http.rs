//! Over HTTP: a tenant sees its quotas but sets none, an operator of every canvas sets them;
//! statuses and messages.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::VICTIM;
use crate::support::service::Service;

fn quota<'a>(list: &'a Value, name: &str) -> &'a Value {
    list["items"].as_array().unwrap().iter().find(|quota| quota["quota"] == name).unwrap()
}

#[tokio::test]
async fn a_tenant_sees_its_quotas_and_sets_none() {
    let service = Service::start().await;
    let everywhere = service.wide_key("operator", &Scope::ALL).await;
    let own = format!("/admin/quotas/{}/events", CanvasId::DEFAULT);
    let higher = json!({"limit": 5});
    for (key, path) in [(&service.key, own.clone()), (&service.key, format!("/admin/quotas/{VICTIM}/events"))]
    {
        assert_eq!(service.ask(key, Method::PUT, &path, higher.clone()).await.problem().0, 403);
        assert_eq!(service.ask(key, Method::DELETE, &path, Value::Null).await.problem().0, 403);
    }
    let reader = service.wide_key("reader", &[Scope::Read]).await;
    let refused = service.ask(&reader, Method::PUT, &own, higher.clone()).await;
    assert_eq!(refused.problem(), (403, "forbidden".into()));
    assert_eq!(quota(&service.get("/quotas").await.json(), "events")["set"], json!(false));

    assert_eq!(service.ask(&everywhere, Method::PUT, &own, higher).await.status, 204);
    let listed = service.get("/quotas").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 18);
    assert_eq!(quota(&listed, "events"), &json!({"quota": "events", "limit": 5, "set": true, "used": 0}));
    let path = format!("/canvases/{VICTIM}/quotas");
    assert_eq!(service.ask(&service.key, Method::GET, &path, Value::Null).await.problem().0, 404);
    let others = service.ask(&everywhere, Method::GET, &path, Value::Null).await.json();
    assert_eq!(quota(&others, "events")["set"], json!(false), "another canvas");

    let unset = service.ask(&everywhere, Method::DELETE, &own, Value::Null).await.json();
    assert_eq!(unset, json!({"unset": true}));
    for wrong in ["no-such", "EVENTS"] {
        let path = format!("/admin/quotas/{VICTIM}/{wrong}");
        assert_eq!(service.ask(&everywhere, Method::PUT, &path, json!({"limit": 1})).await.problem().0, 400);
    }
    service.stop().await;
}

#[tokio::test]
async fn exceeding_a_quota_is_reported_with_retry_after() {
    let service = Service::start().await;
    let everywhere = service.wide_key("operator", &Scope::ALL).await;
    let victim = service.key("victim", VICTIM, &Scope::ALL).await;
    for name in ["events", "crons"] {
        let path = format!("/admin/quotas/{}/{name}", CanvasId::DEFAULT);
        assert_eq!(service.ask(&everywhere, Method::PUT, &path, json!({"limit": 1})).await.status, 204);
    }
    let event = json!({"name": "work", "value": 1});
    let emit = service.on_canvas(Method::POST, "/events").header("idempotency-key", "one").json(&event);
    let first = crate::support::service::Answer::of(emit.try_clone().unwrap()).await;
    assert!(first.status.is_success(), "{first:?}");
    let refused = service.post("/events", event.clone()).await;
    assert_eq!(refused.problem(), (429, "quota-exceeded".into()));
    assert_eq!(refused.headers["retry-after"], "10");
    for words in ["1 waiting, dead and kept events", "`events` is 1", "purge"] {
        assert!(refused.text.contains(words), "{}", refused.text);
    }
    let again = crate::support::service::Answer::of(emit).await;
    assert_eq!(again.text, first.text, "what was answered before needs no room");
    let cron = json!({"expression": "0 0 1 1 *"});
    assert_eq!(service.put("/cron/a", cron.clone()).await.status, 201);
    let full = service.put("/cron/b", cron.clone()).await;
    assert_eq!(full.problem(), (409, "quota-reached".into()));
    for (method, path, body, status) in [
        (Method::POST, "events", event.clone(), 202),
        (Method::POST, "events", event, 202),
        (Method::PUT, "cron/a", cron.clone(), 201),
        (Method::PUT, "cron/b", cron, 201),
    ] {
        let answer = service.ask(&victim, method, &format!("/canvases/{VICTIM}/{path}"), body).await;
        assert!(answer.status.is_success(), "{status} {answer:?}");
    }
    service.stop().await;
}
