//! Entities over HTTP: sent to, followed, shown.

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::json;
use wakeq::{EntityProcessor, Log};

use super::{Account, accept, config};
use crate::service::Service;
use crate::support::PATIENCE;

#[tokio::test]
async fn an_entity_is_sent_to_followed_and_shown() {
    let service = Service::start().await;
    let queue = service.stage.queue.clone();
    let log = Log::with_signals(service.stage.store.clone(), queue.signals().clone());
    let processor = EntityProcessor::<Account>::new(queue, Arc::new(log), config()).unwrap();
    accept(&processor, 1).await;
    assert_eq!(service.get("/entities/account/ada").await.problem(), (404, "not-found".into()));
    let reply_to = json!({"name": "told"});
    let event = json!({"name": "deposit", "payload": {"cents": 500}, "reply_to": reply_to});
    let sent = service.post("/entities/account/ada/events", event.clone()).await;
    assert_eq!(sent.status, StatusCode::ACCEPTED);
    let sent = sent.json();
    assert_eq!((&sent["id"], &sent["again"]), (&sent["correlation_id"], &json!(false)));
    let status = format!("/entities/status/{}", sent["id"].as_str().unwrap());
    let completed = async {
        loop {
            let progress = service.get(&status).await.json();
            if progress["status"] == "completed" {
                return progress;
            }
        }
    };
    let progress = tokio::time::timeout(PATIENCE, completed).await.expect("it completes");
    let event = &progress["events"][0];
    assert_eq!(
        (&event["entity"], &event["version"], &event["result"]),
        (&json!("ada"), &json!(1), &json!(500))
    );
    let entity = service.get("/entities/account/ada").await.json();
    assert_eq!((&entity["type"], &entity["version"]), (&json!("account"), &json!(1)));
    assert_eq!(entity["state"], json!({"cents": 500, "changes": 1}));
    for (path, body) in [
        ("/entities/account.inbox/ada/events", json!({"name": "deposit"})),
        ("/entities/account/ada%20lovelace/events", json!({"name": "deposit"})),
        ("/entities/account/ada/events", json!({"name": "no name"})),
        ("/entities/account/ada/events", json!({"name": "deposit", "reply_to": {"name": ""}})),
        ("/entities/account/ada/events", json!({"name": "deposit", "payload": {"cents": "\u{0}"}})),
    ] {
        let refused = service.post(path, body.clone()).await.problem();
        assert_eq!(refused, (400, "bad-request".into()), "{path} {body}");
    }
    service.stop().await;
}
