//! Pages about events that have ended and are kept.

use reqwest::StatusCode;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// Events of the default canvas, and one of another tenant, each with another outcome.
pub(crate) const ENDED: &str = "
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, error, enqueued_at,
                                    due_at, ended_at, started_at, took_us, worker, claims, retries, losses)
    select lpad(case n when 4 then '7' else '0' end, 32, '0')::uuid, lpad(n::text, 32, '0')::uuid,
           now() + interval '1 day', 'WORKER', 'h' || n % 2, '_', '7', '{\"n\":1.10}',
           (array['completed', 'failed', 'cancelled', 'completed'])[n], '<b>no ' || n, now(), now(),
           now() + n * interval '1 ms', now(), 1500000, 'orders-1', n, 0, 0
      from generate_series(1, 4) n";

fn id(number: u32) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

#[tokio::test]
async fn kept_events_are_listed_and_shown_with_their_results() {
    let service = Service::start().await;
    sqlx::raw_sql(ENDED).execute(&service.stage.pool).await.unwrap();
    let visitor = Visitor::with_key(&service, &service.key).await;
    for (query, expected) in
        [("", vec![1, 2, 3]), ("outcome=failed", vec![2]), ("name=h1", vec![1, 3]), ("name=none", vec![])]
    {
        let page = visitor.page(&format!("/ended-events?{query}")).await.found();
        for number in 1..=4 {
            let is_listed = page.html.contains(&id(number));
            assert_eq!(is_listed, expected.contains(&number), "{query}: {}", page.html);
        }
        page.says_nothing_of("<b>no");
        if expected.is_empty() {
            page.says("No event like that is kept.");
        }
    }
    sqlx::raw_sql(
        "update wakeq.ended_events set options = jsonb_build_object('tags', jsonb_build_array('of:' || right(id::text, 1)))",
    )
    .execute(&service.stage.pool)
    .await
    .unwrap();
    for (query, expected) in [
        ("tag=of:2", vec![2]),
        ("tag=of:4", vec![]),
        ("error_text=no+3", vec![3]),
        ("since=1+d&value_text=7&result=%24.n+%3D+1.1", vec![1, 2, 3]),
        ("before=1+d", vec![]),
    ] {
        let page = visitor.page(&format!("/ended-events?{query}")).await.found();
        for number in 1..=4 {
            assert_eq!(page.html.contains(&id(number)), expected.contains(&number), "{query}: {}", page.html);
        }
    }
    visitor.page("/ended-events?tag=of:2").await.found().says("3 kept events were looked at for this page.");
    for wrong in ["outcome=dead", "module=WORKER", "cursor=x", "since=soon", "result=7", "tag=a,,b"] {
        let refused = visitor.page(&format!("/ended-events?{wrong}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
        refused.says("Kept events");
    }
    let page = visitor.page(&format!("/events/{}", id(1))).await.found();
    page.says("completed").says("1.5 s").says("It is deleted").says_nothing_of("1.10");
    assert!(!page.offers("/cancel") && !page.offers("/tags") && !page.offers("/redrive"));
    visitor.page(&format!("/events/{}?value=shown", id(1))).await.found().says("Result").says("1.10");
}

#[tokio::test]
async fn kept_events_are_shown_to_those_who_may_read() {
    let service = Service::start().await;
    sqlx::raw_sql(ENDED).execute(&service.stage.pool).await.unwrap();
    let theirs = service.key("theirs", OTHER, &[Scope::Read]).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let own = theirs.get(&on_canvas(OTHER, "/ended-events")).await.found();
    own.says(&id(4)).says_nothing_of(&id(1));
    assert_eq!(theirs.page("/ended-events").await.status, StatusCode::NOT_FOUND);
    let foreign = on_canvas(OTHER, &format!("/events/{}", id(1)));
    assert_eq!(theirs.get(&foreign).await.status, StatusCode::NOT_FOUND);
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit]).await;
    let emitter = Visitor::with_key(&service, &emitter).await;
    assert_eq!(emitter.page("/ended-events").await.status, StatusCode::FORBIDDEN);
}
