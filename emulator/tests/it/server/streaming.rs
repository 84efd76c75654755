//! Streams: woken, shared, closed.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use wakeq_emulator::proto::pubsub::{StreamingPullRequest, StreamingPullResponse};

use super::{SUBSCRIPTION, Stage, soon, texts};

/// Both halves of a stream.
pub(super) struct Stream {
    requests: Sender<StreamingPullRequest>,
    responses: Streaming<StreamingPullResponse>,
}

impl Stream {
    pub(super) async fn message(&mut self) -> Result<Option<StreamingPullResponse>, Status> {
        self.responses.message().await
    }

    async fn texts(&mut self) -> Vec<String> {
        texts(&soon(self.message()).await.unwrap().unwrap().received_messages)
    }
}

/// Opens a stream with this first request; it is open when this returns.
pub(super) async fn open(stage: &Stage, change: impl FnOnce(&mut StreamingPullRequest)) -> Stream {
    try_open(stage, change).await.unwrap()
}

async fn try_open(stage: &Stage, change: impl FnOnce(&mut StreamingPullRequest)) -> Result<Stream, Status> {
    let mut first = StreamingPullRequest {
        subscription: SUBSCRIPTION.to_owned(),
        stream_ack_deadline_seconds: 10,
        ..StreamingPullRequest::default()
    };
    change(&mut first);
    let (requests, receiver) = channel(4);
    requests.send(first).await.unwrap();
    let request = ReceiverStream::new(receiver);
    let responses = soon(stage.subscriber.clone().streaming_pull(request)).await?.into_inner();
    Ok(Stream { requests, responses })
}

#[tokio::test]
async fn streams_whose_calls_name_one_client_are_one_clients() {
    let stage = Stage::new().await;
    let mut streams = Vec::new();
    for (id, name) in [("a", Some("worker-1")), ("b", Some("worker-1")), ("c", None)] {
        let (requests, receiver) = channel(1);
        let first = StreamingPullRequest {
            subscription: SUBSCRIPTION.to_owned(),
            stream_ack_deadline_seconds: 10,
            client_id: id.to_owned(),
            ..StreamingPullRequest::default()
        };
        requests.send(first).await.unwrap();
        let mut call = tonic::Request::new(ReceiverStream::new(receiver));
        if let Some(name) = name {
            call.metadata_mut().insert("x-client-name", name.parse().unwrap());
        }
        streams.push((requests, stage.subscriber.clone().streaming_pull(call).await.unwrap()));
    }
    let overview = stage.emulator.broker(|broker, now| broker.overview(now));
    let clients: Vec<_> = overview.streams.into_iter().map(|stream| stream.client_id).collect();
    assert_eq!(clients, ["worker-1", "worker-1", "c"]);
}

#[tokio::test]
async fn one_publish_is_one_response() {
    let stage = Stage::new().await;
    let mut stream = open(&stage, |_| ()).await;
    stage.publish(&["one", "two", "three"]).await;
    assert_eq!(stream.texts().await, ["one", "two", "three"]);
}

#[tokio::test]
async fn the_answer_to_a_publish_has_a_head_start_over_its_message() {
    let stage = Stage::new().await;
    let mut stream = open(&stage, |_| ()).await;
    for text in ["one", "two"] {
        let began = Instant::now();
        stage.publish(&[text]).await;
        assert_eq!(stream.texts().await, [text]);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(20), "the message came after {took:?}");
    }
}

#[tokio::test]
async fn a_first_request_without_a_subscription_is_refused() {
    let stage = Stage::new().await;
    let status = try_open(&stage, |first| first.subscription.clear()).await.err().unwrap();
    assert_eq!(status.code(), Code::InvalidArgument);
    let (_, receiver) = channel(1);
    let none = stage.subscriber.clone().streaming_pull(ReceiverStream::new(receiver)).await;
    assert_eq!(none.err().unwrap().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn acknowledging_makes_room_for_more() {
    let stage = Stage::new().await;
    let mut stream = open(&stage, |first| first.max_outstanding_messages = 1).await;
    stage.publish(&["one", "two"]).await;
    let first = soon(stream.message()).await.unwrap().unwrap().received_messages;
    assert_eq!(texts(&first), ["one"]);
    let ack_ids = vec![first[0].ack_id.clone()];
    stream.requests.send(StreamingPullRequest { ack_ids, ..Default::default() }).await.unwrap();
    assert_eq!(stream.texts().await, ["two"]);
}

#[tokio::test]
async fn acknowledging_by_a_call_makes_room_in_the_stream() {
    let stage = Stage::new().await;
    let mut stream = open(&stage, |first| first.max_outstanding_messages = 1).await;
    stage.publish(&["one", "two"]).await;
    let first = soon(stream.message()).await.unwrap().unwrap().received_messages;
    let request = wakeq_emulator::proto::pubsub::AcknowledgeRequest {
        subscription: SUBSCRIPTION.to_owned(),
        ack_ids: vec![first[0].ack_id.clone()],
    };
    stage.subscriber.clone().acknowledge(request).await.unwrap();
    assert_eq!(stream.texts().await, ["two"]);
}

#[tokio::test]
async fn what_one_stream_has_no_room_for_goes_to_another() {
    let stage = Stage::new().await;
    let mut full = open(&stage, |first| first.max_outstanding_messages = 1).await;
    stage.publish(&["one"]).await;
    assert_eq!(full.texts().await, ["one"]);
    let mut other = open(&stage, |_| ()).await;
    stage.publish(&["two"]).await;
    assert_eq!(other.texts().await, ["two"]);
}

#[tokio::test]
async fn a_half_closed_stream_ends_without_an_error() {
    let stage = Stage::new().await;
    let mut stream = open(&stage, |_| ()).await;
    stage.publish(&["one"]).await;
    let first = soon(stream.message()).await.unwrap().unwrap().received_messages;
    let ack_ids = vec![first[0].ack_id.clone()];
    stream.requests.send(StreamingPullRequest { ack_ids, ..Default::default() }).await.unwrap();
    drop(stream.requests);
    assert_eq!(soon(stream.responses.message()).await.unwrap(), None);
    assert_eq!(stage.leased(), 0, "what it asked last was heard");
}

#[tokio::test]
async fn a_bad_request_ends_the_stream_and_says_why() {
    let stage = Stage::new().await;
    let mut stream = open(&stage, |_| ()).await;
    let again = StreamingPullRequest { subscription: SUBSCRIPTION.to_owned(), ..Default::default() };
    stream.requests.send(again).await.unwrap();
    assert_eq!(soon(stream.message()).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn deleting_the_subscription_ends_its_streams() {
    let stage = Stage::new().await;
    let mut stream = open(&stage, |_| ()).await;
    let subscription = SUBSCRIPTION.to_owned();
    let request = wakeq_emulator::proto::pubsub::DeleteSubscriptionRequest { subscription };
    stage.subscriber.clone().delete_subscription(request).await.unwrap();
    assert_eq!(soon(stream.message()).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_client_that_is_gone_leaves_no_stream() {
    let stage = Stage::new().await;
    let stream = open(&stage, |_| ()).await;
    let open = || stage.emulator.broker(|broker, now| broker.overview(now).streams.len());
    assert_eq!(open(), 1);
    drop(stream);
    wakeq_testbed::wait_while!(open() > 0, "the stream stays");
}
