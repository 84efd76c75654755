//! A request for every operation and status in the OpenAPI document. A new one needs lines here.

use std::collections::BTreeSet;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::crons::{CronSchedule, NewCron};
use wakeq::queues::NewQueue;
use wakeq::{Actor, CanvasId, EventId};
use wakeq_service::access::Scope;

use super::bodies::{OF_ENTITIES, body};
use super::full::{
    ENDED, ENTITY, FILLED, GROUP_AT_WORK, HELD_KEY, UNREADABLE_CRON, USED_KEY, add_ended, add_known,
    add_limits, begin_another, entities, fill, known_error, run_in_vain,
};
use super::leased::{OF_EVENTS, PULLED, lease, lease_event, of_pulled, run_out};
use crate::hooks::signing::{put, webhook};
use crate::support::service::{Answer, Service};

pub(super) const FOREIGN: CanvasId = CanvasId(Uuid::from_u128(0xf0e1));

/// What the requests are about.
const CRON: &str = "nightly";
const HOOK: &str = "incoming";
/// Their batch.
const BATCH: &str = "import:1";
/// The operation that a signature authorizes.
const RECEIVES: &str = "receive_webhook";
const QUEUE: &str = "email_events";
const GROUP: &str = "projection";
const WORKER: &str = "orders-1";
/// A limit of the canvas and of the operator.
const LIMIT: &str = "per-customer";
/// Their object.
const OBJECT: &str = "work:1";

/// An operation of the document.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) method: Method,
    /// With its braces.
    pub(crate) path: String,
    pub(crate) statuses: BTreeSet<u16>,
    /// All of them are needed. Empty: open to everyone, or for pushes.
    pub(crate) scopes: Vec<Scope>,
    /// Whether it is for pushes. No service of these tests accepts pushes: `push` tests one that
    /// does.
    pub(crate) pushed: bool,
    /// Whether it covers every canvas, and needs the scopes on all of them.
    pub(crate) everywhere: bool,
    pub(crate) described: Value,
}

impl Operation {
    /// Whether it has parameters, or no name in its path that could be broken.
    fn is_broken_by_query(&self) -> bool {
        let parameters = self.described["parameters"].as_array();
        broken(self) == self.path || parameters.is_some_and(|all| !all.is_empty())
    }

    /// The scopes that it does not need.
    fn others(&self) -> Vec<Scope> {
        Scope::ALL.into_iter().filter(|scope| !self.scopes.contains(scope)).collect()
    }
}

/// All operations of the served document.
pub(crate) async fn operations(service: &Service) -> Vec<Operation> {
    let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, described) in item.as_object().unwrap() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            let Some(id) = described["operationId"].as_str() else { continue };
            let statuses = described["responses"].as_object().unwrap().keys();
            let needed = described["security"][0]["bearer"].as_array().cloned().unwrap_or_default();
            let scopes = needed.iter().map(|scope| scope.as_str().unwrap().parse().unwrap()).collect();
            operations.push(Operation {
                id: id.to_owned(),
                method,
                path: path.clone(),
                everywhere: [
                    "block", "depth", "doctor", "queues", "groups", "limits", "nodes", "quotas", "workers",
                ]
                .iter()
                .any(|place| path.starts_with(&format!("/v1/admin/{place}"))),
                statuses: statuses.filter_map(|status| status.parse().ok()).collect(),
                scopes,
                pushed: described["security"][0]["push"].is_array(),
                described: described.clone(),
            });
        }
    }
    assert!(operations.len() >= 20, "{operations:?}");
    operations
}

/// What the requests are about.
#[derive(Clone)]
pub(super) struct Targets {
    pub(super) canvas: CanvasId,
    waiting: EventId,
    running: EventId,
    dead: EventId,
    /// The public part of a key.
    key: String,
    /// An id of an event of another entity.
    taken: Uuid,
    queue: &'static str,
    group: &'static str,
    worker: &'static str,
    limit: &'static str,
    /// A copy in the pulled queue, and its lease.
    leased: (EventId, String),
    /// An event of the pulled handler, and its lease.
    leased_event: (EventId, String),
    /// A key with every scope on every canvas.
    everywhere: String,
}

impl Targets {
    pub(super) async fn prepare(service: &Service) -> Self {
        let greets = service.stage.emit_many("greet", 3).await;
        let [waiting, running, dead] = greets[..] else { unreachable!() };
        let event = wakeq::Event::new("greet", &1).unwrap().on(OBJECT).unwrap();
        service.stage.queue.emit(event).await.unwrap();
        let pool = &service.stage.pool;
        let start = "with runs as (update wakeq.events_v2 set locked_at = now(), claims = 1 where id = $1 returning *)
             insert into wakeq.checkpoints (canvas_id, event_id, claims, value) select canvas_id, id, 1, '6' from runs";
        sqlx::query(start).bind(running.0).execute(pool).await.unwrap();
        let kill = "with gone as (delete from wakeq.events_v2 where id = $1 returning *)
             insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                            losses, last_error, cause)
             select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0, 'no', 'retries' from gone";
        sqlx::query(kill).bind(dead.0).execute(pool).await.unwrap();
        entities(pool, waiting).await;
        let make_room =
            "delete from wakeq.cron_records; delete from wakeq.http_targets; delete from wakeq.queues;
             delete from wakeq.hooks; delete from wakeq.scheduling_rules; delete from wakeq.operations; delete from wakeq.batches;
             delete from wakeq.pulled_handlers; delete from wakeq.limits; delete from wakeq.known_errors";
        sqlx::raw_sql(make_room).execute(pool).await.unwrap();
        let batch = "insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value)
                     values ($1, $2, gen_random_uuid(), 'WORKER', 'greet', '_', 'null')";
        sqlx::query(batch).bind(CanvasId::DEFAULT.0).bind(BATCH).execute(pool).await.unwrap();
        put(service, HOOK, "github", json!({})).await;
        let target = "insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor,
                          delay_max_ms, timeout_ms, secret, created_by, updated_by)
             values ($1, 'WORKER', 'greet', '_', 'https://a.example/', 2, 0, 1, 0, 1000, decode(repeat('ab', 32), 'hex'),
                     'test', 'test') on conflict do nothing";
        sqlx::query(target).bind(CanvasId::DEFAULT.0).execute(pool).await.unwrap();
        for _ in 0..2 {
            service.key("twice", CanvasId::DEFAULT, &[Scope::Read]).await;
        }
        let key = service.key("target", CanvasId::DEFAULT, &[Scope::Read]).await;
        let key = key.split('_').nth(1).unwrap().to_owned();
        let taken = Uuid::new_v4();
        let schedule = CronSchedule::new("0 0 1 1 *", "UTC").unwrap();
        let cron = NewCron::new(CRON, schedule, &1).unwrap();
        let put = service.stage.admin.put_cron(CanvasId::DEFAULT, &cron, &Actor::user("tests")).await;
        assert_eq!(put.unwrap().cron.ticks, 0, "not at the turn of the year");
        let emails = NewQueue { patterns: vec![":email_event:".parse().unwrap()], ..NewQueue::default() };
        service.stage.admin.put_queue(&QUEUE.parse().unwrap(), &emails, &Actor::user("tests")).await.unwrap();
        let (leased, leased_event) = (lease(service).await, lease_event(service).await);
        let group = "insert into wakeq.consumer_positions (consumer_group, source) values ($1, 'log') on conflict do nothing";
        sqlx::query(group).bind(GROUP).execute(pool).await.unwrap();
        let worker = "insert into wakeq.workers (name, instance, release, capacity, handler_count, handlers, has_targets)
                      values ($1, gen_random_uuid(), '0.1.0', 64, 1, '{WORKER/greet/_}', false)";
        sqlx::query(worker).bind(WORKER).execute(pool).await.unwrap();
        add_limits(pool, LIMIT).await;
        add_ended(pool).await;
        add_known(pool).await;
        let holder = Uuid::new_v4().to_string();
        let everywhere = service.wide_key(&holder, &Scope::ALL).await;
        let (canvas, queue, group, worker, limit) = (CanvasId::DEFAULT, QUEUE, GROUP, WORKER, LIMIT);
        Self {
            canvas,
            waiting,
            running,
            dead,
            key,
            taken,
            queue,
            group,
            worker,
            limit,
            leased,
            leased_event,
            everywhere,
        }
    }

    fn path(&self, template: &str, event: EventId) -> String {
        template
            .replace("{canvas}", &self.canvas.to_string())
            .replace("{module}", "WORKER")
            .replace("{name}", "greet")
            .replace("{modifier}", "_")
            .replace("{id}", &event.0.to_string())
            .replace("{key}", &self.key)
            .replace("{cron}", CRON)
            .replace("{hook}", HOOK)
            .replace("{batch}", BATCH)
            .replace("{queue}", self.queue)
            .replace("{group}", self.group)
            .replace("{worker}", self.worker)
            .replace("{operation}", &ENDED.to_string())
            .replace("{quota}", "targets")
            .replace("{limit}", self.limit)
            .replace("{error_group}", &known_error().to_string())
            .replace("{object}", OBJECT)
            .replace("{type}", ENTITY[0])
            .replace("{entity}", ENTITY[1])
    }

    /// A request that succeeds, without a credential.
    pub(super) fn good(&self, service: &Service, operation: &Operation) -> RequestBuilder {
        if operation.id == RECEIVES && operation.method == Method::POST {
            return webhook("github", &Uuid::new_v4().to_string()).to(service, self.canvas, HOOK);
        }
        let event = match operation.id.as_str() {
            "redrive_dead_event" => self.dead,
            "show_checkpoint" | "store_checkpoint" => self.running,
            id if OF_COPIES.contains(&id) || id == "end_lease" => self.leased.0,
            id if OF_EVENTS.contains(&id) => self.leased_event.0,
            _ => self.waiting,
        };
        let path = self.path(&operation.path, event);
        let path = if is_about_copies(operation) { path.replace(QUEUE, PULLED) } else { path };
        let path = if is_about_pulled(operation) { of_pulled(&path) } else { path };
        let request = service.request(operation.method.clone(), &path);
        match body(&operation.id) {
            Some(_) if OF_COPIES.contains(&operation.id.as_str()) => {
                request.json(&json!({"lease": self.leased.1}))
            }
            Some(_) if OF_EVENTS.contains(&operation.id.as_str()) => {
                request.json(&json!({"lease": self.leased_event.1}))
            }
            Some(body) => request.json(&body),
            None if operation.id == "list_log_streams" => request.query(&[("category", "accounts")]),
            None if operation.id == "last_attempts" => request.query(&[("name", "greet")]),
            None if operation.id == "listen" => request.query(&[("pattern", "*")]),
            None => request,
        }
    }

    /// A key that suffices for the operation.
    pub(super) fn key<'a>(&'a self, service: &'a Service, operation: &Operation) -> &'a str {
        if operation.everywhere { &self.everywhere } else { &service.key }
    }

    /// A request that the operation answers with this status.
    pub(super) async fn asking_for(
        &self,
        service: &Service,
        operation: &Operation,
        status: u16,
    ) -> RequestBuilder {
        let path = self.path(&operation.path, self.running);
        let key = self.key(service, operation);
        let to = |path: &str| service.request(operation.method.clone(), path).bearer_auth(key);
        let good = || self.good(service, operation);
        match (operation.id.as_str(), status) {
            (_, 200..300) if operation.scopes.is_empty() => good(),
            (id, 201) if MAKES.contains(&id) => to(&another(&path)).json(&body(id)),
            (RECEIVES, _) => receiving(good(), status),
            ("put_target" | "put_target_of_modifier", 201) => {
                to(&path.replace("/greet", "/another")).json(&body("put_target"))
            }
            ("cancel_event", 202) => to(&path).query(&[("running", "true")]),
            // Nothing is broadcast here: `listening` tests services that do.
            (_, 200..300) | ("listen", 404) => good().bearer_auth(key),
            (_, 400) if body(&operation.id).is_some() => to(&path).json(&json!({"nonsense": 1})),
            (_, 400) if operation.is_broken_by_query() => to(&format!("{path}?nonsense=1")),
            (_, 400) => to(&self.path(&broken(operation), self.waiting)),
            (_, 401) => good(),
            (_, 403) => {
                good().bearer_auth(service.key(&operation.id, CanvasId::DEFAULT, &operation.others()).await)
            }
            (_, 404) => self.of_others().good(service, operation).bearer_auth(key),
            (id, 409 | 413 | 415 | 422) if EMITS.contains(&id) => {
                self.emitting_for(service, operation, status).await
            }
            ("cancel_event" | "run_event_now", 409) => to(&path),
            ("set_event_due", 409) => to(&path).json(&body("set_event_due")),
            ("store_checkpoint", 410) => to(&path).json(&json!({"claim": "0000000900000000", "value": 1})),
            ("append_to_log", 409) => to(&path).json(&expecting_in_vain()),
            (id, 409) if FILLED.contains(&id) => {
                fill(service, id).await;
                to(&one_too_many(&path)).json(&body(id))
            }
            (_, 409 | 410) if is_about_pulled(operation) => {
                let path = of_pulled(&self.path(&operation.path, self.leased_event.0));
                let lease = if status == 409 { "0".repeat(40) } else { self.leased_event.1.clone() };
                run_out(service, status == 410).await;
                to(&path).json(&json!({"lease": lease}))
            }
            ("put_hook", 409) => to(&path).json(&json!({"kind": "standard", "handler": {"name": "greet"}})),
            (id @ "begin_operation", 422) => {
                begin_another(service, to(&path)).await;
                to(&path).header("idempotency-key", USED_KEY).json(&body(id))
            }
            ("run_cron_now", 409 | 422) => run_in_vain(service, to(&path), status).await,
            ("open_batch", 409 | 413) => to(&path).json(&refused_batch(status)),
            ("create_key", 409) => to(&path).json(&json!({"holder": "twice", "scopes": ["read"]})),
            ("unpause_cron", 409) => {
                service.stage.execute(UNREADABLE_CRON).await;
                to(&path)
            }
            (_, 409 | 410) if is_about_copies(operation) => self.leasing(service, operation, status).await,
            ("remove_group", 409) => {
                service.stage.execute(GROUP_AT_WORK).await;
                to(&path.replace(GROUP, "worked-on"))
            }
            ("readyz", 503) => {
                service.stage.execute("alter schema wakeq rename to elsewhere").await;
                good()
            }
            _ => panic!("say in this file how `{}` is made to answer {status}", operation.id),
        }
    }

    /// The same values on a canvas that has nothing of them, with names that nothing has.
    fn of_others(&self) -> Self {
        let (queue, group, worker, limit) = ("unknown", "unknown", "unknown", "unknown");
        Self { canvas: FOREIGN, queue, group, worker, limit, ..self.clone() }
    }

    /// The same for an operation on leased copies.
    async fn leasing(&self, service: &Service, operation: &Operation, status: u16) -> RequestBuilder {
        let queue = if operation.id == "lease_copies" { QUEUE } else { PULLED };
        let path = self.path(&operation.path, self.leased.0).replace(QUEUE, queue);
        let lease = if status == 409 { "0".repeat(40) } else { self.leased.1.clone() };
        run_out(service, status == 410).await;
        let body = if queue == QUEUE { json!({}) } else { json!({"lease": lease}) };
        service.request(operation.method.clone(), &path).bearer_auth(&self.everywhere).json(&body)
    }

    /// The same for an operation that emits, for statuses that only those have.
    async fn emitting_for(&self, service: &Service, operation: &Operation, status: u16) -> RequestBuilder {
        let path = self.path(&operation.path, self.running);
        let request = service.request(operation.method.clone(), &path).bearer_auth(&service.key);
        let event = |event: Value| emitting(&operation.id, event);
        match status {
            409 if OF_ENTITIES.contains(&operation.id.as_str()) => {
                let other = self.path("/v1/canvases/{canvas}/entities/{type}/bob/events", self.running);
                let event = json!({"name": "deposit", "id": self.taken});
                let sent = service.request(Method::POST, &other).bearer_auth(&service.key);
                Answer::of(sent.json(&event)).await.json();
                let erases = operation.id == "erase_entity";
                if erases { request.query(&[("id", self.taken)]) } else { request.json(&event) }
            }
            409 => {
                service.stage.execute(HELD_KEY).await;
                request.header("idempotency-key", "held").json(&event(json!({"name": "greet"})))
            }
            413 => request.json(&json!({"name": "x".repeat(300_000)})),
            415 => request.header("content-type", "application/xml").body("<event/>"),
            _ => {
                let first = self.good(service, operation).bearer_auth(&service.key);
                Answer::of(first.header("idempotency-key", &operation.id)).await.json();
                request.header("idempotency-key", &operation.id).json(&event(json!({"name": "o"})))
            }
        }
    }
}

fn is_about_copies(operation: &Operation) -> bool {
    let id = operation.id.as_str();
    matches!(id, "lease_copies" | "list_leases" | "end_lease") || OF_COPIES.contains(&id)
}

fn is_about_pulled(operation: &Operation) -> bool {
    let id = operation.id.as_str();
    OF_EVENTS.contains(&id) || ["put_pull", "show_pull", "delete_pull", "lease_events"].contains(&id)
}

/// The path of something of the same kind that is not there yet.
fn another(path: &str) -> String {
    [QUEUE, CRON, HOOK, BATCH, LIMIT].iter().fold(path.to_owned(), |path, name| path.replace(name, "another"))
}

/// The path of something for which there is no room.
fn one_too_many(path: &str) -> String {
    let more = path.replace("/greet", "/one-more").replace(QUEUE, "one-too-many");
    more.replace(CRON, "one-too-many").replace(LIMIT, "one-too-many")
}

/// A webhook that is answered with this status.
fn receiving(good: RequestBuilder, status: u16) -> RequestBuilder {
    match status {
        400 => good.query(&[("nonsense", "1")]),
        401 => good.body("another body"),
        _ => good.body("x".repeat(300_000)),
    }
}

/// An expectation that no stream meets.
fn expecting_in_vain() -> Value {
    json!({"appends": [{"category": "accounts", "stream": "a", "expect": 1_000_000}]})
}

/// The body with which an operation that emits sends one event.
fn emitting(operation: &str, event: Value) -> Value {
    match operation {
        "emit" => event,
        "change_object" => json!({"main": event}),
        _ => json!({"events": [event]}),
    }
}

/// Operations that emit.
const EMITS: [&str; 5] = ["emit", "emit_batch", "change_object", "send_to_entity", "erase_entity"];

/// Operations that make something with the name in their path.
const MAKES: [&str; 7] =
    ["put_queue", "put_cron", "put_hook", "open_batch", "put_pull", "put_limit", "put_operator_limit"];

/// Operations on a leased copy.
const OF_COPIES: [&str; 3] = ["extend_copy", "complete_copy", "release_copy"];

/// A batch that is not opened: for another event, or with a value that is too large.
fn refused_batch(status: u16) -> Value {
    let value = "x".repeat(if status == 413 { 300_000 } else { 1 });
    json!({"on_end": {"name": "greet", "value": value}})
}

/// The path with a space for each name.
fn broken(operation: &Operation) -> String {
    let parts =
        "name id key cron hook object queue group type entity quota worker batch operation limit error_group"
            .split(' ');
    parts.fold(operation.path.clone(), |path, part| path.replace(&format!("{{{part}}}"), "%20"))
}
