//! A running `cargo dev`, known by the lines that it prints, and by its API.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use wakeq::notify::{DEVELOPMENT_PROJECT, PubSub, PubSubConfig};
use wakeq::{Store, StoreConfig};
use wakeq_testbed::{ChildProcess, Guard, Launch, installed_postgres};

pub(crate) const PRINTED_WITHIN: Duration = Duration::from_secs(60);

/// A folder of its own, in which one `cargo dev` runs after the other.
pub(crate) struct Home {
    folder: PathBuf,
    guard: Guard,
}

/// A process with a Postgres of its own.
pub(crate) struct Dev {
    lines: watch::Receiver<Vec<String>>,
    process: ChildProcess,
}

impl Home {
    /// `None` without an installed Postgres.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if let Err(error) = installed_postgres() {
            println!("SKIPPED: {error}");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("wakeq-dev-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let guard = Guard::new(Some(&folder)).unwrap();
        Some(Self { folder, guard })
    }

    /// Starts it, and waits until it works.
    pub(crate) async fn start(&self, arguments: &[&str]) -> Dev {
        let (sender, lines) = watch::channel(Vec::new());
        let launch = Launch::new(env!("CARGO_BIN_EXE_wakeq-dev"))
            .arguments(["--postgres", "installed", "--emulator", "own", "--port", "0"])
            .arguments(arguments)
            // Its `.dev` is two levels above, as in the repository.
            .environment("CARGO_MANIFEST_DIR", self.folder.join("tools/dev"))
            .on_line(move |line| sender.send_modify(|lines| lines.push(line.to_owned())));
        let dev = Dev { lines, process: self.guard.start(launch).unwrap() };
        dev.prints("WHAT HAPPENS").await;
        dev
    }
}

impl Dev {
    /// Waits for a line that contains the words; returns it.
    pub(crate) async fn prints(&self, words: &str) -> String {
        let mut lines = self.lines.clone();
        let has_it = |lines: &Vec<String>| lines.iter().any(|line| line.contains(words));
        match timeout(PRINTED_WITHIN, lines.wait_for(has_it)).await {
            Ok(Ok(printed)) => printed.iter().rfind(|line| line.contains(words)).unwrap().clone(),
            Ok(Err(_)) | Err(_) => {
                panic!("{words:?} was not printed:\n{}", self.lines.borrow().join("\n"))
            }
        }
    }

    pub(crate) fn has_printed(&self, words: &str) -> bool {
        self.lines.borrow().iter().any(|line| line.contains(words))
    }

    /// What its `export` line for this variable says.
    async fn exported(&self, name: &str) -> String {
        let name = format!("export {name}=");
        self.prints(&name).await.split_once(&name).unwrap().1.to_owned()
    }

    /// Connects as its `export` lines say.
    pub(crate) async fn join(&self) -> (Store, Arc<PubSub>) {
        let config = PubSubConfig {
            emulator_host: Some(self.exported("PUBSUB_EMULATOR_HOST").await),
            ..PubSubConfig::new(DEVELOPMENT_PROJECT)
        };
        let pubsub = PubSub::connect(config).await.unwrap();
        let url = self.exported("DATABASE_URL").await;
        let store = Store::connect(&url, StoreConfig::default()).await.unwrap();
        (store, Arc::new(pubsub))
    }

    /// Its API, with the key for the default canvas.
    pub(crate) async fn api(&self) -> Api {
        let key = self.exported("KEY").await;
        let file = key.trim_start_matches("\"$(cat ").trim_end_matches(")\"");
        let key = std::fs::read_to_string(file).unwrap().trim().to_owned();
        let address = self.exported("API").await;
        let (host, canvas) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
        Api { key, host: host.to_owned(), canvas: format!("/{canvas}") }
    }

    pub(crate) async fn stop(self) {
        self.process.stop(PRINTED_WITHIN).await.unwrap();
        self.prints("stopped; waiting events are kept in .dev").await;
    }
}

pub(crate) struct Api {
    key: String,
    host: String,
    canvas: String,
}

impl Api {
    /// What it answers below the default canvas.
    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask(&format!("{}{path}", self.canvas));
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// The items of a list below the default canvas.
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        self.get(path)["items"].as_array().unwrap().clone()
    }

    /// By HTTP/1.0, so that the answer ends with the connection and has no chunks.
    pub(crate) fn ask(&self, path: &str) -> (u16, Value) {
        let Self { key, host, .. } = self;
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}
