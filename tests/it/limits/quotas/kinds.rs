//! Each quota: a request that exceeds it is refused as a whole, what exists already continues, and
//! other canvases notice nothing.

use std::time::Duration;

use wakeq::control::Quota;
use wakeq::crons::{CronSchedule, NewCron};
use wakeq::events::BatchError;
use wakeq::hooks::{HookKind, NewHook, NewHookSecret};
use wakeq::log::{AppendCondition, Log, LogError, NewLogEvent, StreamId};
use wakeq::targets::{NewSecret, NewTarget, TargetPolicy};
use wakeq::{AdminError, CanvasId, Event, HandlerAddress, HandlerScope, Name, StoreError};
use wakeq_service::access::{Access, AccessConfig, AccessError, NewKey, Reach, Scope};
use wakeq_streams::{Entities, EntityEvent, EntityId};

use super::{GREEDY, VICTIM, events, exceeded, operator, refused, set, used};
use crate::support::{Stage, wait_while};

#[tokio::test]
async fn waiting_events_beyond_the_quota_are_refused_until_it_is_raised() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::Events, 1_500).await;
    stage.queue.emit_all(events(GREEDY, 1_200)).await.unwrap();
    stage.queue.emit_all(events(VICTIM, 1_200)).await.unwrap();
    let error = refused(stage.queue.emit_all(events(GREEDY, 400)).await, Quota::Events);
    assert_eq!((error.limit, error.used, error.wanted), (1_500, 1_200, 400));
    assert_eq!(stage.rows().await, 2_400, "nothing of it was written");
    stage.queue.emit_all(events(VICTIM, 2_000)).await.unwrap();
    assert_eq!(used(&stage.admin, GREEDY, Quota::Events).await, 1_200);
    set(&stage.admin, Quota::Events, 5_000).await;
    stage.queue.emit_all(events(GREEDY, 400)).await.unwrap();
    set(&stage.admin, Quota::Events, 0).await;
    refused(stage.queue.emit(events(GREEDY, 1).remove(0)).await, Quota::Events);
    stage.queue.emit(events(VICTIM, 1).remove(0)).await.unwrap();
    assert!(stage.admin.unset_quota(GREEDY, Quota::Events, &operator()).await.unwrap());
    assert!(!stage.admin.unset_quota(GREEDY, Quota::Events, &operator()).await.unwrap());
    stage.queue.emit(events(GREEDY, 1).remove(0)).await.unwrap();
    let record = stage.admin.audit(GREEDY, None, 10).await.unwrap().items;
    let lines = record.iter().map(|line| format!("{}: {}", line.action, line.detail.as_deref().unwrap()));
    let expected = [
        "unset-quota: events",
        "set-quota: events to 0",
        "set-quota: events to 5000",
        "set-quota: events to 1500",
    ];
    assert_eq!(lines.collect::<Vec<_>>(), expected);
    assert!(stage.admin.audit(VICTIM, None, 10).await.unwrap().items.is_empty());
}

/// Removed events make room again.
#[tokio::test]
async fn completed_events_free_the_quota() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::Events, 100).await;
    stage.queue.emit_all(events(GREEDY, 100)).await.unwrap();
    refused(stage.queue.emit_all(events(GREEDY, 1)).await, Quota::Events);
    let sql = "delete from wakeq.events_v2 where canvas_id = $1";
    sqlx::query(sql).bind(GREEDY.0).execute(&stage.pool).await.unwrap();
    // The next count is due within a second or so, and no signal says when.
    wait_while!(stage.queue.emit_all(events(GREEDY, 1)).await.is_err(), "it has room again");
}

#[tokio::test]
async fn bytes_of_waiting_events_are_estimated() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::EventBytes, 2_000_000).await;
    let large = |canvas| Event::new("work", &"x".repeat(10_000)).unwrap().canvas(canvas);
    // Small events come first in every index, so an estimate from the first rows would be too low.
    stage.queue.emit_all(events(GREEDY, 1_000)).await.unwrap();
    stage.queue.emit_all(vec![large(GREEDY); 150]).await.unwrap();
    refused(stage.queue.emit_all(vec![large(GREEDY); 100]).await, Quota::EventBytes);
    stage.queue.emit_all(vec![large(VICTIM); 300]).await.unwrap();
    let bytes = used(&stage.admin, GREEDY, Quota::EventBytes).await;
    assert!((1_000_000..2_000_000).contains(&bytes), "{bytes} of 1,500,000");
}

#[tokio::test]
async fn objects_that_are_there_are_emitted_on_when_no_new_one_has_room() {
    let (stage, _) = Stage::memory().await;
    let on = |canvas, object: usize| {
        Event::new("work", &1).unwrap().canvas(canvas).on(&format!("work:{object}")).unwrap()
    };
    set(&stage.admin, Quota::Objects, 50).await;
    for canvas in [GREEDY, VICTIM] {
        stage.queue.emit_all((0..50).map(|object| on(canvas, object)).collect()).await.unwrap();
    }
    let three = (49..52).map(|object| on(GREEDY, object)).collect();
    let error = refused(stage.queue.emit_all(three).await, Quota::Objects);
    assert_eq!((error.used, error.wanted), (50, 2), "of three that it names two are new");
    for object in 0..50 {
        stage.queue.emit(on(GREEDY, object)).await.unwrap();
    }
    stage.queue.emit(on(VICTIM, 51)).await.unwrap();
    assert_eq!(used(&stage.admin, GREEDY, Quota::Objects).await, 50);
}

/// A batch emits its event when it ends, whatever the quota says then.
#[tokio::test]
async fn a_batch_is_opened_only_with_room_for_its_event() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::Events, 0).await;
    let open = async |canvas| {
        let batch = stage.queue.batch("import").unwrap().canvas(canvas);
        batch.open(Event::new("imported", &1).unwrap()).await
    };
    let Err(BatchError::Store(error)) = open(GREEDY).await else { panic!("it has no room") };
    exceeded(&error, Quota::Events);
    open(VICTIM).await.unwrap();
}

#[tokio::test]
async fn streams_and_bytes_of_the_log() {
    let (stage, notifier) = Stage::memory().await;
    let log = Log::new(stage.store.clone(), &*notifier);
    let append = async |canvas, stream: &str, size: usize| {
        let stream = StreamId::new(canvas, "notes", stream).unwrap();
        let event = NewLogEvent::new("written", &"x".repeat(size)).unwrap();
        log.append(&stream, vec![event], AppendCondition::None).await
    };
    set(&stage.admin, Quota::LogStreams, 2).await;
    for canvas in [GREEDY, VICTIM] {
        append(canvas, "a", 1).await.unwrap();
        append(canvas, "b", 1).await.unwrap();
    }
    let Err(LogError::Store(error)) = append(GREEDY, "c", 1).await else { panic!("it has no room") };
    exceeded(&error, Quota::LogStreams);
    append(GREEDY, "a", 1).await.unwrap();
    append(VICTIM, "c", 1).await.unwrap();
    set(&stage.admin, Quota::LogBytes, 150_000).await;
    append(GREEDY, "a", 100_000).await.unwrap();
    let Err(LogError::Store(error)) = append(GREEDY, "a", 100_000).await else { panic!("it has no room") };
    exceeded(&error, Quota::LogBytes);
    append(VICTIM, "a", 200_000).await.unwrap();
    let logged = Event::new("work", &"x".repeat(100_000)).unwrap().logged_in("notes", "a").unwrap();
    refused(stage.queue.emit(logged.clone().canvas(GREEDY)).await, Quota::LogBytes);
    stage.queue.emit(logged.canvas(VICTIM)).await.unwrap();
    assert_eq!(stage.rows().await, 1, "nothing of what was refused");
}

/// Without a processor, the quota of entity events bounds a type's entities too: each has at least
/// one event.
#[tokio::test]
async fn events_of_entities_that_nobody_processes() {
    let (stage, _) = Stage::memory().await;
    let entities = Entities::new(stage.queue.clone());
    let send = async |canvas, id: &str| {
        let entity = EntityId::new(canvas, "nosuch", id).unwrap();
        entities.send(&entity, EntityEvent::new("poke", &1).unwrap()).await
    };
    set(&stage.admin, Quota::EntityEvents, 3).await;
    for id in ["a", "b", "c"] {
        send(GREEDY, id).await.unwrap();
        send(VICTIM, id).await.unwrap();
    }
    let Err(wakeq_streams::EntityError::Store(error)) = send(GREEDY, "a").await else {
        panic!("it has no room")
    };
    exceeded(&error, Quota::EntityEvents);
    send(VICTIM, "a").await.unwrap();
}

#[tokio::test]
async fn crons_and_how_often_they_tick() {
    let (stage, _) = Stage::memory().await;
    let put = async |canvas, name: &str, expression: &str| {
        let schedule = CronSchedule::new(expression, "UTC").unwrap();
        stage.admin.put_cron(canvas, &NewCron::new(name, schedule, &1).unwrap(), &operator()).await
    };
    let full = |put: Result<wakeq::crons::PutCron, AdminError>, quota| {
        let Err(AdminError::Store(error)) = put else { panic!("{put:?}") };
        exceeded(&error, quota)
    };
    set(&stage.admin, Quota::Crons, 2).await;
    for canvas in [GREEDY, VICTIM] {
        put(canvas, "a", "0 0 1 1 *").await.unwrap();
        put(canvas, "b", "0 0 1 1 *").await.unwrap();
    }
    assert_eq!(full(put(GREEDY, "c", "0 0 1 1 *").await, Quota::Crons).used, 2);
    put(VICTIM, "c", "0 0 1 1 *").await.unwrap();
    assert!(put(GREEDY, "b", "0 0 2 1 *").await.unwrap().changed, "one that is there is replaced");
    set(&stage.admin, Quota::CronTicks, 60).await;
    let error = full(put(GREEDY, "b", "* * * * * *").await, Quota::CronTicks);
    assert_eq!((error.used, error.wanted), (1, 60), "60 a minute, and one more that is there");
    put(GREEDY, "b", "*/2 * * * * *").await.unwrap();
    put(VICTIM, "b", "* * * * * *").await.unwrap();
    assert_eq!(used(&stage.admin, GREEDY, Quota::CronTicks).await, 31);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_made_at_the_same_time_do_not_exceed_their_quota() {
    let (stage, _) = Stage::memory().await;
    let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
    let make = |canvas: CanvasId, holder: String| {
        let access = access.clone();
        async move {
            let (reach, scopes) = (Reach::Canvas(canvas), [Scope::Read].into_iter().collect());
            let new = NewKey { holder, reach, scopes, lifetime: Some(Duration::from_secs(60)) };
            access.create_key(&new, &operator()).await
        }
    };
    set(&stage.admin, Quota::Keys, 5).await;
    let mut making = tokio::task::JoinSet::new();
    for index in 0..12 {
        making.spawn(make(GREEDY, format!("holder-{index}")));
    }
    let made = making.join_all().await;
    let refused: Vec<_> = made.iter().filter_map(|made| made.as_ref().err()).collect();
    assert!(refused.len() >= 7, "{} were refused", refused.len());
    for error in &refused {
        if let AccessError::Store(error @ StoreError::Quota(_)) = error {
            exceeded(error, Quota::Keys);
        } else {
            // Calls queue for the same lock, and may give up on a slow machine.
            assert!(matches!(error, AccessError::Busy { .. }), "{error}");
        }
    }
    assert!(used(&stage.admin, GREEDY, Quota::Keys).await <= 5);
    for index in 0..6 {
        make(VICTIM, format!("holder-{index}")).await.unwrap();
    }
}

#[tokio::test]
async fn targets_beyond_the_quota() {
    let (stage, _) = Stage::memory().await;
    let put = async |canvas, name: &str| {
        let scope = HandlerScope { canvas, module: Name::worker(), name: name.parse().unwrap() };
        let address = HandlerAddress { scope, modifier: Name::no_modifier() };
        let url = "https://target.example/events".parse().unwrap();
        let (policy, secret) = (TargetPolicy::default(), NewSecret::Keep);
        let new = NewTarget { url, policy, audience: None, secret, headers: None };
        stage.admin.put_target(&address, &new, &operator()).await
    };
    set(&stage.admin, Quota::Targets, 1).await;
    put(GREEDY, "a").await.unwrap();
    put(GREEDY, "a").await.unwrap();
    let Err(AdminError::Store(error)) = put(GREEDY, "b").await else { panic!("it has no room") };
    exceeded(&error, Quota::Targets);
    put(VICTIM, "a").await.unwrap();
    put(VICTIM, "b").await.unwrap();
}

#[tokio::test]
async fn hooks_beyond_the_quota() {
    let (stage, _) = Stage::memory().await;
    let put = async |canvas, name: &str| {
        let scope = HandlerScope { canvas, module: Name::worker(), name: "receive".parse().unwrap() };
        let new = NewHook {
            kind: HookKind::GitHub,
            address: HandlerAddress { scope, modifier: Name::no_modifier() },
            enveloped: false,
            secret: NewHookSecret::Keep,
            drops_previous: false,
        };
        stage.admin.put_hook(&name.parse().unwrap(), &new, &operator()).await
    };
    set(&stage.admin, Quota::Hooks, 1).await;
    put(GREEDY, "a").await.unwrap();
    put(GREEDY, "a").await.unwrap();
    let Err(AdminError::Store(error)) = put(GREEDY, "b").await else { panic!("it has no room") };
    exceeded(&error, Quota::Hooks);
    put(VICTIM, "a").await.unwrap();
    put(VICTIM, "b").await.unwrap();
    assert_eq!(used(&stage.admin, VICTIM, Quota::Hooks).await, 2);
}

/// Only those that are not over count, and what is added at once exceeds nothing together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_beyond_the_quota() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::Batches, 3).await;
    let on_end = || Event::new("imported", &1).unwrap();
    let mut openers = tokio::task::JoinSet::new();
    for number in 0..12 {
        let batch = stage.queue.batch(&format!("import:{number}")).unwrap().canvas(GREEDY);
        openers.spawn(async move { batch.open(on_end()).await });
    }
    let answers = openers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    for refused in answers.into_iter().filter_map(Result::err) {
        let BatchError::Store(error) = refused else { panic!("{refused}") };
        exceeded(&error, Quota::Batches);
    }
    for name in ["a", "b", "c", "d"] {
        stage.queue.batch(name).unwrap().canvas(VICTIM).open(on_end()).await.unwrap();
    }
    assert_eq!(used(&stage.admin, VICTIM, Quota::Batches).await, 4);
    stage.queue.batch("a").unwrap().canvas(VICTIM).close().await.unwrap();
    assert_eq!(used(&stage.admin, VICTIM, Quota::Batches).await, 3);
}

/// The name of a batch that is over is remembered, as an idempotency key is.
#[tokio::test]
async fn batches_that_are_over_count_as_keys() {
    let (stage, _) = Stage::memory().await;
    set(&stage.admin, Quota::IdempotencyKeys, 2).await;
    let open = async |canvas: CanvasId, name: &str| {
        let batch = stage.queue.batch(name).unwrap().canvas(canvas);
        batch.open(Event::new("imported", &1).unwrap()).await
    };
    for canvas in [GREEDY, VICTIM] {
        open(canvas, "a").await.unwrap();
        open(canvas, "b").await.unwrap();
    }
    stage.execute("update wakeq.batches set over_at = now()").await;
    let Err(BatchError::Store(error)) = open(GREEDY, "c").await else { panic!("it has no room") };
    exceeded(&error, Quota::IdempotencyKeys);
    open(VICTIM, "c").await.unwrap();
    assert_eq!(used(&stage.admin, VICTIM, Quota::Batches).await, 1);
    assert_eq!(used(&stage.admin, VICTIM, Quota::IdempotencyKeys).await, 3);
}
