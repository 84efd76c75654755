//! Checkpoints over HTTP: by the claim of the attempt that runs, and on its canvas only.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::EventId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::Service;

const CLAIM: &str = "0000000100000005";

/// Lets an attempt of every event begin, with [`CLAIM`].
async fn claim(service: &Service) {
    service.stage.execute("update wakeq.events_v2 set locked_at = now(), claims = 1, nonce = 5").await;
}

fn path(id: EventId) -> String {
    format!("/events/{id}/checkpoint")
}

#[tokio::test]
async fn an_attempt_stores_and_reads_its_checkpoint() {
    let service = Service::start().await;
    let id = service.stage.emit("greet").await;
    claim(&service).await;
    service.get(&path(id)).await.says((404, "not-found"), "no such resource");
    let shown = service.get(&format!("/events/{id}")).await.json();
    assert!(shown.get("checkpoint").is_none(), "{shown}");
    for value in [json!({"page": 1}), json!(null)] {
        let stored = service.put(&path(id), json!({"claim": CLAIM, "value": value})).await;
        assert_eq!(stored.status, StatusCode::NO_CONTENT, "{}", stored.text);
        let read = service.get(&path(id)).await.json();
        assert_eq!((&read["value"], read.get("value").is_some()), (&value, true), "{read}");
        assert_eq!(read["bytes"], value.to_string().len());
        let shown = service.get(&format!("/events/{id}")).await.json();
        assert_eq!(shown["checkpoint"], json!({"bytes": read["bytes"], "stored_at": read["stored_at"]}));
        let full = service.get(&format!("/events/{id}?view=full")).await.json();
        assert_eq!(full["checkpoint"], read);
    }
    service.stop().await;
}

#[tokio::test]
async fn only_the_attempt_that_runs_stores_one() {
    let service = Service::start().await;
    let id = service.stage.emit("greet").await;
    let put = async |claim: &str, value: Value| {
        service.put(&path(id), json!({"claim": claim, "value": value})).await
    };
    let over = (410, "lease-over");
    put(CLAIM, json!(1)).await.says(over, "the attempt has to stop");
    claim(&service).await;
    for claim in ["0000000100000006", "0000000200000005"] {
        put(claim, json!(1)).await.says(over, "the attempt has to stop");
    }
    for claim in ["", "0000000100000005x", "000000010000000G", "ffffffffffffffff"] {
        put(claim, json!(1)).await.says((400, "bad-request"), "not the claim of an attempt");
    }
    put(CLAIM, json!("x".repeat(70_000))).await.says((400, "bad-request"), "exceeds 65,536");
    put(CLAIM, json!("\0")).await.says((400, "bad-request"), "NUL");
    let lease = format!("{CLAIM}3f1d2a0b9e8f7a6b5c4d3e2f");
    assert_eq!(put(&lease, json!(7)).await.status, StatusCode::NO_CONTENT, "a lease begins with the claim");
    assert_eq!(service.get(&path(id)).await.json()["value"], 7);
    service.stop().await;
}

/// Another tenant neither reads nor stores one, even with the claim.
#[tokio::test]
async fn another_tenant_has_no_part_in_it() {
    let service = Service::start().await;
    let id = service.stage.emit("greet").await;
    claim(&service).await;
    let body = json!({"claim": CLAIM, "value": "ours"});
    assert_eq!(service.put(&path(id), body.clone()).await.status, StatusCode::NO_CONTENT);
    let key = service.key("other", OTHER, &[Scope::Operate, Scope::Read, Scope::Values]).await;
    let theirs = format!("/canvases/{OTHER}{}", path(id));
    let missing = (404, "not-found".to_owned());
    assert_eq!(service.ask(&key, Method::GET, &theirs, Value::Null).await.problem(), missing);
    let stored = service.ask(&key, Method::PUT, &theirs, json!({"claim": CLAIM, "value": "theirs"})).await;
    assert_eq!(stored.problem(), missing);
    assert_eq!(service.get(&path(id)).await.json()["value"], "ours");
    service.stop().await;
}
