//! The log, seen from outside: every way to emit into it, the API, what wakes its readers and what
//! holds them back.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use sqlx::Connection;
use wakeq::events::IdempotencyKey;
use wakeq::log::{
    AppendCondition, EventSource, Log, LogError, LogEvent, NewLogEvent, PageLimit, StreamAppend, StreamId,
};
use wakeq::{CanvasId, EmitError, Event, EventId};
use wakeq_service::access::Scope;
use wakeq_streams::EventProvider;

use crate::support::service::{Answer, Service};
use crate::support::{Stage, TIMEOUT};

fn stream(name: &str) -> StreamId {
    StreamId::new(CanvasId::DEFAULT, "accounts", name).unwrap()
}

fn events(count: i32) -> Vec<NewLogEvent> {
    (0..count).map(|number| NewLogEvent::new("paid", &number).unwrap()).collect()
}

async fn logged(stage: &Stage) -> Vec<LogEvent> {
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    log.read(&EventSource::Log { canvas: None }, 0, 1000).await.unwrap().events
}

fn paid(number: i32) -> Event {
    Event::new("paid", &number).unwrap().module("orders").unwrap()
}

/// Alone, in a batch, in the caller's own transaction, on an object, under a key: one row and one
/// event of the log, or neither.
#[tokio::test]
async fn every_way_to_emit_logs_in_its_transaction() {
    let (stage, _) = Stage::memory().await;
    let queue = &stage.queue;
    let grown = Log::new(stage.store.clone(), stage.notifier.as_ref());
    let mut grown = grown.watch(&EventSource::category("orders").unwrap());
    let alone = queue.emit(paid(1).logged()).await.unwrap();
    assert!(grown.has_changed().unwrap(), "readers are told");
    grown.mark_unchanged();
    queue.emit(paid(0)).await.unwrap();
    assert!(!grown.has_changed().unwrap(), "what is not logged tells nobody");
    let in_batch =
        queue.emit_all(vec![paid(2).logged(), paid(0), paid(3).logged_in("orders", "special").unwrap()]);
    let in_batch = in_batch.await.unwrap();
    let mut transaction = stage.pool.begin().await.unwrap();
    let receipt = queue.emit_in(&mut transaction, paid(4).logged()).await.unwrap();
    transaction.commit().await.unwrap();
    grown.mark_unchanged();
    let own = receipt.notify().await;
    assert!(grown.has_changed().unwrap());
    let change =
        queue.emit_on("order:7", paid(5).logged(), vec![paid(6).logged(), paid(0)], None).await.unwrap();
    let key = IdempotencyKey::new(CanvasId::DEFAULT, "tests", "k", b"k").unwrap();
    for _ in 0..2 {
        queue.emit_idempotent(&key, vec![paid(7).logged()], |_| String::new()).await.unwrap();
    }
    let id = EventId::new();
    for _ in 0..2 {
        queue.emit(paid(8).id(id).logged()).await.unwrap();
    }
    let id = EventId::chosen(CanvasId::DEFAULT, id);
    let nobody = queue.emit(paid(9).only_to_queues().logged()).await.unwrap();
    let read = logged(&stage).await;
    let seen: Vec<_> = read.iter().map(|event| format!("{} {}", event.stream, event.payload)).collect();
    let expected = "orders/paid 1, orders/paid 2, orders/special 3, orders/paid 4, orders/order:7 5, \
                    orders/order:7 6, orders/paid 7, orders/paid 8, orders/paid 9";
    assert_eq!(seen.join(", "), expected);
    let ids = [0, 1, 2, 3, 4, 7, 8].map(|at| read[at].id);
    assert_eq!(ids, [alone.id, in_batch[0].id, in_batch[2].id, own.id, change[0].id, id, nobody.id]);
    let links = [4, 5].map(|at| read[at].place.as_ref().map(|place| (place.object.to_string(), place.link)));
    assert_eq!(links, [0, 1].map(|at| Some(("order:7".into(), change[at].link.unwrap()))));
    assert_eq!(read[0].place, None);
    let metadata: Value = serde_json::from_str(&read[0].metadata).unwrap();
    assert_eq!((&metadata["module"], &metadata["modifier"]), (&json!("orders"), &json!("_")));
    // The events themselves: all but the one that no queue wants, and those that were not logged.
    assert_eq!(stage.rows().await, 8 + 3);
}

/// What is rolled back or refused is in neither.
#[tokio::test]
async fn what_is_not_emitted_is_not_logged() {
    let (stage, _) = Stage::memory().await;
    let mut transaction = stage.pool.begin().await.unwrap();
    drop(stage.queue.emit_in(&mut transaction, paid(1).logged()).await.unwrap());
    transaction.rollback().await.unwrap();
    let too_large = Event::new("paid", &"x".repeat(20_000_000)).unwrap();
    assert!(stage.queue.emit_all(vec![paid(1).logged(), too_large.logged()]).await.is_err());
    assert!(matches!(paid(1).logged_in("no category", "s"), Err(wakeq::EventError::LogName(_))));
    assert_eq!((logged(&stage).await.len(), stage.rows().await), (0, 0));
}

/// An append waits for an open transaction on the stream as for an object, and then fails as busy.
#[tokio::test]
async fn a_stream_that_others_hold_is_busy() {
    let (stage, _) = Stage::memory().await;
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    let mut open = stage.pool.begin().await.unwrap();
    let receipt = log.append_in(&mut open, &[StreamAppend::new(stream("a"), events(1))]).await.unwrap();
    assert_eq!((receipt.appended()[0].position, receipt.appended()[0].prev), (0, 0));
    let busy = log.append(&stream("a"), events(1), AppendCondition::None).await.unwrap_err();
    assert!(matches!(busy, LogError::Busy(_)), "{busy}");
    let emit = stage.queue.emit(paid(1).logged_in("accounts", "a").unwrap()).await.unwrap_err();
    assert!(matches!(emit, EmitError::ObjectBusy(_)), "{emit}");
    open.commit().await.unwrap();
    receipt.announce();
    let error = log.append(&stream("a"), events(1), AppendCondition::Empty).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the stream accounts/a is at position 0, but was expected to be empty: read on from \
         there, decide again, and append at the position that it has then"
    );
}

#[tokio::test]
async fn rejects_oversized_appends_with_the_limit() {
    let (stage, _) = Stage::memory().await;
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref()).with_payload_limit(1_000_000);
    let refused = async |appends: Vec<StreamAppend>| log.append_all(&appends).await.unwrap_err().to_string();
    let to = |events| vec![StreamAppend::new(stream("a"), events)];
    assert!(refused(to(events(1_001))).await.contains("the limit is 1000"));
    let large = |size: usize| NewLogEvent::new("paid", &"x".repeat(size)).unwrap();
    assert!(refused(to(vec![large(1_000_000)])).await.contains("store it elsewhere"));
    assert!(refused(to((0..20).map(|_| large(900_000)).collect())).await.contains("in several calls"));
    let nobody = StreamId::new(CanvasId(uuid::Uuid::max()), "accounts", "a").unwrap();
    assert!(refused(vec![StreamAppend::new(nobody, events(1))]).await.contains("reserved"));
    for limit in [0, 10_001] {
        let refused = log.read(&EventSource::Log { canvas: None }, 0, limit).await.unwrap_err();
        assert!(matches!(refused, LogError::Limit(_)));
    }
    assert_eq!(log.append(&stream("a"), events(1_000), AppendCondition::Empty).await.unwrap().len(), 1_000);
    assert_eq!(log.end(&stream("a")).await.unwrap().unwrap().position, 999);
}

/// A consumer's provider: it reads what was appended, and is notified of more.
#[tokio::test]
async fn the_log_is_what_consumers_read_from() {
    let (stage, _) = Stage::memory().await;
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    let source = EventSource::Stream(stream("a"));
    let mut grown = EventProvider::watch(&log, &source);
    let elsewhere = StreamId::new(CanvasId::DEFAULT, "others", "a").unwrap();
    log.append(&elsewhere, events(1), AppendCondition::None).await.unwrap();
    assert!(!grown.has_changed().unwrap());
    // Another handle of the same process, with the same notifier.
    let other = Log::new(stage.store.clone(), stage.notifier.as_ref());
    other.append(&stream("a"), events(3), AppendCondition::None).await.unwrap();
    tokio::time::timeout(TIMEOUT, grown.changed()).await.expect("no signal").unwrap();
    let two = PageLimit { events: 2, bytes: PageLimit::BYTES };
    let page = EventProvider::read(&log, &source, 0, two).await.unwrap();
    assert_eq!((page.events.len(), page.more), (2, true));
    let page = EventProvider::read(&log, &source, page.through, two).await.unwrap();
    assert_eq!((page.events.len(), page.more, page.held), (1, false, false));
}

/// Appended to and read over HTTP, with conditions; on its own canvas only.
#[tokio::test]
async fn the_log_is_appended_to_and_read_over_http() {
    let service = Service::start().await;
    let append = |expect: Value, names: &[&str]| {
        let events: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "payload": {"n": 1.50}, "metadata": {"by": "ada"}}))
            .collect();
        json!({"appends": [{"category": "accounts", "stream": "a", "expect": expect, "events": events}]})
    };
    let first = service.post("/log", append(json!("empty"), &["opened", "paid"])).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let first = first.json();
    let [opened, paid] = [0, 1].map(|at| &first["events"][at]);
    assert_eq!((&opened["position"], &paid["prev"]), (&json!(0), &opened["seq"]));
    for expect in [json!("empty"), json!(0), json!(2)] {
        let problem = service.post("/log", append(expect, &["paid"])).await.problem();
        assert_eq!(problem, (409, "condition-failed".into()));
    }
    assert_eq!(service.post("/log", append(json!(1), &["paid"])).await.status, StatusCode::CREATED);
    assert_eq!(service.post("/log", append(Value::Null, &[])).await.json(), json!({"events": []}));
    for bad in [json!(-1), json!("full"), json!(1.5), json!({})] {
        assert_eq!(service.post("/log", append(bad, &["paid"])).await.problem(), (400, "bad-request".into()));
    }
    let emitted = json!({"name": "greet", "value": 7, "logged": {"category": "accounts", "stream": "b"}});
    for emitted in [emitted, json!({"name": "greet", "logged": true})] {
        assert_eq!(service.post("/events", emitted).await.status, StatusCode::ACCEPTED);
    }
    for bad in [json!(1), json!({"category": "accounts"}), json!({"category": "a b", "stream": "s"})] {
        let bad = json!({"name": "greet", "logged": bad});
        assert_eq!(service.post("/events", bad).await.problem(), (400, "bad-request".into()));
    }
    let page = service.get("/log?category=accounts&limit=2").await.json();
    assert_eq!((page["items"].as_array().unwrap().len(), &page["more"]), (2, &json!(true)));
    assert_eq!(page["items"][0]["metadata"], json!({"by": "ada"}));
    let rest = service.get(&format!("/log?category=accounts&after={}", page["through"])).await.json();
    let streams: Vec<_> =
        rest["items"].as_array().unwrap().iter().map(|event| event["stream"].clone()).collect();
    assert_eq!(
        (streams, &rest["more"], &rest["held"]),
        (vec![json!("a"), json!("b")], &json!(false), &json!(false))
    );
    let stream = service.get("/log?category=accounts&stream=b").await.json();
    assert_eq!(stream["items"][0]["payload"], json!(7));
    assert_eq!(service.get("/log").await.json()["items"].as_array().unwrap().len(), 5);
    for bad in ["/log?stream=b", "/log?after=-1", "/log?limit=0", "/log?category=a%20b"] {
        assert_eq!(service.get(bad).await.problem(), (400, "bad-request".into()), "{bad}");
    }
    let to_the_letter = r#"{"appends": [{"category": "notes", "stream": "n", "events": [{"name": "written", "payload": {"n": 1.50}}]}]}"#;
    let request = service.on_canvas(reqwest::Method::POST, "/log").header("content-type", "application/json");
    assert_eq!(Answer::of(request.body(to_the_letter)).await.status, StatusCode::CREATED);
    let page = service.get("/log?category=notes").await;
    assert!(page.text.contains(r#""payload":{"n": 1.50}"#), "{}", page.text);
    let other = CanvasId(uuid::Uuid::from_u128(7));
    let key = service.key("bo", other, &[Scope::Read]).await;
    let path = format!("/v1/canvases/{other}/log");
    let theirs = service.request(reqwest::Method::GET, &path).bearer_auth(key);
    assert_eq!(Answer::of(theirs).await.json()["items"], json!([]));
    service.stop().await;
}

/// The doctor reports which open transaction holds readers back, for how long, and what to do.
#[tokio::test]
async fn names_transactions_that_hold_back_readers() {
    let (stage, _) = Stage::memory().await;
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    log.append(&stream("a"), events(1), AppendCondition::None).await.unwrap();
    let options = (*stage.pool.connect_options()).clone().application_name("billing");
    let mut holder = sqlx::PgConnection::connect_with(&options).await.unwrap();
    let mut open = holder.begin().await.unwrap();
    drop(log.append_in(&mut open, &[StreamAppend::new(stream("b"), events(1))]).await.unwrap());
    log.append(&stream("a"), events(1), AppendCondition::None).await.unwrap();
    let horizon = log.horizon().await.unwrap();
    assert_eq!((horizon.readable, horizon.last), (1, 3));
    let appenders = log.appenders().await.unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut *open).await.unwrap();
    assert_eq!((appenders.len(), appenders[0].pid, appenders[0].floor), (1, Some(pid), 1));
    let session = &appenders[0].session;
    assert!(session.starts_with("billing of ") && session.ends_with("(idle in transaction)"));
    assert!(appenders[0].open_for.unwrap() < Duration::from_secs(60));
    open.rollback().await.unwrap();
    assert_eq!(log.appenders().await.unwrap(), []);
    assert_eq!(log.horizon().await.unwrap().readable, 3);
}

/// The categories that processors of entities write are closed to every other way to append.
#[tokio::test]
async fn only_processors_write_into_entity_categories() {
    let (stage, _) = Stage::memory().await;
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    let account = StreamId::new(CanvasId::DEFAULT, "entities:account", "ada").unwrap();
    let refused = log.append(&account, events(1), AppendCondition::None).await.unwrap_err();
    assert!(matches!(refused, LogError::Category(_)), "{refused}");
    let mut transaction = stage.pool.begin().await.unwrap();
    let append = [StreamAppend::new(account, events(1))];
    let refused = log.append_in(&mut transaction, &append).await.err().unwrap();
    assert!(matches!(refused, LogError::Category(_)), "{refused}");
    let refused = paid(1).logged_in("entities:account", "ada").unwrap_err();
    assert!(refused.to_string().starts_with("only entities write into entities:account"), "{refused}");
    assert_eq!(logged(&stage).await, []);
}
