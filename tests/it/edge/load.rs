//! The service as a process, under load: figures for `cargo xtask edge`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use uuid::Uuid;
use wakeq::CanvasId;

use super::process::Process;
use super::worst::percentile;

const REQUESTS: usize = 10_000;
const SLOW: usize = 1000;
/// Requests of a normal client, without and with the slow ones.
const ASKED: usize = 4000;

fn plain(url: &str) -> String {
    url.to_owned()
}

/// A mix of requests, most of them good.
fn mixed(process: &Process, index: usize) -> RequestBuilder {
    let missing = format!("/events/{}", Uuid::new_v4());
    match index % 8 {
        0..3 => process
            .on_canvas(Method::POST, "/events")
            .json(&json!({"name": "greet", "value": "x".repeat(index % 4000)})),
        3 => process
            .on_canvas(Method::POST, "/events:batch")
            .json(&json!({"events": vec![json!({"name": "greet"}); 20]})),
        4 => process.on_canvas(Method::GET, "/handlers"),
        5 => process.on_canvas(Method::GET, "/events?limit=50"),
        6 => process.on_canvas(Method::GET, &missing),
        _ => process
            .request(Method::GET, "/v1/canvases/x/handlers")
            .bearer_auth(format!("wakeq_{index:012x}_{}", "0".repeat(80))),
    }
}

async fn ten_thousand(process: &Process) {
    let asking = stream::iter(0..REQUESTS).map(async |index| {
        let answer = mixed(process, index).send().await.unwrap();
        let status = answer.status();
        answer.bytes().await.unwrap();
        assert!(!status.is_server_error(), "{status}");
    });
    asking.buffer_unordered(32).collect::<()>().await;
}

#[tokio::test]
#[ignore = "twice 10,000 requests: `cargo xtask edge` runs it"]
async fn memory_does_not_grow_with_requests() {
    let process = Process::start(&[], plain).await;
    ten_thousand(&process).await;
    let first = process.resident_kib();
    ten_thousand(&process).await;
    let second = process.resident_kib();
    let ratio = second as f64 / first as f64;
    println!(
        "resident after {REQUESTS} requests: {first} KiB; after as many more: {second} KiB; ratio {ratio:.3}"
    );
    process.stop().await;
    assert!(ratio <= 1.1, "memory grows with requests");
}

/// Durations of requests that a normal client makes one after the other, sorted.
async fn durations(process: &Process) -> Vec<Duration> {
    let mut durations = Vec::with_capacity(ASKED);
    for index in 0..ASKED {
        let request = match index % 2 {
            0 => process.on_canvas(Method::GET, "/handlers"),
            _ => process.on_canvas(Method::POST, "/events").json(&json!({"name": "greet", "value": index})),
        };
        let begin = Instant::now();
        let answer = request.send().await.unwrap();
        let status = answer.status();
        answer.bytes().await.unwrap();
        durations.push(begin.elapsed());
        assert!(status.is_success(), "{status}");
    }
    durations.sort();
    durations
}

/// Half of the clients send a header slowly, a quarter a body, and a quarter read an answer slowly.
async fn slow(address: SocketAddr, key: String, index: usize, open: Arc<AtomicUsize>) {
    let canvas = CanvasId::DEFAULT;
    let start = match index % 4 {
        0 | 1 => "GET /livez HTTP/1.1\r\nx-slow: ".to_owned(),
        2 => format!(
            "POST /v1/canvases/{canvas}/events HTTP/1.1\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: 200000\r\n\r\n{{"
        ),
        _ => "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: x\r\n\r\n".repeat(8),
    };
    loop {
        // If it is refused, it comes again after a second; if it is cut off, at once.
        let Ok(mut stream) = TcpStream::connect(address).await else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        open.fetch_add(1, Ordering::Relaxed);
        if stream.write_all(start.as_bytes()).await.is_ok() {
            let mut byte = [0];
            loop {
                // A slow client transfers one byte per second.
                tokio::time::sleep(Duration::from_secs(1)).await;
                let moved =
                    if index % 4 == 3 { stream.read(&mut byte).await } else { stream.write(b"a").await };
                if !matches!(moved, Ok(moved) if moved > 0) {
                    break;
                }
            }
        }
        open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a thousand slow connections: `cargo xtask edge` runs it"]
async fn slow_connections_do_not_delay_other_clients() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // The process has to raise its own limit.
    setrlimit(Resource::RLIMIT_NOFILE, 512.min(hard), hard).unwrap();
    let process = Process::start(&[("WAKEQ_SHARE", "100")], plain).await;
    setrlimit(Resource::RLIMIT_NOFILE, 8192.min(hard), hard).unwrap();
    durations(&process).await;
    let without = durations(&process).await;
    let open = Arc::new(AtomicUsize::new(0));
    let address: SocketAddr = process.address.parse().unwrap();
    let mut connections = JoinSet::new();
    for index in 0..SLOW {
        connections.spawn(slow(address, process.key.clone(), index, Arc::clone(&open)));
    }
    while open.load(Ordering::Relaxed) < SLOW {
        // A thousand tasks count up; none of them knows that it is the last.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let with = durations(&process).await;
    let still = open.load(Ordering::Relaxed);
    connections.shutdown().await;
    let (before, during) = (percentile(&without, 990), percentile(&with, 990));
    println!(
        "a normal client, {ASKED} requests: p50 {:?} and p99 {before:?} alone; p50 {:?} and p99 {during:?} beside {still} slow \
         connections",
        percentile(&without, 500),
        percentile(&with, 500)
    );
    process.stop().await;
    assert!(still >= SLOW * 9 / 10, "only {still} were open at the end");
    assert!(during <= 3 * before, "the slow ones slow others down");
}

/// Property-based requests from the document, by a tool that knows nothing of this code.
#[tokio::test]
#[ignore = "needs schemathesis: `cargo xtask edge` installs it and runs this"]
async fn schemathesis_finds_nothing() {
    let program =
        PathBuf::from(std::env::var_os("WAKEQ_SCHEMATHESIS").expect("`cargo xtask edge` says where it is"));
    let examples = std::env::var("WAKEQ_SCHEMATHESIS_EXAMPLES").unwrap_or_else(|_| "500".to_owned());
    let process = Process::start(&[("WAKEQ_STRANGER_RATE", "100000")], plain).await;
    let status = tokio::process::Command::new(program)
        .arg("--config-file")
        .arg(crate::support::repository::root().join("tests/edge/schemathesis.toml"))
        .arg("run")
        .arg(format!("http://{}/openapi.json", process.address))
        .args(["--header", &format!("Authorization: Bearer {}", process.key)])
        .args(["--max-examples", &examples, "--workers", "1", "--seed", "1"])
        .args(["--suppress-health-check", "all"])
        .args(["--phases", "examples,coverage,fuzzing,stateful", "--continue-on-failure"])
        .args(["--request-timeout", "30"])
        .env("PYTHONWARNINGS", "ignore")
        // It leaves files where it runs.
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .status()
        .await
        .unwrap();
    let lines = process.stop().await;
    let defects: Vec<_> = lines.iter().filter(|line| line.contains("ERROR")).collect();
    assert!(defects.is_empty(), "{defects:?}");
    assert!(status.success(), "schemathesis found something");
}
