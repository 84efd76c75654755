//! Workers leave the events of pulled handlers alone, and get them when the registration is
//! deleted.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq::machine::Outcome;

use super::Puller;
use crate::support::OTHER;

/// Also a worker that has a function for the handler: the same one on another canvas goes on.
#[tokio::test]
async fn a_worker_leaves_the_events_alone() {
    let puller = Puller::start().await;
    let stage = &puller.service.stage;
    assert_eq!(puller.ask(OTHER, Method::DELETE, "/pull", Value::Null).await.status, 204);
    let (mut worker, _seen) = stage.recording("mail");
    let id = stage.emit("mail").await;
    let report = worker.until(id, Outcome::Deferred).await;
    assert!(report.trail.contains(&Outcome::HandlerUnknown), "{report:?}");
    let noted = "select count(*) from wakeq.unknown_handlers";
    assert_eq!(stage.count(noted).await, 0, "it is known who has the handler");
    puller.emit(OTHER, [2]).await;
    worker.until_count(1, Outcome::Deleted).await;
    let event = puller.one().await;
    assert_eq!(event["id"], json!(id));

    puller.on(&event, "release", json!({})).await.json();
    assert_eq!(puller.ask(CanvasId::DEFAULT, Method::DELETE, "/pull", Value::Null).await.status, 204);
    worker.until(id, Outcome::Deleted).await;
    let gone = puller.ask(CanvasId::DEFAULT, Method::POST, "/leases", json!({})).await;
    gone.says((404, "not-found"), "is not pulled");
    worker.stop().await;
    puller.stop().await;
}

/// The minute's pass publishes nothing for them, and their promises stay.
#[tokio::test]
async fn no_worker_is_notified_of_what_is_overdue() {
    let puller = Puller::start().await;
    puller.emit(CanvasId::DEFAULT, 0..3).await;
    let published = puller.service.notifier.published().len();
    puller.service.stage.admin.wake(true).await.unwrap();
    assert_eq!(puller.service.notifier.published().len(), published);
    let promised = "select count(*) from wakeq.events_v2 where notify_at is not null";
    assert_eq!(puller.service.stage.count(promised).await, 3);
    assert_eq!(puller.takes().await, [0, 1, 2]);
    puller.stop().await;
}

#[tokio::test]
async fn a_registration_is_shown_replaced_and_listed() {
    let puller = Puller::start().await;
    let again = json!({"retries": 9, "delay_s": 2, "factor": 3, "delay_max_s": 60, "on_death": "halt"});
    let put = puller.ask(CanvasId::DEFAULT, Method::PUT, "/pull", again.clone()).await.json();
    assert_eq!((&put["new"], &put["handler"]["policy"]["retries"]), (&json!(false), &json!(9)));
    let shown = puller.ask(CanvasId::DEFAULT, Method::GET, "/pull", Value::Null).await.json();
    assert_eq!((&shown["policy"]["on_death"], &shown["name"]), (&json!("halt"), &json!("mail")));
    let theirs = puller.ask(OTHER, Method::GET, "/pull", Value::Null).await.json();
    assert_eq!(theirs["policy"]["retries"], 1, "another canvas has its own");
    for name in ["a", "z"] {
        puller.service.put(&format!("/handlers/WORKER/{name}/pull"), json!({})).await.json();
    }
    let names: Vec<String> = puller
        .service
        .items("/pulled-handlers?limit=2")
        .await
        .iter()
        .map(|handler| handler["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["a", "mail", "z"]);
    for wrong in [
        json!({"retries": 1001}),
        json!({"delay_s": 61, "delay_max_s": 60}),
        json!({"factor": 0}),
        json!({"timeout_s": 1}),
    ] {
        let refused = puller.ask(CanvasId::DEFAULT, Method::PUT, "/pull", wrong.clone()).await;
        assert_eq!(refused.problem().0, 400, "{wrong}");
    }
    puller.stop().await;
}
