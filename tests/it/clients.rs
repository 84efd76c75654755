//! The packages in `clients/`: made from this API's document, and their own tests pass against it.
//! Their example receivers verify what a worker delivers.
//!
//! They run with nothing installed but Node and Python; this never asks another host.

mod rust;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use wakeq::{CanvasId, Handlers, WorkerConfig};
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;
use wakeq_testbed::{ChildProcess, Guard, Launch};

use crate::support::receiver::{calling, to_loopback};
use crate::support::repository::root;
use crate::support::service::{Answer, Service};
use crate::support::{OTHER, TIMEOUT, wait_while};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const WRONG_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Their tests wait for a worker, some of them with pauses between attempts.
const TESTS_TIMEOUT: Duration = Duration::from_secs(300);

/// How to run a package's programs.
pub(crate) struct Package {
    folder: &'static str,
    /// The interpreter.
    program: &'static str,
    /// Arguments with which it succeeds if it is new enough.
    is_new_enough: [&'static str; 2],
    tests: &'static [&'static str],
    receiver: &'static str,
}

/// `1`: tests fail that would be skipped because an interpreter is missing.
const REQUIRED_VARIABLE: &str = "REQUIRE_CLIENTS";

pub(crate) const TYPESCRIPT: Package = Package {
    folder: "clients/typescript",
    program: "node",
    is_new_enough: ["--eval", "process.exit(Number(process.versions.node.split('.')[0]) < 20 ? 1 : 0)"],
    tests: &[
        "--test",
        "test/client.test.js",
        "test/crons.test.js",
        "test/handlers.test.js",
        "test/operating.test.js",
        "test/transport.test.js",
        "test/verify.test.js",
        "test/worker.test.js",
    ],
    receiver: "examples/target.js",
};

pub(crate) const PYTHON: Package = Package {
    folder: "clients/python",
    program: "python3",
    is_new_enough: ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"],
    tests: &["-m", "unittest", "discover", "--top-level-directory", ".", "--start-directory", "tests"],
    receiver: "examples/target.py",
};

impl Package {
    fn folder(&self) -> PathBuf {
        root().join(self.folder)
    }

    /// Whether its interpreter is there, and new enough; says so if not, or fails if it has to be.
    pub(crate) fn is_runnable(&self) -> bool {
        let mut command = Command::new(self.program);
        command.args(self.is_new_enough).stdout(Stdio::null()).stderr(Stdio::null());
        let runs = command.status().is_ok_and(|status| status.success());
        if !runs {
            let is_required = std::env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "1");
            assert!(!is_required, "{REQUIRED_VARIABLE} is 1: install {}, or a newer one", self.program);
            println!("SKIPPED: {}: {} is not installed, or too old", self.folder, self.program);
        }
        runs
    }

    pub(crate) fn launch(&self, arguments: &[&str]) -> Launch {
        // No folders of compiled Python in the checkout.
        Launch::new(self.program)
            .arguments(arguments)
            .current_folder(self.folder())
            .environment("PYTHONPATH", "src")
            .environment("PYTHONDONTWRITEBYTECODE", "1")
    }
}

/// A service that allows targets on loopback.
async fn service() -> Service {
    let config = HttpConfig { delivery: to_loopback(), stranger_rate: 10_000, ..HttpConfig::default() };
    Service::with(config).await
}

#[tokio::test]
async fn the_types_are_those_of_the_document() {
    let service = service().await;
    let document = Answer::of(service.request(Method::GET, "/openapi.json")).await.json();
    // Sorted, without blanks, and without the version: as `clients/generate` makes it.
    let mut api = json!({"components": document["components"], "paths": document["paths"]});
    api.sort_all_objects();
    let hash = digest(&SHA256, api.to_string().as_bytes());
    let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    for file in ["clients/typescript/src/schema.ts", "clients/python/src/wakeq/schema.py"] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let header = text.lines().nth(1).unwrap_or_default();
        assert!(
            header.ends_with(&format!("document: sha256 {hash}")),
            "{file} is of another document ({header}): run clients/generate"
        );
    }
    service.stop().await;
}

/// The versions are released together.
#[test]
fn the_packages_have_the_version_of_the_crates() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("clients/typescript/package.json", format!("\"version\": \"{version}\"")),
        ("clients/python/pyproject.toml", format!("version = \"{version}\"")),
    ] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(text.contains(&line), "{file} has another version than {version}");
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_tests_of_the_typescript_package_pass() {
    check_tests(&TYPESCRIPT).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn the_tests_of_the_python_package_pass() {
    check_tests(&PYTHON).await;
}

/// Its tests, with a key on each of two canvases, an admin's of the second, one that reads all, a
/// queue, and a worker that delivers.
async fn check_tests(package: &Package) {
    if !package.is_runnable() {
        return;
    }
    let service = service().await;
    let worker = calling(&service.stage.store, &service.stage, Handlers::new(), WorkerConfig::default());
    let scopes = [Scope::Emit, Scope::Read, Scope::Values, Scope::Operate];
    let key = service.key("client", CanvasId::DEFAULT, &scopes).await;
    let other_key = service.key("other-client", OTHER, &scopes).await;
    let admin_key = service.key("admin", OTHER, &[Scope::Admin]).await;
    let wide_key = service.wide_key("wide", &[Scope::Read]).await;
    register_mirror(&service).await;
    let guard = Guard::new(None).unwrap();
    let launch = package
        .launch(package.tests)
        .environment("WAKEQ_SERVER", format!("http://{}", service.address))
        .environment("WAKEQ_KEY", key)
        .environment("WAKEQ_OTHER_KEY", other_key)
        .environment("WAKEQ_ADMIN_KEY", admin_key)
        .environment("WAKEQ_WIDE_KEY", wide_key)
        .environment("WAKEQ_QUEUE", "mirror")
        .environment("WAKEQ_OTHER_CANVAS", OTHER.to_string());
    let child = guard.start(launch).unwrap();
    let status = tokio::time::timeout(TESTS_TIMEOUT, child.ended()).await.expect("its tests do not end");
    assert!(status.success(), "{}: {status}:\n{}", package.folder, child.last_lines());
    worker.stop().await;
    service.stop().await;
}

/// A queue of the events with its name, which nothing leases.
async fn register_mirror(service: &Service) {
    let root = service.wide_key("root", &[Scope::Read, Scope::Operate]).await;
    let mirror = json!({"patterns": [":WORKER:mirror$"], "pull": {}});
    service.ask(&root, Method::PUT, "/admin/queues/mirror", mirror).await.json();
}

/// A running example, and the lines that it prints.
struct Example {
    url: String,
    lines: mpsc::Receiver<String>,
    child: ChildProcess,
    _guard: Guard,
}

impl Example {
    async fn start(package: &Package) -> Self {
        let (sender, mut lines) = mpsc::channel(1_000);
        let launch = package
            .launch(&[package.receiver])
            .environment("WEBHOOK_SECRET", SECRET)
            .environment("PORT", "0")
            .on_line(move |line| drop(sender.try_send(line.to_owned())));
        let guard = Guard::new(None).unwrap();
        let child = guard.start(launch).unwrap();
        let line = says(&mut lines, &child, "listening on").await;
        let port = line.rsplit(' ').next().unwrap();
        Self { url: format!("http://127.0.0.1:{port}/events"), lines, child, _guard: guard }
    }

    async fn says(&mut self, words: &str) -> String {
        says(&mut self.lines, &self.child, words).await
    }
}

/// The next line that contains these words.
async fn says(lines: &mut mpsc::Receiver<String>, child: &ChildProcess, words: &str) -> String {
    let found = async {
        loop {
            let line = lines.recv().await.unwrap_or_else(|| panic!("it ended:\n{}", child.last_lines()));
            if line.contains(words) {
                return line;
            }
        }
    };
    let line = tokio::time::timeout(TIMEOUT, found).await;
    line.unwrap_or_else(|_| panic!("it does not say {words:?}:\n{}", child.last_lines()))
}

#[tokio::test]
async fn the_receiver_in_typescript_verifies_what_is_delivered() {
    check_receiver(&TYPESCRIPT).await;
}

#[tokio::test]
async fn the_receiver_in_python_verifies_what_is_delivered() {
    check_receiver(&PYTHON).await;
}

/// It takes an event that is signed with its secret, alone or beside a new one, and no other.
async fn check_receiver(package: &Package) {
    if !package.is_runnable() {
        return;
    }
    let service = service().await;
    let worker = calling(&service.stage.store, &service.stage, Handlers::new(), WorkerConfig::default());
    let mut example = Example::start(package).await;
    let target = |secret: &str| json!({"url": example.url, "secret": secret, "policy": {"retries": 0}});
    let (good, forged) = (target(SECRET), target(WRONG_SECRET));
    service.put("/handlers/WORKER/greet", good.clone()).await.json();
    service.put("/handlers/WORKER/forged", forged).await.json();

    service.post("/events", json!({"name": "greet", "value": {"to": "Ada"}})).await.json();
    let line = example.says("greet").await;
    assert!(line.contains("Ada"), "{line}");

    service.post("/events", json!({"name": "forged", "value": "Mallory"})).await.json();
    let dead = "select count(*) from wakeq.dead_events where name = 'forged'";
    wait_while!(service.stage.count(dead).await == 0, "the forged event does not die");
    let dead = service.get("/dead-events?name=forged").await.json()["items"][0].clone();
    let error = dead["last_error"].as_str().unwrap();
    assert!(error.contains("401"), "{error}");

    let rotated = json!({"url": example.url, "rotate_secret": true, "policy": good["policy"]});
    let rotated = service.put("/handlers/WORKER/greet", rotated).await.json();
    assert_ne!(rotated["secret"], Value::Null, "a new secret");
    service.post("/events", json!({"name": "greet", "value": "Bo"})).await.json();
    // The next line: nothing of the forged event stands between.
    let line = example.says("greet").await;
    assert!(line.contains("Bo"), "{line}");
    assert!(!example.child.last_lines().contains("Mallory"));
    service.stage.until_empty().await;
    worker.stop().await;
    service.stop().await;
}

/// The page about workers in other languages.
const WORKERS: &str = include_str!("../../docs/workers-in-other-languages.md");

#[tokio::test]
async fn the_program_in_javascript_on_the_page_works() {
    check_worker(&TYPESCRIPT, "js", &["--input-type=module", "--eval"]).await;
}

#[tokio::test]
async fn the_program_in_python_on_the_page_works() {
    check_worker(&PYTHON, "python", &["-c"]).await;
}

/// The page's program works off the events of its canvas with a key for its handler alone, and ends
/// on SIGTERM.
async fn check_worker(package: &Package, language: &str, evaluate: &[&str]) {
    if !package.is_runnable() {
        return;
    }
    let service = service().await;
    for (canvas, key) in
        [(CanvasId::DEFAULT, service.key.clone()), (OTHER, service.key("b", OTHER, &Scope::ALL).await)]
    {
        let pull = format!("/canvases/{canvas}/handlers/WORKER/send-email/pull");
        service.ask(&key, Method::PUT, &pull, json!({"retries": 5})).await.json();
        let to = if canvas == OTHER { "Bo" } else { "Ada" };
        let event = json!({"name": "send-email", "value": {"to": to}});
        service.ask(&key, Method::POST, &format!("/canvases/{canvas}/events"), event).await.json();
    }
    service.post("/events", json!({"name": "send-email", "value": {}})).await.json();
    let scopes = json!(["operate:WORKER/send-email", "read:WORKER/send-email", "values:WORKER/send-email"]);
    let created = json!({"holder": "mailer", "scopes": scopes});
    let key = service.admin(Method::POST, "/keys", created).await.json()["key"].clone();
    let program =
        WORKERS.split(&format!("\n```{language}\n")).nth(1).and_then(|rest| rest.split("\n```").next());
    let (sender, mut lines) = mpsc::channel(1_000);
    let arguments = [evaluate, &[program.expect("a program")]].concat();
    let launch = package
        .launch(&arguments)
        .environment("WAKEQ_SERVER", format!("http://{}", service.address))
        .environment("WAKEQ_KEY", key.as_str().unwrap())
        .on_line(move |line| drop(sender.try_send(line.to_owned())));
    let guard = Guard::new(None).unwrap();
    let child = guard.start(launch).unwrap();
    says(&mut lines, &child, "working").await;
    says(&mut lines, &child, "sent to Ada (attempt 1)").await;
    let dead = "select count(*) from wakeq.dead_events where last_error = 'there is nobody to send it to'";
    wait_while!(service.stage.count(dead).await == 0, "the event for nobody does not die");
    wait_while!(service.stage.rows().await > 1, "an event is not completed");
    child.stop(TIMEOUT).await.unwrap();
    assert_eq!(child.ended().await.code(), Some(0), "{}", child.last_lines());
    assert!(child.last_lines().contains("stopped") && !child.last_lines().contains("Bo"));
    service.stop().await;
}
