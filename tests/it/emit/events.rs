//! Emit: what is stored, what is refused, and the effects of the caller's transaction, of a broker
//! that is down, and of programs that write rows without it.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use sqlx::Executor;
use wakeq::events::{JsonError, Traceparent};
use wakeq::machine::Outcome;
use wakeq::notify::Notification;
use wakeq::testing::MemoryNotifier;
use wakeq::{Actor, CanvasId, EmitError, Emitted, Event, EventError, EventId, Handlers, Queue, QueueConfig};

use crate::support::handlers::{answering, recording};
use crate::support::service::has;
use crate::support::{Stage, Statements, canvas, quick, scope};

/// Larger than any event may be.
fn too_large() -> Event {
    Event::new("greet", &"x".repeat(20_000_000)).unwrap()
}

fn greeting() -> Event {
    Event::new("greet", "hello").unwrap()
}

/// The row of an event, with its value as text, and when it is woken, in seconds from its due time.
async fn row(stage: &Stage, id: EventId) -> Value {
    let query = "select (to_jsonb(e) || jsonb_build_object(
                            'value', value::text, 'due_at_once', delay_until = enqueued_at,
                            'promise_s', round(extract(epoch from notify_at - delay_until)::numeric, 1)))::text
                   from wakeq.events_v2 e where id = $1";
    let row: String = sqlx::query_scalar(query).bind(id.0).fetch_one(&stage.pool).await.unwrap();
    serde_json::from_str(&row).unwrap()
}

// Shows: EV2-04, EV2-18, EV2-46, EV2-47, CARD-04, CARD-09
#[tokio::test]
async fn a_name_and_a_value_are_enough() {
    let (stage, notifier) = Stage::memory().await;
    let emitted = stage.queue.emit(Event::new("greet", &json!({"to": "Ada"})).unwrap()).await.unwrap();
    assert_eq!(
        emitted,
        Emitted { id: emitted.id, duplicate: false, link: None, copies: 0, notified: true, unique: None }
    );
    let row = row(&stage, emitted.id).await;
    has(&row, json!({"canvas_id": CanvasId::DEFAULT, "module": "WORKER", "name": "greet", "modifier": "_"}));
    has(&row, json!({"value": r#"{"to":"Ada"}"#, "retries": 0, "claims": 0, "losses": 0, "locked_at": null}));
    has(&row, json!({"due_at_once": true, "promise_s": 30.0}));
    assert_eq!(emitted.id.0.get_version_num(), 7);
    assert_eq!(notifier.published(), [Notification::new(emitted.id, CanvasId::DEFAULT)]);
}

#[tokio::test]
async fn an_emit_sets_every_field_of_an_event() {
    let (stage, notifier) = Stage::memory().await;
    let canvas = CanvasId(uuid::Uuid::new_v4());
    let event = Event::from_json("report", " [1, 2.50] ").unwrap();
    let event = event.module("REPORTS").unwrap().modifier("weekly").unwrap().canvas(canvas);
    let id = stage.queue.emit(event.after(Duration::from_secs(3600)).unwrap()).await.unwrap().id;
    let found = row(&stage, id).await;
    has(&found, json!({"canvas_id": canvas, "module": "REPORTS", "name": "report", "modifier": "weekly"}));
    has(&found, json!({"value": " [1, 2.50] ", "due_at_once": false, "promise_s": -600.0}));
    assert!(notifier.published().is_empty(), "an hour away: nothing yet");
    let config = QueueConfig { canvas, ..QueueConfig::default() };
    let queue = Queue::new(stage.store.clone(), stage.notifier.clone(), config);
    let id = queue.emit(Event::new("greet", "x").unwrap()).await.unwrap().id;
    assert_eq!(row(&stage, id).await["canvas_id"], json!(canvas), "the queue's own default");
}

#[test]
fn rejects_invalid_events_with_a_reason() {
    let refused = |event: Result<Event, EventError>| event.unwrap_err().to_string();
    let names =
        "is not a valid name: use 1 to 128 of the characters A-Z a-z 0-9 _ . -, and not . or .. alone";
    for name in ["", ".", "..", "a b", "ü", "a/b", "a\0", &"a".repeat(129)] {
        assert_eq!(refused(Event::new(name, "x")), format!("{:?} {names}", &name[..name.len().min(128)]));
        let event = || Event::new("greet", "x").unwrap();
        assert!(refused(event().module(name)).ends_with(names));
        assert!(refused(event().modifier(name)).ends_with(names));
    }
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(Event::from_json(&"a".repeat(128), deep(64)).is_ok());
    assert!(matches!(Event::from_json("a", deep(65)), Err(EventError::Value(JsonError::TooDeep))));
    assert!(matches!(Event::from_json("a", deep(100_000)), Err(EventError::Value(_))));
    assert!(matches!(Event::new("a", "x\0"), Err(EventError::Value(JsonError::Nul))));
    for text in ["", "{", "{a:1}", "'x'", "1 2", "\u{feff}1"] {
        let refused = Event::from_json("a", text);
        assert!(matches!(refused, Err(EventError::Value(JsonError::Invalid(_)))), "{text}");
    }
    let years = |count: u64| Duration::from_secs(count * 366 * 24 * 3600);
    assert!(Event::new("a", "x").unwrap().after(years(100)).is_ok());
    assert!(matches!(Event::new("a", "x").unwrap().after(years(101)), Err(EventError::TooLate)));
    assert!(matches!(Event::new("a", "x").unwrap().after(Duration::MAX), Err(EventError::TooLate)));
    let far = chrono::DateTime::<chrono::Utc>::MAX_UTC;
    assert!(matches!(Event::new("a", "x").unwrap().at(far), Err(EventError::TooLate)));
    assert!(matches!(Event::new("a", "x").unwrap().traceparent("00-1-2-3"), Err(EventError::Metadata(_))));
}

#[tokio::test]
async fn an_emit_on_the_canvas_that_no_tenant_has_is_refused() {
    let (stage, _) = Stage::memory().await;
    let event = || Event::new("greet", "x").unwrap();
    let reserved = || event().canvas(CanvasId(uuid::Uuid::max()));
    let config = QueueConfig { canvas: CanvasId(uuid::Uuid::max()), ..QueueConfig::default() };
    let queue = Queue::new(stage.store.clone(), stage.notifier.clone(), config);
    for refused in [
        stage.queue.emit(reserved()).await.unwrap_err(),
        stage.queue.emit_all(vec![event(), reserved()]).await.unwrap_err(),
        stage.queue.emit_on("work:1", reserved(), vec![], None).await.unwrap_err(),
        queue.emit(event()).await.unwrap_err(),
    ] {
        assert!(matches!(refused, EmitError::Event(EventError::ReservedCanvas)), "{refused}");
    }
    assert_eq!(stage.rows().await, 0);
}

#[tokio::test]
async fn a_value_beyond_the_limit_is_refused_and_its_neighbours_with_it() {
    let (stage, _) = Stage::memory().await;
    let sized = |bytes: usize| Event::new("greet", &"x".repeat(bytes - 2)).unwrap();
    let limit = 256 * 1024;
    stage.queue.emit(sized(limit)).await.unwrap();
    let refused = stage.queue.emit_all(vec![sized(10), sized(limit + 1)]).await.unwrap_err();
    let words = "the value has 262145 bytes, the limit is 262144: store it elsewhere and emit a reference";
    assert_eq!(refused.to_string(), words);
    assert_eq!(stage.rows().await, 1);
    let many = stage.queue.emit_all(vec![sized(10); 10_001]).await;
    assert!(matches!(many, Err(EmitError::TooMany(10_001))));
    assert!(stage.queue.emit_all(Vec::new()).await.unwrap().is_empty());
}

/// All or none, and the error of a limit says what to do.
#[tokio::test]
async fn events_emitted_together_are_all_there_or_none() {
    let (stage, notifier) = Stage::memory().await;
    let taken = stage.queue.emit(greeting().canvas(canvas(7))).await.unwrap().id;
    let refused =
        vec![greeting(), greeting().at("9999-12-31T00:00:00Z".parse().unwrap()).unwrap(), too_large()];
    assert!(stage.queue.emit_all(refused).await.is_err());
    assert_eq!((stage.rows().await, notifier.published().len()), (1, 1));
    let events = vec![greeting().id(taken), greeting().id(taken).canvas(canvas(7))];
    let emitted = stage.queue.emit_all(events).await.unwrap();
    assert!(emitted.iter().all(|emitted| !emitted.duplicate && emitted.id != taken), "{emitted:?}");
    stage.admin.purge(&scope("greet"), &Actor::user("ada"), false).await.unwrap();
    notifier.forget_everything();
    assert_eq!(stage.rows().await, 2);
    let later = greeting().after(Duration::from_secs(86_400)).unwrap();
    let emitted = stage.queue.emit_all(vec![greeting(), later, greeting().id(EventId::new())]).await.unwrap();
    assert_eq!(emitted.iter().map(|emitted| emitted.notified).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!((stage.rows().await, notifier.pending()), (5, 2));
    let error = stage.queue.emit_all(vec![greeting(); 10_001]).await.unwrap_err();
    assert!(error.to_string().contains("the limit is 10000"), "{error}");
    assert!(stage.queue.emit_all(Vec::new()).await.unwrap().is_empty());
}

/// A leap second is stored as the second after it: the last one of all is too late.
#[tokio::test]
async fn moments_after_the_last_second_are_refused() {
    for moment in ["9999-12-31T23:59:60Z", "9999-12-31T23:59:59-01:00", "9999-12-31T23:59:60.5Z"] {
        let refused = Event::new("greet", "x").unwrap().at(moment.parse().unwrap());
        assert!(matches!(refused, Err(EventError::TooLate)), "{moment}");
    }
}

/// A date at either end of what Postgres can hold is stored or refused; it never panics.
#[tokio::test]
async fn moments_far_away_are_stored() {
    let (stage, _) = Stage::memory().await;
    for moment in ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"] {
        let event = Event::new("greet", "x").unwrap().at(moment.parse().unwrap()).unwrap();
        let id = stage.queue.emit(event).await.unwrap().id;
        let sql = "select delay_until from wakeq.events_v2 where id = $1";
        let stored: wakeq::Timestamp =
            sqlx::query_scalar(sql).bind(id.0).fetch_one(&stage.pool).await.unwrap();
        assert_eq!(stored, moment.parse::<wakeq::Timestamp>().unwrap());
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let text = "[^\0]{0,12}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(text, inner, 0..8)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Nested, Unicode and large values arrive as they were emitted.
// Shows: EV2-32
#[tokio::test]
async fn values_arrive_as_they_were_emitted() {
    let (stage, _) = Stage::memory().await;
    let (worker, mut seen) = stage.recording("echo");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut values: Vec<Value> = (0..200)
        .map(|_| proptest::strategy::ValueTree::current(&any_json().new_tree(&mut runner).unwrap()))
        .collect();
    values.push(json!({"emoji": "👩‍👩‍👧", "rtl": "שלום", "control": "\u{1}\u{7f}\u{2028}", "quote": "\"\\/"}));
    values.push(json!("ü".repeat(100_000)));
    let events = values.iter().map(|value| Event::new("echo", value).unwrap()).collect();
    let emitted = stage.queue.emit_all(events).await.unwrap();
    let mut arrived = seen.take(values.len()).await;
    arrived.sort_by_key(|event| event.id);
    for ((event, emitted), value) in arrived.iter().zip(emitted).zip(values) {
        assert_eq!((event.id, &event.json), (emitted.id, &value.to_string()));
        // Not all of serde_json's numbers survive its own parser; all that do arrive.
        let parsed: Value = serde_json::from_str(&value.to_string()).unwrap();
        assert_eq!(event.value::<Value>().unwrap(), parsed);
    }
    worker.stop().await;
}

/// EV2-32: the value is returned byte for byte.
#[tokio::test]
async fn a_value_is_kept_to_the_letter() {
    let (stage, _) = Stage::memory().await;
    let json = r#"{"b":[1.0,1e300,"é\u00e9 \ud83d\ude00"],  "a":{"b":{"c":null}},"a":"twice"}"#;
    stage.queue.emit(Event::from_json("greet", json).unwrap()).await.unwrap();
    let kept: String = stage.pool.value("select value::text from wakeq.events_v2").await;
    assert_eq!(kept, json);
}

/// In the caller's transaction: there after the commit, gone after a rollback, and made up for if
/// not announced.
#[tokio::test]
async fn an_event_shares_the_fate_of_the_callers_transaction() {
    let (stage, notifier) = Stage::memory_with(quick()).await;
    let (mut worker, mut seen) = stage.recording("greet");
    stage.execute("create table orders (id int)").await;
    let event = || Event::new("greet", "x").unwrap();

    let mut transaction = stage.pool.begin().await.unwrap();
    sqlx::query("insert into orders values (1)").execute(&mut *transaction).await.unwrap();
    let rolled_back = stage.queue.emit_in(&mut transaction, event()).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(notifier.published().is_empty());

    let mut transaction = stage.pool.begin().await.unwrap();
    sqlx::query("insert into orders values (2)").execute(&mut *transaction).await.unwrap();
    let pending = stage.queue.emit_in(&mut transaction, event()).await.unwrap();
    let forgotten = stage.queue.emit_in(&mut transaction, event()).await.unwrap();
    assert_eq!((stage.rows().await, notifier.published().len()), (0, 0), "not before the commit");
    let ids = [pending.id(), forgotten.id()];
    transaction.commit().await.unwrap();
    let emitted = pending.notify().await;
    assert_eq!(
        emitted,
        Emitted { id: ids[0], duplicate: false, link: None, copies: 0, notified: true, unique: None }
    );
    assert_eq!(seen.next().await.id, ids[0]);
    drop(forgotten);
    assert_eq!(seen.next().await.id, ids[1], "by the probe");
    worker.until_count(2, Outcome::Deleted).await;

    // Announcing a receipt after a rollback publishes a notification of nothing.
    rolled_back.notify().await;
    assert_eq!(worker.report().await.trail, [Outcome::EventMissing]);
    let orders: Vec<i32> = stage.pool.values("select id from orders").await;
    assert_eq!((orders, stage.rows().await), (vec![2], 0));
    worker.stop().await;
}

/// On whatever search path; and an id that was rolled back is free again.
#[tokio::test]
async fn an_emit_in_a_transaction_needs_no_search_path() {
    let (stage, notifier) = Stage::memory().await;
    let mut transaction = stage.pool.begin().await.unwrap();
    transaction.execute("set local search_path = pg_catalog").await.unwrap();
    let chosen = EventId::new();
    let dropped = stage.queue.emit_in(&mut transaction, greeting().id(chosen)).await.unwrap();
    assert_eq!(dropped.id(), EventId::chosen(CanvasId::DEFAULT, chosen));
    transaction.rollback().await.unwrap();
    drop(dropped);
    assert_eq!((stage.rows().await, notifier.published().len()), (0, 0));

    let mut transaction = stage.pool.begin().await.unwrap();
    transaction.execute("set local search_path = pg_catalog").await.unwrap();
    let one = stage.queue.emit_in(&mut transaction, greeting()).await.unwrap();
    let two = stage.queue.emit_in(&mut transaction, greeting().id(chosen)).await.unwrap();
    assert_eq!(notifier.published().len(), 0, "nothing before the commit");
    transaction.commit().await.unwrap();
    assert!(one.notify().await.notified && two.notify().await.notified);
    assert_eq!((stage.rows().await, notifier.published().len()), (2, 2));
}

/// A chosen id makes one event per canvas, however often and in whatever way it is emitted, even
/// after it completed or was cancelled.
#[tokio::test]
async fn a_chosen_id_makes_one_event() {
    let (stage, notifier) = Stage::memory().await;
    let chosen = EventId(uuid::Uuid::new_v4());
    let event = move || Event::new("greet", "x").unwrap().id(chosen);
    let repeated = vec![event(), Event::new("greet", "y").unwrap(), event()];
    let emitted = stage.queue.emit_all(repeated).await.unwrap();
    assert_eq!(emitted.iter().map(|one| one.duplicate).collect::<Vec<_>>(), [false, false, true]);
    let id = EventId::chosen(CanvasId::DEFAULT, chosen);
    let again = Emitted { id, duplicate: true, link: None, copies: 0, notified: false, unique: None };
    assert_eq!(stage.queue.emit(event()).await.unwrap(), again);
    let mut connection = stage.pool.acquire().await.unwrap();
    let receipt = stage.queue.emit_in(&mut connection, event()).await.unwrap();
    assert_eq!(receipt.notify().await, again);
    assert_eq!((stage.rows().await, notifier.published().len()), (2, 2));
    let (mut worker, mut seen) = stage.recording("greet");
    worker.until_count(2, Outcome::Deleted).await;
    assert_eq!(stage.queue.emit(event()).await.unwrap(), again, "it completed, and is remembered");
    assert_eq!((stage.rows().await, seen.rest().len()), (0, 2));
    worker.stop().await;
    let elsewhere = || stage.queue.emit(event().canvas(canvas(7)));
    let first = elsewhere().await.unwrap();
    assert_eq!((first.id, first.duplicate), (EventId::chosen(canvas(7), chosen), false), "it is another's");
    stage.admin.cancel(canvas(7), chosen, &Actor::user("ada")).await.unwrap();
    assert!(elsewhere().await.unwrap().duplicate, "also when it was cancelled");
}

/// A broker that does not answer is not an error; the probe makes up for it.
// Shows: EV2-18
#[tokio::test]
async fn an_emit_succeeds_without_the_broker() {
    let (stage, notifier) = Stage::memory_with(quick()).await;
    notifier.break_down("the broker is away");
    let id = stage.emit("greet").await;
    let emitted = stage.queue.emit(Event::new("greet", "x").unwrap()).await.unwrap();
    assert!(!emitted.notified);
    notifier.mend();
    assert!(notifier.published().is_empty());
    let (worker, mut seen) = stage.recording("greet");
    let mut ran = [seen.next().await.id, seen.next().await.id];
    ran.sort();
    assert_eq!(ran, [id, emitted.id]);
    worker.stop().await;
}

/// Rows that another program inserts are published by the next pass, on their own canvas.
#[tokio::test]
async fn rows_inserted_by_plain_sql_are_published_by_the_next_pass() {
    let (stage, notifier) = Stage::memory().await;
    let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
               select gen_random_uuid(), '00000000-0000-0000-0000-000000000007', 'WORKER', 'greet', '_', '1'
                 from generate_series(1, 3)";
    stage.execute(sql).await;
    assert_eq!(stage.admin.wake(false).await.unwrap().woken, 3);
    assert!(notifier.published().iter().all(|notification| notification.canvas == canvas(7)));
    assert_eq!(stage.admin.wake(false).await.unwrap().woken, 0, "a minute later at the earliest");
}

/// A trace is given, or inherited from the handler that emits, or new.
#[tokio::test]
async fn a_trace_is_given_inherited_or_new() {
    let (stage, _) = Stage::memory().await;
    let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let queue = stage.queue.clone();
    let (child, mut children) = recording();
    let (record, mut parents) = answering(|_| Ok(()));
    let handlers = Handlers::new().on("child", child).on("parent", move |event| {
        let (queue, record) = (queue.clone(), record.clone());
        async move {
            record(event).await?;
            queue.emit(Event::new("child", "inherits")?).await?;
            Ok(())
        }
    });
    let mut worker = stage.worker(handlers);
    let parent = Event::new("parent", "x").unwrap();
    stage.queue.emit(parent.clone().traceparent(given).unwrap()).await.unwrap();
    let trace = |event: wakeq::Execution| event.metadata.traceparent.unwrap();
    assert_eq!(trace(parents.next().await).as_str(), given);
    assert_eq!(trace(children.next().await).as_str(), given);
    stage.queue.emit(parent).await.unwrap();
    let new: Traceparent = trace(parents.next().await);
    assert_ne!(new.as_str(), given);
    assert_eq!(trace(children.next().await), new);
    worker.until_count(4, Outcome::Deleted).await;
    worker.stop().await;
}

/// Concurrent emits share statements, and each gets its own answer.
#[tokio::test]
async fn emits_that_arrive_together_each_get_their_own_answer() {
    let (stage, notifier) = Stage::memory().await;
    let emits = (0..500).map(|number| {
        let event = Event::new("greet", &number).unwrap();
        let event = if number % 2 == 0 { event.after(Duration::from_secs(7200)).unwrap() } else { event };
        stage.queue.emit(event)
    });
    let emitted = futures_util::future::try_join_all(emits).await.unwrap();
    for (number, one) in emitted.iter().enumerate() {
        assert_eq!((one.notified, one.duplicate), (number % 2 == 1, false));
        assert_eq!(row(&stage, one.id).await["value"], number.to_string());
    }
    assert_eq!(notifier.published().len(), 250);
}

/// With a notifier that never answers, the queue gives up waiting, not the event.
#[tokio::test]
async fn a_broker_that_hangs_is_not_waited_for() {
    struct Hangs;

    #[async_trait::async_trait]
    impl wakeq::notify::Notifier for Hangs {
        async fn publish(&self, _: &[Notification]) -> Result<(), wakeq::notify::NotifyError> {
            std::future::pending().await
        }
        async fn subscribe(
            &self,
            max_outstanding: usize,
        ) -> Result<Box<dyn wakeq::notify::Subscription>, wakeq::notify::NotifyError> {
            wakeq::notify::Notifier::subscribe(&MemoryNotifier::new(), max_outstanding).await
        }
    }

    let (stage, _) = Stage::memory().await;
    let config = QueueConfig { publish_timeout: Duration::from_millis(50), ..QueueConfig::default() };
    let queue = Queue::new(stage.store.clone(), Arc::new(Hangs), config);
    let emitted = queue.emit(Event::new("greet", "x").unwrap()).await.unwrap();
    assert!(!emitted.notified);
    assert_eq!(stage.rows().await, 1);
}
