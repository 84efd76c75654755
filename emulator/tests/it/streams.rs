//! An open streaming pull, as a case sees it.

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::Status;
use wakeq_emulator::proto::pubsub::{ReceivedMessage, StreamingPullRequest, StreamingPullResponse};

use crate::stage::{Stage, soon};

/// Both halves. The call itself waits in a task: not every server responds before it has something
/// to send.
pub(crate) struct Stream {
    requests: mpsc::Sender<StreamingPullRequest>,
    responses: mpsc::Receiver<Result<StreamingPullResponse, Status>>,
}

/// The first request of a stream without limits.
pub(crate) fn first(subscription: &str) -> StreamingPullRequest {
    StreamingPullRequest {
        subscription: subscription.to_owned(),
        stream_ack_deadline_seconds: 60,
        ..StreamingPullRequest::default()
    }
}

pub(crate) fn acks(ack_ids: &[String]) -> StreamingPullRequest {
    StreamingPullRequest { ack_ids: ack_ids.to_vec(), ..StreamingPullRequest::default() }
}

pub(crate) fn deadlines(ack_ids: &[String], seconds: i32) -> StreamingPullRequest {
    StreamingPullRequest {
        modify_deadline_ack_ids: ack_ids.to_vec(),
        modify_deadline_seconds: vec![seconds; ack_ids.len()],
        ..StreamingPullRequest::default()
    }
}

impl Stage {
    pub(crate) async fn stream(&self, first: StreamingPullRequest) -> Stream {
        let (requests, outgoing) = mpsc::channel(16);
        let (incoming, responses) = mpsc::channel(16);
        requests.send(first).await.unwrap();
        let outgoing =
            stream::unfold(outgoing, async |mut outgoing| Some((outgoing.recv().await?, outgoing)));
        let mut subscriber = self.subscriber.clone();
        tokio::spawn(async move {
            let mut answers = match subscriber.streaming_pull(outgoing).await {
                Ok(answers) => answers.into_inner(),
                Err(status) => return drop(incoming.send(Err(status)).await),
            };
            while let Some(answer) = answers.message().await.transpose() {
                let ends = answer.is_err();
                if incoming.send(answer).await.is_err() || ends {
                    return;
                }
            }
        });
        Stream { requests, responses }
    }
}

impl Stream {
    pub(crate) async fn send(&self, request: StreamingPullRequest) {
        self.requests.send(request).await.unwrap();
    }

    /// Fails if the stream has ended.
    pub(crate) async fn try_send(&self, request: StreamingPullRequest) -> Result<(), impl std::fmt::Debug> {
        self.requests.send(request).await
    }

    /// The next response of interest.
    pub(crate) async fn response(
        &mut self,
        interest: impl Fn(&StreamingPullResponse) -> bool,
    ) -> StreamingPullResponse {
        soon("a response of the stream", async {
            loop {
                let response = self.responses.recv().await.unwrap().unwrap();
                if interest(&response) {
                    return response;
                }
            }
        })
        .await
    }

    /// The messages of the next response that has any.
    pub(crate) async fn messages(&mut self) -> Vec<ReceivedMessage> {
        self.response(|response| !response.received_messages.is_empty()).await.received_messages
    }

    /// At least this many messages.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<ReceivedMessage> {
        let mut received = Vec::new();
        while received.len() < count {
            received.extend(self.messages().await);
        }
        received
    }

    /// The status that the stream ends with; it must send no messages before.
    pub(crate) async fn end(&mut self) -> Status {
        soon("the end of the stream", async {
            loop {
                match self.responses.recv().await.expect("the stream ended without a status") {
                    Err(status) => return status,
                    Ok(response) => assert!(response.received_messages.is_empty(), "{response:?}"),
                }
            }
        })
        .await
    }
}
