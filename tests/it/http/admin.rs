//! Over HTTP, for a canvas's admins: keys, and the record of who did what.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::{Actor, CanvasId};
use wakeq_service::access::{AccessConfig, Clock, CredentialFilter, KeyId, Reach, Scope};
use wakeq_service::server::HttpConfig;

use crate::support::service::{Answer, NONE, Service, has};

/// Creates a key; returns the whole answer.
async fn create(service: &Service, holder: &str, scopes: &[&str]) -> Answer {
    service.admin(Method::POST, "/keys", json!({"holder": holder, "scopes": scopes})).await
}

/// The status for a read with this key.
async fn look(service: &Service, key: &str) -> u16 {
    let path = format!("/canvases/{}/handlers", CanvasId::DEFAULT);
    service.ask(key, Method::GET, &path, NONE).await.status.as_u16()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

/// Shown once, listed without the secret, useless once revoked.
#[tokio::test]
async fn a_key_is_made_listed_and_revoked() {
    let service = Service::start().await;
    let made = create(&service, "billing", &["read"]).await;
    assert_eq!(made.status.as_u16(), 201);
    let made = made.json();
    let (id, key) = (text(&made, "id"), text(&made, "key"));
    assert!(key.starts_with(&format!("wakeq_{id}_")), "{id}");
    assert_eq!(look(&service, key).await, 200);

    let list = service.admin(Method::GET, "/keys", NONE).await;
    let secret = key.rsplit('_').next().unwrap();
    assert!(!list.text.contains(secret) && !list.text.contains("sha256"));
    let list = list.json();
    let listed = list["items"].as_array().unwrap().iter().find(|listed| listed["id"] == id).unwrap();
    has(listed, json!({"holder": "billing", "state": "live", "created_by": "key:tests", "scopes": ["read"]}));
    let first = service.admin(Method::GET, "/keys?limit=1", NONE).await.json();
    let second = format!("/keys?limit=1&cursor={}", text(&first, "next_cursor"));
    let second = service.admin(Method::GET, &second, NONE).await.json();
    assert_eq!(json!([first["items"][0]["id"], second["items"][0]["id"]]), json!([id, &service.key[6..18]]));
    assert_eq!(second["next_cursor"], NONE);

    let path = format!("/keys/{id}");
    assert_eq!(service.admin(Method::DELETE, &path, NONE).await.status.as_u16(), 204);
    assert_eq!(look(&service, key).await, 401);
    assert_eq!(service.admin(Method::DELETE, &path, NONE).await.problem(), (404, "not-found".into()));
    let bad = (400, "bad-request".to_owned());
    assert_eq!(service.admin(Method::DELETE, "/keys/x", NONE).await.problem(), bad);
    assert_eq!(service.admin(Method::GET, "/keys?cursor=x", NONE).await.problem(), bad);
    for body in [
        json!({"holder": "x", "scopes": []}),
        json!({"holder": "x", "scopes": ["root"]}),
        json!({"holder": "", "scopes": ["read"]}),
        json!({"holder": "x", "scopes": ["read"], "lifetime_s": 0}),
        json!({"holder": "x", "scopes": ["read"], "canvas": null}),
    ] {
        assert_eq!(service.admin(Method::POST, "/keys", body.clone()).await.problem(), bad, "{body}");
    }
    service.stop().await;
}

/// The largest page, too, says whether there are more.
#[tokio::test]
async fn the_largest_page_of_keys_is_followed_by_the_rest() {
    let service = Service::start().await;
    let sql = "insert into wakeq.access_keys (id, secret_sha256, canvas_id, holder, scopes, created_by, expires_at)
               select lpad(to_hex(n), 12, '0'), sha256(n::text::bytea), $1, 'old', '{read}', 'tests', now() + interval '1 h'
                 from generate_series(1, 1000) n";
    sqlx::query(sql).bind(CanvasId::DEFAULT.0).execute(&service.stage.pool).await.unwrap();
    let first = service.admin(Method::GET, "/keys?limit=1000", NONE).await.json();
    let rest = format!("/keys?limit=1000&cursor={}", text(&first, "next_cursor"));
    let rest = service.admin(Method::GET, &rest, NONE).await.json();
    let count = |page: &Value| page["items"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&rest), &rest["next_cursor"]), (1000, 1, &NONE));
    service.stop().await;
}

/// A revocation in another process takes effect here when the cache's time is over.
#[tokio::test]
async fn a_revocation_elsewhere_counts_within_the_caches_time() {
    let clock = Clock::default();
    let access = AccessConfig { clock: clock.clone(), ..AccessConfig::default() };
    let service = Service::with(HttpConfig { access, ..HttpConfig::default() }).await;
    let key = service.key("robot", CanvasId::DEFAULT, &[Scope::Read]).await;
    assert_eq!(look(&service, &key).await, 200);
    let id: KeyId = key.split('_').nth(1).unwrap().parse().unwrap();
    let filter = CredentialFilter::Reach(Reach::Canvas(CanvasId::DEFAULT));
    assert!(service.access.revoke_key(filter, id, &Actor::admin("cli:ada")).await.unwrap());
    clock.advance(Duration::from_secs(30));
    assert_eq!(look(&service, &key).await, 401);
    service.stop().await;
}

/// A holder has two live keys: one in use, and the one that replaces it.
#[tokio::test]
async fn a_third_live_key_is_refused() {
    let service = Service::start().await;
    let first = create(&service, "ci", &["emit"]).await.json();
    create(&service, "ci", &["emit"]).await.json();
    assert_eq!(create(&service, "ci", &["emit"]).await.problem(), (409, "conflict".into()));
    service.admin(Method::DELETE, &format!("/keys/{}", text(&first, "id")), NONE).await;
    create(&service, "ci", &["emit"]).await.json();
    service.stop().await;
}

/// An admin creates keys with any scopes for its own canvas; those of another canvas do not exist
/// for it.
#[tokio::test]
async fn an_admin_rules_one_canvas() {
    let service = Service::start().await;
    let elsewhere = CanvasId(Uuid::new_v4());
    let theirs = service.key("them", elsewhere, &[Scope::Admin]).await;
    let ours = create(&service, "us", &["read"]).await.json();
    let (id, key) = (text(&ours, "id"), text(&ours, "key"));
    for (canvas, method, path) in [
        (CanvasId::DEFAULT, Method::DELETE, format!("/keys/{id}")),
        (elsewhere, Method::DELETE, format!("/keys/{id}")),
        (CanvasId::DEFAULT, Method::GET, "/keys".to_owned()),
        (CanvasId::DEFAULT, Method::GET, "/audit".to_owned()),
    ] {
        let answer = service.ask(&theirs, method, &format!("/admin/canvases/{canvas}{path}"), NONE).await;
        assert_eq!(answer.problem(), (404, "not-found".into()), "{canvas} {path}");
    }
    assert_eq!(look(&service, key).await, 200, "it still counts");
    let body = json!({"holder": "worker", "scopes": ["emit", "read", "operate", "admin"]});
    let keys = format!("/admin/canvases/{elsewhere}/keys");
    let made = service.ask(&theirs, Method::POST, &keys, body).await.json();
    assert_eq!(look(&service, text(&made, "key")).await, 404, "on its own canvas only");
    let list = service.ask(&theirs, Method::GET, &keys, NONE).await.json();
    let holders = list["items"].as_array().unwrap().iter().map(|key| text(key, "holder"));
    assert_eq!(holders.collect::<Vec<_>>(), ["worker", "them"]);
    service.stop().await;
}

/// Who did what, by which request and with which key; what changed nothing is not there.
// Shows: CARD-10
#[tokio::test]
async fn the_audit_log_names_actor_request_and_key() {
    let service = Service::start().await;
    let id = service.stage.emit("greet").await.to_string();
    let ada = service.key("ada", CanvasId::DEFAULT, &[Scope::Operate]).await;
    let run = async |key: &str, method: Method, admin: &str, path: &str, request: &str| {
        let path = format!("/v1{admin}/canvases/{}{path}", CanvasId::DEFAULT);
        let asked = service.request(method, &path).bearer_auth(key).header("x-request-id", request);
        let answer = Answer::of(asked.header("content-type", "application/json")).await;
        assert!(answer.status.is_success(), "{} {}", answer.status, answer.text);
        assert_eq!(answer.headers["x-request-id"], request);
    };
    run(&ada, Method::PUT, "", "/handlers/WORKER/greet/pause", "r-1").await;
    run(&service.key, Method::PUT, "/admin", "/handlers/WORKER/greet/block", "r-2").await;
    run(&ada, Method::DELETE, "", "/handlers/WORKER/greet/pause", "r-3").await;
    run(&service.key, Method::DELETE, "/admin", "/handlers/WORKER/greet/block", "r-4").await;
    run(&ada, Method::POST, "", &format!("/events/{id}/run-now"), "r-5").await;
    run(&ada, Method::POST, "", &format!("/events/{id}/cancel"), "r-6").await;
    run(&ada, Method::DELETE, "", "/handlers/WORKER/greet/pause", "r-7").await;
    run(&ada, Method::POST, "", "/handlers/WORKER/greet/purge", "r-8").await;
    let robot = create(&service, "robot", &["emit"]).await.json();
    service.admin(Method::DELETE, &format!("/keys/{}", text(&robot, "id")), NONE).await;

    let whole = service.admin(Method::GET, "/audit", NONE).await.json();
    let mut lines: Vec<&Value> = whole["items"].as_array().unwrap().iter().rev().collect();
    // These are written a few seconds later.
    lines.retain(|line| text(line, "action") != "sign-in");
    let short = |line: &Value| format!("{} {}", text(line, "actor"), text(line, "action"));
    let summaries: Vec<String> = lines.iter().map(|line| short(line)).collect();
    let expected = "tests create-key, tests create-key, key:ada pause, key:tests block, key:ada unpause, \
                    key:tests unblock, key:ada run-now, key:ada cancel, key:tests create-key, key:tests revoke-key";
    assert_eq!(summaries.join(", "), expected);
    let requests: Vec<&Value> = lines[2..8].iter().map(|line| &line["request_id"]).collect();
    assert_eq!(json!(requests), json!(["r-1", "r-2", "r-3", "r-4", "r-5", "r-6"]));
    for (line, key) in [(lines[2], &ada), (lines[3], &service.key), (lines[7], &ada)] {
        assert_eq!(text(line, "detail"), format!("with {} from 127.0.0.1", &key[..18]));
        assert_eq!((&line["name"], &line["outcome"]), (&json!("greet"), &json!("done")));
    }
    assert_eq!(lines[7]["event_id"], json!(id));
    let (with, made) = (format!("with {} from 127.0.0.1", &service.key[..18]), text(&robot, "id"));
    assert_eq!(text(lines[8], "detail"), format!("{with}; wakeq_{made} for robot: emit"));
    assert_eq!(text(lines[9], "detail"), format!("{with}; wakeq_{made} of robot"));

    service.stop().await;
}

/// Newest first, page by page to the end, and without lines of another canvas.
#[tokio::test]
async fn the_record_is_read_page_by_page() {
    let service = Service::start().await;
    for index in 0..7 {
        service.put(&format!("/handlers/WORKER/h{index}/pause"), json!({})).await.json();
    }
    let whole = service.admin(Method::GET, "/audit", NONE).await.json();
    let names: Vec<&Value> = whole["items"].as_array().unwrap().iter().map(|line| &line["name"]).collect();
    assert_eq!(json!(names), json!(["h6", "h5", "h4", "h3", "h2", "h1", "h0", null]));
    let page = async |cursor: &str| {
        service.admin(Method::GET, &format!("/audit?limit=3{cursor}"), NONE).await.json()
    };
    assert_eq!(json!(service.items_by(page).await), whole["items"]);
    for query in ["limit=0", "limit=1001", "cursor=x", "author=ada"] {
        let refused = service.admin(Method::GET, &format!("/audit?{query}"), NONE).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{query}");
    }
    let elsewhere = CanvasId(Uuid::new_v4());
    let theirs = service.key("them", elsewhere, &[Scope::Admin]).await;
    let record = format!("/admin/canvases/{elsewhere}/audit");
    let seen = service.ask(&theirs, Method::GET, &record, NONE).await.json();
    let seen: Vec<&Value> = seen["items"].as_array().unwrap().iter().map(|line| &line["action"]).collect();
    assert_eq!(json!(seen), json!(["create-key"]), "of its own canvas");
    service.stop().await;
}
