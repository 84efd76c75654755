//! Pages about workers, which are for readers of every canvas.

use reqwest::StatusCode;
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

/// Two workers of one name, the first of which has been silent for an hour and runs events of two
/// tenants; and a node that coordinates.
pub(crate) const FILL: &str = "
    insert into wakeq.workers (name, instance, host, pid, release, build, capacity, running, runs, handler_count,
                               handlers, has_targets, seen_at, is_stopping)
    values ('mill', '00000000-0000-4000-8000-000000000001', '<b>orders-1', 7, '0.1.0', '7c9e6679', 64, 2,
            '[{\"event\": \"00000000-0000-4000-8000-00000000000a\", \"canvas\": \"00000000-0000-0000-0000-000000000000\",
               \"handler\": \"WORKER/greet/_\", \"since\": \"2026-01-31T08:00:00Z\"},
              {\"event\": \"00000000-0000-4000-8000-00000000000b\", \"canvas\": \"00000000-0000-0000-0000-000000000007\",
               \"handler\": \"WORKER/greet/_\", \"since\": \"2026-01-31T08:00:00Z\"}]',
            1, '{WORKER/greet/_}', true, now() - interval '1 hour', false),
           ('mill', '00000000-0000-4000-8000-000000000002', null, null, '0.1.0', null, 8, 0, '[]', 1,
            '{WORKER/print/_}', false, now(), true);
    insert into wakeq.nodes (node_id, heartbeat_timestamp, expires_at)
    values ('00000000-0000-7000-8000-000000000001', '2026-01-01 00:00:00Z', 'infinity') on conflict do nothing;
    insert into wakeq.locks (name, owner, term, expires_at)
    values ('coordinator', '00000000-0000-7000-8000-000000000001', 71, 'infinity');";

async fn filled() -> Service {
    let service = Service::start().await;
    service.stage.execute(FILL).await;
    service
}

#[tokio::test]
async fn readers_of_every_canvas_see_the_workers_and_what_they_run() {
    let service = filled().await;
    let wide = service.wide_key("wide", &[Scope::Read]).await;
    let visitor = Visitor::with_key(&service, &wide).await;
    let list = visitor.page("/workers").await.found();
    list.says("lost").says("stopping").says("2 of 64").says("7c9e6679").says("in term 71");
    list.says("&lt;b&gt;orders-1").says_nothing_of("<b>orders");
    let latest = visitor.page("/workers/mill").await.found();
    latest.says("stopping").says("WORKER/print/_").says("Nothing.");
    let lost = visitor.page("/workers/mill?instance=00000000-0000-4000-8000-000000000001").await.found();
    lost.says("It was not seen for five minutes").says("WORKER/greet/_").says("It also calls HTTP targets.");
    for (canvas, event) in [(CanvasId::DEFAULT, "0a"), (OTHER, "0b")] {
        let event = format!("/events/00000000-0000-4000-8000-0000000000{event}");
        assert!(lost.offers(&on_canvas(canvas, &event)), "an event leads to its own canvas");
    }
    assert_eq!(visitor.page("/workers/nobody").await.status, StatusCode::NOT_FOUND);
    assert_eq!(visitor.page("/workers/mill?instance=x").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn where_no_worker_was_seen_the_page_says_what_to_do() {
    let service = Service::start().await;
    let wide = service.wide_key("wide", &[Scope::Read]).await;
    let visitor = Visitor::with_key(&service, &wide).await;
    let list = visitor.page("/workers").await.found();
    list.says("No worker was seen within a day.").says("wakeq work").says("No process consumes the log");
}

#[tokio::test]
async fn readers_of_one_canvas_see_no_worker() {
    let service = filled().await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let key = service.key("narrow", canvas, &Scope::ALL).await;
        let narrow = Visitor::with_key(&service, &key).await;
        let home = narrow.get(&on_canvas(canvas, "")).await.found();
        assert!(!home.offers(&on_canvas(canvas, "/workers")), "it is not in the navigation");
        for path in ["/workers", "/workers/mill"] {
            let refused = narrow.get(&on_canvas(canvas, path)).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{canvas} {path}");
            refused.says_nothing_of("orders-1").says_nothing_of("greet");
        }
    }
}
