//! Worker processes over HTTP, for readers of every canvas.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{NONE, Service, has};

/// Two workers, one of which has been silent for an hour and runs events of two tenants.
const FILL: &str = "
    insert into wakeq.workers (name, instance, host, pid, release, build, capacity, running, runs, handler_count, handlers,
                               has_targets, seen_at, is_stopping)
    values ('one', '00000000-0000-4000-8000-000000000001', 'orders-1.eu', 7, '0.1.0', '7c9e6679', 64, 2,
            '[{\"event\": \"00000000-0000-4000-8000-00000000000a\", \"canvas\": \"00000000-0000-0000-0000-000000000000\",
               \"handler\": \"WORKER/greet/_\", \"since\": \"2026-01-31T08:00:00Z\"},
              {\"event\": \"00000000-0000-4000-8000-00000000000b\", \"canvas\": \"00000000-0000-0000-0000-000000000007\",
               \"handler\": \"WORKER/greet/_\", \"since\": \"2026-01-31T08:00:00Z\"}]',
            1, '{WORKER/greet/_}', true, now() - interval '1 hour', false),
           ('one', '00000000-0000-4000-8000-000000000002', null, null, '0.1.0', null, 8, 0, '[]', 1, '{WORKER/greet/_}', false,
            now(), true);";

/// Everybody who reads every canvas sees each process, page by page; nobody else does.
#[tokio::test]
async fn readers_of_every_canvas_see_the_workers() {
    let service = Service::start().await;
    service.stage.execute(FILL).await;
    let wide = service.wide_key("wide", &[Scope::Read]).await;
    let get =
        async |path: &str| service.ask(&wide, Method::GET, &format!("/admin/workers{path}"), NONE).await;
    let items = service.items_by(async |cursor: &str| get(&format!("?limit=1{cursor}")).await.json()).await;
    assert_eq!(items.len(), 2);
    has(
        &items[0],
        json!({"name": "one", "state": "lost", "host": "orders-1.eu", "pid": 7, "release": "0.1.0"}),
    );
    has(&items[0], json!({"build": "7c9e6679", "capacity": 64, "running": 2, "handlers": 1}));
    has(&items[1], json!({"state": "stopping", "host": NONE, "pid": NONE, "build": NONE, "running": 0}));

    let latest = get("/one").await.json();
    assert_eq!(latest["worker"], items[1], "the one that was seen last");
    has(&latest, json!({"handlers": ["WORKER/greet/_"], "targets": false, "runs": []}));
    let lost = get("/one?instance=00000000-0000-4000-8000-000000000001").await.json();
    assert_eq!((&lost["worker"], &lost["targets"]), (&items[0], &json!(true)));
    let canvases: Vec<&Value> = lost["runs"].as_array().unwrap().iter().map(|run| &run["canvas"]).collect();
    assert_eq!(canvases, [&json!(CanvasId::DEFAULT), &json!(OTHER)]);
    has(&lost["runs"][0], json!({"handler": "WORKER/greet/_", "since": "2026-01-31T08:00:00Z"}));

    get("/two").await.says((404, "not-found"), "no worker two was seen within a day");
    let unknown = get("/one?instance=00000000-0000-4000-8000-000000000003").await;
    unknown.says((404, "not-found"), "no worker one");
    for wrong in ["?limit=0", "?cursor=x", "?cursor=a~1", "/one?instance=1", "/one?host=x", "/a%20b"] {
        assert_eq!(get(wrong).await.problem().0, 400, "{wrong}");
    }
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let narrow = service.key("narrow", canvas, &Scope::ALL).await;
        for path in ["/admin/workers", "/admin/workers/one"] {
            let refused = service.ask(&narrow, Method::GET, path, NONE).await;
            assert_eq!(refused.problem().0, 403, "{canvas} {path}");
        }
    }
    service.stop().await;
}

/// A tenant sees the process of the worker that runs its event, but not what else that runs.
#[tokio::test]
async fn an_event_names_the_process_of_its_worker_to_its_tenant() {
    let service = Service::start().await;
    service.stage.execute(FILL).await;
    service.stage.execute("delete from wakeq.workers where host is null").await;
    let event = wakeq::Event::new("greet", &1).unwrap().canvas(OTHER);
    let id = service.stage.queue.emit(event).await.unwrap().id;
    service.stage.execute("update wakeq.events_v2 set locked_at = now(), claims = 1, worker = 'one'").await;
    let key = service.key("tenant", OTHER, &[Scope::Read]).await;
    let show = async |canvas: CanvasId, key: &str| {
        service.ask(key, Method::GET, &format!("/canvases/{canvas}/events/{id}"), NONE).await
    };
    let shown = show(OTHER, &key).await.json();
    has(&shown, json!({"state": "running", "worker": "one"}));
    let process = &shown["worker_process"];
    has(process, json!({"state": "lost", "host": "orders-1.eu", "release": "0.1.0", "build": "7c9e6679"}));
    assert_eq!(process.as_object().unwrap().len(), 5, "{process}");
    assert_eq!(show(CanvasId::DEFAULT, &service.key).await.problem().0, 404);
    service.stage.execute("update wakeq.events_v2 set locked_at = null, worker = null").await;
    assert_eq!(show(OTHER, &key).await.json()["worker_process"], NONE);
    service.stop().await;
}
