//! `emit-http`: the API, in a process of its own, and 32 connections that emit an event a request,
//! each as soon as its last one was answered. Its clients are in this process.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use wakeq::notify::{PubSubConfig, create_topics};
use wakeq::{CanvasId, Store};
use wakeq_testbed::{ChildProcess, Guard, Launch, free_port};

use crate::latency::Percentiles;
use crate::meter::Meter;
use crate::phases::{Measured, WARMING};
use crate::report::Unit;
use crate::server::Server;
use crate::subject::{Kind, LIVE, Payload, WARM};

const CONNECTIONS: usize = 32;
/// A second, for one client: more than it can send.
const NO_LIMIT: &str = "1000000";
const NO_LIMIT_BYTES: &str = "1000000000";
/// Longer answers are recorded as this one: a minute.
const LONGEST_US: u64 = 60_000_000;
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

// Not a doc comment: clap would take it for what the command does.
#[derive(clap::Args)]
pub(crate) struct Program {
    /// The program of the API, for `emit-http`.
    #[arg(long, value_name = "FILE")]
    api: Option<PathBuf>,
}

impl Program {
    pub(crate) fn is_given(&self) -> bool {
        self.api.is_some()
    }

    /// Over Postgres as the notifier, or our emulator.
    pub(crate) async fn trial(
        &self,
        server: &Server,
        database: &str,
        kind: Kind,
        count: u64,
    ) -> Result<Measured> {
        let program = self.api.as_deref().context("`emit-http` needs the program: use `--api`")?;
        Store::migrate(&server.url(database), false).await?;
        let topic = PubSubConfig {
            topic: database.to_owned(),
            subscription: database.to_owned(),
            emulator_host: Some(server.emulator()),
            ..PubSubConfig::new("bench")
        };
        create_topics(&topic).await?;
        let key = key(program, &server.url(database))?;
        let api = Api::start(program, server, database, kind).await?;
        let request = request(api.port, &key)?;
        emit(api.port, &request, WARMING).await?;
        let meter = Meter::of_program(server, database, api.process.pid());
        let running = meter.start().await?;
        let latencies = emit(api.port, &request, count).await?;
        let usage = running.stop().await?;
        api.process.stop(PATIENCE).await?;
        let millis = |quantile| latencies.value_at_quantile(quantile) as f64 / 1_000.0;
        let (p50_ms, p99_ms, max_ms) = (millis(0.5), millis(0.99), millis(1.0));
        let latency = Some(Percentiles { p50_ms, p99_ms, max_ms });
        Ok(Measured { count: count as f64, unit: Unit::Event, usage, latency })
    }
}

/// A running API.
struct Api {
    process: ChildProcess,
    port: u16,
}

impl Api {
    async fn start(program: &Path, server: &Server, database: &str, kind: Kind) -> Result<Self> {
        let port = free_port()?;
        let mut launch = Launch::new(program)
            .argument("serve")
            .environment("DATABASE_URL", server.url(database))
            .environment("PUBSUB_EMULATOR_HOST", server.emulator())
            .environment("GOOGLE_CLOUD_PROJECT", "bench")
            .environment("WAKEQ_NOTIFIER", if kind == Kind::Postgres { "postgres" } else { "pubsub" })
            .environment("WAKEQ_TOPIC", database)
            .environment("WAKEQ_SUBSCRIPTION", database)
            .environment("WAKEQ_LISTEN", "127.0.0.1")
            .environment("PORT", port.to_string())
            .environment("WAKEQ_SHARE", "100")
            .environment("WAKEQ_CANVAS_BYTE_RATE", NO_LIMIT_BYTES)
            .environment("RUST_LOG", "warn");
        for rate in ["CREDENTIAL_RATE", "CANVAS_RATE", "CANVAS_EVENT_RATE"] {
            launch = launch.environment(format!("WAKEQ_{rate}"), NO_LIMIT);
        }
        let process = Guard::new(None)?.start(launch)?;
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            ensure!(process.is_running(), "the API has ended:\n{}", process.last_lines());
            ensure!(Instant::now() < deadline, "the API does not listen:\n{}", process.last_lines());
            tokio::time::sleep(LOOK).await;
        }
        Ok(Self { process, port })
    }
}

/// A key that may emit.
fn key(program: &Path, url: &str) -> Result<String> {
    let created = Command::new(program)
        .args(["keys", "create", "bench", "--scope", "emit"])
        .env("DATABASE_URL", url)
        .output()
        .with_context(|| format!("{} can't be started", program.display()))?;
    ensure!(created.status.success(), "no key: {}", String::from_utf8_lossy(&created.stderr));
    Ok(String::from_utf8(created.stdout)?.trim().to_owned())
}

fn request(port: u16, key: &str) -> Result<String> {
    let payload = serde_json::to_string(&Payload::new(WARM))?;
    let body = format!(r#"{{"name":"{LIVE}","value":{payload}}}"#);
    let (canvas, length) = (CanvasId::DEFAULT, body.len());
    Ok(format!(
        "POST /v1/canvases/{canvas}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\
         authorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    ))
}

/// Sends so many requests over all connections, and returns how long each took, in microseconds.
async fn emit(port: u16, request: &str, count: u64) -> Result<Histogram<u64>> {
    let (next, request): (_, Arc<str>) = (Arc::new(AtomicU64::new(0)), request.into());
    let start = |_| {
        let (next, request) = (Arc::clone(&next), Arc::clone(&request));
        tokio::spawn(async move {
            let mut connection = BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?);
            let mut latencies = Histogram::new_with_max(LONGEST_US, 3)?;
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let sent = Instant::now();
                connection.write_all(request.as_bytes()).await?;
                answer(&mut connection).await?;
                latencies.saturating_record(sent.elapsed().as_micros() as u64);
            }
            anyhow::Ok(latencies)
        })
    };
    let clients: Vec<_> = (0..CONNECTIONS).map(start).collect();
    let mut latencies = Histogram::new_with_max(LONGEST_US, 3)?;
    for client in clients {
        latencies.add(client.await??)?;
    }
    Ok(latencies)
}

/// Reads an answer, which has to be that of an event that was emitted.
async fn answer(connection: &mut BufReader<TcpStream>) -> Result<()> {
    let (mut status, mut length) = (String::new(), 0);
    connection.read_line(&mut status).await?;
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse()?,
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    if !status.starts_with("HTTP/1.1 202 ") {
        bail!("an event was refused: {status}{}", String::from_utf8_lossy(&body));
    }
    Ok(())
}
