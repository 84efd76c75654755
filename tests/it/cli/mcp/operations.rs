//! Operations on many events start only after a preview, and only on what it has counted.

use serde_json::{Value, json};
use wakeq::{Actor, CanvasId, EventId};
use wakeq_service::access::Scope;

use super::agent::Agent;
use super::{die, emit, ended, with_scopes};
use crate::support::OTHER;
use crate::support::service::{Service, has};

async fn emit_ten(service: &Service, canvas: CanvasId) -> Vec<EventId> {
    let mut ids = Vec::new();
    for at in 0..10 {
        ids.push(emit(service, canvas, "bulk", &json!(at)).await);
    }
    ids
}

/// What is done to all events of `bulk`.
fn operation(kind: &str) -> Value {
    json!({"kind": kind, "filter": {"handler": "bulk"}})
}

/// The start of it after a preview that has counted so many.
fn start(kind: &str, count: u64) -> Value {
    json!({"kind": kind, "filter": {"handler": "bulk"}, "expected_count": count})
}

#[tokio::test]
async fn an_operation_starts_only_on_what_its_preview_has_counted() {
    let service = Service::start().await;
    let ids = emit_ten(&service, CanvasId::DEFAULT).await;
    emit_ten(&service, OTHER).await;
    let terminal = with_scopes(&service, &[Scope::Read, Scope::Operate]).await;
    let mut agent = Agent::start(&terminal, &["--allow-changes"]).await;

    let refused = agent.fails("start_operation", start("cancel", 10)).await;
    assert!(refused.contains("call preview_operation first"), "{refused}");
    assert_eq!(agent.shows("preview_operation", operation("cancel")).await["count"], 10);
    let refused = agent.fails("start_operation", start("run-now", 10)).await;
    assert!(refused.contains("call preview_operation first"), "of another kind: {refused}");
    let refused = agent.fails("start_operation", start("cancel", 9)).await;
    assert!(refused.contains("the preview has counted 10 events, not 9"), "{refused}");
    for id in &ids[..5] {
        service.stage.admin.cancel(CanvasId::DEFAULT, *id, &Actor::admin("tests")).await.unwrap();
    }
    let refused = agent.fails("start_operation", start("cancel", 10)).await;
    assert!(refused.contains("has counted 10, and now it would be 5 events"), "{refused}");
    let refused = agent.fails("start_operation", start("cancel", 10)).await;
    assert!(refused.contains("call preview_operation first"), "{refused}");
    assert_eq!(agent.shows("list_operations", json!({})).await["items"], json!([]));

    assert_eq!(agent.shows("preview_operation", operation("cancel")).await["count"], 5);
    let late = emit(&service, CanvasId::DEFAULT, "bulk", &json!("late")).await;
    let begun = agent.shows("start_operation", start("cancel", 5)).await;
    has(&ended(&mut agent, &begun).await, json!({"kind": "cancel", "changed": 5, "author": "key:agent"}));
    let left = agent.shows("list_events", json!({})).await;
    assert_eq!((left["items"].as_array().unwrap().len(), &left["items"][0]["id"]), (1, &json!(late)));
    assert_eq!(service.stage.rows().await, 11, "the late one, and those of another canvas");
    agent.ends().await;

    // Each session has its own.
    let mut agent = Agent::start(&terminal, &["--allow-changes"]).await;
    let refused = agent.fails("start_operation", start("cancel", 1)).await;
    assert!(refused.contains("call preview_operation first"), "{refused}");
    agent.ends().await;
    service.stop().await;
}

/// All that died of one error, after a preview; what died of another, or on another canvas, stays.
#[tokio::test]
async fn an_error_group_is_redriven_after_its_preview() {
    let service = Service::start().await;
    die(&service, CanvasId::DEFAULT, "no room for 17", 3).await;
    die(&service, CanvasId::DEFAULT, "no route", 1).await;
    die(&service, OTHER, "no room for 18", 1).await;
    let terminal = with_scopes(&service, &[Scope::Read, Scope::Operate]).await;
    let mut agent = Agent::start(&terminal, &["--allow-changes"]).await;
    let groups = agent.shows("list_error_groups", json!({})).await;
    has(&groups["items"][0], json!({"count": 3, "fingerprint": "no room for #"}));
    let mut redrive = json!({"kind": "redrive", "filter": {"error_group": groups["items"][0]["id"]}});
    assert_eq!(agent.shows("preview_operation", redrive.clone()).await["count"], 3);
    redrive["expected_count"] = json!(3);
    let begun = agent.shows("start_operation", redrive).await;
    has(&ended(&mut agent, &begun).await, json!({"kind": "redrive", "changed": 3, "author": "key:agent"}));
    let left = agent.shows("list_error_groups", json!({})).await;
    assert_eq!(
        (left["items"].as_array().unwrap().len(), &left["items"][0]["fingerprint"]),
        (1, &json!("no route"))
    );
    assert_eq!(service.stage.count("select count(*) from wakeq.dead_events").await, 2);
    agent.ends().await;
    service.stop().await;
}

#[tokio::test]
async fn operations_that_no_agent_may_have_are_refused() {
    let service = Service::start().await;
    emit_ten(&service, CanvasId::DEFAULT).await;
    emit_ten(&service, OTHER).await;
    let terminal = with_scopes(&service, &Scope::ALL).await;
    let mut agent = Agent::start(&terminal, &["--allow-changes"]).await;
    for (arguments, words) in [
        (json!({"kind": "cancel", "filter": {}}), "say which events"),
        (json!({"kind": "cancel", "filter": {"states": [], "tags": []}}), "say which events"),
        (json!({"kind": "cancel"}), "missing field `filter`"),
        (json!({"kind": "cancel", "all": true, "filter": {}}), "unknown field `all`"),
        (operation("delete"), "unknown variant `delete`"),
        (operation("delete-dead"), "unknown variant `delete-dead`"),
        (operation("retag"), "unknown variant `retag`"),
    ] {
        let refused = agent.fails("preview_operation", arguments.clone()).await;
        assert!(refused.contains(words), "{arguments}: {refused}");
    }
    assert_eq!(service.stage.rows().await, 20);
    agent.ends().await;
    service.stop().await;
}
