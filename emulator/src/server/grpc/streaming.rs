//! Streaming pull: one open stream between its client and the broker.
//!
//! Messages are taken from the broker only when the connection has room for them, so that a slow
//! client's messages stay with the subscription. A task of its own reads the client's requests;
//! otherwise a full connection would delay acknowledgements.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TryRecvError};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming};

use super::status;
use crate::broker::{Answer, Method, Refusal, StreamId, StreamTurn, answers_pings};
use crate::proto::pubsub::{StreamingPullRequest, StreamingPullResponse};
use crate::server::calls::Calls;
use crate::server::core::{Core, stopping};
use crate::server::head_start::{Hold, LastPublish};
use crate::server::waiting::Waiter;

/// The responses of a stream.
pub(in crate::server) type PullResponses =
    Pin<Box<dyn futures_util::Stream<Item = Result<StreamingPullResponse, Status>> + Send>>;

/// The name of a client that cannot choose its `client_id`, or has several: official client
/// libraries choose one for each connection.
const CLIENT_NAME: &str = "x-client-name";

/// The most messages in one response: enough to make its overhead negligible, few enough to leave
/// the subscription's other streams their share.
const MESSAGES_PER_RESPONSE: usize = 1_000;

/// A client that declares that it understands empty responses gets one after this long without
/// another.
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(30);

/// Answers to the client's requests that may wait for room in the connection; beyond that, no more
/// requests are read.
const WAITING_ANSWERS: usize = 16;

pub(in crate::server) async fn streaming_pull(
    calls: &Calls,
    request: Request<Streaming<StreamingPullRequest>>,
) -> Result<Response<PullResponses>, Status> {
    let (metadata, extensions, mut requests) = request.into_parts();
    let mut first = requests.message().await?.ok_or_else(|| status(nothing_asked()))?;
    if let Some(name) = metadata.get(CLIENT_NAME).and_then(|name| name.to_str().ok()) {
        name.clone_into(&mut first.client_id);
    }
    let hold = Hold::new(extensions.get::<LastPublish>().cloned().unwrap_or_default());
    let stream = OpenStream::open(calls, &first, requests, hold).await.map_err(status)?;
    let turns = unfold(stream, |mut stream| async move {
        let item = stream.next().await?;
        Some((item.map_err(status), stream))
    });
    Ok(Response::new(Box::pin(turns)))
}

fn nothing_asked() -> Refusal {
    Refusal::invalid(
        "The first request of a streaming pull must name a subscription, and there was no request.",
    )
}

struct OpenStream {
    core: Arc<Core>,
    id: StreamId,
    waiter: Waiter,
    /// The answer to what the first request settled.
    confirmation: Option<StreamingPullResponse>,
    /// Notified when a request may have made room for more messages.
    asked: Arc<Notify>,
    answers: Receiver<Answer<StreamingPullResponse>>,
    heartbeats: bool,
    hold: Hold,
    had_a_turn: bool,
    ended: bool,
    _reader: AbortOnDropHandle<()>,
}

impl OpenStream {
    async fn open(
        calls: &Calls,
        first: &StreamingPullRequest,
        requests: Streaming<StreamingPullRequest>,
        hold: Hold,
    ) -> Answer<Self> {
        calls.admit(Method::StreamingPull).await?;
        let core = Arc::clone(calls.core());
        // The first request may settle messages.
        core.room().await?;
        let waiter = core.wait_at(&first.subscription);
        let (id, confirmation) = core.with(|broker, now| broker.open_stream(now, first))?;
        let asked = Arc::new(Notify::new());
        let (sender, answers) = channel(WAITING_ANSWERS);
        let reader = read(Arc::clone(&core), id, requests, Arc::clone(&asked), sender);
        let _reader = AbortOnDropHandle::new(tokio::spawn(reader));
        let heartbeats = answers_pings(first);
        let stream = Self {
            core,
            id,
            waiter,
            confirmation,
            asked,
            answers,
            heartbeats,
            hold,
            had_a_turn: false,
            ended: false,
            _reader,
        };
        stream.core.saved().await?;
        Ok(stream)
    }

    /// The next response, or how the stream ends.
    async fn next(&mut self) -> Option<Answer<StreamingPullResponse>> {
        if self.ended {
            return None;
        }
        if std::mem::take(&mut self.had_a_turn) {
            // Lets the subscription's other streams have their turn first, however few threads
            // there are.
            tokio::task::yield_now().await;
        }
        let next = self.turn().await;
        self.had_a_turn = true;
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }

    async fn turn(&mut self) -> Option<Answer<StreamingPullResponse>> {
        if let Some(confirmation) = self.confirmation.take() {
            return Some(Ok(confirmation));
        }
        let mut silence = pin!(tokio::time::sleep(HEARTBEAT_PERIOD));
        loop {
            if self.core.stop().is_cancelled() {
                return Some(Err(stopping()));
            }
            let mut rung = pin!(self.waiter.rung());
            rung.as_mut().enable();
            match self.answers.try_recv() {
                Ok(answer) => return Some(answer),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => {}
            }
            if self.core.with(|broker, _| broker.should_step_back(self.id)) {
                tokio::task::yield_now().await;
            }
            // Decided under the lock, since a publish is noted before its messages are there.
            let (hold, id) = (&mut self.hold, self.id);
            let full = self.core.is_full();
            let turn = self.core.with(|broker, now| {
                if full {
                    return Ok(StreamTurn::Nothing);
                }
                if let Some(until) = hold.until(Instant::now()) {
                    return Err(until);
                }
                let turn = broker.take_for_stream(now, id, MESSAGES_PER_RESPONSE);
                // Without room, it is not idle either: it takes what is there once it may.
                hold.looked(matches!(turn, StreamTurn::Response(_)) || broker.has_for_stream(now, id));
                Ok(turn)
            });
            let held = turn.as_ref().err().copied();
            match turn {
                Ok(StreamTurn::Response(response)) => return Some(Ok(response)),
                Ok(StreamTurn::Ended(refusal)) => return Some(Err(refusal)),
                Ok(StreamTurn::Nothing) | Err(_) => {}
            }
            tokio::select! {
                () = self.core.stop().cancelled() => {}
                answer = self.answers.recv() => return answer,
                () = rung => {}
                () = sleep_until(held.unwrap_or_else(Instant::now)), if held.is_some() => {}
                () = self.asked.notified() => {}
                _room = self.core.room(), if full => {}
                () = silence.as_mut(), if self.heartbeats => return Some(Ok(self.heartbeat())),
            }
        }
    }
}

impl OpenStream {
    fn heartbeat(&self) -> StreamingPullResponse {
        self.core.with(|broker, _| broker.stream_heartbeat(self.id))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.core.with(|broker, now| broker.close_stream(now, self.id));
    }
}

/// Reads requests until the client sends no more (which ends the stream), has gone, or is refused.
async fn read(
    core: Arc<Core>,
    id: StreamId,
    mut requests: Streaming<StreamingPullRequest>,
    asked: Arc<Notify>,
    answers: Sender<Answer<StreamingPullResponse>>,
) {
    while let Ok(Some(request)) = requests.message().await {
        let answer = core.change(|broker, now| broker.stream_request(now, id, request)).await;
        let answer = answer.flatten().transpose();
        let refused = matches!(answer, Some(Err(_)));
        if let Some(answer) = answer
            && answers.send(answer).await.is_err()
        {
            return;
        }
        if refused {
            return;
        }
        asked.notify_one();
    }
}
