//! Pushing in virtual time: a broker, and endpoints that answer as the test says.

use std::time::Duration;

use super::{PushDelivery, PushResult, UNDER_WAY_MAX};
use crate::broker::{Broker, Faults, Time};
use crate::proto::pubsub::{
    self, DeadLetterPolicy, ModifyPushConfigRequest, PublishRequest, PubsubMessage, PullRequest, PushConfig,
    RetryPolicy, Subscription, Topic,
};

const TOPIC: &str = "projects/demo/topics/orders";
const DEAD: &str = "projects/demo/topics/dead";
const HOOK: &str = "projects/demo/subscriptions/hook";

struct Bench {
    broker: Broker,
    now: Time,
}

impl Bench {
    fn new() -> Self {
        let mut broker = Broker::new(Faults::default());
        let now = Time::from_secs(1_700_000_000);
        for name in [TOPIC, DEAD] {
            broker.create_topic(now, Topic { name: name.into(), ..Topic::default() }).unwrap();
        }
        Self { broker, now }
    }

    fn with(subscription: Subscription) -> Self {
        let mut bench = Self::new();
        bench.subscribe(subscription);
        assert!(bench.due().is_empty(), "there is nothing yet");
        bench
    }

    fn subscribe(&mut self, subscription: Subscription) {
        self.broker.create_subscription(self.now, subscription).unwrap();
    }

    fn publish(&mut self, count: usize, key: &str) {
        let message = |number: usize| PubsubMessage {
            data: number.to_string().into(),
            ordering_key: key.into(),
            ..PubsubMessage::default()
        };
        let messages = (1..=count).map(message).collect();
        let request = PublishRequest { topic: TOPIC.into(), messages };
        self.broker.publish(self.now, request).unwrap();
    }

    /// The deliveries that are due after this long.
    fn due_after(&mut self, wait: Duration) -> Vec<PushDelivery> {
        self.now = self.now + wait;
        self.broker.advance(self.now);
        self.broker.push_due(self.now)
    }

    fn due(&mut self) -> Vec<PushDelivery> {
        self.due_after(Duration::ZERO)
    }

    fn answer(&mut self, delivery: &PushDelivery, result: &PushResult) {
        self.broker.push_answered(self.now, &delivery.subscription, &delivery.ack_id, result);
    }

    fn backlog(&self) -> usize {
        let overview = self.broker.overview(self.now);
        overview.subscriptions.iter().map(|subscription| subscription.messages.backlog).sum()
    }

    fn modify(&mut self, endpoint: &str) {
        let request = ModifyPushConfigRequest { subscription: HOOK.into(), push_config: Some(to(endpoint)) };
        self.broker.modify_push_config(self.now, request).unwrap();
    }

    fn pull(&mut self, subscription: &str) -> Result<usize, tonic::Code> {
        let request =
            PullRequest { subscription: subscription.into(), max_messages: 1_000, ..PullRequest::default() };
        let answer = self.broker.pull(self.now, &request);
        answer.map(|response| response.received_messages.len()).map_err(|refusal| refusal.code)
    }
}

fn to(endpoint: &str) -> PushConfig {
    PushConfig { push_endpoint: endpoint.into(), ..PushConfig::default() }
}

fn hook() -> Subscription {
    Subscription {
        name: HOOK.into(),
        topic: TOPIC.into(),
        push_config: Some(to("http://localhost/push")),
        ..Subscription::default()
    }
}

fn data(deliveries: &[PushDelivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| std::str::from_utf8(&delivery.message.data).unwrap()).collect()
}

fn failed() -> PushResult {
    PushResult::Failed("500".into())
}

#[test]
fn acknowledged_pushes_are_removed_and_widen_the_window() {
    let mut bench = Bench::with(hook());
    bench.publish(20, "");
    let first = bench.due();
    assert_eq!(data(&first), ["1", "2", "3", "4"]);
    assert_eq!(first[0].deadline, Duration::from_secs(10));
    assert!(bench.due().is_empty(), "the window is full");
    for delivery in &first {
        bench.answer(delivery, &PushResult::Acknowledged);
    }
    assert_eq!(bench.backlog(), 16);
    assert_eq!(bench.due().len(), 8);
}

#[test]
fn what_fails_comes_again_after_the_pause() {
    let mut bench = Bench::with(hook());
    bench.publish(1, "");
    let first = bench.due();
    bench.answer(&first[0], &failed());
    assert!(bench.due().is_empty());
    assert_eq!(bench.broker.next_due().unwrap().since(bench.now), Duration::from_millis(100));
    let again = bench.due_after(Duration::from_millis(100));
    assert_eq!(data(&again), ["1"]);
    assert_ne!(again[0].ack_id, first[0].ack_id);
    bench.answer(&again[0], &failed());
    assert!(bench.due_after(Duration::from_millis(199)).is_empty());
    assert_eq!(data(&bench.due_after(Duration::from_millis(1))), ["1"]);
}

#[test]
fn the_end_of_a_pause_wakes_the_pusher() {
    let mut bench = Bench::with(hook());
    bench.publish(1, "");
    let first = bench.due();
    bench.answer(&first[0], &failed());
    bench.broker.take_woken();
    bench.now = bench.broker.next_due().unwrap();
    bench.broker.advance(bench.now);
    assert_eq!(bench.broker.take_woken(), [HOOK]);
}

#[test]
fn the_retry_policy_delays_the_message_and_the_pause_the_others() {
    let retry = |seconds| Some(crate::proto::protobuf::Duration { seconds, nanos: 0 });
    let policy = RetryPolicy { minimum_backoff: retry(30), maximum_backoff: retry(600) };
    let mut bench = Bench::with(Subscription { retry_policy: Some(policy), ..hook() });
    bench.publish(1, "");
    let first = bench.due();
    bench.publish(1, "");
    bench.answer(&first[0], &failed());
    assert!(bench.due().is_empty(), "it pauses");
    let second = bench.due_after(Duration::from_millis(100));
    assert_eq!(second.len(), 1);
    assert_ne!(second[0].message.id, first[0].message.id);
    bench.answer(&second[0], &PushResult::Acknowledged);
    assert!(bench.due_after(Duration::from_secs(29)).is_empty());
    let again = bench.due_after(Duration::from_secs(1));
    assert_eq!(again[0].message.id, first[0].message.id);
}

#[test]
fn a_request_without_an_answer_frees_its_message_but_not_its_place() {
    let mut bench = Bench::with(Subscription { ack_deadline_seconds: 10, ..hook() });
    bench.publish(1, "");
    let lost = bench.due();
    let again = bench.due_after(Duration::from_secs(12));
    assert_eq!(data(&again), ["1"]);
    assert_eq!(bench.broker.overview(bench.now).subscriptions[0].push.as_ref().unwrap().under_way, 2);
    bench.answer(&again[0], &PushResult::Acknowledged);
    assert_eq!(bench.backlog(), 0);
    bench.answer(&lost[0], &failed());
    assert_eq!(bench.broker.overview(bench.now).subscriptions[0].push.as_ref().unwrap().under_way, 0);
}

#[test]
fn of_an_ordering_key_one_message_at_a_time_is_under_way() {
    let mut bench = Bench::with(Subscription { enable_message_ordering: true, ..hook() });
    bench.publish(3, "a");
    bench.publish(1, "b");
    let first = bench.due();
    assert_eq!(first.iter().map(|delivery| &*delivery.message.ordering_key).collect::<Vec<_>>(), ["a", "b"]);
    bench.answer(&first[0], &failed());
    bench.answer(&first[1], &PushResult::Acknowledged);
    for expected in ["1", "2", "3"] {
        let due = bench.due_after(Duration::from_secs(1));
        assert_eq!(data(&due), [expected]);
        bench.answer(&due[0], &PushResult::Acknowledged);
    }
    assert_eq!(bench.backlog(), 0);
}

#[test]
fn deliveries_are_counted_and_dead_letters_go_to_their_topic() {
    let policy = DeadLetterPolicy { dead_letter_topic: DEAD.into(), max_delivery_attempts: 5 };
    let mut bench = Bench::with(Subscription { dead_letter_policy: Some(policy), ..hook() });
    let grave = "projects/demo/subscriptions/grave";
    let dead = Subscription { name: grave.into(), topic: DEAD.into(), ..Subscription::default() };
    bench.subscribe(dead);
    bench.publish(1, "");
    for attempt in 1..=5 {
        let due = bench.due_after(Duration::from_secs(60));
        assert_eq!(due[0].attempt, Some(attempt));
        bench.answer(&due[0], &failed());
    }
    assert!(bench.due_after(Duration::from_secs(60)).is_empty());
    assert_eq!(bench.pull(grave), Ok(1));
}

#[test]
fn a_subscription_pushes_or_is_pulled_and_can_be_switched() {
    let mut bench = Bench::with(hook());
    assert_eq!(bench.pull(HOOK), Err(tonic::Code::FailedPrecondition));
    bench.modify("");
    bench.publish(1, "");
    assert!(bench.due().is_empty());
    assert_eq!(bench.pull(HOOK), Ok(1));
    bench.modify("http://localhost/push");
    bench.publish(1, "");
    assert_eq!(bench.pull(HOOK), Err(tonic::Code::FailedPrecondition));
    assert_eq!(bench.due().len(), 1, "the other one is leased");
}

#[test]
fn an_answer_after_the_switch_still_acknowledges() {
    let mut bench = Bench::with(hook());
    bench.publish(1, "");
    let due = bench.due();
    bench.modify("");
    bench.answer(&due[0], &PushResult::Acknowledged);
    assert_eq!(bench.backlog(), 0);
}

#[test]
fn a_new_endpoint_does_not_pause_for_the_old_one_s_failures() {
    let mut bench = Bench::with(hook());
    bench.publish(1, "");
    let due = bench.due();
    bench.answer(&due[0], &failed());
    assert!(bench.due().is_empty());
    bench.modify("http://localhost/other");
    let due = bench.due();
    assert_eq!(due[0].config.push_endpoint, "http://localhost/other");
}

#[test]
fn a_detached_or_deleted_subscription_pushes_no_more() {
    let mut bench = Bench::with(hook());
    bench.publish(9, "");
    let due = bench.due();
    let request = pubsub::DetachSubscriptionRequest { subscription: HOOK.into() };
    bench.broker.detach_subscription(bench.now, request).unwrap();
    bench.answer(&due[0], &failed());
    assert!(bench.due_after(Duration::from_secs(60)).is_empty());
    let request = pubsub::DeleteSubscriptionRequest { subscription: HOOK.into() };
    bench.broker.delete_subscription(bench.now, request).unwrap();
    bench.answer(&due[1], &failed());
    assert!(bench.due_after(Duration::from_secs(60)).is_empty());
}

#[test]
fn no_subscription_starves_at_the_limit_of_push_requests() {
    let mut bench = Bench::new();
    let names: Vec<String> =
        (0..4).map(|number| format!("projects/demo/subscriptions/hook-{number}")).collect();
    for name in &names {
        bench.subscribe(Subscription { name: name.clone(), ..hook() });
    }
    bench.publish(1_000, "");
    bench.publish(1_000, "");
    let mut answered = std::collections::BTreeMap::<String, usize>::new();
    // Six rounds until the windows have their full size, then enough for two turns each.
    for _ in 0..10 {
        let due = bench.due();
        assert!(due.len() <= UNDER_WAY_MAX);
        for delivery in due {
            bench.answer(&delivery, &PushResult::Acknowledged);
            *answered.entry(delivery.subscription).or_default() += 1;
        }
    }
    assert_eq!(answered.into_values().collect::<Vec<_>>(), [764; 4]);
}

#[test]
fn answers_from_before_a_reset_are_ignored() {
    let mut bench = Bench::with(hook());
    bench.publish(2, "");
    let old = bench.due();
    bench.broker.forget_everything();
    let topic = Topic { name: TOPIC.into(), ..Topic::default() };
    bench.broker.create_topic(bench.now, topic).unwrap();
    bench.subscribe(hook());
    bench.publish(1, "");
    for delivery in &old {
        bench.answer(delivery, &PushResult::Acknowledged);
    }
    assert_eq!((bench.backlog(), bench.due().len()), (1, 1));
}

#[test]
fn large_messages_fill_the_window_too() {
    let mut bench = Bench::with(hook());
    let large = PubsubMessage { data: vec![b'x'; 1_100_000].into(), ..PubsubMessage::default() };
    let request = PublishRequest { topic: TOPIC.into(), messages: vec![large; 6] };
    bench.broker.publish(bench.now, request).unwrap();
    assert_eq!(bench.due().len(), 4);
}
