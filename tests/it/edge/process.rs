//! `wakeq serve` as a process of its own, on a database and a topic of its own.

use std::sync::{Arc, Mutex};

use reqwest::{Method, RequestBuilder};
use tokio::sync::watch;
use wakeq::CanvasId;
use wakeq_service::access::{Access, AccessConfig, Reach, Scope};
use wakeq_testbed::{ChildProcess, Guard, Launch};

use crate::support::service::make_key;
use crate::support::{SECRET_KEY, Stage, TIMEOUT};

/// The log message that shows the process is serving.
const SERVING: &str = "serving the API";

pub(super) struct Process {
    pub(super) stage: Stage,
    /// A key with every scope on the default canvas.
    pub(super) key: String,
    pub(super) address: String,
    pub(super) client: reqwest::Client,
    child: ChildProcess,
    lines: Arc<Mutex<Vec<String>>>,
    _guard: Guard,
}

impl Process {
    /// With these variables besides the usual ones; `url` derives the process's `DATABASE_URL` from
    /// the test's own. Runs without Pub/Sub.
    pub(super) async fn start(more: &[(&str, &str)], url: impl FnOnce(&str) -> String) -> Self {
        let (stage, _) = Stage::memory().await;
        let access = Access::new(stage.store.clone(), AccessConfig::default()).unwrap();
        let key = make_key(&access, "tests", Reach::Canvas(CanvasId::DEFAULT), &Scope::ALL).await;
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (address, mut addresses) = watch::channel(None);
        let kept = Arc::clone(&lines);
        let mut launch = Launch::new(env!("CARGO_BIN_EXE_wakeq"))
            .argument("serve")
            .environment("DATABASE_URL", url(stage.database.url()))
            .environment(SECRET_KEY.0, SECRET_KEY.1)
            .environment("WAKEQ_NOTIFIER", "local")
            .environment("WAKEQ_LISTEN", "127.0.0.1")
            .environment("WAKEQ_ALLOW_UNSAFE_DURABILITY", "1")
            .environment("PORT", "0")
            .environment("NO_COLOR", "1")
            .on_line(move |line| {
                if line.contains(SERVING) {
                    let found = line.split_once("address=").and_then(|(_, rest)| rest.split(' ').next());
                    address.send_replace(found.map(str::to_owned));
                }
                kept.lock().unwrap().push(line.to_owned());
            });
        for (name, value) in more {
            launch = launch.environment(name, value);
        }
        let guard = Guard::new(None).unwrap();
        let child = guard.start(launch).unwrap();
        let found = tokio::time::timeout(TIMEOUT, addresses.wait_for(Option::is_some)).await;
        let address = found.ok().and_then(|found| found.ok().and_then(|found| found.clone()));
        let address = address.unwrap_or_else(|| panic!("it does not serve:\n{}", child.last_lines()));
        let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().unwrap();
        Self { stage, key, address, client, child, lines, _guard: guard }
    }

    /// A request to a path, without a credential.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// A request to a path below the default canvas, with the key.
    pub(super) fn on_canvas(&self, method: Method, path: &str) -> RequestBuilder {
        self.request(method, &format!("/v1/canvases/{}{path}", CanvasId::DEFAULT)).bearer_auth(&self.key)
    }

    /// An emit on the default canvas.
    pub(super) fn events(&self) -> RequestBuilder {
        self.on_canvas(Method::POST, "/events")
    }

    /// The lines that it has logged so far.
    pub(super) fn said(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Its current memory in KiB, as the kernel counts it.
    pub(super) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse().unwrap()
    }

    /// Ends it as SIGTERM does; returns all lines that it logged.
    pub(super) async fn stop(self) -> Vec<String> {
        self.child.stop(TIMEOUT).await.unwrap();
        assert_eq!(self.child.ended().await.code(), Some(0), "{}", self.child.last_lines());
        self.said()
    }
}
