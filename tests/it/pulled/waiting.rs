//! Requests that wait for events.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use wakeq::CanvasId;

use super::Puller;
use crate::support::{OTHER, scope};

/// It ends as soon as there is an event of its canvas and its handler, and not for another one.
#[tokio::test]
async fn a_request_waits_for_an_event_of_its_own() {
    let puller = Puller::start().await;
    let waiting = async {
        let leased = puller.lease(json!({"wait_s": 20, "max": 10})).await;
        assert_eq!(leased.iter().map(|event| &event["value"]).collect::<Vec<_>>(), [&json!(1)]);
    };
    let emitting = async {
        puller.emit(OTHER, [2]).await;
        puller.service.stage.emit("letters").await;
        puller.emit(CanvasId::DEFAULT, [1]).await;
    };
    tokio::join!(waiting, emitting);
    puller.stop().await;
}

/// Also for one that becomes free because its lease runs out.
#[tokio::test]
async fn a_request_waits_for_what_becomes_free() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let first = puller.lease(json!({"lease_s": 1})).await;
    let again = puller.lease(json!({"wait_s": 20})).await;
    assert_eq!((&again[0]["id"], again.len()), (&first[0]["id"], 1));
    assert_ne!(again[0]["lease"], first[0]["lease"]);
    puller.stop().await;
}

/// Many waiting requests share their looks at the database, and each event goes to one of them.
#[tokio::test]
async fn requests_that_wait_share_their_looks() {
    let puller = Puller::start().await;
    let mut waiting = JoinSet::new();
    for _ in 0..50 {
        let admin = puller.service.stage.admin.clone();
        let (minute, wait) = (Duration::from_secs(60), Duration::from_secs(20));
        waiting.spawn(async move { admin.lease_events(&scope("mail"), 1, minute, wait).await.unwrap() });
    }
    puller.emit(CanvasId::DEFAULT, 0..10).await;
    let mut ids = BTreeSet::new();
    while ids.len() < 10 {
        let leased = waiting.join_next().await.expect("the requests end without all events").unwrap();
        ids.extend(leased.iter().map(|event| event.id.to_string()));
    }
    waiting.shutdown().await;
    assert_eq!(puller.lease(json!({"max": 100})).await.len(), 0);
    puller.stop().await;
}
