//! Copies belong to their queue: a canvas neither sees nor moves nor holds them, unless the queue
//! shows them; callers with access to every canvas do.

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::control::RuleKind;
use wakeq::machine::{CheckResult, Outcome};
use wakeq::queues::{FacetSettings, NewQueue};
use wakeq::{
    Actor, AdminError, CanvasId, Event, EventId, Execution, HandlerError, HandlerScope, Handlers, Name, Stop,
};
use wakeq_service::access::{Reach, Scope};

use crate::support::service::{Service, make_key};
use crate::support::{Stage, wait_while};

const NONE: Value = Value::Null;
const OTHER: CanvasId = CanvasId(Uuid::from_u128(7));

fn billing() -> Name {
    "billing".parse().unwrap()
}

fn ada() -> Actor {
    Actor::admin("ada")
}

fn usage(canvas: CanvasId, value: u32) -> Event {
    Event::new("gigabytes", &value).unwrap().module("usage").unwrap().canvas(canvas).only_to_queues()
}

fn queue(tenant_visible: bool) -> NewQueue {
    NewQueue { patterns: vec![":usage:".parse().unwrap()], tenant_visible, ..NewQueue::default() }
}

/// The API as a tenant and as a caller with access to every canvas.
struct Callers {
    service: Service,
    /// Has access to every canvas.
    root: String,
}

impl Callers {
    async fn start() -> Self {
        let service = Service::start().await;
        let root = make_key(&service.access, "root", Reach::EveryCanvas, &Scope::ALL).await;
        let callers = Self { service, root };
        callers.show(false).await;
        callers
    }

    async fn of_root(&self, method: Method, path: &str, body: Value) -> crate::support::service::Answer {
        self.service.ask(&self.root, method, &format!("/canvases/{}{path}", CanvasId::DEFAULT), body).await
    }

    async fn of_tenant(&self, method: Method, path: &str, body: Value) -> crate::support::service::Answer {
        let path = format!("/canvases/{}{path}", CanvasId::DEFAULT);
        self.service.ask(&self.service.key, method, &path, body).await
    }

    /// Sets whether the queue's copies are shown to their canvases.
    async fn show(&self, tenant_visible: bool) {
        let queue = json!({"patterns": [":usage:"], "tenant_visible": tenant_visible});
        let put = self.service.ask(&self.root, Method::PUT, "/admin/queues/billing", queue).await.json();
        assert_eq!(put["queue"]["tenant_visible"], json!(tenant_visible));
    }

    /// A copy of an event of the default canvas, beside one of another canvas.
    async fn copy(&self) -> String {
        self.service.stage.queue.emit(usage(OTHER, 1)).await.unwrap();
        let origin = self.service.stage.queue.emit(usage(CanvasId::DEFAULT, 2)).await.unwrap().id;
        copy_of(&self.service.stage, origin).await.to_string()
    }

    async fn dies(&self, copy: &str) {
        let kill = "with gone as (delete from wakeq.events_v2 where id = $1 returning *)
             insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                            losses, last_error, cause, queue, origin)
             select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0, 'secret of the platform', 'retries',
                    queue, origin from gone";
        let copy: Uuid = copy.parse().unwrap();
        sqlx::query(kill).bind(copy).execute(&self.service.stage.pool).await.unwrap();
    }
}

/// Single copies do not exist for a caller with every scope on their canvas, but do for one with
/// access to every canvas.
#[tokio::test]
async fn a_tenant_neither_sees_nor_moves_a_copy() {
    let callers = Callers::start().await;
    let copy = callers.copy().await;
    let one = format!("/events/{copy}");
    for (method, path) in [
        (Method::GET, one.clone()),
        (Method::GET, format!("{one}?view=full")),
        (Method::POST, format!("{one}/run-now")),
        (Method::POST, format!("{one}/cancel")),
        (Method::POST, format!("{one}/cancel?running=true")),
        (Method::POST, format!("/dead-events/{copy}/redrive")),
    ] {
        let refused = callers.of_tenant(method.clone(), &path, NONE).await;
        assert_eq!(refused.problem(), (404, "not-found".into()), "{method} {path}");
    }
    let items =
        async |answer: crate::support::service::Answer| answer.json()["items"].as_array().unwrap().len();
    for query in ["/events", "/events?module=usage&name=gigabytes", "/events?state=ready", "/events?limit=1"]
    {
        assert_eq!(items(callers.of_tenant(Method::GET, query, NONE).await).await, 0, "{query}");
        assert_eq!(items(callers.of_root(Method::GET, query, NONE).await).await, 1, "{query}");
    }
    assert_eq!(items(callers.of_tenant(Method::GET, "/handlers", NONE).await).await, 0);
    assert_eq!(callers.of_tenant(Method::GET, "/depth", NONE).await.json()["depth"], 0);
    let purged = callers.of_tenant(Method::POST, "/handlers/usage/gigabytes/purge", NONE).await.json();
    assert_eq!(purged["purged"], 0, "{purged}");
    assert_eq!(callers.service.stage.rows().await, 2);
    assert_eq!(callers.of_root(Method::GET, &one, NONE).await.json()["copy_of"]["queue"], "billing");
    for call in ["run-now", "cancel"] {
        let moved = callers.of_root(Method::POST, &format!("{one}/{call}"), NONE).await.json();
        assert_eq!(moved["id"], json!(copy));
    }
    assert_eq!(callers.service.stop().await.rows().await, 1, "that of the other canvas");
}

/// Dead copies, with the error of the platform's handler, are the platform's.
#[tokio::test]
async fn a_tenant_neither_sees_nor_moves_a_dead_copy() {
    let callers = Callers::start().await;
    let copy = callers.copy().await;
    callers.dies(&copy).await;
    let dead = "/dead-events";
    assert_eq!(callers.of_tenant(Method::GET, dead, NONE).await.json()["items"], json!([]));
    assert_eq!(callers.of_tenant(Method::GET, &format!("/events/{copy}"), NONE).await.problem().0, 404);
    let one = format!("{dead}/{copy}/redrive");
    assert_eq!(callers.of_tenant(Method::POST, &one, NONE).await.problem().0, 404);
    for dry_run in [true, false] {
        let all = json!({"all": true, "dry_run": dry_run});
        let redriven = callers.of_tenant(Method::POST, "/dead-events/redrive", all.clone()).await.json();
        assert_eq!((&redriven["redriven"], &redriven["more"]), (&json!(0), &json!(false)), "{redriven}");
        let deleted = callers.of_tenant(Method::POST, "/dead-events/delete", all).await.json();
        assert_eq!((&deleted["deleted"], &deleted["more"]), (&json!(0), &json!(false)), "{deleted}");
    }
    assert_eq!(callers.of_tenant(Method::GET, "/handlers", NONE).await.json()["items"], json!([]));
    let listed = callers.of_root(Method::GET, dead, NONE).await.json();
    assert_eq!(listed["items"][0]["last_error"], "secret of the platform");
    assert_eq!(callers.of_root(Method::POST, &one, NONE).await.json()["id"], json!(copy));
    callers.dies(&copy).await;
    let deleted = callers.of_root(Method::POST, "/dead-events/delete", json!({"all": true})).await.json();
    assert_eq!(deleted["deleted"], 1);
    callers.service.stop().await;
}

/// A queue may be configured to leave its copies to their canvases.
#[tokio::test]
async fn a_queue_may_show_its_copies() {
    let callers = Callers::start().await;
    let copy = callers.copy().await;
    callers.show(true).await;
    let listed = callers.of_tenant(Method::GET, "/events", NONE).await.json();
    assert_eq!((&listed["items"][0]["id"], listed["items"].as_array().unwrap().len()), (&json!(copy), 1));
    assert_eq!(callers.of_tenant(Method::GET, "/handlers", NONE).await.json()["items"][0]["waiting"], 1);
    callers.dies(&copy).await;
    let one = format!("/dead-events/{copy}/redrive");
    assert_eq!(callers.of_tenant(Method::POST, &one, NONE).await.json()["id"], json!(copy));
    let shown = callers.service.ask(&callers.root, Method::GET, "/admin/queues/billing", NONE).await.json();
    assert_eq!(shown["tenant_visible"], true);
    callers.show(false).await;
    let cancel = format!("/events/{copy}/cancel");
    assert_eq!(callers.of_tenant(Method::POST, &cancel, NONE).await.problem().0, 404);
    callers.show(true).await;
    assert_eq!(callers.of_tenant(Method::POST, &cancel, NONE).await.json()["id"], json!(copy));
    assert_eq!(callers.service.stop().await.rows().await, 1, "that of the other canvas");
}

/// A copy that a worker runs is cancelled like any event, and its canvas's next one follows.
#[tokio::test]
async fn a_running_copy_is_cancelled() {
    let (stage, _) = Stage::memory().await;
    let facets = FacetSettings { in_flight_max: Some(1), ..FacetSettings::default() };
    let limited = NewQueue { facets, ..queue(true) };
    stage.admin.put_queue(&billing(), &limited, &ada()).await.unwrap();
    let origin = stage.queue.emit(usage(CanvasId::DEFAULT, 1)).await.unwrap().id;
    stage.queue.emit(usage(CanvasId::DEFAULT, 2)).await.unwrap();
    let heeding = |event: Execution| async move {
        if event.value::<u32>()? == 1 {
            event.cancelled().await;
            return Err(HandlerError::operational("stopped"));
        }
        Ok(())
    };
    let mut worker = stage.worker(Handlers::new().on_queue("billing", heeding));
    let copy = copy_of(&stage, origin).await;
    wait_while!(stage.live(CanvasId::DEFAULT, copy).await.state != CheckResult::Running, "it starts");
    let theirs = stage.admin.cancel_running(OTHER, copy, &ada()).await;
    assert!(matches!(theirs, Err(AdminError::NotFound(_))), "{theirs:?}");
    assert!(stage.admin.cancel_running(CanvasId::DEFAULT, copy, &ada()).await.unwrap().running);
    let ended = worker.until_count(2, Outcome::Deleted).await;
    let cancelled = ended.iter().filter(|report| report.trail.contains(&Outcome::Cancelled)).count();
    assert_eq!((cancelled, stage.rows().await), (1, 0), "{ended:?}");
    worker.stop().await;
}

fn rules_about() -> HandlerScope {
    let (module, name) = ("usage".parse().unwrap(), "gigabytes".parse().unwrap());
    HandlerScope { canvas: CanvasId::DEFAULT, module, name }
}

async fn copy_of(stage: &Stage, origin: EventId) -> EventId {
    let copy = sqlx::query_scalar("select id from wakeq.events_v2 where origin = $1").bind(origin.0);
    EventId(copy.fetch_one(&stage.pool).await.unwrap())
}

/// Neither a pause by the canvas nor a block by its admin holds the platform's copies.
#[tokio::test]
async fn rules_of_a_canvas_hold_no_copies() {
    let (stage, _) = Stage::memory().await;
    stage.admin.put_queue(&billing(), &queue(false), &ada()).await.unwrap();
    stage.admin.pause(&rules_about(), &ada(), &Stop::default()).await.unwrap();
    stage.admin.block(&rules_about(), &ada(), &Stop::default()).await.unwrap();
    let origin = stage.queue.emit(usage(CanvasId::DEFAULT, 1)).await.unwrap().id;
    let copy = copy_of(&stage, origin).await;
    let live = stage.live(CanvasId::DEFAULT, copy).await;
    assert_eq!((live.state, live.rule), (CheckResult::Ready, None));
    let done = |_: Execution| async { Ok(()) };
    let mut worker = stage.worker(Handlers::new().on_queue("billing", done));
    worker.until(copy, Outcome::Deleted).await;
    assert_eq!(worker.counters.outcome(Outcome::RuleBlocked), 0);
    worker.stop().await;
    assert_eq!(stage.rows().await, 0);
}

/// In a queue that shows its copies they are held, on that canvas alone; and they are woken when
/// the queue stops showing them.
#[tokio::test]
async fn a_queue_that_takes_its_copies_back_wakes_them() {
    let (stage, _) = Stage::memory().await;
    stage.admin.put_queue(&billing(), &queue(true), &ada()).await.unwrap();
    stage.admin.pause(&rules_about(), &ada(), &Stop::default()).await.unwrap();
    let origin = stage.queue.emit(usage(CanvasId::DEFAULT, 1)).await.unwrap().id;
    let copy = copy_of(&stage, origin).await;
    let done = |_: Execution| async { Ok(()) };
    let mut worker = stage.worker(Handlers::new().on_queue("billing", done));
    worker.until(copy, Outcome::RulePaused).await;
    stage.queue.emit(usage(OTHER, 1)).await.unwrap();
    assert_eq!(worker.until_count(1, Outcome::Deleted).await[0].notification.canvas, OTHER);
    let live = stage.live(CanvasId::DEFAULT, copy).await;
    assert_eq!((live.state, live.notify_at), (CheckResult::Held(RuleKind::Pause), None));
    stage.admin.put_queue(&billing(), &queue(false), &ada()).await.unwrap();
    stage.admin.wake(true).await.unwrap();
    worker.until(copy, Outcome::Deleted).await;
    worker.stop().await;
    assert_eq!(stage.rows().await, 0);
}
