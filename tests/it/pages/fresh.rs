//! How old what a page shows may be.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// That somebody else has changed things may be why a form is refused.
#[tokio::test]
async fn after_a_form_that_was_refused_a_page_shows_things_as_they_are() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let token = visitor.page("/new-event").await.found().form("/new-event").token();
    assert!(!visitor.page("/limits").await.found().offers("/limits/mine"));
    service.put("/limits/mine", json!({"concurrency": 2})).await.json();
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let path = format!("/canvases/{OTHER}/limits/theirs");
    service.ask(&theirs, reqwest::Method::PUT, &path, json!({"concurrency": 2})).await.json();

    let run_now = on_canvas(CanvasId::DEFAULT, "/cron/none/run-now");
    let refused = visitor.post(&run_now, &[("form_token", &token)]).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    let shown = visitor.page("/limits").await.found();
    assert!(shown.offers("/limits/mine") && !shown.offers("/limits/theirs"), "{}", shown.html);
}
