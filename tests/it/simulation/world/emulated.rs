//! The emulator's broker in the simulated world: it loses, duplicates, delays and reorders messages
//! by its seed, on the world's clock.
//!
//! It connects a world to `wakeq_emulator::broker::Broker` and decides nothing: the settings are
//! those that the notifier gives a subscription, and leases are extended as the client library
//! extends them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use uuid::Uuid;
use wakeq::{EventId, Timestamp};
use wakeq_emulator::Faults;
use wakeq_emulator::broker::{Broker, FaultCounts, Time};
use wakeq_emulator::proto::pubsub::{
    AcknowledgeRequest, ModifyAckDeadlineRequest, PublishRequest, PubsubMessage, PullRequest,
    ReceivedMessage, RetryPolicy, Subscription, Topic,
};

const TOPIC: &str = "projects/world/topics/notifications";
const SUBSCRIPTION: &str = "projects/world/subscriptions/workers";
const LEASE_S: i32 = 60;
/// How often a lease is extended.
const EXTENSION: Duration = Duration::from_secs(20);
/// How many messages a stream holds ahead of its workers.
const AHEAD: usize = 10;

/// A lease on a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MessageLease {
    ack_id: String,
    /// How often the broker had been wiped when the message was handed out.
    life: u32,
}

/// What the broker did to notifications.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BrokerFaults {
    pub(crate) published: usize,
    /// Never handed out.
    pub(crate) lost: usize,
    /// Handed out more than once: duplicated, put back, or not acknowledged in time.
    pub(crate) repeated: usize,
    /// First handed out after a message that was published later.
    pub(crate) overtaken: usize,
    /// How often the broker was wiped.
    pub(crate) forgotten: usize,
    /// The faults that the broker itself reports.
    pub(crate) injected: FaultCounts,
}

impl BrokerFaults {
    pub(crate) fn add(&mut self, more: Self) {
        self.published += more.published;
        self.lost += more.lost;
        self.repeated += more.repeated;
        self.overtaken += more.overtaken;
        self.forgotten += more.forgotten;
        add(&mut self.injected, more.injected);
    }
}

/// Adds up faults of messages, streams and calls.
pub(crate) fn add(sum: &mut FaultCounts, more: FaultCounts) {
    sum.lost += more.lost;
    sum.duplicated += more.duplicated;
    sum.delayed += more.delayed;
    sum.reordered += more.reordered;
    sum.broken_streams += more.broken_streams;
    sum.refused_calls += more.refused_calls;
}

pub(crate) struct EmulatedBroker {
    broker: Broker,
    life: u32,
    offers: VecDeque<(EventId, MessageLease)>,
    /// How often each message was handed out, by its number.
    deliveries: BTreeMap<u64, u32>,
    overtaken: usize,
}

impl std::fmt::Debug for EmulatedBroker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EmulatedBroker").field("offers", &self.offers).finish_non_exhaustive()
    }
}

impl EmulatedBroker {
    pub(crate) fn new(faults: Faults, now: Timestamp) -> Self {
        let broker = Broker::new(faults);
        let (offers, deliveries) = (VecDeque::new(), BTreeMap::new());
        let mut emulated = Self { broker, life: 0, offers, deliveries, overtaken: 0 };
        emulated.create(now);
        emulated
    }

    /// Creates topic and subscription as the notifier does, at the start and after every wipe.
    fn create(&mut self, now: Timestamp) {
        let topic = Topic { name: TOPIC.to_owned(), ..Topic::default() };
        self.broker.create_topic(time(now), topic).unwrap();
        let seconds = |seconds| Some(wakeq_emulator::proto::protobuf::Duration { seconds, nanos: 0 });
        let retry_policy = Some(RetryPolicy { minimum_backoff: seconds(10), maximum_backoff: seconds(600) });
        let subscription = Subscription {
            name: SUBSCRIPTION.to_owned(),
            topic: TOPIC.to_owned(),
            ack_deadline_seconds: LEASE_S,
            retry_policy,
            ..Subscription::default()
        };
        self.broker.create_subscription(time(now), subscription).unwrap();
    }

    pub(crate) fn publish(&mut self, event: EventId, now: Timestamp) {
        let message = PubsubMessage { data: event.0.to_string().into(), ..PubsubMessage::default() };
        let request = PublishRequest { topic: TOPIC.to_owned(), messages: vec![message] };
        let published = self.broker.publish(time(now), request).unwrap();
        self.deliveries.insert(published.message_ids[0].parse().unwrap(), 0);
    }

    /// What a stream would hand to its workers next.
    pub(crate) fn offers(&mut self, now: Timestamp) -> Vec<EventId> {
        if let Some(room) = AHEAD.checked_sub(self.offers.len()).filter(|room| *room > 0) {
            let request = PullRequest {
                subscription: SUBSCRIPTION.to_owned(),
                max_messages: room as i32,
                ..PullRequest::default()
            };
            for received in self.broker.pull(time(now), &request).unwrap().received_messages {
                self.offer(received);
            }
        }
        self.offers.iter().map(|(event, _)| *event).collect()
    }

    fn offer(&mut self, received: ReceivedMessage) {
        let message = received.message.unwrap();
        let number: u64 = message.message_id.parse().unwrap();
        let later = self.deliveries.range(number + 1..).any(|(_, deliveries)| *deliveries > 0);
        let deliveries = self.deliveries.entry(number).or_default();
        self.overtaken += usize::from(*deliveries == 0 && later);
        *deliveries += 1;
        let event = EventId(Uuid::parse_str(std::str::from_utf8(&message.data).unwrap()).unwrap());
        self.offers.push_back((event, MessageLease { ack_id: received.ack_id, life: self.life }));
    }

    pub(crate) fn take(&mut self, event: EventId) -> Option<MessageLease> {
        let at = self.offers.iter().position(|(offered, _)| *offered == event)?;
        self.offers.remove(at).map(|(_, held)| held)
    }

    pub(crate) fn acknowledge(&mut self, held: &MessageLease, now: Timestamp) {
        if held.life == self.life {
            let request = AcknowledgeRequest {
                subscription: SUBSCRIPTION.to_owned(),
                ack_ids: vec![held.ack_id.clone()],
            };
            self.broker.acknowledge(time(now), &request).unwrap();
        }
    }

    pub(crate) fn give_back(&mut self, held: &MessageLease, now: Timestamp) {
        self.modify(std::slice::from_ref(held), now, 0);
    }

    fn modify(&mut self, held: &[MessageLease], now: Timestamp, seconds: i32) {
        let known = held.iter().filter(|held| held.life == self.life);
        let ack_ids: Vec<_> = known.map(|held| held.ack_id.clone()).collect();
        if !ack_ids.is_empty() {
            let subscription = SUBSCRIPTION.to_owned();
            let request = ModifyAckDeadlineRequest { subscription, ack_ids, ack_deadline_seconds: seconds };
            self.broker.modify_ack_deadline(time(now), &request).unwrap();
        }
    }

    pub(crate) fn pass(&mut self, from: Timestamp, to: Timestamp, held: &[MessageLease]) {
        let mut now = from;
        while now < to {
            self.modify(held, now, LEASE_S);
            now = to.min(now + EXTENSION);
            self.broker.advance(time(now));
        }
    }

    /// Same effect as killing an emulator: its contents are lost, and the notifier creates topic
    /// and subscription again.
    pub(crate) fn forget_everything(&mut self, now: Timestamp) {
        self.broker.forget_everything();
        self.life += 1;
        self.create(now);
    }

    /// Turns faults off.
    pub(crate) fn mend(&mut self) {
        self.broker.set_faults(Faults::default());
    }

    pub(crate) fn broker_faults(&self) -> BrokerFaults {
        let count = |fits: fn(u32) -> bool| self.deliveries.values().filter(|count| fits(**count)).count();
        BrokerFaults {
            published: self.deliveries.len(),
            lost: count(|deliveries| deliveries == 0),
            repeated: count(|deliveries| deliveries > 1),
            overtaken: self.overtaken,
            forgotten: self.life as usize,
            injected: self.broker.fault_counts(),
        }
    }
}

fn time(now: Timestamp) -> Time {
    let nanos = now.timestamp_nanos_opt().and_then(|nanos| u64::try_from(nanos).ok()).unwrap();
    Time::from_secs(0) + Duration::from_nanos(nanos)
}
