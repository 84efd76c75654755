//! The program: its output, and how it ends.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tonic::transport::Endpoint;
use wakeq_emulator::proto::pubsub::publisher_client::PublisherClient;
use wakeq_emulator::proto::pubsub::{GetTopicRequest, Topic};
use wakeq_testbed::TestTime;

use super::soon;
use crate::inbox::Inbox;

pub(super) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pubsub-emulator"));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Its first line of output, printed once it listens.
async fn started(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
    line
}

/// What a health check says if it fails.
async fn health(arguments: &[&str]) -> Result<(), String> {
    let output = program(&["health"]).args(arguments).output().await.unwrap();
    match output.status.code() {
        Some(0) => Ok(()),
        code => {
            assert_eq!(code, Some(1));
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

/// Checks until it succeeds: on a busy machine, an answer may take longer than a check waits.
async fn healthy(arguments: &[&str]) {
    while health(arguments).await.is_err() {}
}

#[tokio::test]
async fn prints_its_address_and_exits_cleanly_on_a_signal() {
    let _time = TestTime::begin();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut child = program(&["--port", "0"]).spawn().unwrap();
        let line = soon(started(&mut child)).await;
        let host = line.trim().rsplit_once("PUBSUB_EMULATOR_HOST=").map(|(_, host)| host.to_owned()).unwrap();
        assert!(line.contains(&format!("listening on {host}")), "{line}");
        let answer = reqwest::get(format!("http://{host}/v1/projects/a-project/topics")).await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
        kill(Pid::from_raw(child.id().unwrap().cast_signed()), signal).unwrap();
        assert_eq!(soon(child.wait()).await.unwrap().code(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn it_starts_like_google_s_emulator() {
    let mut child = program(&["start", "--host-port=localhost:0", "--project=demo"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = soon(lines.next_line()).await.unwrap().unwrap();
    let second = soon(lines.next_line()).await.unwrap().unwrap();
    let (_, port) = first.rsplit_once("PUBSUB_EMULATOR_HOST=127.0.0.1:").unwrap();
    assert_eq!(second, format!("Server started, listening on {port}"));
}

#[tokio::test]
async fn its_exit_code_says_whether_an_emulator_answers() {
    let _time = TestTime::begin();
    let mut child = program(&["--port", "0"]).spawn().unwrap();
    let line = soon(started(&mut child)).await;
    let port = line.trim().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap();
    healthy(&["--port", &port]).await;
}

#[tokio::test]
async fn it_asks_where_the_emulator_was_told_to_listen() {
    let _time = TestTime::begin();
    let mut child = program(&["--host", "::1", "--port", "0"]).spawn().unwrap();
    let line = soon(started(&mut child)).await;
    let port = line.trim().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap();
    healthy(&["--host", "::1", "--port", &port]).await;
    healthy(&["--host", "::", "--port", &port]).await;
}

#[tokio::test]
async fn a_silent_port_or_another_server_is_not_healthy() {
    let _time = TestTime::begin();
    // Bound, so that nobody else listens there, and not listening.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let said = health(&["--host", "127.0.0.1", "--port", &port]).await.unwrap_err();
    assert!(said.contains("does not answer"), "{said}");

    let other = Inbox::open(&[200]).await;
    let (_, port) = other.url.trim_end_matches("/inbox").rsplit_once(':').unwrap();
    loop {
        let said = health(&["--host", "127.0.0.1", "--port", port]).await.unwrap_err();
        if said.contains("something else") {
            break;
        }
        assert!(said.contains("does not answer"), "{said}");
    }
}

#[tokio::test]
async fn each_request_is_a_line_on_stderr_if_asked_for() {
    let mut child = program(&["--port", "0", "--log-requests"]).spawn().unwrap();
    let line = soon(started(&mut child)).await;
    let (_, host) = line.trim().rsplit_once("PUBSUB_EMULATOR_HOST=").unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut expect = async |beginning: &str| {
        let line = soon(lines.next_line()).await.unwrap().unwrap();
        assert!(line.starts_with(beginning) && line.ends_with(" ms)"), "{line}");
    };

    let topics = format!("http://{host}/v1/projects/demo/topics?key=secret");
    assert!(soon(reqwest::get(topics)).await.unwrap().status().is_success());
    expect("GET /v1/projects/demo/topics 200 (").await;
    let endpoint = Endpoint::from_shared(format!("http://{host}")).unwrap();
    let mut publisher = PublisherClient::new(soon(endpoint.connect()).await.unwrap());
    let topic = "projects/demo/topics/orders".to_owned();
    soon(publisher.get_topic(GetTopicRequest { topic: topic.clone() })).await.unwrap_err();
    expect("POST /google.pubsub.v1.Publisher/GetTopic NOT_FOUND: Resource not found (resource=orders). (")
        .await;
    soon(publisher.create_topic(Topic { name: topic, ..Topic::default() })).await.unwrap();
    expect("POST /google.pubsub.v1.Publisher/CreateTopic OK (").await;
}

#[tokio::test]
async fn an_empty_variable_is_as_none() {
    let mut child = program(&["--port", "0"]).env("PUBSUB_EMULATOR_ACCEPT_UNSUPPORTED", "").spawn().unwrap();
    let line = soon(started(&mut child)).await;
    let (_, host) = line.trim().rsplit_once("PUBSUB_EMULATOR_HOST=").unwrap();
    let topic = format!("http://{host}/v1/projects/demo/topics/orders");
    let request = reqwest::Client::new().put(topic).body(r#"{"kmsKeyName":"k"}"#);
    assert_eq!(soon(request.send()).await.unwrap().status(), 501);
}

#[tokio::test]
async fn a_variable_that_is_neither_yes_nor_no_is_refused() {
    let mut command = program(&["--port", "0"]);
    let output = soon(command.env("PUBSUB_EMULATOR_ACCEPT_UNSUPPORTED", "flase").output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("'flase'") && said.contains("no, false, off"), "{said}");
}

#[tokio::test]
async fn a_setting_that_is_only_stored_is_a_line_on_stderr() {
    let mut child = program(&["--port", "0"]).env("PUBSUB_EMULATOR_ACCEPT_UNSUPPORTED", "1").spawn().unwrap();
    let line = soon(started(&mut child)).await;
    let (_, host) = line.trim().rsplit_once("PUBSUB_EMULATOR_HOST=").unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let endpoint = Endpoint::from_shared(format!("http://{host}")).unwrap();
    let mut publisher = PublisherClient::new(soon(endpoint.connect()).await.unwrap());
    for project in ["demo", "other"] {
        let topic = format!("projects/{project}/topics/orders");
        let kms_key_name = "projects/p/locations/l/keyRings/r/cryptoKeys/k".to_owned();
        let request = Topic { name: topic.clone(), kms_key_name, ..Topic::default() };
        soon(publisher.create_topic(request)).await.unwrap();
        let line = soon(lines.next_line()).await.unwrap().unwrap();
        let beginning = format!("pubsub-emulator: {topic}: stored, but not carried out: kms_key_name (");
        assert!(line.starts_with(&beginning), "{line}");
    }
}

/// What was stored before something is refused is said all the same, and before the refusal.
#[tokio::test]
async fn notices_are_written_before_a_startup_error() {
    let config = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused.json");
    let content = r#"{
        "project": "demo",
        "topics": [{"name": "orders", "kmsKeyName": "projects/p/locations/l/keyRings/r/cryptoKeys/k"}],
        "subscriptions": [{"name": "worker", "topic": "missing"}]
    }"#;
    std::fs::write(&config, content).unwrap();
    let mut command = program(&["--port", "0", "--accept-unsupported", "--config"]);
    let output = soon(command.arg(&config).output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.lines().collect();
    assert!(!output.status.success() && lines.len() == 2, "{said}");
    assert!(lines[0].contains("projects/demo/topics/orders: stored, but not carried out: "), "{said}");
    assert!(lines[1].contains("projects/demo/subscriptions/worker"), "{said}");
}

#[tokio::test]
async fn startup_errors_are_one_line() {
    let mut first = program(&["--port", "0"]).spawn().unwrap();
    let line = soon(started(&mut first)).await;
    let port = line.trim().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap();
    for (arguments, words) in [
        (["--port", port.as_str()], "choose another port"),
        (["--port", "70000"], "70000"),
        (["--host", ""], "--host"),
        (["--host-port", "localhost:http"], "`http` is not a port"),
        (["--host-port", "::1"], "[::1]:8085"),
        (["--allow-origin", "localhost:9090"], "such as http://localhost:9090"),
    ] {
        let output = soon(program(&arguments).output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}
