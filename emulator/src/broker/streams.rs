//! Open streaming pulls: the subscription, lease duration and flow control of each; its requests
//! and responses. What happens to the messages is decided in `delivery`.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::Code;

use super::consume::{ack_deadline, check_consumable, invalid_ack_id, received};
use super::delivery::{AckResult, Holder};
use super::faults::{Purpose, SeededRng};
use super::subscriptions::Subscription;
use super::{Answer, Broker, Name, Refusal, Time, limits};
use crate::proto::pubsub;
use pubsub::streaming_pull_response::{
    AcknowledgeConfirmation, ModifyAckDeadlineConfirmation, SubscriptionProperties,
};

#[cfg(test)]
mod tests;

const SHORTEST_DEADLINE: i32 = 10;

/// The id of a streaming pull; unique in the broker, and never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
pub struct StreamId(pub(super) u64);

/// What a stream has to send now.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamTurn {
    /// This response.
    Response(pubsub::StreamingPullResponse),
    /// Nothing at present.
    Nothing,
    /// The end of the stream.
    Ended(Refusal),
}

/// The figures of an open streaming pull.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StreamOverview {
    /// The stream's id.
    pub id: StreamId,
    /// The subscription's full name.
    pub subscription: String,
    /// The client's name for itself: the header `x-client-name` of its call, else its `client_id`.
    pub client_id: String,
    /// How many messages it holds.
    pub messages: usize,
    /// Their size, in bytes.
    pub bytes: usize,
}

/// All open streaming pulls of a broker.
#[derive(Debug)]
pub(super) struct Streams {
    opened: u64,
    open: BTreeMap<StreamId, Stream>,
    /// Decides which ones break.
    rng: SeededRng,
}

#[derive(Debug)]
struct Stream {
    subscription: Name,
    /// The serial of the subscription: another one of the same name is not the one that it reads.
    serial: u64,
    client_id: String,
    /// How long messages are leased.
    deadline: Duration,
    /// The flow control: how many messages may be outstanding, and their total size.
    max_messages: usize,
    max_bytes: usize,
    /// Whether the client waits for an answer to a request without ids.
    pings: bool,
}

impl Streams {
    pub(super) fn new(seed: u64) -> Self {
        Self { opened: 0, open: BTreeMap::new(), rng: SeededRng::new(seed, Purpose::Streams) }
    }

    /// Restarts the random sequence.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.rng = SeededRng::new(seed, Purpose::Streams);
    }

    /// Closes all streams; ids continue.
    pub(super) fn forgotten(&self, seed: u64) -> Self {
        Self { opened: self.opened, ..Self::new(seed) }
    }

    /// Whether a subscription has an open stream.
    pub(super) fn any_on(&self, subscription: &str) -> bool {
        self.on(subscription).next().is_some()
    }

    /// The open streams of a subscription.
    fn on(&self, subscription: &str) -> impl Iterator<Item = (&StreamId, &Stream)> {
        self.open.iter().filter(move |(_, stream)| &*stream.subscription == subscription)
    }

    fn open(&self, id: StreamId) -> Answer<&Stream> {
        self.open.get(&id).ok_or_else(forgotten)
    }
}

impl Broker {
    /// The client's name for itself, of an open stream.
    pub(super) fn client_id(&self, id: StreamId) -> Option<&str> {
        self.streams.open.get(&id).map(|stream| stream.client_id.as_str())
    }

    /// Opens a streaming pull. The first request configures it, and may already settle messages,
    /// which is answered as in [`Broker::stream_request`].
    pub fn open_stream(
        &mut self,
        now: Time,
        request: &pubsub::StreamingPullRequest,
    ) -> Answer<(StreamId, Option<pubsub::StreamingPullResponse>)> {
        let subscription = self.subscription_mut("subscription", &request.subscription)?;
        check_consumable(subscription)?;
        let stream = Stream {
            subscription: subscription.name.clone(),
            serial: subscription.delivery.serial(),
            client_id: request.client_id.clone(),
            deadline: stream_deadline(request.stream_ack_deadline_seconds)?,
            max_messages: limit(request.max_outstanding_messages),
            max_bytes: limit(request.max_outstanding_bytes),
            pings: answers_pings(request),
        };
        let answer = settle(subscription, now, request)?;
        let name = stream.subscription.clone();
        self.streams.opened += 1;
        let id = StreamId(self.streams.opened);
        self.streams.open.insert(id, stream);
        self.settled(now, &name);
        Ok((id, answer))
    }

    /// Handles a further request: acknowledgements, deadlines, another lease duration. With
    /// exactly-once delivery it is answered; a refusal ends the stream. One that settles nothing is
    /// a ping: a client of protocol version 1 gives up a stream that does not answer it soon.
    pub fn stream_request(
        &mut self,
        now: Time,
        id: StreamId,
        request: pubsub::StreamingPullRequest,
    ) -> Answer<Option<pubsub::StreamingPullResponse>> {
        check_further(&request)?;
        let stream = self.streams.open.get_mut(&id).ok_or_else(forgotten)?;
        if request.stream_ack_deadline_seconds != 0 {
            stream.deadline = stream_deadline(request.stream_ack_deadline_seconds)?;
        }
        let (name, pings) = (stream.subscription.clone(), stream.pings);
        let answer = settle(self.streamed(id)?, now, &request);
        self.settled(now, &name);
        let is_ping = request.ack_ids.is_empty() && request.modify_deadline_ack_ids.is_empty();
        Ok(answer?.or_else(|| (pings && is_ping).then(|| self.stream_heartbeat(id))))
    }

    /// Takes what the stream can be sent now, within its flow control.
    pub fn take_for_stream(&mut self, now: Time, id: StreamId, max_messages: usize) -> StreamTurn {
        match self.turn(now, id, max_messages) {
            Ok(Some(response)) => StreamTurn::Response(response),
            Ok(None) => StreamTurn::Nothing,
            Err(refusal) => StreamTurn::Ended(refusal),
        }
    }

    /// Whether there are messages that the stream could take, had it room.
    pub(crate) fn has_for_stream(&mut self, now: Time, id: StreamId) -> bool {
        self.streamed(id).is_ok_and(|subscription| subscription.delivery.has_for(now, Holder::Stream(id)))
    }

    /// Whether another stream of the subscription holds fewer messages and has room, and so should
    /// be served first.
    pub(crate) fn should_step_back(&self, id: StreamId) -> bool {
        let Some(stream) = self.streams.open.get(&id) else { return false };
        let Some(subscription) = self.subscriptions.get(&stream.subscription) else { return false };
        let held = |id: &StreamId| subscription.delivery.held_by(*id).0;
        let mine = held(&id);
        let has_room = |other: &Stream, held: usize| held < other.max_messages;
        self.streams.on(&stream.subscription).any(|(other, stream)| {
            let theirs = held(other);
            theirs < mine && has_room(stream, theirs)
        })
    }

    /// A response without messages, which shows a client that its stream is alive. Every response
    /// states how the subscription delivers: a client that finds no mention of exactly-once
    /// delivery assumes that it is off.
    pub fn stream_heartbeat(&self, id: StreamId) -> pubsub::StreamingPullResponse {
        let stream = self.streams.open.get(&id);
        let subscription = stream.and_then(|stream| self.subscriptions.get(&stream.subscription));
        pubsub::StreamingPullResponse {
            subscription_properties: subscription.map(properties),
            ..Default::default()
        }
    }

    /// Closes a stream. What it held stays leased: its client may settle it elsewhere.
    pub fn close_stream(&mut self, now: Time, id: StreamId) {
        let Some(stream) = self.streams.open.remove(&id) else { return };
        let Some(subscription) = self.subscriptions.get_mut(&stream.subscription) else { return };
        subscription.delivery.release(now, id);
        self.settled(now, &stream.subscription);
    }

    /// The open streams.
    pub(super) fn stream_overviews(&self) -> Vec<StreamOverview> {
        let overview = |(id, stream): (&StreamId, &Stream)| {
            let subscription = self.subscriptions.get(&stream.subscription);
            let (messages, bytes) =
                subscription.map_or((0, 0), |subscription| subscription.delivery.held_by(*id));
            StreamOverview {
                id: *id,
                subscription: stream.subscription.to_string(),
                client_id: stream.client_id.clone(),
                messages,
                bytes,
            }
        };
        self.streams.open.iter().map(overview).collect()
    }

    fn turn(
        &mut self,
        now: Time,
        id: StreamId,
        max_messages: usize,
    ) -> Answer<Option<pubsub::StreamingPullResponse>> {
        check_consumable(self.streamed(id)?)?;
        let stream = self.streams.open(id)?;
        let name = stream.subscription.clone();
        let Some(subscription) = self.subscriptions.get_mut(&name) else { return Ok(None) };
        let delivery = &mut subscription.delivery;
        let (messages, bytes) = delivery.held_by(id);
        let share = delivery.at_hand().div_ceil(self.streams.on(&name).count().max(1)).max(1);
        let most = stream.max_messages.saturating_sub(messages).min(max_messages).min(share);
        let room = stream.max_bytes.saturating_sub(bytes);
        if most == 0 || room == 0 || !delivery.has_for(now, Holder::Stream(id)) {
            self.reschedule(now, &name);
            return Ok(None);
        }
        let deadline = stream.deadline;
        if self.streams.rng.random_bool(self.faults.break_streams) {
            self.fault_counts.broken_streams += 1;
            return Err(broken());
        }
        let taken = delivery.take(now, Holder::Stream(id), most, room, deadline);
        if !taken.is_empty() {
            subscription.touch(now);
        }
        let response = (!taken.is_empty()).then(|| pubsub::StreamingPullResponse {
            received_messages: taken.into_iter().map(received).collect(),
            subscription_properties: Some(properties(subscription)),
            ..Default::default()
        });
        self.reschedule(now, &name);
        Ok(response)
    }

    /// The subscription that a stream was opened on, if it still exists.
    fn streamed(&mut self, id: StreamId) -> Answer<&mut Subscription> {
        let stream = self.streams.open(id)?;
        self.subscriptions
            .get_mut(&stream.subscription)
            .filter(|subscription| subscription.delivery.serial() == stream.serial)
            .ok_or_else(|| Refusal::not_found(&stream.subscription))
    }
}

/// Carries out the acknowledgements and deadlines of a request.
fn settle(
    subscription: &mut Subscription,
    now: Time,
    request: &pubsub::StreamingPullRequest,
) -> Answer<Option<pubsub::StreamingPullResponse>> {
    if request.modify_deadline_ack_ids.len() != request.modify_deadline_seconds.len() {
        return Err(Refusal::invalid(
            "The request must have as many modify_deadline_seconds as modify_deadline_ack_ids.",
        ));
    }
    let seconds = request.modify_deadline_seconds.iter().copied().map(ack_deadline);
    let ids = request.modify_deadline_ack_ids.iter().cloned();
    let deadlines: Vec<(String, Duration)> =
        ids.zip(seconds).map(|(id, deadline)| Ok((id, deadline?))).collect::<Answer<_>>()?;

    subscription.touch(now);
    let acked = subscription.delivery.acknowledge(now, &request.ack_ids);
    let modified = subscription.delivery.modify_deadline(now, &deadlines);
    if !subscription.delivery.settings().exactly_once {
        let invalid = acked.invalid.first().or(modified.invalid.first());
        return invalid.map_or(Ok(None), |id| Err(invalid_ack_id(id)));
    }
    let response = pubsub::StreamingPullResponse {
        acknowledge_confirmation: (!request.ack_ids.is_empty()).then(|| acknowledged(acked)),
        modify_ack_deadline_confirmation: (!deadlines.is_empty()).then(|| deadlines_changed(modified)),
        subscription_properties: Some(properties(subscription)),
        ..Default::default()
    };
    let answers = !request.ack_ids.is_empty() || !deadlines.is_empty();
    Ok(answers.then_some(response))
}

fn acknowledged(answer: AckResult) -> AcknowledgeConfirmation {
    AcknowledgeConfirmation {
        ack_ids: answer.acked,
        invalid_ack_ids: answer.invalid.into_iter().chain(answer.lapsed).collect(),
        unordered_ack_ids: answer.unordered,
        temporary_failed_ack_ids: Vec::new(),
    }
}

fn deadlines_changed(answer: AckResult) -> ModifyAckDeadlineConfirmation {
    ModifyAckDeadlineConfirmation {
        ack_ids: answer.acked,
        invalid_ack_ids: answer.invalid.into_iter().chain(answer.lapsed).collect(),
        temporary_failed_ack_ids: Vec::new(),
    }
}

fn properties(subscription: &Subscription) -> SubscriptionProperties {
    let settings = subscription.delivery.settings();
    SubscriptionProperties {
        exactly_once_delivery_enabled: settings.exactly_once,
        message_ordering_enabled: settings.ordering,
    }
}

/// Refuses fields that only the first request may set.
fn check_further(request: &pubsub::StreamingPullRequest) -> Answer<()> {
    let field = [
        ("subscription", !request.subscription.is_empty()),
        ("max_outstanding_messages", request.max_outstanding_messages != 0),
        ("max_outstanding_bytes", request.max_outstanding_bytes != 0),
        ("protocol_version", request.protocol_version != 0),
    ]
    .into_iter()
    .find_map(|(field, is_set)| is_set.then_some(field));
    field.map_or(Ok(()), |field| {
        Err(Refusal::invalid(format!(
            "{field} can be set only in the first request of a streaming pull: leave it out of this one."
        )))
    })
}

/// Whether the client understands responses without messages, and so expects them.
pub(crate) fn answers_pings(first: &pubsub::StreamingPullRequest) -> bool {
    first.protocol_version >= 1
}

fn stream_deadline(seconds: i32) -> Answer<Duration> {
    let longest = limits::LONGEST_ACK_DEADLINE;
    u64::try_from(seconds)
        .ok()
        .filter(|_| (SHORTEST_DEADLINE..=longest).contains(&seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| {
            Refusal::invalid(format!(
                "Invalid stream ack deadline given (stream_ack_deadline_seconds={seconds}). It must be between \
                 {SHORTEST_DEADLINE} and {longest} seconds."
            ))
        })
}

/// No limit unless it is above zero.
fn limit(outstanding: i64) -> usize {
    usize::try_from(outstanding).ok().filter(|most| *most > 0).unwrap_or(usize::MAX)
}

fn forgotten() -> Refusal {
    Refusal::new(Code::Unavailable, "The stream is no longer open: open another one.")
}

fn broken() -> Refusal {
    Refusal::new(Code::Unavailable, "The stream was broken by an injected fault: open another one.")
}
