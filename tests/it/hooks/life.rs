//! Hooks as operators see them: put, shown, replaced, rotated and deleted.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::signing::{GITHUB_SECRET, STRIPE_SECRET, put, webhook};
use crate::support::Statements;
use crate::support::service::{Service, has};

const OTHER_SECRET: &str = "another_secret_of_github";

#[tokio::test]
async fn a_hook_is_put_shown_replaced_and_deleted() {
    let service = Service::start().await;
    let body = json!({"kind": "github", "handler": {"name": "receive"}});
    let created = service.put("/hooks/pushes", body.clone()).await;
    assert_eq!(created.status, 201);
    let created = created.json();
    let secret = created["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("whsec_"), "{created}");
    let handler = json!({"module": "WORKER", "name": "receive", "modifier": "_"});
    has(&created["hook"], json!({"name": "pushes", "kind": "github", "handler": handler, "value": "data"}));
    has(&created["hook"], json!({"created_by": "key:tests", "previous_secret_until": null}));
    assert_eq!(webhook("github", "1").signed_with(&secret).sent(&service, "pushes").await.status, 202);

    let handler = json!({"module": "REPO", "name": "pushed", "modifier": "eu"});
    let replaced = json!({"kind": "github", "handler": handler, "value": "envelope"});
    let replaced = service.put("/hooks/pushes", replaced).await;
    assert_eq!(replaced.status, 200);
    let replaced = replaced.json();
    assert_eq!((&replaced["new"], &replaced["secret"]), (&json!(false), &Value::Null), "it keeps its secret");
    has(&replaced["hook"], json!({"handler": handler, "value": "envelope"}));
    assert_eq!(service.get("/hooks/pushes").await.json(), replaced["hook"]);
    let sent = webhook("github", "2").signed_with(&secret).sent(&service, "pushes").await.json();
    let event = service.get(&format!("/events/{}", sent["id"].as_str().unwrap())).await.json();
    has(&event, json!({"module": "REPO", "name": "pushed", "modifier": "eu"}));

    for name in ["b", "d", "a", "c"] {
        put(&service, name, "github", json!({})).await;
    }
    let listed = service.items("/hooks?limit=2").await;
    let names: Vec<_> = listed.iter().map(|hook| hook["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "pushes"]);
    let deleted = service.delete("/hooks/pushes").await;
    assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (204, ""));
    for gone in [service.delete("/hooks/pushes").await, service.get("/hooks/pushes").await] {
        assert_eq!(gone.problem(), (404, "not-found".into()));
    }
    assert_eq!(webhook("github", "3").signed_with(&secret).sent(&service, "pushes").await.problem().0, 401);

    let mut shown = service.admin(Method::GET, "/audit?limit=100", Value::Null).await.text;
    shown.push_str(&service.get("/hooks").await.text);
    assert!(!shown.contains(&secret[6..]) && !shown.contains(GITHUB_SECRET), "{shown}");
    for words in ["put-hook", "delete-hook", "hook pushes; github; modifier eu; it was there already"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    service.stop().await;
}

/// For a day after a rotation both secrets are accepted, unless the previous one is dropped.
#[tokio::test]
async fn a_replaced_secret_is_accepted_for_a_day() {
    let service = Service::start().await;
    put(&service, "pushes", "github", json!({})).await;
    let accepts = async |id: &str, secret: &str| {
        let answer = webhook("github", id).signed_with(secret).sent(&service, "pushes").await;
        assert!([202, 401].contains(&answer.status.as_u16()), "{}", answer.text);
        answer.status == 202
    };
    assert!(accepts("1", GITHUB_SECRET).await && !accepts("1", OTHER_SECRET).await);
    let rotated = put(&service, "pushes", "github", json!({"secret": OTHER_SECRET})).await;
    let until = rotated["hook"]["previous_secret_until"].clone();
    assert!(until.is_string() && rotated["secret"].is_null(), "{rotated}");
    assert!(accepts("2", GITHUB_SECRET).await && accepts("3", OTHER_SECRET).await);
    let repeated = put(&service, "pushes", "github", json!({"secret": OTHER_SECRET})).await;
    assert_eq!(repeated["hook"]["previous_secret_until"], until, "the same again is no rotation");
    assert!(accepts("4", GITHUB_SECRET).await);

    let before = "select count(*) from wakeq.hooks where previous_until between now() + interval '86000 s'
                                                                        and now() + interval '86400 s'";
    assert_eq!(service.stage.count(before).await, 1);
    service.stage.pool.run("update wakeq.hooks set previous_until = now()").await;
    assert!(!accepts("5", GITHUB_SECRET).await && accepts("5", OTHER_SECRET).await);
    assert_eq!(service.get("/hooks/pushes").await.json()["previous_secret_until"], Value::Null);

    let rotate = json!({"kind": "github", "handler": {"name": "receive"}, "rotate_secret": true, "drop_previous_secret": true});
    let rotated = service.put("/hooks/pushes", rotate).await.json();
    assert_eq!(rotated["hook"]["previous_secret_until"], Value::Null);
    let made = rotated["secret"].as_str().unwrap();
    assert!(!accepts("6", OTHER_SECRET).await && accepts("6", made).await);
    service.stop().await;
}

/// What is sent again is a repeat, although the hook has another handler by now.
#[tokio::test]
async fn a_repeat_to_a_hook_with_a_new_handler_adds_nothing() {
    let service = Service::start().await;
    put(&service, "pushes", "github", json!({})).await;
    let sent = webhook("github", "1");
    let first = sent.sent(&service, "pushes").await.json();
    put(&service, "pushes", "github", json!({"handler": {"name": "newer"}})).await;
    let again = sent.sent(&service, "pushes").await.json();
    assert_eq!(again, json!({"id": first["id"], "duplicate": true}));
    assert_eq!(webhook("github", "2").sent(&service, "pushes").await.json()["duplicate"], false);
    assert_eq!(service.stop().await.rows().await, 2);
}

/// A hook emits, so an operator needs the right to emit, to any handler.
#[tokio::test]
async fn hooks_are_put_by_operators_who_may_emit() {
    let service = Service::start().await;
    let path = format!("/canvases/{}/hooks/pushes", CanvasId::DEFAULT);
    let body = json!({"kind": "github", "handler": {"name": "receive"}, "secret": GITHUB_SECRET});
    let key = async |holder: &str, scopes: &[Scope]| service.key(holder, CanvasId::DEFAULT, scopes).await;
    let operator = key("operator", &[Scope::Operate, Scope::Read]).await;
    let emitter = key("emitter", &[Scope::Emit, Scope::Read]).await;
    for (key, words) in [(&operator, "`emit`"), (&emitter, "`operate`")] {
        let refused = service.ask(key, Method::PUT, &path, body.clone()).await;
        refused.says((403, "forbidden"), words);
    }
    let scopes = json!({"holder": "narrow", "scopes": ["emit:WORKER/receive", "operate:WORKER/receive"]});
    let narrow =
        service.admin(Method::POST, "/keys", scopes).await.json()["key"].as_str().unwrap().to_owned();
    let refused = service.ask(&narrow, Method::PUT, &path, body.clone()).await;
    assert_eq!(refused.problem().0, 403);
    let both = key("both", &[Scope::Operate, Scope::Emit]).await;
    assert_eq!(service.ask(&both, Method::PUT, &path, body).await.status, 201);
    assert_eq!(
        service.ask(&both, Method::GET, &path, Value::Null).await.problem(),
        (403, "forbidden".into())
    );
    assert_eq!(service.ask(&emitter, Method::GET, &path, Value::Null).await.json()["name"], "pushes");
    assert_eq!(service.ask(&emitter, Method::DELETE, &path, Value::Null).await.problem().0, 403);
    assert_eq!(service.ask(&operator, Method::DELETE, &path, Value::Null).await.status, 204);
    service.stop().await;
}

#[tokio::test]
async fn rejects_invalid_hooks_with_advice() {
    let service = Service::start().await;
    let handler = json!({"name": "receive"});
    for (path, body, words) in [
        ("/hooks/h", json!({"handler": handler}), "the field `kind` is missing"),
        ("/hooks/h", json!({"kind": "github"}), "the field `handler` is missing"),
        (
            "/hooks/h",
            json!({"kind": "slack", "handler": handler}),
            "a value is none of `standard`, `stripe`, `github`",
        ),
        ("/hooks/h", json!({"kind": "github", "handler": {"name": "a b"}}), "not a valid name"),
        (
            "/hooks/h",
            json!({"kind": "github", "handler": {"module": "CRON", "name": "a"}}),
            "only wakeq itself emits",
        ),
        (
            "/hooks/h",
            json!({"kind": "github", "handler": handler, "value": "body"}),
            "none of `data` or `envelope`",
        ),
        ("/hooks/h", json!({"kind": "github", "handler": handler, "secret": "s3cr3t"}), "16 to 256 visible"),
        (
            "/hooks/h",
            json!({"kind": "standard", "handler": handler, "secret": "s3cr3ts3cr3ts3cr3t"}),
            "24 to 64 bytes",
        ),
        (
            "/hooks/h",
            json!({"kind": "stripe", "handler": handler, "secret": "sk_live_s3cr3ts3cr3t"}),
            "not an API key",
        ),
        ("/hooks/h", json!({"kind": "stripe", "handler": handler}), "give it as `secret`"),
        ("/hooks/h", json!({"kind": "stripe", "handler": handler, "rotate_secret": true}), "roll it there"),
        (
            "/hooks/h",
            json!({"kind": "github", "handler": handler, "secret": "s3cr3ts3cr3ts3cr3t", "rotate_secret": true}),
            "not both",
        ),
        ("/hooks/h", json!({"kind": "github", "handler": handler, "url": "x"}), "a field is unknown"),
        ("/hooks/a%20b", json!({"kind": "github", "handler": handler}), "not a valid name"),
    ] {
        let refused = service.put(path, body.clone()).await;
        refused.says((400, "bad-request"), words);
        assert!(!refused.text.contains("s3cr3t"), "{}", refused.text);
    }
    for query in ["limit=0", "limit=1001", "cursor=%20", "name=a"] {
        assert_eq!(service.get(&format!("/hooks?{query}")).await.problem().0, 400, "{query}");
    }
    assert_eq!(service.get("/hooks").await.json()["items"], json!([]), "nothing came of it");
    put(&service, "payments", "stripe", json!({})).await;
    let kept = json!({"kind": "stripe", "handler": handler});
    assert_eq!(service.put("/hooks/payments", kept).await.json()["secret"], Value::Null, "it has a secret");
    let other = service.put("/hooks/payments", json!({"kind": "github", "handler": handler})).await;
    other.says((409, "conflict"), "of the kind stripe, which can't be changed");
    assert_eq!(
        webhook("stripe", "1").signed_with(STRIPE_SECRET).sent(&service, "payments").await.status,
        202
    );
    service.stop().await;
}
