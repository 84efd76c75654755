//! Pages about events.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

async fn emitted(service: &Service, event: serde_json::Value) -> String {
    service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_event_is_found_shown_and_cancelled() {
    let service = Service::start().await;
    let mine =
        emitted(&service, json!({"name": "mail", "value": {"n": 1.10}, "options": {"tags": ["customer:7"]}}))
            .await;
    let other = emitted(&service, json!({"name": "print", "value": 2})).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("").await.is_ok().says("in the queue").says("WORKER/mail");
    let list = visitor.page("/events?tag=customer%3A7&name=").await.is_ok();
    list.says(&mine).says("ready").says("customer:7").says_nothing_of(&other);
    let one = visitor.page(&format!("/events/{mine}")).await.is_ok();
    one.says("WORKER/mail").says_nothing_of("1.10");
    visitor.page(&format!("/events/{mine}?value=shown")).await.is_ok().says("1.10");
    let asked = visitor.page(&format!("/events/{mine}/cancel")).await.is_ok();
    asked.says("It is deleted");
    let done = visitor.send(&asked, &format!("/events/{mine}/cancel"), &[]).await.is_ok();
    done.says("was cancelled").says(&other).says_nothing_of(&format!("{mine}\""));
    visitor.page("/events").await.is_ok().says_nothing_of("was cancelled");
}

#[tokio::test]
async fn a_delayed_event_is_made_due() {
    let service = Service::start().await;
    let id = emitted(&service, json!({"name": "mail", "value": 1, "delay_s": 3600})).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page(&format!("/events/{id}")).await.is_ok();
    page.says("delayed");
    visitor.send(&page, "/run-now", &[]).await.is_ok().says("The event is due now.").says("ready");
}

/// A key that only reads, a form of another session, and a key of another canvas change nothing,
/// and nobody is shown what they may not do.
#[tokio::test]
async fn without_rights_a_control_is_neither_shown_nor_obeyed() {
    let service = Service::start().await;
    let id = emitted(&service, json!({"name": "mail", "value": 1, "delay_s": 3600})).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let page = reader.page(&format!("/events/{id}")).await.is_ok();
    assert!(!page.offers("/run-now") && !page.offers("/cancel"));
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let owner = Visitor::with_key(&service, &service.key).await;
    let token = owner.page(&format!("/events/{id}")).await.form("/run-now").token();
    for what in ["run-now", "cancel"] {
        let path = on_canvas(CanvasId::DEFAULT, &format!("/events/{id}/{what}"));
        for (visitor, status) in [
            (&reader, StatusCode::FORBIDDEN),
            (&theirs, StatusCode::NOT_FOUND),
            (&owner, StatusCode::FORBIDDEN),
        ] {
            assert_eq!(visitor.post(&path, &[]).await.status, status, "{path}");
        }
        for visitor in [&reader, &theirs] {
            let refused = visitor.post(&path, &[("form_token", &token)]).await;
            assert!(refused.status.is_client_error(), "a form of another session");
        }
    }
    owner.page(&format!("/events/{id}")).await.is_ok().says("delayed");
}

#[tokio::test]
async fn what_tenants_write_is_escaped() {
    let service = Service::start().await;
    let evil = "<script>alert(1)</script>\"'><img src=x>";
    let id =
        emitted(&service, json!({"name": "mail", "value": evil, "options": {"tags": ["<b>'\"&"]}})).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let filters = "/events?tag=%3Cscript%3E&error_text=%22%3E%3Cscript%3E&name=%3Cscript%3E";
    for path in [format!("/events/{id}?value=shown"), "/events".to_owned(), filters.to_owned()] {
        let page = visitor.page(&path).await;
        page.says_nothing_of("<script>").says_nothing_of("<img").says_nothing_of("<b>");
    }
}
