//! Pages, bodies, answers and values are bounded in bytes, and no canvas can use up the share of
//! another.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use uuid::Uuid;
use wakeq::log::{AppendCondition, Log, NewLogEvent, StreamId};
use wakeq::machine::Outcome;
use wakeq::workers::Verdict;
use wakeq::{CanvasId, Event, Handlers, Queue, QueueConfig, StoreConfig, WorkerConfig};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use crate::support::handlers::{Door, recording};
use crate::support::service::{Answer, Service};
use crate::support::{OTHER, Stage, Statements, TIMEOUT, wait_while};

const MIB: usize = 1024 * 1024;
const LARGE: usize = 250_000;
/// Appends this many large events to a canvas's log.
async fn append(stage: &Stage, canvas: CanvasId, count: usize) {
    let log = Log::new(stage.store.clone(), stage.notifier.as_ref());
    let stream = StreamId::new(canvas, "accounts", "a").unwrap();
    for _ in 0..count {
        let event = NewLogEvent::new("paid", &"x".repeat(LARGE)).unwrap();
        log.append(&stream, vec![event], AppendCondition::None).await.unwrap();
    }
}

fn path(canvas: CanvasId, after: i64) -> String {
    format!("/canvases/{canvas}/log?limit=1000&after={after}")
}

/// Reads a canvas's log to its end; returns the `seq` of each event, and the number of pages.
async fn read(service: &Service, key: &str, canvas: CanvasId) -> (Vec<i64>, usize) {
    let (mut read, mut after, mut pages) = (Vec::new(), 0, 0);
    loop {
        let answer = service.ask(key, Method::GET, &path(canvas, after), Value::Null).await;
        assert!(answer.text.len() < 5 * MIB, "{} bytes on a page", answer.text.len());
        let page = answer.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.iter().all(|item| item["payload"].as_str().unwrap().len() == LARGE));
        read.extend(items.iter().map(|item| item["seq"].as_i64().unwrap()));
        (after, pages) = (page["through"].as_i64().unwrap(), pages + 1);
        if page["more"] == false {
            return (read, pages);
        }
        assert!(!items.is_empty(), "what a page ends with is on it");
    }
}

#[tokio::test]
async fn a_page_of_the_log_ends_with_its_bytes_and_the_next_goes_on() {
    let service = Service::start().await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    for (canvas, count) in [(CanvasId::DEFAULT, 20), (OTHER, 3), (CanvasId::DEFAULT, 20)] {
        append(&service.stage, canvas, count).await;
    }
    let (own, pages) = read(&service, &service.key, CanvasId::DEFAULT).await;
    assert!(pages >= 3 && own.is_sorted(), "{pages} pages: {own:?}");
    let distinct = own.iter().collect::<BTreeSet<_>>().len();
    assert_eq!((own.len(), distinct), (40, 40), "none is lost, none doubled");
    let (theirs, _) = read(&service, &key, OTHER).await;
    assert_eq!(theirs.len(), 3);
    assert!(theirs.iter().all(|seq| !own.contains(seq)));
    service.stop().await;
}

/// A page of a group's dead letters is bounded in bytes, too, whatever their canvas, and has none
/// of another group.
#[tokio::test]
async fn a_page_of_what_a_group_gave_up_ends_with_its_bytes() {
    let service = Service::with(HttpConfig { canvas_byte_rate: 1 << 30, ..HttpConfig::default() }).await;
    let wide = service.wide_key("wide", &Scope::ALL).await;
    for (group, canvas, count, bytes) in
        [("one", CanvasId::DEFAULT, 40, LARGE), ("other", OTHER, 3, LARGE), ("huge", OTHER, 2, 5 * MIB)]
    {
        let sql = "insert into wakeq.consumer_dead
                       (consumer_group, source, seq, id, canvas_id, category, stream, name, payload, attempts, last_error)
                   select $1, 'log', seq, gen_random_uuid(), $2, 'c', 's', 'n', to_json(repeat('x', $4))::text, 1, 'no room'
                     from generate_series(1, $3) seq";
        let fill = sqlx::query(sql).bind(group).bind(canvas.0).bind(count);
        fill.bind(i32::try_from(bytes).unwrap()).execute(&service.stage.pool).await.unwrap();
    }
    let pages = async |group: &str, limit: usize| {
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/admin/groups/{group}/dead?limit={limit}{cursor}");
            let page = service.ask(&wide, Method::GET, &path, Value::Null).await.json();
            let seqs = page["items"].as_array().unwrap().iter().map(|item| item["seq"].as_i64().unwrap());
            pages.push(seqs.collect::<Vec<_>>());
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return pages,
            }
        }
    };
    let one = pages("one", 1000).await;
    assert_eq!(one.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8]);
    assert_eq!(one.concat(), (1..=40).rev().collect::<Vec<_>>(), "the latest first, each once");
    assert_eq!(pages("one", 20).await.len(), 3);
    assert_eq!(pages("other", 1000).await, [[3, 2, 1]]);
    assert_eq!(pages("other", 2).await, [vec![3, 2], vec![1]]);
    assert_eq!(pages("other", 3).await, [[3, 2, 1]], "a full page that is the last leads nowhere");
    assert_eq!(pages("huge", 1000).await, [[2], [1]], "one at least");
    service.stop().await;
}

/// Requests a page, and reads only the first bytes of the answer.
async fn ask_and_wait(service: &Service, key: &str, canvas: CanvasId) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 * 1024).unwrap();
    let mut stream = socket.connect(service.address).await.unwrap();
    let path = path(canvas, 0);
    let request = format!("GET /v1{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    timeout(TIMEOUT, stream.read_exact(&mut head)).await.expect("no answer").unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn unread_answers_use_up_only_the_budget_of_their_canvas() {
    let config = HttpConfig { answers_bytes_max: 14 * MIB, ..HttpConfig::default() };
    let service = Service::with(config).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        append(&service.stage, canvas, 17).await;
    }
    let first = path(CanvasId::DEFAULT, 0);
    let unread = ask_and_wait(&service, &service.key, CanvasId::DEFAULT).await;
    let refused = service.ask(&service.key, Method::GET, &first, Value::Null).await;
    assert_eq!(refused.problem(), (429, "too-many-requests".into()));
    assert_eq!(refused.headers["retry-after"], "1");
    service.get("/log?limit=1").await.json();
    service.ask(&key, Method::GET, &path(OTHER, 0), Value::Null).await.json();
    // Released once the connection notices that the client is gone.
    drop(unread);
    let status = async || service.ask(&service.key, Method::GET, &first, Value::Null).await.status;
    wait_while!(status().await != 200, "it is not given back");
    service.stop().await;
}

#[tokio::test]
async fn bodies_hold_their_bytes_until_they_are_answered_and_another_canvas_has_its_share() {
    let patient = StoreConfig { lock_timeout: TIMEOUT, statement_timeout: TIMEOUT, ..StoreConfig::default() };
    let config = HttpConfig { bodies_bytes_max: MIB, ..HttpConfig::default() };
    let service = Service::over(patient, config).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    // The keys are cached from now on.
    service.get("/log").await.json();
    service.ask(&key, Method::GET, &format!("/canvases/{OTHER}/log"), Value::Null).await.json();
    let mut held = service.stage.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table wakeq.events_v2").execute(&mut *held).await.unwrap();
    let large = json!({"name": "a", "value": "x".repeat(LARGE)});
    let mut own: FuturesUnordered<_> = (0..3).map(|_| service.post("/events", large.clone())).collect();
    let refused = timeout(TIMEOUT, own.next()).await.expect("each waits with its bytes").unwrap();
    assert_eq!(refused.problem(), (429, "too-many-requests".into()));
    assert_eq!(refused.headers["retry-after"], "1");
    let path = format!("/v1/canvases/{OTHER}/events");
    let emit = service.request(Method::POST, &path).bearer_auth(&key);
    let emit = Answer::of(emit.json(&json!({"name": "a", "value": "x".repeat(100_000)})));
    let free = async {
        service.stage.until_waiting(3).await;
        held.rollback().await.unwrap();
    };
    let (other, ()) = tokio::join!(emit, free);
    assert_eq!(other.status, 202, "{}", other.text);
    assert_eq!([own.next().await.unwrap().status, own.next().await.unwrap().status], [202, 202]);
    assert_eq!(service.post("/events", large).await.status, 202, "their bytes are free again");
    drop(own);
    service.stop().await;
}

/// The bodies of a credential for every canvas count for that credential, on however many canvases
/// they arrive.
#[tokio::test]
async fn bodies_of_one_credential_leave_another_its_share_of_the_same_canvas() {
    let patient = StoreConfig { lock_timeout: TIMEOUT, statement_timeout: TIMEOUT, ..StoreConfig::default() };
    let service = Service::over(patient, HttpConfig { bodies_bytes_max: MIB, ..HttpConfig::default() }).await;
    let wide = service.wide_key("wide", &Scope::ALL).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    // The keys are cached from now on.
    for key in [&wide, &key] {
        service.ask(key, Method::GET, &format!("/canvases/{OTHER}/log"), Value::Null).await.json();
    }
    let mut held = service.stage.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table wakeq.events_v2").execute(&mut *held).await.unwrap();
    let emit = async |key: &str, canvas: CanvasId, bytes| {
        let event = json!({"name": "a", "value": "x".repeat(bytes)});
        service.ask(key, Method::POST, &format!("/canvases/{canvas}/events"), event).await
    };
    let canvases = [OTHER, CanvasId::DEFAULT, CanvasId(Uuid::from_u128(8))];
    let mut own: FuturesUnordered<_> = canvases.iter().map(|canvas| emit(&wide, *canvas, LARGE)).collect();
    let refused = timeout(TIMEOUT, own.next()).await.expect("each waits with its bytes").unwrap();
    refused.says((429, "too-many-requests"), "this credential sends more than");
    let free = async {
        service.stage.until_waiting(3).await;
        held.rollback().await.unwrap();
    };
    let (other, ()) = tokio::join!(emit(&key, OTHER, 100_000), free);
    assert_eq!(other.status, 202, "{}", other.text);
    assert_eq!([own.next().await.unwrap().status, own.next().await.unwrap().status], [202, 202]);
    drop(own);
    service.stop().await;
}

impl Stage {
    /// Returns once this many statements wait for a lock.
    pub(crate) async fn until_waiting(&self, count: i64) {
        let query = "select count(*) from pg_stat_activity
                      where datname = current_database() and wait_event_type = 'Lock'";
        wait_while!(self.pool.value::<i64>(query).await < count, "nothing waits for a lock");
    }
}

fn large(name: &str, canvas: CanvasId, bytes: usize) -> Event {
    Event::new(name, &"x".repeat(bytes)).unwrap().canvas(canvas)
}

/// A queue that takes large values, such as other programs write with SQL.
fn wide(stage: &Stage) -> Queue {
    let config = QueueConfig { payload_limit_bytes: 16 * MIB, ..QueueConfig::default() };
    Queue::new(stage.store.clone(), stage.notifier.clone(), config)
}

#[tokio::test]
async fn large_values_run_within_the_budget_without_blocking_small_ones() {
    let (stage, _) = Stage::memory().await;
    let queue = wide(&stage);
    for bytes in [600_000, 600_000, 3 * MIB] {
        queue.emit(large("large", CanvasId::DEFAULT, bytes)).await.unwrap();
    }
    let (handler, mut door) = Door::new();
    let (small, mut seen) = recording();
    let handlers = Handlers::new().on("large", handler).on("small", small);
    let config = WorkerConfig { value_bytes_max: MIB, capacity: 4, ..WorkerConfig::default() };
    let mut worker = stage.worker_with(handlers, config);
    let mut lengths = vec![door.arrived.next().await.json.len()];
    for _ in 0..2 {
        while worker.report().await.verdict != Verdict::WaitsForRoom {}
    }
    let id = queue.emit(large("small", OTHER, 100)).await.unwrap().id;
    assert_eq!(seen.next().await.id, id, "it waits for no room");
    for _ in 0..2 {
        door.open(1);
        lengths.push(door.arrived.next().await.json.len());
    }
    door.open(1);
    worker.until_count(1, Outcome::Deleted).await;
    while stage.rows().await > 0 {
        worker.report().await;
    }
    lengths.sort_unstable();
    assert_eq!((lengths, door.most()), (vec![600_002, 600_002, 3 * MIB + 2], 1));
    worker.stop().await;
}

/// A call that is larger than the whole budget counts as half of it, so it passes; other large
/// calls have to come later.
#[tokio::test]
async fn emits_that_wait_are_bounded_in_bytes() {
    let (stage, _) = Stage::memory().await;
    let config =
        QueueConfig { waiting_bytes_max: 4 * LARGE, payload_limit_bytes: MIB, ..QueueConfig::default() };
    let queue = Queue::new(stage.store.clone(), stage.notifier.clone(), config);
    let mut held = stage.pool.begin().await.unwrap();
    let sql = "lock table wakeq.queue_registry in access exclusive mode";
    sqlx::raw_sql(sql).execute(&mut *held).await.unwrap();
    let mut waiting: FuturesUnordered<_> =
        (0..6).map(|_| queue.emit(large("a", CanvasId::DEFAULT, LARGE - 2))).collect();
    for _ in 0..2 {
        let refused = waiting.next().await.unwrap().unwrap_err();
        assert!(refused.to_string().contains("too many bytes"), "{refused}");
    }
    drop(waiting);
    held.rollback().await.unwrap();
    let all = (0..9).map(|_| large("a", OTHER, LARGE)).collect();
    assert_eq!(queue.emit_all(all).await.unwrap().len(), 9);
    timeout(TIMEOUT, queue.emit(large("a", OTHER, LARGE))).await.unwrap().unwrap();
}
