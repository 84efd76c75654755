//! What one canvas, one credential and one address may take of the service, while others are served
//! as usual; and what the record says of who came, from where, and what they read.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use uuid::Uuid;
use wakeq::{CanvasId, StoreConfig};
use wakeq_service::access::{Reach, Scope};
use wakeq_service::server::HttpConfig;

use crate::support::service::{Answer, Service, make_key};
use crate::support::{Statements, TIMEOUT, wait_while};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(0x07e6));

/// A service that waits for locks as long as a test does.
async fn patient(config: HttpConfig) -> Service {
    let store = StoreConfig { lock_timeout: TIMEOUT, statement_timeout: TIMEOUT, ..StoreConfig::default() };
    Service::over(store, config).await
}

async fn until_waiting(service: &Service, count: i64) {
    wait_while!(service.stage.waiting_for_locks().await < count, "fewer wait for a lock");
}

fn objects() -> (String, Value) {
    (format!("/canvases/{OTHER}/objects/work:1/events"), json!({"main": {"name": "greet"}}))
}

/// Two of eight requests are a share: a third one of the same canvas is refused, with whatever key;
/// the other canvas is served.
#[tokio::test]
async fn a_canvas_that_holds_its_share_of_requests_leaves_the_others_theirs() {
    let config = HttpConfig { max_requests: 8, ..HttpConfig::default() };
    let service = patient(config).await;
    let keys = [service.key("one", OTHER, &Scope::ALL).await, service.key("two", OTHER, &Scope::ALL).await];
    let (path, change) = objects();
    assert_eq!(service.ask(&keys[0], Method::POST, &path, change.clone()).await.status, 202);
    let held = service.stage.hold("select from wakeq.objects for update").await;
    let asking = (0..4).map(|at| service.ask(&keys[at % 2], Method::POST, &path, change.clone()));
    let mut asking: FuturesUnordered<_> = asking.collect();
    for _ in 0..2 {
        let refused = asking.next().await.unwrap();
        assert_eq!(refused.problem(), (429, "too-many-requests".into()));
        assert_eq!(refused.headers["retry-after"], "1");
        assert!(refused.text.contains("this canvas has reached its share"), "{}", refused.text);
    }
    for _ in 0..4 {
        assert_eq!(service.post("/events", json!({"name": "greet"})).await.status, 202);
        service.get("/handlers").await.json();
    }
    held.rollback().await.unwrap();
    for _ in 0..2 {
        assert_eq!(asking.next().await.unwrap().status, 202);
    }
    drop(asking);
    service.stop().await;
}

/// Forty requests of one canvas that wait in the database hold two of its six connections, and no
/// other canvas waits for them.
#[tokio::test]
async fn a_canvas_that_holds_its_share_of_connections_leaves_the_others_theirs() {
    let service = patient(HttpConfig::default()).await;
    let key = service.key("one", OTHER, &Scope::ALL).await;
    let (path, change) = objects();
    assert_eq!(service.ask(&key, Method::POST, &path, change.clone()).await.status, 202);
    let held = service.stage.hold("select from wakeq.objects for update").await;
    let forty = join_all((0..40).map(|_| service.ask(&key, Method::POST, &path, change.clone())));
    let beside = async {
        until_waiting(&service, 2).await;
        for index in 0..20 {
            let event = json!({"name": "greet", "value": index, "id": Uuid::now_v7()});
            assert_eq!(service.post("/events", event).await.status, 202);
            let batch = json!({"events": [{"name": "greet"}]});
            assert_eq!(service.post("/events:batch", batch).await.status, 202);
            service.get("/handlers").await.json();
        }
        assert_eq!(service.stage.waiting_for_locks().await, 2, "its share, and no more");
        held.rollback().await.unwrap();
    };
    let (answers, ()) = tokio::join!(forty, beside);
    assert!(answers.iter().all(|answer| answer.status == 202));
    service.stop().await;
}

/// After a long read, the canvas's turn rests for up to two seconds if it has read much and another
/// canvas has made requests to the process, and not at all if it is alone.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_long_read_rests_beside_a_neighbour_and_not_alone() {
    let service = patient(HttpConfig::default()).await;
    let key = service.key("one", OTHER, &Scope::ALL).await;
    let read =
        async || service.ask(&key, Method::GET, &format!("/canvases/{OTHER}/handlers"), Value::Null).await;
    // How long after the end of a long read the next one is answered.
    let next_after_a_long_one = async || {
        let held = service.stage.hold("lock table wakeq.events_v2").await;
        let release = async {
            until_waiting(&service, 1).await;
            // Holding the lock this long makes the read a long one.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let released = Instant::now();
            held.rollback().await.unwrap();
            released
        };
        let (long, released) = tokio::join!(read(), release);
        long.json();
        read().await.json();
        released.elapsed()
    };
    // Seven times what the read took beyond 5 ms, less what is saved meanwhile.
    let rest = Duration::from_secs(1);
    // One success is enough: with a rest, none would be answered this soon.
    let alone = async { while next_after_a_long_one().await >= rest {} };
    tokio::time::timeout(TIMEOUT, alone).await.expect("nothing rests for nobody's sake");
    service.get("/handlers").await.json();
    let beside = async {
        // What it has saved is used up first. A single long wait may be the machine's doing.
        while next_after_a_long_one().await < rest || next_after_a_long_one().await < rest {}
    };
    tokio::time::timeout(TIMEOUT, beside).await.expect("whoever reads without end rests beside a neighbour");
    service.stop().await;
}

/// How many of ten concurrent requests are refused, each with a `retry-after`, and not before a
/// second has passed.
async fn refused_of_ten(ask: impl AsyncFn() -> Answer) -> usize {
    let begun = Instant::now();
    let asking = async || (ask().await, begun.elapsed());
    let answers = join_all((0..10).map(|_| asking())).await;
    let refused: Vec<_> = answers.iter().filter(|(answer, _)| answer.status == 429).collect();
    for (answer, after) in &refused {
        assert_eq!(answer.problem(), (429, "too-many-requests".into()));
        assert_eq!(answer.headers["retry-after"], "1");
        assert!(*after >= Duration::from_secs(1), "{after:?}");
    }
    refused.len()
}

#[tokio::test]
async fn rates_are_each_credential_s_and_each_canvas_s_own() {
    let service = Service::with(HttpConfig { credential_rate: 1, ..HttpConfig::default() }).await;
    let other = service.key("other", OTHER, &[Scope::Read]).await;
    assert!(refused_of_ten(async || service.get("/handlers").await).await > 0);
    let theirs = format!("/canvases/{OTHER}/handlers");
    assert_eq!(service.ask(&other, Method::GET, &theirs, Value::Null).await.status, 200);
    service.stop().await;

    let service = Service::with(HttpConfig { canvas_rate: 1, ..HttpConfig::default() }).await;
    let other = service.key("other", OTHER, &[Scope::Read]).await;
    let second = service.key("second", OTHER, &[Scope::Read]).await;
    let mine = format!("/canvases/{}/handlers", CanvasId::DEFAULT);
    for _ in 0..10 {
        let foreign = service.ask(&other, Method::GET, &mine, Value::Null).await;
        assert_eq!(foreign.problem(), (404, "not-found".into()), "a foreign credential uses up nothing");
    }
    assert!(service.get("/handlers").await.status.is_success());
    let keys = [&other, &second];
    let asked = std::cell::Cell::new(0);
    let ask = async || {
        asked.set(asked.get() + 1);
        service.ask(keys[asked.get() % 2], Method::GET, &theirs, Value::Null).await
    };
    assert!(refused_of_ten(ask).await > 0, "two credentials of one canvas");
    assert!(service.get("/handlers").await.status.is_success(), "the other canvas has its own");
    service.stop().await;
}

/// Each event counts towards its canvas's rate, however many come in a request; other requests do
/// not.
#[tokio::test]
async fn a_canvas_has_a_rate_in_events() {
    let service = Service::with(HttpConfig { canvas_event_rate: 10, ..HttpConfig::default() }).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = format!("/canvases/{OTHER}");
    let one = json!({"name": "greet"});
    let batch = json!({"events": vec![one.clone(); 1000]});
    let (object, change) = objects();
    let ask = async |path: &str, body: &Value| {
        service.ask(&key, Method::POST, &format!("{theirs}{path}"), body.clone()).await
    };
    assert_eq!(service.get("/handlers").await.status, 200, "it is not alone");
    let wrong = json!({"events": [{"name": "greet"}, {"name": "no name"}]});
    assert_eq!(ask("/events:batch", &wrong).await.status, 400);
    assert_eq!(ask("/events:batch", &batch).await.status, 202, "what no two seconds hold takes all of them");
    let refused = [
        ask("/events", &one).await,
        ask("/events:batch", &batch).await,
        service.ask(&key, Method::POST, &object, change).await,
    ];
    for refused in &refused {
        assert_eq!(refused.problem(), (429, "too-many-requests".into()));
        assert!(refused.text.contains("this canvas (in events)"), "{}", refused.text);
        let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((50..=100).contains(&wait), "{wait}: for its events");
    }
    assert_eq!(service.ask(&key, Method::GET, &format!("{theirs}/handlers"), Value::Null).await.status, 200);
    assert_eq!(service.post("/events:batch", batch).await.status, 202, "another canvas has its own");
    assert_eq!(service.stop().await.rows().await, 2000, "of what was refused there is nothing");
}

/// A canvas that has a process to itself is held back for nobody's sake, until another uses it.
#[tokio::test]
async fn a_lone_canvas_may_emit_more_than_its_rate_until_another_comes() {
    let config =
        HttpConfig { canvas_event_rate: 10, lone_canvas_event_rate: 10_000, ..HttpConfig::default() };
    let service = Service::with(config).await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let batch = json!({"events": vec![json!({"name": "greet"}); 500]});
    let path = format!("/canvases/{OTHER}/events:batch");
    let emit = async || service.ask(&key, Method::POST, &path, batch.clone()).await;
    for _ in 0..4 {
        assert_eq!(emit().await.status, 202);
    }
    assert_eq!(service.get("/handlers").await.status, 200);
    assert_eq!(emit().await.status, 202, "what no two seconds hold takes all of them");
    assert_eq!(emit().await.problem(), (429, "too-many-requests".into()));
    assert_eq!(service.stop().await.rows().await, 2_500);
}

/// A canvas that sends or receives more than its rate per second is refused before its body is
/// read; another one is served.
#[tokio::test]
async fn a_canvas_has_a_rate_in_bytes_of_bodies_and_answers() {
    let service = Service::with(HttpConfig { canvas_byte_rate: 8 * 1024, ..HttpConfig::default() }).await;
    let key = service.key("other", OTHER, &[Scope::Emit, Scope::Read]).await;
    let large = json!({"name": "greet", "value": "x".repeat(60_000)});
    let theirs = format!("/canvases/{OTHER}");
    let emit = async || service.ask(&key, Method::POST, &format!("{theirs}/events"), large.clone()).await;
    assert_eq!(emit().await.status, 202, "what no second holds takes a whole one");
    let refused = emit().await;
    assert_eq!(refused.problem(), (429, "too-many-requests".into()));
    assert!(refused.text.contains("this canvas (in bytes)"), "{}", refused.text);
    assert_eq!(refused.headers["connection"], "close", "its body was not read");
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 1, "for its bytes");
    let looked = service.ask(&key, Method::GET, &format!("{theirs}/handlers"), Value::Null).await;
    assert_eq!(looked.status, 429, "whatever it asks");
    assert_eq!(service.post("/events", large.clone()).await.status, 202, "another canvas");
    service.stop().await;

    let service = Service::with(HttpConfig { canvas_byte_rate: 1024, ..HttpConfig::default() }).await;
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let fill = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
        select gen_random_uuid(), $1, 'WORKER', 'greet', '_', '1' from generate_series(1, 1000)";
    sqlx::query(fill).bind(OTHER.0).execute(&service.stage.pool).await.unwrap();
    let list =
        async || service.ask(&key, Method::GET, &format!("{theirs}/events?limit=1000"), Value::Null).await;
    let first = list().await;
    assert!(first.status == 200 && first.text.len() > 100_000, "{}", first.text.len());
    assert_eq!(list().await.status, 429, "answers count as well");
    assert_eq!(service.get("/handlers").await.status, 200, "another canvas");
    service.stop().await;
}

/// The bytes that a credential for every canvas sends to one canvas count for all of them, but do
/// not use up another canvas's rate.
#[tokio::test]
async fn a_credential_has_a_rate_in_bytes_on_whatever_canvases() {
    let service = Service::with(HttpConfig { canvas_byte_rate: 8 * 1024, ..HttpConfig::default() }).await;
    let wide = make_key(&service.access, "wide", Reach::EveryCanvas, &[Scope::Emit]).await;
    let narrow = service.key("narrow", OTHER, &[Scope::Emit]).await;
    let large = json!({"name": "greet", "value": "x".repeat(60_000)});
    let emit = async |key: &str, canvas: CanvasId| {
        service.ask(key, Method::POST, &format!("/canvases/{canvas}/events"), large.clone()).await
    };
    assert_eq!(emit(&wide, CanvasId::DEFAULT).await.status, 202);
    let refused = emit(&wide, OTHER).await;
    assert_eq!(refused.problem(), (429, "too-many-requests".into()));
    assert!(refused.text.contains("this credential (in bytes)"), "{}", refused.text);
    assert_eq!(emit(&narrow, OTHER).await.status, 202);
    service.stop().await;
}

/// A valid credential is let in even from the very address that strangers flood from.
#[tokio::test]
async fn unauthenticated_requests_are_limited_by_address() {
    let service = Service::with(HttpConfig { stranger_rate: 1, ..HttpConfig::default() }).await;
    let path = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    let listen = "/v1/listen?pattern=*";
    for (method, path) in [(Method::GET, path.as_str()), (Method::GET, listen), (Method::POST, "/v1/push")] {
        let knock =
            async || Answer::of(service.request(method.clone(), path).bearer_auth("wakeq_none")).await;
        assert!(refused_of_ten(knock).await > 0, "{path}");
    }
    for _ in 0..10 {
        service.get("/handlers").await.json();
    }
    service.stop().await;
}

#[tokio::test]
async fn one_address_has_its_share_of_connections_and_a_trusted_proxy_has_all() {
    let config = HttpConfig { max_connections: 8, ..HttpConfig::default() };
    let trusting = HttpConfig { trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()], ..config.clone() };
    for (config, most) in [(config, 2), (trusting, 8)] {
        let service = Service::with(config).await;
        let mut open = Vec::new();
        for _ in 0..most {
            open.push(TcpStream::connect(service.address).await.unwrap());
        }
        let mut refused = TcpStream::connect(service.address).await.unwrap();
        let mut text = String::new();
        tokio::time::timeout(TIMEOUT, refused.read_to_string(&mut text)).await.unwrap().unwrap();
        let status = if most == 2 { "HTTP/1.1 429 " } else { "HTTP/1.1 503 " };
        assert!(text.starts_with(status) && text.contains("retry-after: 1\r\n"), "{text}");
        drop(open);
        service.stop().await;
    }
}

/// Sign-ins, reads of values and refusals are in the record of their canvas, each once with its
/// count and with the client's address, as reported by a proxy.
#[tokio::test]
async fn the_audit_log_has_sign_ins_reads_and_client_addresses() {
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let service = Service::with(HttpConfig { trusted_proxies: proxies, ..HttpConfig::default() }).await;
    let other = service.key("other", OTHER, &Scope::ALL).await;
    let id = service.stage.emit("greet").await;
    let ask = async |key: &str, canvas: CanvasId, path: &str| {
        let request = service.request(Method::GET, &format!("/v1/canvases/{canvas}{path}")).bearer_auth(key);
        Answer::of(request.header("x-forwarded-for", "1.1.1.1, 198.51.100.9")).await.status.as_u16()
    };
    for _ in 0..3 {
        assert_eq!(ask(&service.key, CanvasId::DEFAULT, &format!("/events/{id}?view=%66ull")).await, 200);
        assert_eq!(ask(&service.key, CanvasId::DEFAULT, &format!("/events/{id}")).await, 200);
        assert_eq!(ask(&service.key, CanvasId::DEFAULT, "/events").await, 200);
        assert_eq!(ask(&service.key, CanvasId::DEFAULT, "/events?value_t%65xt=x").await, 200);
        assert_eq!(ask(&other, OTHER, "/dead-events").await, 200);
        assert_eq!(ask(&other, OTHER, &format!("/events/{id}")).await, 404);
        assert_eq!(ask(&other, CanvasId::DEFAULT, "/events").await, 404);
    }
    let (mine, theirs) = (service.key[..18].to_owned(), other[..18].to_owned());
    let stage = service.stop().await;
    let lines =
        "select case when canvas_id = $1 then 'other' else 'default' end || ' ' || actor || ' ' || action
                        || ' ' || outcome || ' x' || times || ': ' || detail
                   from wakeq.audit_log where actor not in ('tests') order by canvas_id, actor, action";
    let lines: Vec<String> = sqlx::query_scalar(lines).bind(OTHER.0).fetch_all(&stage.pool).await.unwrap();
    let from = "from 198.51.100.9";
    let expected = [
        format!("default key:tests list_events done x3: with {mine} {from}"),
        format!("default key:tests show_event done x3: with {mine} {from}"),
        format!("default key:tests sign-in done x1: with {mine} {from}"),
        format!("default unauthenticated list_events refused x3: {from}; the credential of another canvas"),
        format!("other key:other list_dead_events done x3: with {theirs} {from}"),
        format!("other key:other sign-in done x1: with {theirs} {from}"),
    ];
    assert_eq!(lines, expected);
}

/// The dead events of a group have values of every canvas.
#[tokio::test]
async fn reads_of_every_canvas_are_in_the_record_of_none() {
    let service = Service::start().await;
    let key = service.wide_key("root", &[Scope::Read, Scope::Values]).await;
    for _ in 0..2 {
        assert_eq!(service.ask(&key, Method::GET, "/admin/groups/none/dead", Value::Null).await.status, 200);
    }
    let stage = service.stop().await;
    let rows = "select actor || ' ' || outcome || ' x' || times from wakeq.audit_log
                 where canvas_id is null and action = 'list_group_dead'";
    let rows: Vec<String> = stage.pool.values(rows).await;
    assert_eq!(rows, ["key:root done x2"]);
}

/// A canvas fills its share of what is recorded, with many keys and with one that has the name of
/// another canvas's: each line of that other one stands, and what the first one lost is counted.
#[tokio::test]
async fn a_canvas_uses_up_only_its_own_share_of_the_record() {
    let service = Service::start().await;
    let theirs = service.key("billing", OTHER, &[Scope::Read, Scope::Values]).await;
    let mut noisy = Vec::new();
    for holder in ["billing", "b", "c", "d", "e", "f", "g"] {
        noisy.push(service.key(holder, CanvasId::DEFAULT, &[Scope::Read, Scope::Values]).await);
    }
    let reads = ["/dead-events", "/objects/o", "/entities/t/e", "/log?category=c", "/cron", "/cron/c"];
    let refused = ["pause", "purge", "block"];
    let ask = async |key: &str, canvas: CanvasId| {
        for path in reads {
            service.ask(key, Method::GET, &format!("/canvases/{canvas}{path}"), Value::Null).await;
        }
        for name in 0..3 {
            for action in refused {
                let method = if action == "purge" { Method::POST } else { Method::PUT };
                let path = format!("/canvases/{canvas}/handlers/WORKER/h{name}/{action}");
                assert_eq!(service.ask(key, method, &path, json!({})).await.status, 403, "{path}");
            }
        }
    };
    for key in &noisy {
        ask(key, CanvasId::DEFAULT).await;
    }
    ask(&theirs, OTHER).await;
    let stage = service.stop().await;
    let of_other = async |what: &str| -> i64 {
        let sql = format!("select count(*) from wakeq.audit_log where canvas_id = $1 and {what}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(OTHER.0).fetch_one(&stage.pool).await.unwrap()
    };
    assert_eq!(of_other("actor = 'key:billing' and outcome = 'refused'").await, 9);
    assert_eq!(of_other("action in ('sign-in', 'list_dead_events', 'read_log', 'list_crons')").await, 4);
    assert_eq!(of_other("action = 'not-recorded'").await, 0);
    // However many batches they were written in.
    let counted = "select sum(times)::bigint from wakeq.audit_log
                    where canvas_id = $1 and (outcome = 'refused' or action in ('sign-in', 'not-recorded'))";
    let counted: i64 =
        sqlx::query_scalar(counted).bind(CanvasId::DEFAULT.0).fetch_one(&stage.pool).await.unwrap();
    assert_eq!(counted, 7 * 10, "a sign-in and nine refusals of each key");
}

/// What an operator does to the whole deployment is in the record of no canvas.
#[tokio::test]
async fn waking_everything_and_new_durations_are_recorded() {
    let service = Service::start().await;
    let stage = service.stop().await;
    stage.admin.wake(true).await.unwrap();
    let timing = wakeq::Timing { grace: Duration::from_secs(77), ..wakeq::Timing::default() };
    let replace = StoreConfig {
        timing: Some(timing),
        timing_mode: wakeq::database::TimingMode::Replace,
        ..StoreConfig::default()
    };
    for _ in 0..2 {
        let store = wakeq::Store::connect(stage.database.url(), crate::support::fit(replace.clone())).await;
        store.unwrap().close().await;
    }
    let rows = "select action || ' ' || coalesce(detail, '') from wakeq.audit_log
                 where canvas_id is null and actor like 'database:%' order by id";
    let rows: Vec<String> = stage.pool.values(rows).await;
    assert_eq!(rows, ["wake-all ", "set-timing grace 77000000 us"]);
}
