//! What stays after the work counts too: dead events, states, rules, chosen ids and idempotency
//! keys. A death is never refused, and loses nothing.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use wakeq::control::{DeadFilter, Quota};
use wakeq::events::{IdempotencyKey, Unique};
use wakeq::{
    Actor, AdminError, CanvasId, Event, EventId, Execution, HandlerError, HandlerResult, Handlers,
    RetryPolicy, Route, Stop, WorkerConfig,
};
use wakeq_service::access::Scope;

use super::{GREEDY, VICTIM, events, exceeded, operator, refused, set, used};
use crate::support::service::Service;
use crate::support::{Stage, wait_while};

async fn fail(_: Execution) -> HandlerResult {
    Err(HandlerError::operational("it never works"))
}

async fn of(stage: &Stage, table: &str, canvas: CanvasId) -> i64 {
    let sql = format!("select count(*) from wakeq.{table} where canvas_id = $1");
    sqlx::query_scalar(AssertSqlSafe(sql)).bind(canvas.0).fetch_one(&stage.pool).await.unwrap()
}

/// Events that wait may all die although the quota is exceeded by then: each is kept, and new ones
/// are refused until some are deleted.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn dead_events_count_and_none_is_lost() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::Events, 1_100).await;
    for canvas in [GREEDY, VICTIM] {
        stage.queue.emit_all(events(canvas, 1_050)).await.unwrap();
    }
    set(&stage.admin, Quota::Events, 1_000).await;
    let never_again = Route::new("work").retry(RetryPolicy { retries: 0, ..RetryPolicy::default() });
    let worker = stage.worker_with(Handlers::new().on(never_again, fail), WorkerConfig::default());
    wait_while!(
        of(&stage, "events_v2", GREEDY).await + of(&stage, "events_v2", VICTIM).await > 0,
        "they die"
    );
    worker.stop().await;
    assert_eq!(of(&stage, "dead_events", GREEDY).await, 1_050, "whatever the quota is");
    let error = refused(stage.queue.emit_all(events(GREEDY, 1)).await, Quota::Events);
    assert!(error.used > 1_000, "{error}");
    assert!(error.to_string().contains("delete or redrive dead ones"), "{error}");
    stage.queue.emit_all(events(VICTIM, 1)).await.unwrap();
    assert_eq!(used(&stage.admin, VICTIM, Quota::Events).await, 1_051);
    let of_greedy = DeadFilter { canvas: GREEDY, ..DeadFilter::default() };
    let redriven = stage.admin.redrive(&of_greedy, &operator(), false).await.unwrap();
    assert_eq!(redriven.count, 1_050, "what is there may be redriven");
    assert_eq!(of(&stage, "events_v2", GREEDY).await, 1_050);
    refused(stage.queue.emit_all(events(GREEDY, 1)).await, Quota::Events);
    set(&stage.admin, Quota::Events, 1_051).await;
    stage.queue.emit_all(events(GREEDY, 1)).await.unwrap();
}

/// The bytes of dead events and of their errors count like those of waiting ones.
#[tokio::test]
async fn bytes_of_dead_events_are_estimated() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::EventBytes, 2_000_000).await;
    let sql = "insert into wakeq.dead_events
                   (canvas_id, id, module, name, modifier, value, retries, enqueued_at, claims, losses, last_error, cause)
               select canvas, gen_random_uuid(), 'WORKER', 'work', '_', '\"' || repeat('x', 19997) || '\"', 0, now(), 1, 0,
                      'x', 'retries'
                 from unnest(array[$1, $2]) canvas, generate_series(1, case when canvas = $1 then 150 else 15 end)";
    sqlx::query(sql).bind(GREEDY.0).bind(VICTIM.0).execute(&stage.pool).await.unwrap();
    assert_eq!(used(&stage.admin, GREEDY, Quota::EventBytes).await, 3_000_000);
    assert_eq!(used(&stage.admin, VICTIM, Quota::EventBytes).await, 300_000);
    refused(stage.queue.emit_all(events(GREEDY, 1)).await, Quota::EventBytes);
    stage.queue.emit_all(events(VICTIM, 1)).await.unwrap();
}

/// A state takes room by its size; one that replaces another takes only what it is larger.
#[tokio::test]
async fn states_of_objects_take_room() {
    let (stage, _) = Stage::memory().await;
    let change = async |canvas: CanvasId, object: &str, size: usize| {
        let state = json!("x".repeat(size - 2)).to_string();
        let main = Event::new("work", &1).unwrap().canvas(canvas);
        stage.queue.emit_on(object, main, Vec::new(), Some(&state)).await
    };
    set(&stage.admin, Quota::ObjectBytes, 1_000_000).await;
    for canvas in [GREEDY, VICTIM] {
        for index in 0..5 {
            change(canvas, &format!("work:{index}"), 200_000).await.unwrap();
        }
    }
    let error = refused(change(GREEDY, "work:5", 200_000).await, Quota::ObjectBytes);
    assert_eq!((error.used, error.wanted), (1_000_000, 200_000));
    assert_eq!(stage.rows().await, 10, "nothing of it was written");
    change(GREEDY, "work:4", 200_000).await.unwrap();
    refused(change(GREEDY, "work:4", 200_001).await, Quota::ObjectBytes);
    change(GREEDY, "work:4", 100_000).await.unwrap();
    change(VICTIM, "work:5", 200_000).await.unwrap();
    stage
        .queue
        .emit_all(vec![Event::new("work", &1).unwrap().canvas(GREEDY).on("work:6").unwrap()])
        .await
        .unwrap();
    assert_eq!(used(&stage.admin, VICTIM, Quota::ObjectBytes).await, 1_200_000);
}

#[tokio::test]
async fn rules_beyond_the_quota() {
    let (stage, _) = Stage::memory().await;
    let pause = async |canvas: CanvasId, name: &str| {
        let scope = wakeq::HandlerScope::worker(canvas, name).unwrap();
        stage.admin.pause(&scope, &Actor::user("ada"), &Stop::default()).await
    };
    set(&stage.admin, Quota::Rules, 2).await;
    for canvas in [GREEDY, VICTIM] {
        pause(canvas, "a").await.unwrap();
        pause(canvas, "b").await.unwrap();
    }
    let Err(AdminError::Store(error)) = pause(GREEDY, "c").await else { panic!("it has no room") };
    assert_eq!(exceeded(&error, Quota::Rules).used, 2);
    pause(GREEDY, "b").await.unwrap();
    pause(VICTIM, "c").await.unwrap();
    assert_eq!(used(&stage.admin, VICTIM, Quota::Rules).await, 3);
    let record = stage.admin.audit(GREEDY, None, 10).await.unwrap().items;
    assert_eq!(record.iter().filter(|line| line.action == "pause").count(), 3, "none of what was refused");
    let scope = wakeq::HandlerScope::worker(GREEDY, "a").unwrap();
    stage.admin.unpause(&scope, &Actor::user("ada")).await.unwrap();
    pause(GREEDY, "c").await.unwrap();
}

/// Ids that callers chose, idempotency keys, and unique keys that outlive their events, are
/// remembered.
#[tokio::test]
async fn remembered_ids_and_keys_count_against_quotas() {
    let (stage, _) = Stage::memory().await;
    let chosen = |canvas: CanvasId, count: usize| -> Vec<Event> {
        events(canvas, count).into_iter().map(|event| event.id(EventId::new())).collect()
    };
    set(&stage.admin, Quota::ChosenIds, 10).await;
    for canvas in [GREEDY, VICTIM] {
        stage.queue.emit_all(chosen(canvas, 10)).await.unwrap();
    }
    stage.execute("delete from wakeq.events_v2").await;
    refused(stage.queue.emit_all(chosen(GREEDY, 1)).await, Quota::ChosenIds);
    stage.queue.emit_all(chosen(VICTIM, 1)).await.unwrap();
    stage.queue.emit_all(events(GREEDY, 1)).await.unwrap();
    let keyed = async |canvas: CanvasId, key: &str| {
        let key = IdempotencyKey::new(canvas, "ada", key, b"same").unwrap();
        stage.queue.emit_idempotent(&key, events(canvas, 1), |_| "done".into()).await
    };
    set(&stage.admin, Quota::IdempotencyKeys, 2).await;
    for canvas in [GREEDY, VICTIM] {
        keyed(canvas, "a").await.unwrap();
        keyed(canvas, "b").await.unwrap();
    }
    refused(keyed(GREEDY, "c").await, Quota::IdempotencyKeys);
    keyed(GREEDY, "b").await.unwrap();
    keyed(VICTIM, "c").await.unwrap();
    let unique = async |canvas: CanvasId, unique: Unique| {
        let event = events(canvas, 1).remove(0).unique(unique).unwrap();
        stage.queue.emit(event).await
    };
    let remembered = || Unique::key("k").unwrap().remembered_for(Duration::from_secs(3600));
    refused(unique(GREEDY, remembered()).await, Quota::IdempotencyKeys);
    unique(GREEDY, Unique::key("k").unwrap().until_ended()).await.unwrap();
    unique(VICTIM, remembered()).await.unwrap();
    assert_eq!(used(&stage.admin, VICTIM, Quota::IdempotencyKeys).await, 4);
}

/// Many ids are counted one by one: a caller that searched for ids whose hashes begin alike has no
/// more of them.
#[tokio::test]
async fn many_ids_are_counted_whatever_they_are() {
    let (stage, _) = Stage::memory().await;
    let sql = "insert into wakeq.emitted_ids (canvas_id, id)
               select $1, overlay(gen_random_uuid()::text placing '000' from 1)::uuid from generate_series(1, 90000)";
    sqlx::query(sql).bind(GREEDY.0).execute(&stage.pool).await.unwrap();
    assert_eq!(used(&stage.admin, GREEDY, Quota::ChosenIds).await, 90_000);
    assert_eq!(used(&stage.admin, VICTIM, Quota::ChosenIds).await, 0);
    set(&stage.admin, Quota::ChosenIds, 70_000).await;
    assert_eq!(used(&stage.admin, GREEDY, Quota::ChosenIds).await, 70_001, "up to one beyond the limit");
}

/// Without room for audit lines a canvas is changed no more, except by its admins; what is only
/// counted has one line each time that it is written.
#[tokio::test]
async fn a_full_audit_log_stops_changes_of_its_canvas() {
    let service = Service::start().await;
    let victim = service.key("victim", VICTIM, &Scope::ALL).await;
    let everywhere = service.wide_key("operator", &Scope::ALL).await;
    let quota = format!("/admin/quotas/{}/audit-lines", CanvasId::DEFAULT);
    assert_eq!(service.ask(&everywhere, Method::PUT, &quota, json!({"limit": 0})).await.status, 204);
    let refused = service.put("/handlers/WORKER/h/pause", json!({})).await.problem();
    assert_eq!(refused, (409, "quota-reached".into()));
    let theirs = format!("/canvases/{VICTIM}/handlers/WORKER/h/pause");
    assert_eq!(service.ask(&victim, Method::PUT, &theirs, json!({})).await.status, 200);
    assert_eq!(service.admin(Method::PUT, "/handlers/WORKER/h/block", json!({})).await.status, 200);
    assert_eq!(service.post("/events", json!({"name": "work"})).await.status, 202);
    for canvas in [CanvasId::DEFAULT, VICTIM] {
        let key = if canvas == VICTIM { &victim } else { &service.key };
        let path = format!("/canvases/{canvas}/dead-events");
        assert_eq!(service.ask(key, Method::GET, &path, Value::Null).await.status, 200);
    }
    let stage = service.stop().await;
    let actions = async |canvas: CanvasId| -> Vec<String> {
        let sql = "select distinct action from wakeq.audit_log where canvas_id = $1 and action <> 'create-key' order by 1";
        sqlx::query_scalar(sql).bind(canvas.0).fetch_all(&stage.pool).await.unwrap()
    };
    assert_eq!(actions(CanvasId::DEFAULT).await, ["block", "not-recorded", "set-quota"]);
    assert_eq!(actions(VICTIM).await, ["list_dead_events", "pause", "sign-in"]);
}
