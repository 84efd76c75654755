//! Starting, stopping, and the clock.

use std::io::ErrorKind;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::poll_immediate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;
use wakeq_emulator::broker::Time;
use wakeq_emulator::proto::pubsub::publisher_client::PublisherClient;
use wakeq_emulator::proto::pubsub::{ListSnapshotsRequest, ListTopicsRequest};
use wakeq_emulator::{Emulator, ManualClock, Options};

use super::{PROJECT, Stage, connect, soon, streaming, texts};
use crate::limited::LimitedEmulator;

async fn at(address: &str) -> std::io::Result<LimitedEmulator> {
    LimitedEmulator::start_at(address, Options::default()).await
}

async fn answers(emulator: &Emulator) {
    let request = ListTopicsRequest { project: PROJECT.to_owned(), ..Default::default() };
    let answer = PublisherClient::new(connect(emulator).await).list_topics(request).await.unwrap();
    assert!(answer.into_inner().topics.is_empty());
}

#[tokio::test]
async fn it_answers_on_any_kind_of_address() {
    for (address, host) in [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.1"), ("[::1]:0", "[::1]")] {
        let emulator = at(address).await.unwrap();
        assert_eq!(emulator.host(), format!("{host}:{}", emulator.address().port()));
        answers(&emulator).await;
    }
}

#[tokio::test]
async fn reports_a_port_in_use_with_advice() {
    let first = at("127.0.0.1:0").await.unwrap();
    let error = at(&first.address().to_string()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&first.host()) && error.to_string().contains("choose"), "{error}");
}

#[tokio::test]
async fn stopping_ends_what_waits_and_frees_the_port() {
    let stage = Stage::new().await;
    let mut stream = streaming::open(&stage, |_| ()).await;
    let address = stage.emulator.address();
    let mut pull = pin!(stage.pull());
    assert!(poll_immediate(pull.as_mut()).await.is_none());
    // On the same connection, after the pull, which is waiting by then.
    let mut subscriber = stage.subscriber.clone();
    subscriber
        .list_snapshots(ListSnapshotsRequest { project: PROJECT.to_owned(), ..Default::default() })
        .await
        .unwrap();
    soon(stage.emulator.stop()).await;
    assert_eq!(soon(stream.message()).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(soon(pull).await.unwrap_err().code(), Code::Unavailable);
    at(&address.to_string()).await.unwrap();
}

#[tokio::test]
async fn dropping_it_stops_it() {
    let stage = Stage::new().await;
    let mut stream = streaming::open(&stage, |_| ()).await;
    drop(stage.emulator);
    assert_eq!(soon(stream.message()).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_reset_ends_waiting_calls_with_an_error() {
    let stage = Stage::new().await;
    let mut stream = streaming::open(&stage, |_| ()).await;
    stage.emulator.forget_everything();
    let code = soon(stream.message()).await.unwrap_err().code();
    assert!([Code::Unavailable, Code::NotFound].contains(&code), "{code}");
    assert_eq!(soon(stage.pull()).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_lease_runs_out_when_its_time_is_moved_past_it() {
    let clock = ManualClock::starting_at(Time::from_secs(1_700_000_000));
    let stage = Stage::with(Options { clock: clock.clone().into(), ..Options::default() }).await;
    stage.publish(&["one"]).await;
    assert_eq!(texts(&soon(stage.pull()).await.unwrap()), ["one"]);
    assert_eq!(stage.leased(), 1);
    let mut stream = streaming::open(&stage, |_| ()).await;
    clock.advance(Duration::from_secs(11));
    // Without any request: the emulator itself noticed it.
    assert_eq!(texts(&soon(stream.message()).await.unwrap().unwrap().received_messages), ["one"]);
}

#[tokio::test]
async fn message_ids_go_on_from_the_time_of_the_start() {
    let mut ids = Vec::new();
    for seconds in [1_700_000_000, 1_700_000_001] {
        let clock = ManualClock::starting_at(Time::from_secs(seconds)).into();
        let stage = Stage::with(Options { clock, ..Options::default() }).await;
        stage.publish(&["one"]).await;
        let received = soon(stage.pull()).await.unwrap().remove(0);
        ids.push(received.message.unwrap().message_id.parse::<u64>().unwrap());
        soon(stage.emulator.stop()).await;
    }
    assert!(ids[0] < ids[1], "a consumer that remembers the first id takes no other message for it: {ids:?}");
}

/// A client that opens an HTTP/2 connection and then never sends anything, not even an answer to a
/// ping. It waits by no timer: the paused clock would jump there while the kernel still has what
/// the other end has sent.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_answer_pings_is_disconnected() {
    let emulator = LimitedEmulator::start(Options::default()).await;
    let mut connection = tokio::net::TcpStream::connect(emulator.address()).await.unwrap();
    let no_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    connection.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &no_settings[..]].concat()).await.unwrap();
    let mut heard = Vec::new();
    connection.read_to_end(&mut heard).await.unwrap();
    assert!(!heard.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_nothing_is_closed() {
    let emulator = LimitedEmulator::start(Options::default()).await;
    for beginning in ["", "PRI * HTTP", "GET / HT", "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let mut connection = tokio::net::TcpStream::connect(emulator.address()).await.unwrap();
        connection.write_all(beginning.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        connection.read_to_end(&mut heard).await.unwrap();
    }
}
