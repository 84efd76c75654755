//! Pages about entities.

use reqwest::StatusCode;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::service::Service;
use crate::support::{OTHER, Statements};

/// Accounts `mine-1` and so on, the state of each of which has mark-up in it, and as many of
/// another tenant.
pub(crate) const FILL: &str = r#"
    insert into wakeq.entities (entity_type, canvas_id, id, version, last_link, state, state_version, state_seq)
    select 'account', c.id::uuid, c.word || to_char(n, 'FM000'), n + 1, n + 1,
           '{"cents":1.50,"note":"</pre><script>alert(1)</script>"}', n, n
      from generate_series(1, 101) n,
           (values ('00000000-0000-0000-0000-000000000000', 'mine-'),
                   ('00000000-0000-0000-0000-000000000007', 'theirs-')) c (id, word);
    insert into wakeq.entities (entity_type, canvas_id, id, version, last_link)
    values ('of-theirs', '00000000-0000-0000-0000-000000000007', 'a', 1, 1)"#;

async fn filled() -> Service {
    let service = Service::start().await;
    service.stage.execute(FILL).await;
    service
}

#[tokio::test]
async fn entities_of_a_type_are_listed_and_shown() {
    let service = filled().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let types = visitor.page("/entities").await.found();
    types.says("/entities?type=account\"").says_nothing_of("of-theirs");
    visitor.page("/entities?type=order").await.found().says("There is no entity of the type order.");
    let first = visitor.page("/entities?type=account").await.found();
    first.says("mine-001").says("mine-100").says_nothing_of("mine-101").says_nothing_of("theirs-");
    let second = visitor.page(&format!("/entities{}", first.next_page())).await.found();
    second.says("mine-101").says_nothing_of("mine-001").says_nothing_of("theirs-");
    let one = visitor.page("/entities?type=account&entity=mine-007").await.found();
    assert_eq!(one.path, on_canvas(CanvasId::DEFAULT, "/entities/account/mine-007"));
    one.says("8 stored events").says("the first 7 of them").says("1.50");
    one.says("&lt;script&gt;").says_nothing_of("<script>alert");
    assert_eq!(visitor.page("/entities/account/theirs-007").await.status, StatusCode::NOT_FOUND);
    let evil = visitor.page("/entities?type=%3Cscript%3Ealert").await;
    assert_eq!(evil.status, StatusCode::BAD_REQUEST);
    evil.says_nothing_of("<script>alert");
}

/// The erasure is in the inbox, where it waits for its processor; the same form sent twice is one.
#[tokio::test]
async fn an_entity_is_erased_once() {
    let service = filled().await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page("/entities/account/mine-007").await.found();
    assert!(page.offers("/entities/account/mine-007/erase"));
    let asked = visitor.page("/entities/account/mine-007/erase").await.found();
    asked.says("Erase account/mine-007 for good?").says("its 8 stored events");
    for _ in 0..2 {
        let done = visitor.send(&asked, "/erase", &[]).await.found();
        done.says("is in its inbox").says("accepted").says("mine-007");
        assert!(done.path.starts_with(&on_canvas(CanvasId::DEFAULT, "/entities/status/")), "{}", done.path);
    }
    assert_eq!(service.stage.count("select count(*) from wakeq.entity_events").await, 1);
    let id: uuid::Uuid = service.stage.pool.value("select event_id from wakeq.entity_events").await;
    let found = visitor.page(&format!("/entities?event={id}")).await.found();
    found.says("It is in the inbox, and not processed yet.");
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let status = theirs.get(&on_canvas(OTHER, &format!("/entities/status/{id}"))).await;
    assert_eq!(status.status, StatusCode::NOT_FOUND, "another canvas has no such event");
}

#[tokio::test]
async fn only_an_admin_of_the_canvas_erases() {
    let service = filled().await;
    let operator =
        service.key("operator", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate, Scope::Emit]).await;
    let operator = Visitor::with_key(&service, &operator).await;
    let page = operator.page("/entities/account/mine-007").await.found();
    assert!(!page.offers("/entities/account/mine-007/erase"));
    page.says("Hidden: to see values").says_nothing_of("1.50");
    let asked = operator.page("/entities/account/mine-007/erase").await.found();
    assert_eq!(operator.send(&asked, "/erase", &[]).await.status, StatusCode::FORBIDDEN);
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    for path in ["/entities?type=account", "/entities/account/mine-007", "/entities/account/mine-007/erase"] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let own = theirs.get(&on_canvas(OTHER, "/entities?type=account")).await.found();
    own.says("theirs-001").says_nothing_of("mine-");
    let types = theirs.get(&on_canvas(OTHER, "/entities")).await.found();
    types.says("/entities?type=account\"").says("/entities?type=of-theirs\"");
    assert_eq!(theirs.page("/entities").await.status, StatusCode::NOT_FOUND);
    assert_eq!(service.stage.count("select count(*) from wakeq.entity_events").await, 0);
}
