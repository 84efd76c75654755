//! The module with a real engine: what it starts is the emulator, as it was asked for.
//!
//! It runs only if `TEST_OWN_PUBSUB_IMAGE` names an image of our emulator, as `cargo xtask
//! containers` does. It must never leave a container behind.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::{Publisher, Subscriber};
use google_cloud_pubsub::model::Message;
use serde_json::{Value, json};
use wakeq_emulator_testcontainers::PubsubEmulator;
use wakeq_emulator_testcontainers::testcontainers::runners::{self, AsyncRunner};
use wakeq_emulator_testcontainers::testcontainers::{ContainerRequest, ImageExt};

const IMAGE_VARIABLE: &str = "TEST_OWN_PUBSUB_IMAGE";
/// The network that containers join instead of the engine's default: `host`, if the engine has no
/// bridge.
const NETWORK_VARIABLE: &str = "TEST_DOCKER_NETWORK";
/// By this label the containers of all tests are found; one of an unknown machine is removed by
/// its age.
const LABEL: (&str, &str) = ("wakeq.test.machine", "unknown");

fn value(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// What to start, with the image and the network of the tests; nothing without an image.
fn request(test: &str, emulator: PubsubEmulator) -> Option<ContainerRequest<PubsubEmulator>> {
    let Some(image) = value(IMAGE_VARIABLE) else {
        let words = "SKIPPED: a test of the testcontainers module. `cargo xtask containers` runs it\n";
        let _ = std::io::stderr().write_all(words.as_bytes());
        return None;
    };
    let (name, tag) = image.rsplit_once(':').unwrap();
    let network = value(NETWORK_VARIABLE);
    let emulator = match network.as_deref() {
        Some("host") => emulator.with_listen_address((Ipv4Addr::LOCALHOST, free_port())),
        _ => emulator,
    };
    let name_of_container = format!("wakeq-test-module-{test}-{}", std::process::id());
    let request = emulator.with_name(name).with_tag(tag).with_container_name(name_of_container);
    let request = request.with_label(LABEL.0, LABEL.1);
    Some(match network {
        Some(network) => request.with_network(network),
        None => request,
    })
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

async fn publish(host: &str, project: &str, text: &str) {
    let publisher = Publisher::builder(format!("projects/{project}/topics/orders"))
        .with_endpoint(format!("http://{host}"))
        .with_credentials(anonymous::Builder::new().build())
        .build()
        .await
        .unwrap();
    publisher.publish(Message::new().set_data(text.to_owned())).await.unwrap();
}

/// Receives one message over a stream, and acknowledges it.
async fn receive(host: &str, project: &str) -> String {
    let subscriber = Subscriber::builder()
        .with_endpoint(format!("http://{host}"))
        .with_credentials(anonymous::Builder::new().build())
        .build()
        .await
        .unwrap();
    let mut stream = subscriber.subscribe(format!("projects/{project}/subscriptions/worker")).build();
    let (message, handler) = stream.next().await.unwrap().unwrap();
    handler.ack();
    String::from_utf8(message.data.to_vec()).unwrap()
}

/// The data of everything that a subscription has for its caller, over REST.
async fn pull(host: &str, project: &str) -> Vec<Value> {
    let url = format!("http://{host}/v1/projects/{project}/subscriptions/worker:pull");
    let pulled = reqwest::Client::new().post(url).json(&json!({"maxMessages": 10})).send().await.unwrap();
    let pulled: Value = pulled.error_for_status().unwrap().json().await.unwrap();
    pulled["receivedMessages"].as_array().unwrap().iter().map(|one| one["message"]["data"].clone()).collect()
}

#[tokio::test]
async fn two_projects_publish_and_pull_and_see_nothing_of_each_other() {
    let emulator =
        PubsubEmulator::default().with_project("demo,orders:worker").with_project("other,orders:worker");
    let Some(request) = request("projects", emulator) else { return };
    let container = request.start().await.unwrap();
    let host = PubsubEmulator::host(&container).await.unwrap();
    publish(&host, "demo", "of demo").await;
    publish(&host, "other", "of other").await;
    assert_eq!(pull(&host, "other").await, ["b2Ygb3RoZXI="], "in Base64: `of other`");
    assert_eq!(receive(&host, "demo").await, "of demo");
    container.rm().await.unwrap();
    assert!(reqwest::get(format!("http://{host}/")).await.is_err(), "it answers after its removal");
}

#[tokio::test]
async fn a_configuration_and_faults_are_those_that_it_starts_with() {
    let emulator = PubsubEmulator::default()
        .with_config(
            "project = \"demo\"\n[[topics]]\nname = \"orders\"\n\
             [[subscriptions]]\nname = \"worker\"\ntopic = \"orders\"\nackDeadlineSeconds = 33\n",
        )
        .with_faults("seed = 7\nduplicate = 0.5\n");
    let Some(request) = request("config", emulator) else { return };
    let container = request.start().await.unwrap();
    let host = PubsubEmulator::host(&container).await.unwrap();
    let read = async |path: &str| -> Value {
        reqwest::get(format!("http://{host}{path}")).await.unwrap().json().await.unwrap()
    };
    assert_eq!(read("/v1/projects/demo/subscriptions/worker").await["ackDeadlineSeconds"], 33);
    let faults = read("/admin/faults").await;
    assert_eq!((&faults["seed"], &faults["duplicate"]), (&json!(7), &json!(0.5)));
    container.rm().await.unwrap();
}

#[tokio::test]
async fn an_emulator_that_refuses_its_topics_is_an_error_with_the_reason() {
    let Some(request) = request("refused", PubsubEmulator::default().with_project("demo,a/b")) else {
        return;
    };
    let error = request.start().await.err().unwrap().to_string();
    assert!(error.contains("`demo,a/b` is not valid"), "{error}");
}

#[test]
fn a_test_without_a_runtime_has_it_too() {
    let Some(request) = request("blocking", PubsubEmulator::default()) else { return };
    let container = runners::SyncRunner::start(request).unwrap();
    let host = PubsubEmulator::host_blocking(&container).unwrap();
    assert!(std::net::TcpStream::connect(host).is_ok());
    container.rm().unwrap();
}
