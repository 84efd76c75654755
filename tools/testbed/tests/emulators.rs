//! Google's emulator and ours: started, killed and restarted at their addresses; and how one of
//! them is chosen.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wakeq_testbed::{EmulatorError, GoogleEmulator, OwnEmulator, PubSub, Requested, find};

/// Returns the beginning of the status line.
async fn request(host: &str, method: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?; // the server keeps the connection open
    Ok(String::from_utf8_lossy(&status).into_owned())
}

#[tokio::test]
async fn it_starts_answers_is_killed_and_starts_again_empty_at_its_address() {
    let begin = Instant::now();
    let started = GoogleEmulator::start_if_installed("the start of Google's emulator").await.unwrap();
    let Some(mut emulator) = started else { return };
    eprintln!("ready after {} ms", begin.elapsed().as_millis());
    let host = emulator.host();
    let topic = "/v1/projects/a-project/topics/a-topic";
    assert!(request(&host, "PUT", topic).await.unwrap().ends_with("200"));
    assert!(request(&host, "GET", topic).await.unwrap().ends_with("200"));

    let killed = emulator.pid();
    emulator.kill_9().await.unwrap();
    assert!(TcpStream::connect(&host).await.is_err());

    emulator.restart().await.unwrap();
    assert_eq!(emulator.host(), host);
    assert_ne!(emulator.pid(), killed);
    assert!(request(&host, "GET", topic).await.unwrap().ends_with("404"));

    emulator.stop().await.unwrap();
    assert!(TcpStream::connect(&host).await.is_err());
}

#[tokio::test]
async fn ours_is_killed_and_starts_again_empty_at_its_address() {
    let begin = Instant::now();
    let mut emulator = OwnEmulator::start().await.unwrap();
    eprintln!("ready after {} ms", begin.elapsed().as_millis());
    let host = emulator.host();
    let topic = "/v1/projects/a-project/topics/a-topic";
    assert!(request(&host, "PUT", topic).await.unwrap().ends_with("200"));
    assert!(request(&host, "GET", topic).await.unwrap().ends_with("200"));

    let mut connected = TcpStream::connect(&host).await.unwrap();
    emulator.kill();
    assert!(TcpStream::connect(&host).await.is_err());
    assert!(!matches!(connected.read(&mut [0]).await, Ok(1..)), "it said something to the end");

    emulator.restart().await.unwrap();
    assert_eq!(emulator.host(), host);
    assert!(request(&host, "GET", topic).await.unwrap().ends_with("404"));
}

#[test]
fn ours_outlives_the_runtime_that_started_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let emulator = runtime().block_on(OwnEmulator::start()).unwrap();
    let host = emulator.host();
    let asked = request(&host, "GET", "/v1/projects/a-project/topics");
    assert!(runtime().block_on(asked).unwrap().ends_with("200"));
}

#[tokio::test]
async fn a_requested_emulator_is_used_or_the_error_names_the_request() {
    let chosen = PubSub::choose(Some(Requested::by_option("--emulator", "own").unwrap())).await.unwrap();
    assert!(matches!(chosen.service, PubSub::Own(_)));
    assert!(chosen.to_string().ends_with("(--emulator own)"), "{chosen}");

    if std::env::var_os("PUBSUB_EMULATOR_HOST").is_none() {
        let refused =
            PubSub::choose(Some(Requested::by_option("--emulator", "env").unwrap())).await.unwrap_err();
        assert!(matches!(&refused, EmulatorError::NoHost { by } if by == "--emulator env"), "{refused}");
    }
}

#[tokio::test]
async fn a_port_in_use_is_an_error_with_the_cause() {
    let Some(_other) = GoogleEmulator::shared().await.unwrap() else { return };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = GoogleEmulator::start(Some(taken.local_addr().unwrap().port())).await.unwrap_err();
    assert!(error.to_string().contains("Address already in use"), "{error}");
}

#[tokio::test]
async fn all_tests_of_a_process_share_one() {
    let (one, other) = tokio::join!(PubSub::shared(), PubSub::shared());
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(std::ptr::eq(one, other));
    assert!(TcpStream::connect(one.host()).await.is_ok());
    assert!(one.to_string().contains(&one.host()), "{one}");
    let (one, other) = tokio::join!(GoogleEmulator::shared(), GoogleEmulator::shared());
    match (one.unwrap(), other.unwrap()) {
        (Some(one), Some(other)) => assert!(std::ptr::eq(one, other)),
        (one, other) => assert!(one.is_none() && other.is_none() && find().is_err()),
    }
}
