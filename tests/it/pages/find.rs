//! The field at the top of each page that finds an event.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::Visitor;
use crate::support::OTHER;
use crate::support::service::Service;

/// A dead event of either tenant with the tag `order:7`.
const DEAD: &str = "
    insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at,
                                   claims, losses, cause, last_error, options)
    select gen_random_uuid(), canvas::uuid, 'WORKER', 'mail', '_', '1', 0, now(), 1, 0, 'rejected', error,
           '{\"tags\": [\"order:7\"]}'
      from (values ('00000000-0000-0000-0000-000000000000', 'no <b>such</b> server'),
                   ('00000000-0000-0000-0000-000000000007', 'theirs')) as dead (canvas, error)";

/// Emits an event that waits for an hour, with these tags, and returns its id.
async fn emitted(service: &Service, key: &str, canvas: CanvasId, tags: &[&str]) -> String {
    let event: Value = json!({"name": "ship", "value": 1, "delay_s": 3600, "options": {"tags": tags}});
    let answer = service.ask(key, Method::POST, &format!("/canvases/{canvas}/events"), event).await;
    answer.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_event_is_found_by_its_id_or_a_tag() {
    let service = Service::start().await;
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let mine = emitted(&service, &service.key, CanvasId::DEFAULT, &["order:7", "only"]).await;
    let other = emitted(&service, &theirs, OTHER, &["order:7", "only", "secret"]).await;
    service.stage.execute(DEAD).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("").await.found().says("an event's id, or a tag");

    let one = visitor.page(&format!("/find?q=+{}+", mine.to_uppercase())).await.found();
    assert!(one.path.ends_with(&format!("/events/{mine}")), "{}", one.path);
    let one = visitor.page("/find?q=only").await.found();
    assert!(one.path.ends_with(&format!("/events/{mine}")), "the only one: {}", one.path);

    let several = visitor.page("/find?q=order%3A7").await.found();
    several.says(&mine).says("delayed").says("WORKER/ship").says("WORKER/mail");
    several.says("no &lt;b&gt;such").says_nothing_of("<b>such").says_nothing_of("theirs");
    several.says_nothing_of(&other);
    assert!(several.offers("/dead-events/list?tag=order%3A7"), "{}", several.html);

    for nothing in ["secret", "order:8"] {
        let page = visitor.page(&format!("/find?q={nothing}")).await.found();
        page.says("No event that waits, runs or is dead has this tag.").says("value_text=");
    }
    let id_of_theirs = visitor.page(&format!("/find?q={other}")).await;
    assert_eq!(id_of_theirs.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_no_tag_is_said_and_nobody_finds_without_the_right_to_read() {
    let service = Service::start().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    visitor.page("/find").await.found().says("Nothing was given to look for.");
    let refused = visitor.page("/find?q=%3Cscript%3Efor+%C3%A4").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says("tag").says("value_text=%3Cscript%3E").says_nothing_of("<script>for");

    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit]).await;
    let emitter = Visitor::with_key(&service, &emitter).await;
    emitter.page("/new-event").await.found().says_nothing_of("an event's id, or a tag");
    assert_eq!(emitter.page("/find?q=order%3A7").await.status, StatusCode::FORBIDDEN);
}
