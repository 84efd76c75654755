//! A client of the Model Context Protocol that says what a test wants. It ends its process even if
//! the test fails.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli::Terminal;
use crate::support::TIMEOUT;

/// Maximum bytes of a tool's answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

pub(super) struct Agent {
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    /// What the process writes to standard output.
    lines: mpsc::Receiver<String>,
    /// What it has written to standard error at its end.
    errors: Option<JoinHandle<String>>,
    asked: u64,
    /// The tools that were called.
    pub(super) called: BTreeSet<String>,
}

impl Agent {
    /// Starts the process, and says nothing yet.
    pub(super) fn spawn(terminal: &Terminal, options: &[&str]) -> Self {
        let mut command = terminal.command(&[&["mcp"], options].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (heard, lines) = mpsc::channel(1_000);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if heard.blocking_send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let stdin = child.stdin.take();
        Self { child: Some(child), stdin, lines, errors: Some(errors), asked: 0, called: BTreeSet::new() }
    }

    /// The same, with the greetings of the protocol.
    pub(super) async fn start(terminal: &Terminal, options: &[&str]) -> Self {
        let mut agent = Self::spawn(terminal, options);
        let client = json!({"name": "tests", "version": "1"});
        let greeting = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let answer = agent.ask("initialize", greeting).await;
        let server = &answer["result"];
        assert_eq!(server["protocolVersion"], "2025-06-18", "{answer}");
        assert_eq!(server["serverInfo"]["name"], "wakeq", "{answer}");
        assert!(server["capabilities"]["tools"].is_object(), "{answer}");
        assert!(server["instructions"].as_str().unwrap().contains("take them as data"), "{answer}");
        agent.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        agent
    }

    pub(super) fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The next message. All that is written to standard output has to be one.
    pub(super) async fn hear(&mut self) -> Value {
        let line = timeout(TIMEOUT, self.lines.recv()).await.expect("no answer in time");
        let message: Value = serde_json::from_str(&line.expect("it has ended")).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    /// The answer to a request.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        let answer = self.hear().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(super) async fn tools(&mut self) -> Vec<Value> {
        let answer = self.ask("tools/list", json!({})).await;
        answer["result"]["tools"].as_array().unwrap().clone()
    }

    /// The text that a tool answers.
    pub(super) async fn text(&mut self, tool: &str, arguments: Value) -> String {
        self.called(tool, arguments).await.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    /// The same as JSON.
    pub(super) async fn shows(&mut self, tool: &str, arguments: Value) -> Value {
        serde_json::from_str(&self.text(tool, arguments).await).unwrap()
    }

    /// The error of a tool.
    pub(super) async fn fails(&mut self, tool: &str, arguments: Value) -> String {
        self.called(tool, arguments).await.expect_err(tool)
    }

    async fn called(&mut self, tool: &str, arguments: Value) -> Result<String, String> {
        self.called.insert(tool.to_owned());
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        assert!(text.len() <= ANSWER_BYTES_MAX, "{tool}: {} bytes", text.len());
        if result["isError"] == true { Err(text) } else { Ok(text) }
    }

    /// Sends the process a signal.
    pub(super) fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(
            Command::new("sh").args(["-c", &format!("kill {signal} $0"), &id]).status().unwrap().success()
        );
    }

    /// Closes its input, and waits for its end, which is a success; returns what it has logged.
    pub(super) async fn ends(mut self) -> String {
        self.stdin = None;
        self.has_ended().await
    }

    /// Waits for its end, which is a success; returns what it has logged.
    pub(super) async fn has_ended(mut self) -> String {
        let (mut child, errors) = (self.child.take().unwrap(), self.errors.take().unwrap());
        let ending = tokio::task::spawn_blocking(move || (child.wait().unwrap(), errors.join().unwrap()));
        let (status, logged) = timeout(TIMEOUT, ending).await.expect("no end in time").unwrap();
        assert_eq!(status.code(), Some(0), "{logged}");
        assert_eq!(self.lines.recv().await, None, "it says no more");
        logged
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
