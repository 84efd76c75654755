//! A canvas with something of everything, as pages show it, and another tenant beside it.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::control::ErrorGroupId;
use wakeq::machine::Outcome;
use wakeq::{Actor, CanvasId, HandlerError, Handlers, Stop};
use wakeq_service::access::Scope;
use wakeq_testbed::wait_while;

use super::{ended_events, entities, groups, objects, operations, workers};
use crate::support::handlers::{Door, answering};
use crate::support::service::{Answer, Service};
use crate::support::{OTHER, RunningWorker, Statements, once, scope, until};

/// A served queue with events in every state.
pub(crate) struct Scene {
    pub(crate) service: Service,
    /// A key for everything on every canvas.
    pub(crate) key: String,
    /// A copy that a program has leased, and an erasure that no processor takes.
    copy: String,
    erasure: String,
    /// Two events run behind the door, and have all places of a limit.
    _running: (RunningWorker, Door),
}

/// What the mail's handler answers.
const ERROR: &str = "the mail server 10.1.2.3:25 did not answer within 30 s";

/// Text that must never become mark-up.
pub(crate) const EVIL: &str = "</script><script>document.title='taken'</script><img src=x>\"'";

/// Pages that no link leads to, and those that are another one than the first of their kind.
const PAGES: &[&str] = &[
    "",
    "/find",
    "/find?q=customer%3A7",
    "/find?q=nothing-has-it",
    "/events/00000000-0000-0000-0000-000000000001",
    "/events/00000000-0000-0000-0000-000000000001?value=shown",
    "/dead-events?known=true",
    "/operations/new?kind=retag&name=remind&add_tags=late",
    "/objects/work%3A1",
    "/objects/work%3A2",
    "/log?category=companies",
    "/groups/former/reset?to=start&source=",
    "/groups/former/dead/redrive",
    "/queues/emails",
    "/queues/digests",
    "/queues/digests/facets",
    "/queues/digests/settings",
    "/limits?of=operator",
    "/limits/customer%3A7/set",
    "/workers/mill?instance=00000000-0000-4000-8000-000000000001",
    "/record?action=nothing",
];

/// What is answered with a refusal, and its status.
const REFUSED: &[(&str, u16)] = &[
    ("/events/018f0000-0000-7000-8000-000000000000", 404),
    ("/cron/unknown", 404),
    ("/nowhere", 404),
    ("/events?due_since=soon", 400),
    ("/find?q=%3Cscript%3Efor+%C3%A4", 400),
];

impl Scene {
    pub(crate) async fn with_everything() -> Self {
        let service = Service::start().await;
        let key = service.wide_key("operator", &Scope::ALL).await;
        kill(&service).await;
        let running = run(&service).await;
        set(&service).await;
        halt(&service).await;
        groups::fill(&service).await;
        for rows in [entities::FILL, workers::FILL, ended_events::ENDED, operations::OPEN] {
            service.stage.execute(rows).await;
        }
        retag(&service).await;
        let erasure = service.delete("/entities/account/mine-001").await.json();
        let erasure = erasure["id"].as_str().unwrap().to_owned();
        let copy = copied(&service, &key).await;
        let theirs = json!({"name": "secret-of-another-tenant", "value": 1});
        done(&service.ask(&key, Method::POST, &format!("/canvases/{OTHER}/events"), theirs).await);
        Self { service, key, copy, erasure, _running: running }
    }

    /// The address of a page of the scene's canvas.
    pub(crate) fn at(path: &str) -> String {
        super::visitor::on_canvas(CanvasId::DEFAULT, path)
    }

    /// Addresses beside those that links lead to, each with its status.
    pub(crate) async fn addresses(&self) -> Vec<(String, u16)> {
        let first = async |list: &str| {
            let ask =
                async || self.service.get(list).await.json()["items"][0]["id"].as_str().map(str::to_owned);
            format!("/events/{}", until(list, ask).await)
        };
        let dead = first("/dead-events?name=send-mail").await;
        let mut pages = vec![dead.clone(), format!("{dead}?value=shown"), format!("/events/{}", self.copy)];
        for state in ["running", "limited", "paused", "halted", "delayed"] {
            pages.push(first(&format!("/events?state={state}")).await);
        }
        pages.push(format!("/entities/status/{}", self.erasure));
        pages.extend(PAGES.iter().map(|page| (*page).to_owned()));
        let pages = pages.iter().map(|page| (Self::at(page), 200));
        let refused = REFUSED.iter().map(|(page, status)| (Self::at(page), *status));
        let around = [("/sign-in", 200), ("/sessions", 200), ("/nonsense", 404)];
        let around = around.map(|(page, status)| (page.to_owned(), status));
        pages.chain(refused).chain(around).collect()
    }

    /// Keys of others who have fewer rights, and pages that are others for them, or refused.
    pub(crate) async fn others(&self) -> Vec<(String, Vec<(String, u16)>)> {
        let reader = self.service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
        let narrow = json!({"holder": "narrow", "scopes": ["read:WORKER/greet", "emit:WORKER/greet"]});
        let narrow = self.service.admin(Method::POST, "/keys", narrow).await.json();
        let narrow = narrow["key"].as_str().unwrap().to_owned();
        let of_reader = [("", 200), ("/objects/work%3A2", 200), ("/record", 403)];
        let of_reader = of_reader.map(|(page, status)| (Self::at(page), status)).to_vec();
        vec![(reader, of_reader), (narrow, vec![(Self::at(""), 200)])]
    }
}

/// Events of a handler whose mail server is away: they die.
async fn kill(service: &Service) {
    let (handler, _seen) = answering(|_| Err(HandlerError::operational(ERROR)));
    let worker = service.stage.worker(Handlers::new().on(once("send-mail"), handler));
    for order in 1..=12 {
        let tags = json!({"tags": [format!("order:{order}")]});
        let event = json!({"name": "send-mail", "value": {"order": order, "note": EVIL}, "options": tags});
        done(&service.post("/events", event).await);
    }
    let dead = "select count(*) from wakeq.dead_events";
    wait_while!(service.stage.pool.value::<i64>(dead).await < 12, "they did not die");
    worker.stop().await;
}

/// Events that wait, and three of a handler of which two run, since the limit has no more places.
async fn run(service: &Service) -> (RunningWorker, Door) {
    done(&service.put("/limits/customer", json!({"concurrency": 2})).await);
    let (mut worker, mut door) = service.stage.door("render");
    for n in 0..3 {
        for event in [
            json!({"name": "greet", "value": n, "options": {"tags": ["customer:7", "<b>bold"]}}),
            json!({"name": "remind", "value": {"text": EVIL}, "delay_s": 3600}),
            json!({"name": "print", "value": n}),
            json!({"name": "render", "value": n, "options": {"limits": ["customer:7"]}}),
        ] {
            done(&service.post("/events", event).await);
        }
    }
    door.arrived.take(2).await;
    worker.until_count(1, Outcome::LimitFull).await;
    (worker, door)
}

/// What is set on the canvas, and a batch.
async fn set(service: &Service) {
    let stop = Stop { reason: Some(EVIL.to_owned()), ..Stop::default() };
    service.stage.admin.pause(&scope("print"), &Actor::user("ada"), &stop).await.unwrap();
    for (path, body) in [
        ("/cron/nightly", json!({"expression": "30 2 * * *", "zone": "Europe/Berlin", "value": {"n": 1}})),
        ("/limits/handler:WORKER%2Frender", json!({"rate": {"count": 10, "period_s": 60}})),
        ("/handlers/WORKER/render-remote/pull", json!({})),
        ("/handlers/WORKER/notify", json!({"url": "https://notify.example/events"})),
        ("/hooks/pushes", json!({"kind": "github", "handler": {"name": "on-push"}})),
    ] {
        done(&service.put(path, body).await);
    }
    let batch = json!({"on_end": {"name": "imported", "value": 7}});
    done(&service.post("/batches/import:42", batch).await);
    done(&service.post("/events", json!({"name": "row", "batch": "import:42"})).await);
}

/// An object that a dead event halts, of an error that is known, and one with a state that goes on.
async fn halt(service: &Service) {
    for n in 0..3 {
        let changed = json!({"main": {"name": "index", "value": n}});
        done(&service.post("/objects/work:1/events", changed).await);
    }
    service.stage.execute(objects::HALTS).await;
    let state = json!({"main": {"name": "index"}, "state": {"title": EVIL}});
    done(&service.post("/objects/work:2/events", state).await);
    let group = ErrorGroupId::of(&scope("index"), "retries", Some("no"));
    done(&service.put(&format!("/dead-events/groups/{group}/known"), json!({"note": EVIL})).await);
}

/// An operation that has ended.
async fn retag(service: &Service) {
    let retag = json!({"kind": "retag", "filter": {"name": "remind"}, "add_tags": ["seen"]});
    let begun = service.post("/operations", retag).await.json();
    let path = format!("/operations/{}", begun["id"].as_str().unwrap());
    wait_while!(service.get(&path).await.json()["state"] == "open", "the operation does not end");
}

/// Copies in a queue that programs pull, and in one whose turn it is not. Returns the id of one
/// that is leased.
async fn copied(service: &Service, key: &str) -> String {
    let ask = async |method: Method, path: &str, body: Value| {
        service.ask(key, method, &format!("/admin/queues{path}"), body).await.json()
    };
    ask(Method::PUT, "/emails", json!({"patterns": [":newsletter$"], "pull": {"retries": 4}})).await;
    ask(Method::PUT, "/digests", json!({"patterns": [":newsletter$"], "weight": 3})).await;
    for n in 0..3 {
        let event = json!({"name": "newsletter", "value": n, "only_queues": true});
        done(&service.post("/events", event).await);
    }
    ask(Method::PUT, &format!("/digests/facets/{}", CanvasId::DEFAULT), json!({"weight": 0})).await;
    let leased = ask(Method::POST, "/emails/copies/lease", json!({"lease_s": 3600})).await;
    leased["copies"][0]["id"].as_str().unwrap().to_owned()
}

#[track_caller]
fn done(answer: &Answer) {
    assert!(answer.status.is_success(), "{answer:?}");
}
