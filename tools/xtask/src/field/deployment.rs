//! A private Postgres, and on it one deployment of the release binary: its commands, its processes
//! and its tables.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::postgres::{PgPool, PgPoolOptions};
use wakeq_testbed::{ChildProcess, Cluster, ClusterOptions, Guard, Launch, free_port};

use super::until;
use crate::http;

pub(super) const NIL: &str = "00000000-0000-0000-0000-000000000000";
pub(super) const OTHER: &str = "77777777-7777-4777-8777-777777777777";
/// Events per request.
const BATCH: usize = 1_000;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The database is called `field`, and its owner is `postgres`.
pub(super) struct Site {
    cluster: Cluster,
    guard: Guard,
    program: PathBuf,
    key: OnceLock<String>,
    pub(super) pool: PgPool,
}

/// A process of the binary.
pub(super) struct Server {
    pub(super) child: ChildProcess,
    pub(super) port: u16,
    key: String,
}

impl Site {
    /// Starts the cluster and migrates the database.
    pub(super) async fn new() -> Result<Self> {
        let cluster = Cluster::start(ClusterOptions::default()).await?;
        let admin = PgPoolOptions::new().max_connections(1).connect(&cluster.url("postgres")).await?;
        sqlx::query("create database field").execute(&admin).await?;
        admin.close().await;
        let pool = PgPoolOptions::new().max_connections(8).connect(&cluster.url("field")).await?;
        let program = crate::bench::target().join("release/wakeq");
        let site = Self { cluster, guard: Guard::new(None)?, program, key: OnceLock::new(), pool };
        site.command(&["migrate"])?;
        Ok(site)
    }

    /// The database's address, for connections past the deployment.
    pub(super) fn url(&self) -> String {
        self.cluster.url("field")
    }

    pub(super) fn port(&self) -> u16 {
        self.cluster.port()
    }

    /// The process id of the server, whose children serve its connections.
    pub(super) fn postmaster(&self) -> u32 {
        self.cluster.pid()
    }

    /// Runs a command on the database; returns what it printed.
    pub(super) fn command(&self, arguments: &[&str]) -> Result<String> {
        self.command_with(arguments, &[])
    }

    /// Like [`Site::command`], with more settings, which go before the usual ones.
    pub(super) fn command_with(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).envs(environment(&self.url())).envs(settings.iter().copied());
        let output =
            command.output().with_context(|| format!("{} can't be started", self.program.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "wakeq {arguments:?}: {errors}");
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Starts the API and a worker in one process; returns once it serves.
    pub(super) async fn start(&self, settings: &[(&str, &str)]) -> Result<Server> {
        self.start_on(&self.url(), settings).await
    }

    /// Starts the API alone; returns once it serves.
    pub(super) async fn serve(&self, settings: &[(&str, &str)]) -> Result<Server> {
        self.start_as("serve", &self.url(), settings).await
    }

    /// Like [`Site::start`], with the database at another address.
    pub(super) async fn start_on(&self, url: &str, settings: &[(&str, &str)]) -> Result<Server> {
        self.start_as("all", url, settings).await
    }

    async fn start_as(&self, command: &str, url: &str, settings: &[(&str, &str)]) -> Result<Server> {
        let port = free_port()?;
        let mut launch = Launch::new(&self.program).argument(command);
        let (port_text, metrics) = (port.to_string(), format!("127.0.0.1:{}", free_port()?));
        let own = [("PORT", port_text.as_str()), ("WAKEQ_METRICS_LISTEN", metrics.as_str())];
        for (name, value) in
            environment(url).into_iter().chain(own.into_iter().chain(settings.iter().copied()).map(owned))
        {
            launch = launch.environment(name, value);
        }
        let child = self.guard.start(launch)?;
        let server = Server { child, port, key: self.key()? };
        let serves = until(READY_WITHIN, async || {
            ensure!(server.child.is_running(), "it ended: {}", server.child.last_lines());
            Ok(http::get(port, "/readyz", "").await.is_ok_and(|answer| answer.status == 200))
        });
        ensure!(serves.await?, "it did not get ready: {}", server.child.last_lines());
        Ok(server)
    }

    /// Starts another program of the release build on the database.
    pub(super) fn start_program(&self, name: &str) -> Result<ChildProcess> {
        let program = crate::bench::target().join("release").join(name);
        Ok(self.guard.start(Launch::new(program).environment("DATABASE_URL", self.url()))?)
    }

    /// The key of all its processes.
    fn key(&self) -> Result<String> {
        let create = "keys create field --all-canvases --scope emit --scope read --scope operate";
        if let Some(key) = self.key.get() {
            return Ok(key.clone());
        }
        let created = self.command(&create.split(' ').collect::<Vec<_>>())?;
        let key = created.lines().last().unwrap_or_default().trim().to_owned();
        Ok(self.key.get_or_init(|| key).clone())
    }

    /// A number that a query returns.
    pub(super) async fn number(&self, sql: &'static str) -> Result<i64> {
        Ok(sqlx::query_scalar(sql).fetch_one(&self.pool).await?)
    }

    pub(super) async fn run(&self, sql: &'static str) -> Result<()> {
        sqlx::raw_sql(sql).execute(&self.pool).await?;
        Ok(())
    }

    /// Registers a target of a canvas.
    pub(super) fn target(&self, canvas: &str, handler: &str, url: &str, options: &[&str]) -> Result<()> {
        let mut arguments = vec!["handlers", "put", handler, url, "--canvas", canvas];
        arguments.extend(options);
        self.command(&arguments).map(drop)
    }
}

impl Server {
    /// Emits this many events over HTTP, with their numbers as values.
    pub(super) async fn emit(&self, canvas: &str, handler: &str, count: usize) -> Result<Duration> {
        self.emit_as(canvas, handler, count, false).await
    }

    /// Like [`Server::emit`], urgent or not.
    pub(super) async fn emit_as(
        &self,
        canvas: &str,
        handler: &str,
        count: usize,
        urgent: bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        for first in (0..count).step_by(BATCH) {
            let event = |number| serde_json::json!({"name": handler, "value": number});
            let mut events: Vec<_> = (first..count.min(first + BATCH)).map(event).collect();
            if urgent {
                events.iter_mut().for_each(|event| event["options"] = serde_json::json!({"urgent": true}));
            }
            let body = serde_json::json!({ "events": events }).to_string();
            let path = format!("/v1/canvases/{canvas}/events:batch");
            loop {
                let answer = http::post(self.port, &path, &self.key, &body).await?;
                if answer.status == 429 {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
                ensure!(matches!(answer.status, 200..=299), "{path}: {} {}", answer.status, answer.body);
                break;
            }
        }
        Ok(began.elapsed())
    }

    /// Emits an urgent event over HTTP.
    pub(super) async fn emit_urgent(&self, canvas: &str, handler: &str) -> Result<()> {
        let event = serde_json::json!({"name": handler, "value": 0, "options": {"urgent": true}});
        let path = format!("/v1/canvases/{canvas}/events");
        let answer = http::post(self.port, &path, &self.key, &event.to_string()).await?;
        ensure!(matches!(answer.status, 200..=299), "{path}: {} {}", answer.status, answer.body);
        Ok(())
    }

    pub(super) async fn post(&self, path: &str, body: &str) -> Result<http::Answer> {
        http::post(self.port, path, &self.key, body).await
    }

    pub(super) async fn get(&self, path: &str) -> Result<http::Answer> {
        http::get(self.port, path, &self.key).await
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// What every process of a deployment has: Postgres notifies, and targets may be on this machine.
fn environment(url: &str) -> Vec<(String, String)> {
    [
        ("DATABASE_URL", url),
        ("WAKEQ_NOTIFIER", "postgres"),
        ("WAKEQ_LISTEN", "127.0.0.1"),
        ("WAKEQ_ALLOW_PLAIN_SECRETS", "1"),
        ("WAKEQ_DELIVER_HTTP", "1"),
        ("WAKEQ_DELIVER_TO", "*=127.0.0.1:1-65535"),
        ("WAKEQ_CANVAS_BYTE_RATE", "1000000000"),
        ("WAKEQ_TELEMETRY", "off"),
    ]
    .map(owned)
    .to_vec()
}
