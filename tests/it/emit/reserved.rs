//! Modules whose events only wakeq emits: refused in every way to emit, on every canvas; anyone may
//! register their handlers. In `CANVAS` there are none: its rules are those of whole canvases.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::{CanvasId, Event, EventError};
use wakeq_service::access::Scope;

use crate::cli::Terminal;
use crate::support::service::{Answer, Service};

const MODULES: [&str; 4] = ["ANSWER", "CANVAS", "CRON", "QUEUE"];
const THEIRS: CanvasId = CanvasId(Uuid::from_u128(7));

#[tokio::test]
async fn rejects_emits_into_reserved_modules_and_canvases() {
    let service = Service::start().await;
    let keys = [
        (CanvasId::DEFAULT, service.key.clone()),
        (THEIRS, service.key("theirs", THEIRS, &Scope::ALL).await),
    ];
    for module in MODULES {
        for (canvas, key) in &keys {
            let plain = json!({"module": module, "name": "report"});
            for (path, body) in [
                ("/events", plain.clone()),
                ("/events:batch", json!({"events": [{"name": "fine"}, plain.clone()]})),
                ("/objects/work:1/events", json!({"main": plain.clone()})),
                ("/objects/work:1/events", json!({"main": {"name": "fine"}, "subevents": [plain.clone()]})),
            ] {
                let path = format!("/canvases/{canvas}{path}");
                refused(module, service.ask(key, Method::POST, &path, body).await);
            }
            let cloud_event = json!({"specversion": "1.0", "id": "1", "source": "/shop", "type": format!("{module}/report")});
            let request = service.request(Method::POST, &format!("/v1/canvases/{canvas}/events"));
            let request = request.header("content-type", "application/cloudevents+json").bearer_auth(key);
            refused(module, Answer::of(request.body(cloud_event.to_string())).await);
            let reply_to = json!({"name": "deposit", "reply_to": {"module": module, "name": "report"}});
            let path = format!("/canvases/{canvas}/entities/account/ada/events");
            assert_eq!(service.ask(key, Method::POST, &path, reply_to).await.problem().0, 400);
            let target = format!("/canvases/{canvas}/handlers/{module}/report/pause");
            let paused = service.ask(key, Method::PUT, &target, json!({})).await;
            match module {
                "CANVAS" => assert_eq!(paused.problem().0, 400, "it has no handlers: {}", paused.text),
                _ => assert!(paused.status.is_success(), "its handler is theirs: {}", paused.text),
            }
        }
        let library = Event::new("report", &1).unwrap().module(module);
        assert!(matches!(library, Err(EventError::ReservedModule(_))), "{module}");
        let typed = Terminal::on(&service.stage.database).set("WAKEQ_NOTIFIER", "local");
        let typed = typed.run(&["emit", &format!("{module}/report"), "1"]).await;
        assert!(typed.code != Some(0) && typed.err.contains("only wakeq itself"), "{typed:?}");
    }
    assert_eq!(service.stage.rows().await, 0);
    service.stop().await;
}

#[track_caller]
fn refused(module: &str, answer: Answer) {
    assert_eq!(answer.problem().0, 400, "{module}");
    let body: Value = serde_json::from_str(&answer.text).unwrap();
    let detail = body["detail"].as_str().unwrap();
    assert!(detail.contains("only wakeq itself") && detail.contains(module), "{detail}");
}
