//! The crate `wakeq-client`: each call, for two tenants.

mod crons;
mod failures;
mod handlers;
mod limits;
mod search;

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::{CanvasId, Handlers, WorkerConfig};
use wakeq_client::{
    Client, DeadFilter, Error, EventOptions, EventState, Heard, Method, NewEvent, NewOperation, OnEnd,
    OperationFilter, OperationKind, OperationState, Outcome, Pause, PullPolicy, Release, Request,
    StatisticsRange, Unique, Verifier,
};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;
use wiremock::ResponseTemplate;

use super::{register_mirror, service};
use crate::support::receiver::{Receiver, answering, calling};
use crate::support::service::Service;
use crate::support::{OTHER, wait_while};

const SCOPES: [Scope; 4] = [Scope::Emit, Scope::Read, Scope::Values, Scope::Operate];

/// Clients of two tenants, and one that asks for the canvas of the first with the other's key.
struct Tenants {
    mine: Client,
    other: Client,
    intruder: Client,
}

impl Tenants {
    async fn of(service: &Service) -> Self {
        let url = format!("http://{}", service.address);
        let (key, other_key) = (
            service.key("client", CanvasId::DEFAULT, &SCOPES).await,
            service.key("other-client", OTHER, &SCOPES).await,
        );
        let intruder = Client::new(&url, &other_key).unwrap();
        Self { mine: Client::new(&url, &key).unwrap(), other: intruder.clone().canvas(OTHER.0), intruder }
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, status: u16, code: &str) {
    let error = result.unwrap_err();
    let Error::Refused(problem) = error else { panic!("{error:?}") };
    assert_eq!((problem.status, problem.code()), (status, code), "{problem}");
    assert!(!problem.detail.is_empty() && !problem.request_id.is_empty());
}

fn later(name: &str) -> NewEvent {
    NewEvent::new(name, &json!({"to": "Ada"})).unwrap().delay(Duration::from_secs(3600))
}

#[tokio::test]
async fn an_event_is_emitted_explained_read_and_cancelled() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let id = mine.emit(&later("greet")).await.unwrap().id;
    let explained = mine.explain(id).await.unwrap();
    assert_eq!((explained.id, explained.state), (id, EventState::Delayed));
    assert!(explained.value.is_none() && !explained.next.is_empty());
    assert_eq!(mine.event(id).await.unwrap().value.unwrap().get(), r#"{"to":"Ada"}"#);
    for stranger in [&other, &intruder] {
        refused(stranger.event(id).await, 404, "not-found");
        refused(stranger.explain(id).await, 404, "not-found");
        refused(stranger.cancel(id).await, 404, "not-found");
    }
    refused(intruder.emit(&later("greet")).await, 404, "not-found");
    assert_eq!(mine.cancel(id).await.unwrap(), id);
    refused(mine.cancel(id).await, 404, "not-found");

    let chosen = Uuid::now_v7();
    let answers = [mine.emit(&later("greet").id(chosen)).await, mine.emit(&later("greet").id(chosen)).await];
    assert_eq!(answers.map(|answer| answer.unwrap().duplicate), [false, true]);
    let once = [mine.emit_once(&later("greet"), "a").await, mine.emit_once(&later("greet"), "a").await];
    let [first, second] = once.map(|answer| answer.unwrap().id);
    assert_eq!(first, second);
    assert_ne!(other.emit_once(&later("greet"), "a").await.unwrap().id, first, "a key is the canvas's own");
    service.stop().await;
}

#[tokio::test]
async fn an_attempt_leaves_a_checkpoint_to_the_next() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let id = mine.emit(&later("greet")).await.unwrap().id;
    refused(mine.checkpoint(id).await, 404, "not-found");
    let claim = "0000000100000000";
    refused(mine.store_checkpoint(id, claim, &1).await, 410, "lease-over");
    service.stage.execute("update wakeq.events_v2 set locked_at = now(), claims = 1").await;
    for stranger in [&other, &intruder] {
        refused(stranger.store_checkpoint(id, claim, &1).await, 404, "not-found");
    }
    mine.store_checkpoint(id, claim, &json!({"page": 7})).await.unwrap();
    let left = mine.checkpoint(id).await.unwrap();
    assert_eq!((left.bytes, left.value.unwrap().get()), (10, r#"{"page":7}"#));
    for stranger in [&other, &intruder] {
        refused(stranger.checkpoint(id).await, 404, "not-found");
    }
    let (shown, explained) = (mine.event(id).await.unwrap(), mine.explain(id).await.unwrap());
    assert_eq!(shown.checkpoint.unwrap().value.unwrap().get(), r#"{"page":7}"#);
    assert_eq!(explained.checkpoint.unwrap().stored_at, left.stored_at);
    service.stop().await;
}

#[tokio::test]
async fn an_answer_says_what_became_of_a_unique_key() {
    let service = service().await;
    let Tenants { mine, other, .. } = Tenants::of(&service).await;
    let keyed = |unique: Unique| later("greet").unique(unique);
    let first = mine.emit(&keyed(Unique::key("k").until_ended())).await.unwrap();
    assert_eq!((first.outcome, first.due), (Some(Outcome::Inserted), None));
    let kept = mine.emit(&keyed(Unique::key("k"))).await.unwrap();
    assert_eq!((kept.id, kept.outcome), (first.id, Some(Outcome::Kept)));
    let replaced = mine.emit(&keyed(Unique::key("k").replace())).await.unwrap();
    assert_eq!((replaced.id, replaced.outcome), (first.id, Some(Outcome::Replaced)));
    let hours = |count: u64| Duration::from_secs(count * 3600);
    let postponed = mine.emit(&keyed(Unique::key("k").postpone(hours(2), hours(3)))).await.unwrap();
    let shown = mine.event(first.id).await.unwrap();
    assert_eq!((postponed.id, postponed.outcome), (first.id, Some(Outcome::Postponed)));
    assert!(postponed.due.is_some() && postponed.due == shown.delay_until);
    assert_eq!(shown.unique_key.as_deref(), Some("k"));

    let theirs = keyed(Unique::key("k").remembered_for(hours(1)));
    let theirs = other.emit(&theirs).await.unwrap();
    assert!(theirs.id != first.id && theirs.outcome == Some(Outcome::Inserted));
    refused(mine.emit(&keyed(Unique::key("no blanks"))).await, 400, "bad-request");
    assert_eq!(mine.emit(&later("greet")).await.unwrap().outcome, None);
    service.stop().await;
}

#[tokio::test]
async fn a_batch_is_opened_closed_listed_and_given_up() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let on_end = OnEnd::new("imported", "a.csv").unwrap();
    let opened = mine.open_batch("import:1/a", &on_end).await.unwrap();
    assert_eq!((opened.name.as_str(), opened.state.as_str(), opened.left), ("import:1/a", "open", Some(0)));
    refused(mine.open_batch("import:1/a", &OnEnd::new("imported", "b.csv").unwrap()).await, 409, "conflict");
    let member = later("greet").batch("import:1/a");
    let id = mine.emit(&member).await.unwrap().id;
    assert_eq!(mine.event(id).await.unwrap().batch.as_deref(), Some("import:1/a"));
    refused(other.batch("import:1/a").await, 404, "not-found");
    refused(other.emit(&member).await, 409, "conflict");
    refused(intruder.batch("import:1/a").await, 404, "not-found");
    let closed = mine.close_batch("import:1/a").await.unwrap();
    assert_eq!((closed.state.as_str(), closed.left), ("closed", Some(1)));
    mine.cancel(id).await.unwrap();
    let ended = mine.batch("import:1/a").await.unwrap();
    assert_eq!((ended.state.as_str(), ended.counts.map(|counts| counts.cancelled)), ("ended", Some(1)));
    assert_eq!(ended.on_end, opened.on_end);
    refused(mine.emit(&member).await, 409, "conflict");
    mine.open_batch("import:2", &on_end).await.unwrap();
    mine.cancel_batch("import:2").await.unwrap();
    let first = mine.batches(1, None).await.unwrap();
    let second = mine.batches(1, first.next_cursor.as_deref()).await.unwrap();
    let states = [first, second].map(|page| page.items[0].state.clone());
    assert_eq!(states, ["ended", "cancelled"]);
    assert!(other.batches(10, None).await.unwrap().items.is_empty());
    service.stop().await;
}

#[tokio::test]
async fn an_event_asks_for_options_and_shows_them() {
    let service = service().await;
    let Tenants { mine, other, .. } = Tenants::of(&service).await;
    let delays = [1, 60].map(Duration::from_secs);
    let options = EventOptions::default().retries(7).delays(delays).timeout(Duration::from_millis(1_500));
    let options = options.not_after("2030-01-31T08:00:00Z".parse().unwrap());
    let options = options.limit("customer:7").limit("mails").urgent();
    let id = mine.emit(&later("greet").options(options.clone())).await.unwrap().id;
    assert_eq!(mine.event(id).await.unwrap().options, Some(options));
    refused(other.event(id).await, 404, "not-found");
    let plain = mine.emit(&later("greet")).await.unwrap().id;
    assert_eq!(mine.explain(plain).await.unwrap().options, None);
    for wrong in [EventOptions::default().retries(1_001), EventOptions::default().limit("canvas")] {
        refused(mine.emit(&later("greet").options(wrong)).await, 400, "bad-request");
    }
    service.stop().await;
}

#[tokio::test]
async fn a_running_event_is_cancelled_on_request_only() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let now = NewEvent::new("greet", &json!({"to": "Ada"})).unwrap();
    let (id, theirs) = (mine.emit(&now).await.unwrap().id, other.emit(&now).await.unwrap().id);
    service.stage.execute("update wakeq.events_v2 set locked_at = now(), claims = 1").await;
    refused(mine.cancel(id).await, 409, "not-waiting");
    for (stranger, of) in [(&other, id), (&intruder, id), (&mine, theirs)] {
        refused(stranger.cancel_running(of).await, 404, "not-found");
    }
    let cancelled = mine.cancel_running(id).await.unwrap();
    assert_eq!((cancelled.id, cancelled.next.is_some()), (id, true));
    assert_eq!(mine.explain(id).await.unwrap().cancelled_by.as_deref(), Some("key:client"));
    assert_eq!(other.explain(theirs).await.unwrap().cancelled_by, None);
    let waits = mine.emit(&later("greet")).await.unwrap().id;
    assert_eq!(mine.cancel_running(waits).await.unwrap().next, None);
    service.stop().await;
}

#[tokio::test]
async fn a_batch_is_emitted_all_or_none() {
    let service = service().await;
    let Tenants { mine, .. } = Tenants::of(&service).await;
    let emitted = mine.emit_all(&[later("a"), later("b")]).await.unwrap();
    assert_eq!(mine.explain(emitted[1].id).await.unwrap().name.as_deref(), Some("b"));
    refused(mine.emit_all(&[later("c"), later("no blanks")]).await, 400, "bad-request");
    refused(mine.emit_all(&[]).await, 400, "bad-request");
    refused(mine.emit(&NewEvent::new("a", &"x".repeat(300_000)).unwrap()).await, 413, "too-large");
    assert_eq!(service.stage.rows().await, 2);
    service.stop().await;
}

#[tokio::test]
async fn a_handler_is_paused_on_its_canvas_only() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let pause = Pause::default().reason("mail server down").lasting(Duration::from_secs(600));
    let paused = mine.pause("WORKER", "greet", &pause).await.unwrap();
    assert!(paused.new && paused.rule.until.is_some());
    let id = mine.emit(&NewEvent::new("greet", &1).unwrap()).await.unwrap().id;
    let rule = mine.explain(id).await.unwrap().rule.unwrap();
    assert_eq!((rule.kind.as_str(), rule.reason.as_deref()), ("pause", Some("mail server down")));
    let handlers = mine.handlers().await.unwrap();
    assert_eq!(
        handlers.iter().map(|handler| (&*handler.name, handler.paused)).collect::<Vec<_>>(),
        [("greet", 1)]
    );
    assert!(other.handlers().await.unwrap().is_empty());
    assert!(!other.unpause("WORKER", "greet").await.unwrap().lifted);
    refused(intruder.unpause("WORKER", "greet").await, 404, "not-found");
    refused(intruder.handlers().await, 404, "not-found");
    assert!(mine.unpause("WORKER", "greet").await.unwrap().lifted);
    assert!(!mine.unpause("WORKER", "greet").await.unwrap().lifted);
    service.stop().await;
}

#[tokio::test]
async fn a_whole_canvas_is_paused_and_no_other() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    mine.pause("WORKER", "greet", &Pause::default()).await.unwrap();
    let paused = mine.pause_canvas(&Pause::default().reason("wrong prices")).await.unwrap();
    assert_eq!((paused.new, paused.rule.stops.as_str()), (true, "canvas"));
    let id = mine.emit(&NewEvent::new("index", &1).unwrap()).await.unwrap().id;
    let rule = mine.explain(id).await.unwrap().rule.unwrap();
    assert_eq!((rule.stops.as_str(), rule.reason.as_deref()), ("canvas", Some("wrong prices")));
    let theirs = other.emit(&NewEvent::new("index", &1).unwrap()).await.unwrap().id;
    assert!(other.explain(theirs).await.unwrap().rule.is_none());
    assert_eq!(mine.switches().await.unwrap()[0].reason.as_deref(), Some("wrong prices"));
    assert!(other.switches().await.unwrap().is_empty());
    refused(intruder.switches().await, 404, "not-found");
    assert!(!other.unpause_canvas().await.unwrap().lifted);
    refused(intruder.unpause_canvas().await, 404, "not-found");
    refused(intruder.pause_canvas(&Pause::default()).await, 404, "not-found");
    let lifted = mine.unpause("WORKER", "greet").await.unwrap();
    assert_eq!(lifted.under.map(|rule| rule.stops).as_deref(), Some("canvas"));
    assert!(mine.unpause_canvas().await.unwrap().lifted);
    service.stop().await;
}

#[tokio::test]
async fn a_handlers_events_are_leased_on_its_canvas_only() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let policy = PullPolicy::default().retries(1).delay(Duration::ZERO);
    mine.pull("WORKER", "greet", &policy).await.unwrap();
    let now = |value: u32| NewEvent::new("greet", &value).unwrap();
    let ids = [mine.emit(&now(1)).await.unwrap().id, mine.emit(&now(2)).await.unwrap().id];
    other.emit(&now(3)).await.unwrap();
    let lease = async |client: &Client| {
        client.lease("WORKER", "greet", 10, Duration::from_secs(60), Duration::ZERO).await
    };
    let leased = lease(&mine).await.unwrap();
    assert_eq!(leased.iter().map(|event| event.id).collect::<Vec<_>>(), ids);
    refused(lease(&other).await, 404, "not-found");
    refused(lease(&intruder).await, 404, "not-found");
    let [first, second] = &leased[..] else { unreachable!() };
    refused(other.complete(first).await, 404, "not-found");
    let extended = mine.extend(first, Duration::from_secs(600)).await.unwrap();
    assert!(extended.lease_until > first.lease_until && !extended.cancelled);
    refused(mine.complete_with(first, &"x".repeat(65_536)).await, 400, "bad-request");
    mine.complete_with(first, &["receipt", "7"]).await.unwrap();
    refused(mine.complete(first).await, 404, "not-found");
    let again = mine.release(second, &Release::failed("no route")).await.unwrap();
    assert_eq!((again.died, again.retry_s), (false, Some(0.0)));
    refused(mine.complete(second).await, 410, "lease-over");
    let (minute, now) = (Duration::from_secs(60), Duration::ZERO);
    let second = mine.lease_as("mailer-7", "WORKER", "greet", 10, minute, now).await.unwrap().remove(0);
    let programs = "select count(*) from wakeq.programs where worker = 'mailer-7'";
    assert_eq!(service.stage.count(programs).await, 1);
    assert_eq!((second.attempt, second.value.get()), (2, "2"));
    assert!(mine.release(&second, &Release::dead("no such user")).await.unwrap().died);
    mine.unpull("WORKER", "greet").await.unwrap();
    refused(mine.unpull("WORKER", "greet").await, 404, "not-found");
    service.stop().await;
}

#[tokio::test]
async fn statistics_are_of_a_handler_or_of_the_canvas() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let counted = "insert into wakeq.minute_statistics
                   select date_trunc('minute', now()) - interval '5 minutes', $1, module, name, emitted, 1, 0, 0, 0, 5000, 3000,
                          '{0,0,0,1}', '{0,0,1}'
                     from (values ('', '', 3), ('WORKER', 'greet', 2)) as counted (module, name, emitted)";
    sqlx::query(counted).bind(CanvasId::DEFAULT.0).execute(&service.stage.pool).await.unwrap();
    let range = StatisticsRange { step_s: Some(14 * 24 * 3600), ..StatisticsRange::default() };
    let chart = mine.handler_statistics("WORKER", "greet", &range).await.unwrap();
    assert_eq!((chart.step_s, chart.at.len(), &chart.emitted[..]), (1_209_600, 1, &[2][..]));
    assert_eq!((&chart.wait.mean_s[..], &chart.run.p50_s[..]), (&[Some(0.005)][..], &[Some(0.003)][..]));
    assert_eq!(mine.statistics(&range).await.unwrap().emitted, [3]);
    assert_eq!(other.statistics(&range).await.unwrap().emitted, [0]);
    assert_eq!(other.handler_statistics("WORKER", "greet", &range).await.unwrap().run.mean_s, [None]);
    refused(intruder.statistics(&range).await, 404, "not-found");
    refused(intruder.handler_statistics("WORKER", "greet", &range).await, 404, "not-found");
    let long =
        StatisticsRange { from: Some("2020-01-01T00:00:00Z".parse().unwrap()), ..StatisticsRange::default() };
    refused(mine.statistics(&long).await, 400, "bad-request");
    service.stop().await;
}

/// A value in a path stays there, whatever it contains.
#[tokio::test]
async fn any_other_route_is_a_request() {
    let service = service().await;
    let Tenants { mine, intruder, .. } = Tenants::of(&service).await;
    mine.emit(&later("greet")).await.unwrap();
    let depth = Request::new(Method::GET, "/v1/canvases/{canvas}/events").query("name", "greet");
    assert_eq!(mine.request::<Value>(&depth).await.unwrap()["items"].as_array().unwrap().len(), 1);
    refused(intruder.request::<Value>(&depth).await, 404, "not-found");
    let event = Request::new(Method::GET, "/v1/canvases/{canvas}/events/{id}");
    for id in ["../handlers", "a/b", "x?view=full"] {
        refused(mine.request::<Value>(&event.clone().path("id", id)).await, 400, "bad-request");
    }
    let unfilled = mine.request::<Value>(&event).await.unwrap_err();
    assert_eq!(unfilled.to_string(), "the path needs `id`");
    let strange = mine.request::<Vec<Value>>(&depth).await.unwrap_err();
    assert!(matches!(strange, Error::Unreadable { .. }), "{strange}");
    service.stop().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_delivery_is_verified_and_a_dead_event_is_redriven() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    let worker = calling(&service.stage.store, &service.stage, Handlers::new(), WorkerConfig::default());
    let mut receiver = Receiver::start().await;
    let handler = Request::new(Method::PUT, "/v1/canvases/{canvas}/handlers/WORKER/greet");
    let target = json!({"url": receiver.url, "policy": {"retries": 0}}).to_string();
    let target: Value = mine.request(&handler.body(target)).await.unwrap();
    let verifier = Verifier::new(&[target["secret"].as_str().unwrap()]).unwrap();
    let mut ids = Vec::new();
    for value in [1, 2] {
        ids.push(mine.emit(&NewEvent::new("greet", &value).unwrap()).await.unwrap().id);
    }
    for _ in 0..2 {
        let request = receiver.next().await;
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        let delivery = verifier.verify(header, request.body.as_bytes()).unwrap();
        assert!(ids.iter().any(|id| id.to_string() == delivery.id));
        assert_eq!(delivery.canvas, Some(CanvasId::DEFAULT.to_string()));
        assert!((1..=2).contains(&delivery.value::<i64>().unwrap()));
        assert!(verifier.verify(header, b"3").is_err());
        request.answer("500 Internal Server Error", &[]);
    }
    let dead = "select count(*) from wakeq.dead_events";
    wait_while!(service.stage.count(dead).await < 2, "the events do not die");
    let greet = DeadFilter { name: Some("greet".into()), ..DeadFilter::default() };
    let first = mine.dead_events(&greet, 1, None).await.unwrap();
    let second = mine.dead_events(&greet, 1, first.next_cursor.as_deref()).await.unwrap();
    assert_eq!([first.items[0].id, second.items[0].id].map(|id| ids.contains(&id)), [true, true]);
    assert_ne!(first.items[0].id, second.items[0].id);
    assert!(other.dead_events(&greet, 10, None).await.unwrap().items.is_empty());
    assert_eq!(other.redrive(&greet).await.unwrap().redriven, 0);
    assert_eq!(other.redrive_all().await.unwrap().redriven, 0);
    refused(other.redrive_one(ids[0]).await, 404, "not-found");
    refused(intruder.redrive_all().await, 404, "not-found");
    refused(mine.redrive(&DeadFilter::default()).await, 400, "bad-request");
    assert_eq!(mine.count_redrive(&greet).await.unwrap(), 2);
    assert_eq!(mine.redrive_one(ids[0]).await.unwrap(), ids[0]);
    let redriven = mine.redrive(&greet).await.unwrap();
    assert_eq!((redriven.redriven, redriven.more), (1, false));
    worker.stop().await;
    service.stop().await;
}

/// What a preview counts is what the operation changes, on the canvas of the client.
#[tokio::test]
async fn many_events_are_changed_by_an_operation() {
    let service = service().await;
    let Tenants { mine, other, intruder } = Tenants::of(&service).await;
    for client in [&mine, &other] {
        client.emit_all(&[later("greet"), later("greet"), later("other")]).await.unwrap();
    }
    let greets = OperationFilter { name: Some("greet".into()), ..OperationFilter::default() };
    let delete = NewOperation::new(OperationKind::Delete, greets.clone());
    let preview = mine.preview_operation(&delete).await.unwrap();
    assert_eq!((preview.count, preview.more), (2, false));
    refused(intruder.begin_operation(&delete).await, 404, "not-found");
    let begun = mine.begin_operation(&delete.before(preview.before)).await.unwrap();
    let ended = async || mine.operation(begun.id).await.unwrap();
    wait_while!(ended().await.state == OperationState::Open, "it does not end");
    let ended = ended().await;
    assert_eq!((ended.state, ended.changed, ended.kind), (OperationState::Done, 2, OperationKind::Delete));
    assert_eq!((ended.filter.name, ended.before), (greets.name, preview.before));
    assert_eq!(mine.operations(10, None).await.unwrap().items.len(), 1);
    assert_eq!(mine.cancel_operation(begun.id).await.unwrap().state, OperationState::Done);
    for stranger in [&other, &intruder] {
        refused(stranger.operation(begun.id).await, 404, "not-found");
        refused(stranger.cancel_operation(begun.id).await, 404, "not-found");
    }
    assert_eq!(service.stage.rows().await, 4);
    service.stop().await;
}

#[tokio::test]
async fn emitted_events_are_heard_on_the_canvases_of_the_key() {
    let service = Service::broadcasting(HttpConfig::default()).await;
    let Tenants { mine, other, .. } = Tenants::of(&service).await;
    let mut listening = mine.listen("*:greet").await.unwrap();
    other.emit(&NewEvent::new("greet", &"theirs").unwrap()).await.unwrap();
    mine.emit(&NewEvent::new("other", &"another").unwrap()).await.unwrap();
    mine.emit(&NewEvent::new("greet", &"mine").unwrap()).await.unwrap();
    let heard = tokio::time::timeout(crate::support::TIMEOUT, listening.next()).await.unwrap().unwrap();
    let Some(Heard::Event(json)) = heard else { panic!("{heard:?}") };
    assert_eq!(serde_json::from_str::<Value>(json.get()).unwrap()["value"], "mine");
    service.stop().await;
}

/// Temporary errors are repeated, if that is safe, with the same idempotency key; others are not.
#[tokio::test]
async fn only_what_is_safe_is_sent_again() {
    let answer = |status: u16, code: &str| {
        let problem = json!({"type": format!("urn:wakeq:problem:{code}"), "title": "t", "status": status,
                             "detail": "d", "request_id": "r"});
        ResponseTemplate::new(status).set_body_raw(problem.to_string(), "application/problem+json")
    };
    let done = ResponseTemplate::new(202).set_body_json(json!({"id": Uuid::nil(), "duplicate": false}));
    let (away, busy) = (answer(503, "unavailable"), answer(429, "too-many-requests"));
    let (gone, proxy) = (answer(404, "not-found"), ResponseTemplate::new(502));
    let event = NewEvent::new("greet", &1).unwrap();
    for (answers, sent, succeeds) in [
        (vec![away.clone(), proxy.clone(), done.clone()], 3, true),
        (vec![away.clone(), away.clone(), away.clone(), done.clone()], 3, false),
        (vec![gone, done.clone()], 1, false),
    ] {
        let server = answering(answers).await;
        let client = Client::new(&server.uri(), "wakeq_5ecre7").unwrap();
        let result = client.emit(&event).await;
        assert_eq!(result.is_ok(), succeeds, "{result:?}");
        let requests = server.received_requests().await.unwrap();
        let keys: Vec<_> = requests.iter().map(|request| &request.headers["idempotency-key"]).collect();
        assert_eq!(keys.len(), sent);
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
    for (first, sent) in [(away, 1), (proxy, 1), (busy, 2)] {
        let server = answering([first, done.clone()]).await;
        let client = Client::new(&server.uri(), "wakeq_5ecre7").unwrap();
        let _ = client.cancel(Uuid::nil()).await;
        assert_eq!(server.received_requests().await.unwrap().len(), sent);
    }
    let elsewhere =
        answering([ResponseTemplate::new(302).insert_header("location", "http://127.0.0.1:1/")]).await;
    let redirected = Client::new(&elsewhere.uri(), "wakeq_5ecre7").unwrap().handlers().await.unwrap_err();
    assert!(matches!(redirected, Error::Unexpected { status: 302, .. }), "{redirected}");
}
