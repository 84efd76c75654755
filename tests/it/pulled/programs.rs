//! Programs that give a name when they lease events: the events and their history show it, and each
//! canvas lists its own programs.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{CanvasId, Event, EventId};
use wakeq_service::access::Scope;

use super::Puller;
use crate::support::service::{Answer, NONE, has};
use crate::support::{OTHER, scope};

/// A process of the platform that has the name of a program, too.
const PROCESS: &str = "
    insert into wakeq.workers (name, instance, host, release, capacity, handler_count, handlers, has_targets)
    values ('mailer-7', gen_random_uuid(), 'platform-1.eu', '0.1.0', 8, 0, '{}', false)";

impl Puller {
    async fn read(&self, canvas: CanvasId, path: &str) -> Answer {
        let path = format!("/canvases/{canvas}{path}");
        self.service.ask(self.key(canvas), Method::GET, &path, NONE).await
    }

    async fn event(&self, canvas: CanvasId, id: &Value) -> Value {
        self.read(canvas, &format!("/events/{}", id.as_str().unwrap())).await.json()
    }

    /// The programs of a canvas, each with its handler.
    async fn programs(&self, canvas: CanvasId) -> Vec<String> {
        let text = |program: &Value, field: &str| program[field].as_str().unwrap().to_owned();
        let of = async |cursor: &str| self.read(canvas, &format!("/programs?limit=1{cursor}")).await.json();
        let programs = self.service.items_by(of).await;
        programs.iter().map(|of| format!("{} of {}", text(of, "worker"), text(of, "name"))).collect()
    }
}

/// While it is leased, in the attempts at it, and when it has ended and is kept. One that gives no
/// name leaves none.
#[tokio::test]
async fn a_leased_event_shows_the_name_of_its_program() {
    let puller = Puller::start().await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let event = Event::new("mail", &1).unwrap().canvas(canvas);
        let event = event.keep(Duration::from_secs(3600)).unwrap();
        puller.service.stage.queue.emit(event).await.unwrap();
    }
    let event = puller.lease(json!({"worker": "mailer-7"})).await.remove(0);
    let theirs = puller.lease_on(OTHER, json!({"worker": null})).await.remove(0);
    let shown = puller.event(CanvasId::DEFAULT, &event["id"]).await;
    has(&shown, json!({"state": "running", "worker": "mailer-7"}));
    assert_eq!(puller.event(OTHER, &theirs["id"]).await.get("worker"), None);
    let running = puller.read(CanvasId::DEFAULT, "/events?worker=mailer-7").await.json();
    assert_eq!(running["items"][0]["id"], event["id"], "{running}");
    assert_eq!(puller.read(OTHER, "/events?worker=mailer-7").await.json()["items"], json!([]));

    puller.on(&event, "release", json!({"error": "no route"})).await.json();
    let shown = puller.event(CanvasId::DEFAULT, &event["id"]).await;
    has(&shown["attempts"][0], json!({"outcome": "retried", "worker": "mailer-7"}));
    assert_eq!(shown.get("worker"), None, "nobody has it");
    let last = puller.read(CanvasId::DEFAULT, "/attempts?name=mail").await.json();
    has(&last["attempts"][0], json!({"worker": "mailer-7"}));
    let again = puller.lease(json!({"worker": "mailer-8"})).await.remove(0);
    puller.completes(&again).await;
    let ended = puller.event(CanvasId::DEFAULT, &event["id"]).await;
    has(&ended, json!({"state": "completed", "worker": "mailer-8"}));
    has(&ended["attempts"][0], json!({"worker": "mailer-7"}));

    puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "release", json!({"error": "no"})).await.json();
    let theirs = puller.event(OTHER, &theirs["id"]).await;
    assert_eq!(theirs["attempts"][0].get("worker"), None, "{theirs}");
    puller.emit(CanvasId::DEFAULT, [2]).await;
    let hopeless = puller.lease(json!({"worker": "mailer-7"})).await.remove(0);
    puller.on(&hopeless, "release", json!({"error": "nobody", "dead": true})).await.json();
    let dead = puller.event(CanvasId::DEFAULT, &hopeless["id"]).await;
    has(&dead["attempts"][0], json!({"outcome": "dead", "worker": "mailer-7"}));
    puller.stop().await;
}

/// A program may call itself like a process of the platform, and learns nothing of it.
#[tokio::test]
async fn a_program_learns_nothing_of_a_worker_whose_name_it_takes() {
    let puller = Puller::start().await;
    puller.service.stage.execute(PROCESS).await;
    puller.emit_two().await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let event = puller.lease_on(canvas, json!({"worker": "mailer-7", "lease_s": 600})).await.remove(0);
        has(&puller.event(canvas, &event["id"]).await, json!({"worker": "mailer-7"}));
        assert_eq!(puller.ask(canvas, Method::DELETE, "/pull", Value::Null).await.status, 204);
        let shown = puller.event(canvas, &event["id"]).await;
        has(&shown, json!({"state": "running", "worker": "mailer-7", "worker_process": NONE}));
    }
    puller.stop().await;
}

/// A canvas lists its own programs, and no key of another canvas sees them. A program that waits,
/// or extends a lease, is at work as well.
#[tokio::test]
async fn programs_are_listed_for_their_canvas() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.lease(json!({"worker": "mailer-7"})).await.remove(0);
    assert!(puller.lease(json!({"worker": "mailer-8"})).await.is_empty());
    assert!(puller.lease(json!({})).await.is_empty());
    puller.service.put("/handlers/WORKER/post/pull", json!({})).await.json();
    puller.service.post("/handlers/WORKER/post/leases", json!({"worker": "mailer-7"})).await.json();
    puller.lease_on(OTHER, json!({"worker": "theirs"})).await;
    let expected = ["mailer-7 of mail", "mailer-8 of mail", "mailer-7 of post"];
    assert_eq!(puller.programs(CanvasId::DEFAULT).await, expected);
    assert_eq!(puller.programs(OTHER).await, ["theirs of mail"]);
    let foreign = format!("/canvases/{}/programs", CanvasId::DEFAULT);
    let foreign = puller.service.ask(&puller.other_key, Method::GET, &foreign, NONE).await;
    assert_eq!(foreign.problem(), (404, "not-found".into()));
    let emitter = puller.service.key("emitter", OTHER, &[Scope::Emit]).await;
    let theirs = format!("/canvases/{OTHER}/programs");
    let refused = puller.service.ask(&emitter, Method::GET, &theirs, NONE).await;
    assert_eq!(refused.problem().0, 403);

    puller.service.stage.execute("update wakeq.programs set seen_at = now() - interval '6 minutes'").await;
    assert!(puller.programs(CanvasId::DEFAULT).await.is_empty());
    puller.on(&event, "extend", json!({})).await.json();
    let noted = "select count(*) from wakeq.programs where seen_at > now() - interval '1 minute'";
    assert_eq!(puller.service.stage.count(noted).await, 0, "a write a minute for each");
    for wrong in ["", "a b", "host:7", &"x".repeat(129)] {
        let refused = puller.ask(CanvasId::DEFAULT, Method::POST, "/leases", json!({"worker": wrong})).await;
        assert_eq!(refused.problem().0, 400, "{wrong}");
    }
    puller.stop().await;
}

/// An extension, or what is said of a lease, is a sign of its program as well.
#[tokio::test]
async fn a_program_that_only_extends_its_leases_is_seen() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.lease(json!({"worker": "mailer-7", "lease_s": 600})).await.remove(0);
    puller.service.stage.execute("delete from wakeq.programs").await;
    // In another process: this one has noted it a moment ago.
    let (id, token) = (event["id"].as_str().unwrap(), event["lease"].as_str().unwrap());
    let (id, token) = (EventId(id.parse().unwrap()), token.parse().unwrap());
    let (admin, minute) = (&puller.service.stage.admin, Duration::from_secs(60));
    admin.extend_event(&scope("mail"), id, &token, minute).await.unwrap();
    assert_eq!(puller.programs(CanvasId::DEFAULT).await, ["mailer-7 of mail"]);
    assert!(puller.programs(OTHER).await.is_empty());
    puller.stop().await;
}
