//! `wakeq events show` and `explain` of an event whose attempts have left a checkpoint, on the
//! database and against a server.

use wakeq::EventId;
use wakeq_service::access::Scope;

use super::Terminal;
use crate::support::OTHER;
use crate::support::service::Service;

/// An event that was tried once, and has left a checkpoint.
async fn left(service: &Service) -> EventId {
    let id = service.stage.emit("import").await;
    service.stage.execute("update wakeq.events_v2 set locked_at = now(), claims = 1, nonce = 5").await;
    let (canvas, claim) = (wakeq::CanvasId::DEFAULT, "0000000100000005");
    service.stage.admin.store_checkpoint(canvas, id, claim, r#"{"page":7}"#).await.unwrap();
    id
}

async fn shows(terminal: &Terminal, id: EventId) {
    let id = id.to_string();
    let explained = terminal.prints(&["explain", &id]).await;
    let progress = |line: &str| line.starts_with("progress ") && line.contains("a checkpoint of 10 bytes");
    assert!(explained.lines().any(progress) && !explained.contains("page"), "{explained}");
    let shown = terminal.prints(&["events", "show", &id]).await;
    assert!(shown.lines().any(progress) && shown.contains("\"page\""), "{shown}");
}

#[tokio::test]
async fn a_checkpoint_is_shown_on_the_database() {
    let service = Service::start().await;
    let id = left(&service).await;
    shows(&Terminal::beside(&service), id).await;
    service.stop().await;
}

#[tokio::test]
async fn a_checkpoint_is_shown_through_a_server() {
    let service = Service::start().await;
    let id = left(&service).await;
    shows(&Terminal::with_key(&service, &service.key), id).await;
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let theirs = Terminal::with_key(&service, &key).set("WAKEQ_CANVAS", &OTHER.to_string());
    let missing = theirs.complains(3, &["events", "show", &id.to_string()]).await;
    assert!(missing.contains("no such resource") && !missing.contains("page"), "{missing}");
    service.stop().await;
}
