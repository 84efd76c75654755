//! The page of the record.

use reqwest::StatusCode;
use serde_json::json;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// The record of both tenants: 120 lines here, and one there.
const LINES: &str = "
    insert into wakeq.audit_log (canvas_id, actor, action, outcome, detail)
    select '00000000-0000-0000-0000-000000000000', 'key:ada', 'act-' || n, 'done', '<i>detail</i> ' || n
      from generate_series(1, 120) n;
    insert into wakeq.audit_log (canvas_id, actor, action, outcome, detail)
    values ('00000000-0000-0000-0000-000000000007', 'key:eve', 'of-another-tenant', 'refused', null)";

#[tokio::test]
async fn what_was_done_is_listed_page_by_page() {
    let service = Service::start().await;
    service.stage.execute(LINES).await;
    let pause = "/handlers/WORKER/mail/pause";
    service.put(pause, json!({"reason": "<b>the provider</b> is down"})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/record").await.found();
    first.says("key:tests").says("&lt;b&gt;the provider").says_nothing_of("<b>the");
    first.says("href=\"/canvases/00000000-0000-0000-0000-000000000000/handlers/WORKER/mail\"");
    first.says("act-120<").says("&lt;i&gt;detail").says_nothing_of("act-20<").says_nothing_of("<i>");
    let second = visitor.page(&format!("/record{}", first.next_page())).await.found();
    second.says("act-20<").says("act-1<").says("First page").says_nothing_of("act-120<");
    for page in [&first, &second] {
        page.says_nothing_of("of-another-tenant").says_nothing_of("key:eve");
    }
    assert_eq!(visitor.page("/record?cursor=nonsense").await.status, StatusCode::BAD_REQUEST);
}

/// The form's conditions are in the address, and what they can't mean is said above the form.
#[tokio::test]
async fn the_record_is_filtered_by_a_form() {
    let service = Service::start().await;
    service.stage.execute(LINES).await;
    service.put("/handlers/WORKER/mail/pause", json!({"reason": "inventory"})).await.json();
    service.put("/handlers/WORKER/print/pause", json!({"reason": "paper"})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let by_action = visitor.page("/record?action=act-7&actor=&name=").await.found();
    by_action.says("act-7<").says("value=\"act-7\"").says_nothing_of("act-70<").says_nothing_of("Next page");
    let of_handler = visitor.page("/record?name=mail&module=WORKER&since=1%20h").await.found();
    of_handler.says("inventory").says_nothing_of("paper").says_nothing_of("act-");
    let by_ada = visitor.page("/record?actor=key%3Aada").await.found();
    by_ada.says("act-120<").says_nothing_of("inventory").says("actor=key%3Aada&amp;cursor=a");
    visitor.page("/record?before=1%20d").await.found().says("Nothing like that is recorded.");
    visitor.page("/record?action=of-another-tenant").await.found().says("Nothing like that is recorded.");
    for (query, words) in [("since=soon", "write a length"), ("key=mine", "named by its first part")] {
        let refused = visitor.page(&format!("/record?{query}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
        refused.says(words).says("name=\"actor\"");
    }
}

#[tokio::test]
async fn the_record_is_for_admins_of_its_canvas() {
    let service = Service::start().await;
    service.stage.execute(LINES).await;
    let others = service.key("others", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate, Scope::Emit]).await;
    let others = Visitor::with_key(&service, &others).await;
    let refused = others.page("/record").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    refused.says("needs the scope `admin`").says_nothing_of("act-");
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    assert_eq!(theirs.page("/record").await.status, StatusCode::NOT_FOUND);
    let own = theirs.get(&on_canvas(OTHER, "/record")).await.found();
    own.says("of-another-tenant").says("refused").says_nothing_of("act-");
}
