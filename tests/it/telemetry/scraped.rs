//! Metrics as Prometheus scrapes them, and where there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use aws_lc_rs::hmac;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::queues::{NewQueue, PullPolicy};
use wakeq::{Actor, CanvasId, Event, HandlerScope, Timing};
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};

use super::{Client, ObservedDeployment};
use crate::processes::work::Process;
use crate::support::service::make_key;
use crate::support::{OTHER, TIMEOUT, connect, database, quick};

pub(super) const ANY_PORT: [(&str, &str); 1] = [("WAKEQ_METRICS_LISTEN", "127.0.0.1:0")];

/// Metrics that the binary alone does not have: programs with consumers or entities have them, as
/// their own tests show, and canvases close to a quota, or with a limit in use.
const OF_PROGRAMS: [&str; 23] = [
    "wakeq_consumer_dead_total",
    "wakeq_consumer_events_total",
    "wakeq_consumer_refused_total",
    "wakeq_entity_aside",
    "wakeq_entity_batch_duration_seconds_bucket",
    "wakeq_entity_decided_total",
    "wakeq_entity_evicted_total",
    "wakeq_entity_loaded_total",
    "wakeq_entity_memory_bytes",
    "wakeq_entity_stalled_total",
    "wakeq_entity_warm_up_duration_seconds_bucket",
    "wakeq_entity_warming",
    "wakeq_group_allocations_refused_total",
    "wakeq_group_allocations_total",
    "wakeq_group_coordinator_term",
    "wakeq_group_lag",
    "wakeq_group_nodes",
    "wakeq_group_owned",
    "wakeq_group_sources",
    "wakeq_limit_running",
    "wakeq_limit_waiting",
    "wakeq_log_holders",
    "wakeq_quota_used_ratio",
];

/// The address of the metrics that the process printed.
pub(super) fn address(process: &Process) -> Option<String> {
    let said = process.child.last_lines();
    said.lines().find_map(|line| line.split("metrics are at ").nth(1)).map(|url| url.trim().to_owned())
}

/// Scrapes a URL: the value of each series, by its name with its labels.
pub(super) async fn scrape(url: &str) -> BTreeMap<String, f64> {
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
    let answer = client.get(url).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text().await.unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    series
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
        })
        .collect()
}

/// The metrics that the alert rules and the dashboard read.
fn names_in_deploy() -> BTreeSet<String> {
    let folder = crate::support::repository::root().join("deploy");
    let rules = fs::read_to_string(folder.join("prometheus/alerts.yaml")).unwrap();
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("grafana/wakeq.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let expressions = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let text =
        expressions.map(|target| target["expr"].as_str().unwrap()).collect::<Vec<_>>().join("\n") + &rules;
    let words = text.split(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
    let labels = [
        "messaging_system",
        "messaging_destination_name",
        "messaging_destination_subscription_name",
        "messaging_operation_name",
        "messaging_consumer_group_name",
        "wakeq_entity_type",
        "wakeq_entity_outcome",
        "wakeq_log_holder",
    ];
    let ours = ["wakeq_", "messaging_", "http_server_"];
    words
        .filter(|word| ours.iter().any(|start| word.starts_with(start)))
        .filter(|word| !labels.contains(word))
        .map(str::to_owned)
        .collect()
}

/// A queue for workers and one that services lease from, each with a copy; the copy of the second
/// is leased.
async fn use_queues(whole: &ObservedDeployment) {
    for (name, pull) in [("worked", None), ("leased", Some(PullPolicy::default()))] {
        let patterns = vec![":copies:".parse().unwrap()];
        let queue = NewQueue { patterns, pull, ..NewQueue::default() };
        whole.stage.admin.put_queue(&name.parse().unwrap(), &queue, &Actor::user("tests")).await.unwrap();
    }
    let copied = json!({"module": "copies", "name": "copied", "only_queues": true});
    whole.client.ask(Method::POST, "/events", None, copied).await;
    let access = Access::new(whole.stage.store.clone(), AccessConfig::default()).unwrap();
    let key =
        make_key(&access, "puller", Reach::EveryCanvas, &[Scope::Operate, Scope::Read, Scope::Values]).await;
    let path = format!("{}/v1/admin/queues/leased/copies/lease", whole.client.origin);
    let leased =
        whole.client.http.post(path).bearer_auth(key).json(&json!({"wait_s": 20})).send().await.unwrap();
    let leased: Value = leased.json().await.unwrap();
    assert_eq!(leased["copies"].as_array().map(Vec::len), Some(1), "{leased}");
}

/// Everything that the alert rules and the dashboard read exists under those names; nothing names a
/// canvas, an event or a URL.
// Shows: TELEMETRY-02
#[tokio::test]
async fn every_metric_of_alerts_and_dashboard_exists() {
    let broadcasting = [ANY_PORT[0], ("WAKEQ_BROADCAST", "1")];
    let mut whole =
        ObservedDeployment::start(&broadcasting, json!({"retries": 1, "delay_s": 0.01, "on_death": "halt"}))
            .await;
    let url = address(&whole.process).unwrap();
    let on_an_object = json!({"name": "greet", "object": "work:1"});
    let answer = whole.client.ask(Method::POST, "/events", None, on_an_object).await;
    let mut ids = vec![answer["id"].as_str().unwrap().to_owned()];
    for _ in 0..2 {
        whole.receiver.next().await.answer("500 Internal Server Error", &[]);
    }
    ids.push(whole.client.emit("greet", None).await);
    whole.receiver.next().await.answer("200 OK", &[]);
    ids.push(whole.client.emit("nobody", None).await);
    use_queues(&whole).await;
    let seen = async {
        loop {
            let series = scrape(&url).await;
            let processed = series.iter().filter(|(name, _)| {
                name.starts_with("messaging_process_duration_seconds_count{") && name.contains("WORKER/greet")
            });
            let ended: f64 = processed.map(|(_, value)| value).sum();
            let dead = "wakeq_events_dead_total{cause=\"retries\",handler=\"WORKER/greet\"}";
            let waits = "wakeq_handler_depth{handler=\"WORKER/nobody\"}";
            let halted = "wakeq_handler_halted{handler=\"WORKER/greet\"}";
            let copies = "wakeq_queue_depth{queue=\"worked\"}";
            let gauged = [waits, halted, copies].iter().all(|name| series.get(*name) == Some(&1.0));
            if ended == 3.0 && series.contains_key(dead) && gauged {
                return series;
            }
        }
    };
    let series = tokio::time::timeout(TIMEOUT, seen).await.expect("the runs are not counted");
    let families: BTreeSet<&str> = series.keys().map(|name| name.split('{').next().unwrap()).collect();
    let missing: Vec<String> =
        names_in_deploy().into_iter().filter(|name| !families.contains(name.as_str())).collect();
    assert_eq!(missing, OF_PROGRAMS, "{families:#?}");
    let value = |name: &str| series.get(name).copied();
    assert_eq!(value("wakeq_handler_retries_total{handler=\"WORKER/greet\"}"), Some(1.0));
    assert_eq!(value("wakeq_events_dead_total{cause=\"retries\",handler=\"WORKER/greet\"}"), Some(1.0));
    assert_eq!(value("wakeq_notifier_up"), Some(1.0));
    assert!(value("wakeq_handler_oldest_seconds{handler=\"WORKER/nobody\"}").is_some());
    assert_eq!(value("wakeq_run_outcomes_total{outcome=\"RetryTooMany\"}"), Some(1.0));
    let text = series.keys().cloned().collect::<Vec<_>>().join("\n");
    for secret in ids.iter().map(String::as_str).chain(["00000000-0000", &whole.receiver.url, "127.0.0.1"]) {
        assert!(!text.contains(secret), "{secret} is among the labels:\n{text}");
    }
    let route = "http_route=\"/v1/canvases/{canvas}/events\"";
    assert!(
        text.lines()
            .any(|name| name.starts_with("http_server_request_duration_seconds") && name.contains(route))
    );
    assert_eq!(whole.process.stop().await, Some(0));
}

/// The outcomes of copies in a pulled queue are counted, and deaths are in the same metric as those
/// of workers, for the same alerts.
// Shows: DRV-27
#[tokio::test]
async fn deaths_of_pulled_copies_are_counted() {
    let whole = ObservedDeployment::start(&ANY_PORT, json!({"retries": 1})).await;
    let url = address(&whole.process).unwrap();
    let (queue, pull) = ("emails".parse().unwrap(), PullPolicy { retries: 0, ..PullPolicy::default() });
    let patterns = vec![":email_event:".parse().unwrap()];
    let new = NewQueue { patterns, pull: Some(pull), ..NewQueue::default() };
    whole.stage.admin.put_queue(&queue, &new, &Actor::user("tests")).await.unwrap();
    let access =
        Access::new(connect(whole.stage.database.url(), quick()).await, AccessConfig::default()).unwrap();
    let key =
        make_key(&access, "puller", Reach::EveryCanvas, &[Scope::Operate, Scope::Read, Scope::Values]).await;
    let ask = async |path: &str, body: Value| {
        let url = format!("{}/v1/admin/queues/emails/copies/{path}", whole.client.origin);
        whole.client.http.post(url).bearer_auth(&key).json(&body).send().await.unwrap()
    };
    let emit = async || {
        let event = json!({"module": "email_event", "name": "opened", "value": 1, "only_queues": true});
        whole.client.ask(Method::POST, "/events", None, event).await;
    };
    let lease = async || -> Value {
        let mut leased: Value = ask("lease", json!({})).await.json().await.unwrap();
        leased["copies"].take()
    };
    let ends = async |verb: &str, mut body: Value| {
        emit().await;
        let copy = lease().await[0].take();
        body["lease"] = copy["lease"].clone();
        let answer = ask(&format!("{}/{verb}", copy["id"].as_str().unwrap()), body).await;
        assert!(answer.status().is_success(), "{answer:?}");
    };
    ends("complete", json!({})).await;
    ends("release", json!({"error": "no route"})).await;
    emit().await;
    for _ in 0..5 {
        assert_eq!(lease().await.as_array().unwrap().len(), 1);
        let past = "update wakeq.events_v2 set locked_at = now() - interval '2 h' where queue = 'emails'";
        sqlx::query(past).execute(&whole.stage.pool).await.unwrap();
    }
    assert_eq!(lease().await, json!([]), "its leases ran out too often");
    let series = scrape(&url).await;
    let dead = |cause: &str| {
        let name = format!("wakeq_events_dead_total{{cause=\"{cause}\",handler=\"email_event/opened\"}}");
        series.get(&name).copied()
    };
    assert_eq!((dead("retries"), dead("poison")), (Some(1.0), Some(1.0)));
    for (outcome, count) in [("leased", 7.0), ("completed", 1.0), ("died", 2.0)] {
        let name = format!("wakeq_queue_pulls_total{{outcome=\"{outcome}\",queue=\"emails\"}}");
        assert_eq!(series.get(&name).copied(), Some(count), "{outcome}");
    }
}

/// So are deaths of events of pulled handlers; those of another canvas are not leased.
#[tokio::test]
async fn deaths_of_pulled_events_are_counted() {
    let whole = ObservedDeployment::start(&ANY_PORT, json!({})).await;
    let url = address(&whole.process).unwrap();
    let past = whole.stage.admin.clock().await.unwrap() - TIMEOUT;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let mail = HandlerScope::worker(canvas, "mail").unwrap();
        whole.stage.admin.put_pulled(&mail, &PullPolicy::default(), &Actor::user("tests")).await.unwrap();
        let late = Event::new("mail", &1).unwrap().not_after(past).unwrap().canvas(canvas);
        whole.stage.queue.emit(late).await.unwrap();
    }
    let leased = whole.client.ask(Method::POST, "/handlers/WORKER/mail/leases", None, json!({})).await;
    assert_eq!(leased["events"], json!([]));
    let series = scrape(&url).await;
    let dead = "wakeq_events_dead_total{cause=\"expired\",handler=\"WORKER/mail\"}";
    assert_eq!(series.get(dead).copied(), Some(1.0), "{series:#?}");
}

/// Handlers that have a target or are pulled have names, on whichever canvas, beside more invented
/// names with more events than a metric shows.
#[tokio::test]
async fn registered_handlers_are_named_beside_invented_ones() {
    let whole = ObservedDeployment::start(&ANY_PORT, json!({})).await;
    let url = address(&whole.process).unwrap();
    let made_up = (0..480).map(|index| Event::new(&format!("made-up-{}", index % 240), &1).unwrap());
    whole.stage.queue.emit_all(made_up.collect()).await.unwrap();
    for (canvas, name) in [(CanvasId::DEFAULT, "mail"), (OTHER, "post")] {
        let pulled = HandlerScope::worker(canvas, name).unwrap();
        whole.stage.admin.put_pulled(&pulled, &PullPolicy::default(), &Actor::user("tests")).await.unwrap();
        whole.stage.queue.emit(Event::new(name, &1).unwrap().canvas(canvas)).await.unwrap();
    }
    let series = scrape(&url).await;
    let named = |start: &str| series.keys().filter(|name| name.starts_with(start)).count();
    assert_eq!(named("wakeq_handler_depth{handler=\"WORKER/made-up-"), 200);
    for (name, value) in [("WORKER/mail", 1.0), ("WORKER/post", 1.0), ("other", 80.0)] {
        let depth = format!("wakeq_handler_depth{{handler=\"{name}\"}}");
        assert_eq!(series.get(&depth).copied(), Some(value), "{series:#?}");
    }
}

/// Webhooks are counted by what became of them, and under no name that a stranger can choose.
#[tokio::test]
async fn webhooks_are_counted() {
    const SECRET: &str = "It's_a_Secret_to_Everybody";
    let whole = ObservedDeployment::start(&ANY_PORT, json!({})).await;
    let url = address(&whole.process).unwrap();
    let (http, hooks) =
        (&whole.client.http, format!("{}/v1/canvases/{}/hooks", whole.client.origin, CanvasId::DEFAULT));
    let hook = json!({"kind": "github", "handler": {"name": "greet"}, "secret": SECRET});
    let put = http.put(format!("{hooks}/pushes")).bearer_auth(&whole.client.key).json(&hook);
    assert_eq!(put.send().await.unwrap().status(), StatusCode::CREATED);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), b"{}");
    let right: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let wrong = "0".repeat(64);
    for (hook, signature, expected) in [
        ("pushes", Some(&right), StatusCode::ACCEPTED),
        ("pushes", Some(&wrong), StatusCode::UNAUTHORIZED),
        ("pushes", Some(&wrong), StatusCode::UNAUTHORIZED),
        ("s3cr3t", Some(&right), StatusCode::UNAUTHORIZED),
        ("pushes", None, StatusCode::UNAUTHORIZED),
    ] {
        let request = http.post(format!("{hooks}/{hook}")).header("x-github-delivery", "1").body("{}");
        let signed = signature.map(|signature| format!("sha256={signature}"));
        let request =
            signed.into_iter().fold(request, |request, signed| request.header("x-hub-signature-256", signed));
        assert_eq!(request.send().await.unwrap().status(), expected, "{hook}");
    }
    let series = scrape(&url).await;
    for (outcome, count) in [("accepted", 1.0), ("refused", 2.0), ("unknown", 1.0), ("unsigned", 1.0)] {
        let name = format!("wakeq_webhooks_total{{outcome=\"{outcome}\"}}");
        assert_eq!(series.get(&name).copied(), Some(count), "{outcome}");
    }
    assert!(series.keys().all(|name| !name.contains("s3cr3t")));
}

/// That port answers only `GET /metrics`, and the API's own port serves no metrics.
#[tokio::test]
async fn the_listener_serves_nothing_else_and_the_api_no_metrics() {
    let database = database().await;
    let mut process = Process::stock(
        "serve",
        database.url(),
        None,
        &[ANY_PORT[0], ("PORT", "0"), ("WAKEQ_NOTIFIER", "local")],
    );
    let client = Client::of(&mut process, &database, Timing::default()).await;
    let url = address(&process).unwrap();
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status();
    assert_eq!(status(client.http.get(&url)).await, StatusCode::OK);
    assert_eq!(status(client.http.post(&url)).await, StatusCode::METHOD_NOT_ALLOWED);
    for path in ["/", "/livez", "/v1/canvases", "/metrics/x"] {
        let other = url.replace("/metrics", path);
        assert_eq!(status(client.http.get(other)).await, StatusCode::NOT_FOUND, "{path}");
    }
    // A page of any site can give its name this address.
    let renamed = client.http.get(&url).header("host", "evil.example:9464");
    assert_eq!(status(renamed).await, StatusCode::FORBIDDEN);
    let long = "x".repeat(20_000);
    let refused = client.http.get(&url).header("x-long", long).send().await.unwrap().status();
    assert_eq!(refused, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert_eq!(status(client.http.get(format!("{}/metrics", client.origin))).await, StatusCode::NOT_FOUND);
    assert_eq!(process.stop().await, Some(0));
}

/// A port in use ends the process only if that port was configured.
#[tokio::test]
async fn a_port_in_use_fails_only_if_it_was_configured() {
    // It may be taken by this test or by another process.
    let taken = tokio::net::TcpListener::bind("127.0.0.1:9464").await;
    let database = database().await;
    let local = [("PORT", "0"), ("WAKEQ_NOTIFIER", "local")];
    let mut process = Process::stock("serve", database.url(), None, &local);
    if taken.is_ok() {
        process.says("no metrics can be scraped from this process: another one has 127.0.0.1:9464").await;
    }
    process.says("serving the API").await;
    assert_eq!(process.stop().await, Some(0));

    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let asked = [local[0], local[1], ("WAKEQ_METRICS_LISTEN", address.as_str())];
    let mut process = Process::stock("serve", database.url(), None, &asked);
    process.says(&format!("can't serve metrics on {address}")).await;
    assert_eq!(process.ends("").await.0, Some(1));
}

/// With telemetry off the process does not listen, and prints nothing about it.
#[tokio::test]
async fn telemetry_off_does_not_listen() {
    let database = database().await;
    let off = [("PORT", "0"), ("WAKEQ_NOTIFIER", "local"), ("WAKEQ_TELEMETRY", "off"), ANY_PORT[0]];
    let mut process = Process::stock("serve", database.url(), None, &off);
    process.says("serving the API").await;
    assert_eq!(address(&process), None);
    let sockets = fs::read_dir(format!("/proc/{}/fd", process.child.pid())).unwrap();
    let sockets = sockets.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let own: BTreeSet<String> = sockets.map(|link| link.display().to_string()).collect();
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", process.child.pid())).unwrap();
    let listens = table.lines().skip(1).filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[3] == "0A" && own.contains(&format!("socket:[{}]", fields[9]))
    });
    assert_eq!(listens.count(), 1, "the API, and nothing else");
    assert_eq!(process.stop().await, Some(0));

    let both = [("WAKEQ_TELEMETRY", "off,otlp")];
    let mut process = Process::stock("serve", database.url(), None, &both);
    process.says("combines `off` with something else").await;
    assert_ne!(process.ends("").await.0, Some(0));
}
