//! The program: its output, and how it ends.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tonic::transport::Endpoint;
use wakeq_emulator::proto::pubsub::publisher_client::PublisherClient;
use wakeq_emulator::proto::pubsub::{GetTopicRequest, Topic};
use wakeq_testbed::TestTime;

use super::soon;

fn program(arguments: &[&str]) -> Command {
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
    let mut child = program(&["--port", "0"]).spawn().unwrap();
    let line = soon(started(&mut child)).await;
    let port = line.trim().rsplit_once(':').map(|(_, port)| port.to_owned()).unwrap();
    let health = async || soon(program(&["health", "--port", &port]).output()).await.unwrap();
    let output = health().await;
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    soon(child.kill()).await.unwrap();
    let output = health().await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("does not answer"), "{said}");
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
    ] {
        let output = soon(program(&arguments).output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{arguments:?}: {said}");
    }
}
