//! A canvas with something of everything, as pages show it, and another tenant beside it.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{Actor, CanvasId, HandlerError, Handlers, Stop};
use wakeq_service::access::Scope;
use wakeq_testbed::wait_while;

use crate::support::handlers::answering;
use crate::support::service::Service;
use crate::support::{OTHER, Statements, once, scope};

/// A served queue with events in every state.
pub(crate) struct Scene {
    pub(crate) service: Service,
    /// A key for everything on every canvas.
    pub(crate) key: String,
}

/// What the mail's handler answers.
const ERROR: &str = "the mail server 10.1.2.3:25 did not answer within 30 s";

/// Text that must never become mark-up.
pub(crate) const EVIL: &str = "</script><script>document.title='taken'</script><img src=x>\"'";

impl Scene {
    pub(crate) async fn with_everything() -> Self {
        let service = Service::start().await;
        let key = service.wide_key("operator", &Scope::ALL).await;
        let scene = Self { service, key };
        scene.kill().await;
        scene.fill().await;
        scene
    }

    /// Events of a handler whose mail server is away: they die.
    async fn kill(&self) {
        let service = &self.service;
        let (handler, _seen) = answering(|_| Err(HandlerError::operational(ERROR)));
        let worker = service.stage.worker(Handlers::new().on(once("send-mail"), handler));
        for order in 1..=12 {
            let event = json!({"name": "send-mail", "value": {"order": order, "note": EVIL}, "options": {"tags": [format!("order:{order}")]}});
            self.done(service.post("/events", event).await.status.as_u16());
        }
        wait_while!(self.dead().await < 12, "they did not die");
        worker.stop().await;
    }

    async fn dead(&self) -> i64 {
        self.service.stage.pool.value("select count(*) from wakeq.dead_events").await
    }

    async fn fill(&self) {
        let service = &self.service;
        for n in 0..3 {
            for event in [
                json!({"name": "greet", "value": n, "options": {"tags": ["customer:7", "<b>bold"]}}),
                json!({"name": "remind", "value": {"text": EVIL}, "delay_s": 3600}),
                json!({"name": "print", "value": n}),
                json!({"name": "render", "value": n, "options": {"limits": ["customer:7"]}}),
            ] {
                self.done(service.post("/events", event).await.status.as_u16());
            }
            let on_object = json!({"main": {"name": "index", "value": n}});
            self.done(service.post("/objects/work:1/events", on_object).await.status.as_u16());
        }
        let stop = Stop { reason: Some(EVIL.to_owned()), ..Stop::default() };
        service.stage.admin.pause(&scope("print"), &Actor::user("ada"), &stop).await.unwrap();
        for (path, body) in [
            (
                "/cron/nightly",
                json!({"expression": "30 2 * * *", "zone": "Europe/Berlin", "value": {"n": 1}}),
            ),
            ("/limits/customer", json!({"concurrency": 2})),
            ("/limits/handler:WORKER%2Frender", json!({"rate": {"count": 10, "period_s": 60}})),
            ("/handlers/WORKER/render-remote/pull", json!({})),
            ("/handlers/WORKER/notify", json!({"url": "https://notify.example/events"})),
            ("/hooks/pushes", json!({"kind": "github", "handler": {"name": "on-push"}})),
        ] {
            self.done(service.put(path, body).await.status.as_u16());
        }
        let batch = json!({"on_end": {"name": "imported", "value": 7}});
        self.done(service.post("/batches/import:42", batch).await.status.as_u16());
        self.done(
            service.post("/events", json!({"name": "row", "batch": "import:42"})).await.status.as_u16(),
        );
        self.everywhere(Method::PUT, "/admin/queues/emails", json!({"patterns": [".*:send-mail:.*"]})).await;
        let theirs = json!({"name": "secret-of-another-tenant", "value": 1});
        let path = format!("/canvases/{OTHER}/events");
        self.everywhere(Method::POST, &path, theirs).await;
    }

    async fn everywhere(&self, method: Method, path: &str, body: Value) {
        self.done(self.service.ask(&self.key, method, path, body).await.status.as_u16());
    }

    #[track_caller]
    fn done(&self, status: u16) {
        assert!((200..300).contains(&status), "{status}");
    }

    /// The address of a page of the scene's canvas.
    pub(crate) fn at(path: &str) -> String {
        super::visitor::on_canvas(CanvasId::DEFAULT, path)
    }
}
