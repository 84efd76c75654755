//! Streaming pulls as the server sees them, in virtual time.

use bytes::Bytes;

use super::super::Faults;
use super::*;
use pubsub::StreamingPullRequest;

const TOPIC: &str = "projects/p/topics/orders";
const SUBSCRIPTION: &str = "projects/p/subscriptions/bills";

struct Service {
    broker: Broker,
    now: Time,
}

fn request() -> StreamingPullRequest {
    StreamingPullRequest { stream_ack_deadline_seconds: 10, ..further() }
}

fn further() -> StreamingPullRequest {
    StreamingPullRequest::default()
}

fn first() -> StreamingPullRequest {
    StreamingPullRequest { subscription: SUBSCRIPTION.to_owned(), ..request() }
}

impl Service {
    fn new(configure: impl FnOnce(&mut pubsub::Subscription)) -> Self {
        let mut service =
            Self { broker: Broker::new(Faults::default()), now: Time::from_secs(1_700_000_000) };
        let topic = pubsub::Topic { name: TOPIC.to_owned(), ..Default::default() };
        service.broker.create_topic(service.now, topic).unwrap();
        service.subscribe(configure);
        service
    }

    fn subscribe(&mut self, configure: impl FnOnce(&mut pubsub::Subscription)) {
        let mut subscription = pubsub::Subscription {
            name: SUBSCRIPTION.to_owned(),
            topic: TOPIC.to_owned(),
            ..Default::default()
        };
        configure(&mut subscription);
        self.broker.create_subscription(self.now, subscription).unwrap();
    }

    fn publish(&mut self, bodies: &[&'static str]) {
        let messages = bodies
            .iter()
            .map(|body| pubsub::PubsubMessage {
                data: Bytes::from_static(body.as_bytes()),
                ..Default::default()
            })
            .collect();
        let request = pubsub::PublishRequest { topic: TOPIC.to_owned(), messages };
        self.broker.publish(self.now, request).unwrap();
    }

    fn open(&mut self, request: &StreamingPullRequest) -> StreamId {
        self.broker.open_stream(self.now, request).unwrap().0
    }

    fn ask(
        &mut self,
        id: StreamId,
        request: StreamingPullRequest,
    ) -> Answer<Option<pubsub::StreamingPullResponse>> {
        self.broker.stream_request(self.now, id, request)
    }

    fn turn(&mut self, id: StreamId) -> StreamTurn {
        self.broker.take_for_stream(self.now, id, 1_000)
    }

    /// Bodies and ack ids.
    fn take(&mut self, id: StreamId) -> Vec<(String, String)> {
        match self.turn(id) {
            StreamTurn::Response(response) => response
                .received_messages
                .into_iter()
                .map(|received| {
                    let data = received.message.unwrap().data;
                    (String::from_utf8(data.to_vec()).unwrap(), received.ack_id)
                })
                .collect(),
            StreamTurn::Nothing => Vec::new(),
            StreamTurn::Ended(refusal) => panic!("{refusal}"),
        }
    }

    fn bodies(&mut self, id: StreamId) -> Vec<String> {
        self.take(id).into_iter().map(|(body, _)| body).collect()
    }

    fn ended(&mut self, id: StreamId) -> Code {
        match self.turn(id) {
            StreamTurn::Ended(refusal) => refusal.code,
            other @ (StreamTurn::Response(_) | StreamTurn::Nothing) => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.broker.advance(self.now);
    }
}

fn ack(id: &str) -> StreamingPullRequest {
    StreamingPullRequest { ack_ids: vec![id.to_owned()], ..further() }
}

fn modify(id: &str, seconds: i32) -> StreamingPullRequest {
    StreamingPullRequest {
        modify_deadline_ack_ids: vec![id.to_owned()],
        modify_deadline_seconds: vec![seconds],
        ..further()
    }
}

#[test]
fn a_stream_gets_messages_and_settles_them() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    assert_eq!(service.turn(id), StreamTurn::Nothing);
    service.publish(&["a", "b", "c"]);
    assert_eq!(service.broker.take_woken(), [SUBSCRIPTION]);
    let taken = service.take(id);
    assert_eq!(taken.len(), 3);
    assert_eq!(service.ask(id, ack(&taken[0].1)), Ok(None));
    assert_eq!(service.ask(id, modify(&taken[1].1, 0)), Ok(None));
    assert_eq!(service.broker.take_woken(), [SUBSCRIPTION], "what is given back can be taken");
    assert_eq!(service.bodies(id), ["b"]);
    service.pass(10);
    assert_eq!(service.broker.take_woken(), [SUBSCRIPTION]);
    assert_eq!(service.bodies(id), ["c", "b"], "leased as long as the stream says, c first");
}

#[test]
fn flow_control_holds_back_messages_and_acknowledgements_let_them_through() {
    let mut service = Service::new(|_| {});
    let id = service.open(&StreamingPullRequest { max_outstanding_messages: 2, ..first() });
    service.publish(&["a", "b", "c", "d"]);
    let taken = service.take(id);
    assert_eq!(taken.len(), 2);
    assert_eq!(service.turn(id), StreamTurn::Nothing);
    assert!(service.broker.has_for_stream(service.now, id));
    service.broker.take_woken();
    service.ask(id, ack(&taken[0].1)).unwrap();
    assert_eq!(service.broker.take_woken(), [SUBSCRIPTION]);
    assert_eq!(service.bodies(id), ["c"]);
    service.ask(id, modify(&taken[1].1, 600)).unwrap();
    assert_eq!(service.turn(id), StreamTurn::Nothing, "more time is no room");
}

#[test]
fn flow_control_counts_bytes() {
    let mut service = Service::new(|_| {});
    let id = service.open(&StreamingPullRequest { max_outstanding_bytes: 5, ..first() });
    service.publish(&["aaa", "bb", "c", "ddddddd"]);
    let mut taken = service.take(id);
    assert_eq!(taken.len(), 2);
    for (_, ack_id) in taken.drain(..) {
        service.ask(id, ack(&ack_id)).unwrap();
    }
    let taken = service.take(id);
    assert_eq!(taken[0].0, "c");
    assert_eq!(service.turn(id), StreamTurn::Nothing);
    assert!(service.broker.has_for_stream(service.now, id), "it has no room for that");
    service.ask(id, ack(&taken[0].1)).unwrap();
    assert_eq!(service.bodies(id), ["ddddddd"], "alone, it goes whatever its size");
    assert!(!service.broker.has_for_stream(service.now, id));
}

#[test]
fn the_lease_time_can_change_on_the_way() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    service.ask(id, StreamingPullRequest { stream_ack_deadline_seconds: 60, ..further() }).unwrap();
    service.publish(&["a"]);
    service.take(id);
    service.pass(59);
    assert_eq!(service.turn(id), StreamTurn::Nothing);
    service.pass(1);
    assert_eq!(service.bodies(id), ["a"]);
}

#[test]
fn an_empty_pull_wakes_no_stream_even_if_one_has_capacity() {
    let mut service = Service::new(|subscription| subscription.enable_message_ordering = true);
    let id = service.open(&StreamingPullRequest { max_outstanding_messages: 1, ..first() });
    let keyed = |body: &'static str| pubsub::PubsubMessage {
        data: Bytes::from_static(body.as_bytes()),
        ordering_key: "key".to_owned(),
        ..Default::default()
    };
    let messages = vec![keyed("a"), keyed("b")];
    let request = pubsub::PublishRequest { topic: TOPIC.to_owned(), messages };
    service.broker.publish(service.now, request).unwrap();
    assert_eq!(service.bodies(id), ["a"]);
    service.broker.take_woken();
    let pull =
        pubsub::PullRequest { subscription: SUBSCRIPTION.to_owned(), max_messages: 1, ..Default::default() };
    assert_eq!(service.broker.pull(service.now, &pull).unwrap().received_messages, []);
    assert_eq!(service.broker.take_woken(), [""; 0]);
}

#[test]
fn a_lease_that_runs_out_makes_room_in_its_stream_though_its_message_waits() {
    let backoff = |seconds| Some(limits::proto_duration(Duration::from_secs(seconds)));
    let policy = pubsub::RetryPolicy { minimum_backoff: backoff(60), maximum_backoff: backoff(60) };
    let mut service = Service::new(|subscription| subscription.retry_policy = Some(policy));
    let id = service.open(&StreamingPullRequest { max_outstanding_messages: 1, ..first() });
    service.publish(&["a", "b", "c"]);
    for body in ["a", "b"] {
        assert_eq!(service.bodies(id), [body]);
        service.broker.take_woken();
        service.pass(10);
        assert_eq!(service.broker.take_woken(), [SUBSCRIPTION], "there is room for the next");
    }
    assert_eq!(service.bodies(id), ["c"]);
}

#[test]
fn exactly_once_delivery_confirms_each_id() {
    let mut service = Service::new(|subscription| subscription.enable_exactly_once_delivery = true);
    let id = service.open(&first());
    service.publish(&["a", "b"]);
    let StreamTurn::Response(response) = service.turn(id) else { panic!("two messages are there") };
    let properties =
        SubscriptionProperties { exactly_once_delivery_enabled: true, message_ordering_enabled: false };
    assert_eq!(response.subscription_properties, Some(properties));
    assert_eq!(service.broker.stream_heartbeat(id).subscription_properties, Some(properties));
    let ids: Vec<String> = response.received_messages.into_iter().map(|received| received.ack_id).collect();

    let confirmed = service.ask(id, modify(&ids[1], 0)).unwrap().unwrap();
    assert_eq!(confirmed.acknowledge_confirmation, None);
    assert_eq!(confirmed.modify_ack_deadline_confirmation.unwrap().ack_ids, ids[1..]);
    let both = StreamingPullRequest { ack_ids: ids.clone(), ..further() };
    let confirmed = service.ask(id, both).unwrap().unwrap().acknowledge_confirmation.unwrap();
    assert_eq!((confirmed.ack_ids, confirmed.invalid_ack_ids), (vec![ids[0].clone()], vec![ids[1].clone()]));
    let confirmed = service.ask(id, modify("nonsense", 10)).unwrap().unwrap();
    assert_eq!(confirmed.modify_ack_deadline_confirmation.unwrap().invalid_ack_ids, ["nonsense"]);
    assert_eq!(service.ask(id, further()), Ok(None), "nothing asked, nothing to confirm");
}

#[test]
fn a_request_that_settles_nothing_is_answered_if_the_client_understands_it() {
    for (protocol_version, exactly_once) in [(0, false), (1, false), (2, true)] {
        let mut service = Service::new(|resource| resource.enable_exactly_once_delivery = exactly_once);
        let id = service.open(&StreamingPullRequest { protocol_version, ..first() });
        let properties = SubscriptionProperties {
            exactly_once_delivery_enabled: exactly_once,
            message_ordering_enabled: false,
        };
        let pong =
            pubsub::StreamingPullResponse { subscription_properties: Some(properties), ..Default::default() };
        let expected = (protocol_version > 0).then_some(pong);
        assert_eq!(service.ask(id, further()).unwrap(), expected);
        service.publish(&["a"]);
        let (_, ack_id) = service.take(id).remove(0);
        let confirmed = service.ask(id, ack(&ack_id)).unwrap();
        assert_eq!(confirmed.is_some(), exactly_once, "an acknowledgement is not a ping");
    }
}

#[test]
fn rejects_invalid_requests_of_an_open_stream() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    let refused = |service: &mut Service, request| {
        let refusal = service.ask(id, request).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArgument);
        refusal.message
    };
    let again = StreamingPullRequest { subscription: SUBSCRIPTION.to_owned(), ..further() };
    assert!(refused(&mut service, again).starts_with("subscription can be set only in the first request"));
    let again = StreamingPullRequest { max_outstanding_messages: 1, ..further() };
    assert!(refused(&mut service, again).starts_with("max_outstanding_messages"));
    let uneven = StreamingPullRequest { modify_deadline_seconds: vec![1], ..further() };
    assert!(refused(&mut service, uneven).contains("as many"));
    for seconds in [-1, 601] {
        assert!(refused(&mut service, modify("a", seconds)).contains("between 0 and 600"));
    }
    assert!(refused(&mut service, ack("nonsense")).contains("nonsense"));
    let short = StreamingPullRequest { stream_ack_deadline_seconds: 9, ..further() };
    assert!(refused(&mut service, short).contains("between 10 and 600"));

    let refused =
        |service: &mut Service, request| service.broker.open_stream(service.now, &request).unwrap_err().code;
    for seconds in [0, 9, 601] {
        let first = StreamingPullRequest { stream_ack_deadline_seconds: seconds, ..first() };
        assert_eq!(refused(&mut service, first), Code::InvalidArgument);
    }
    let unknown = StreamingPullRequest { subscription: format!("{SUBSCRIPTION}-2"), ..first() };
    assert_eq!(refused(&mut service, unknown), Code::NotFound);
}

#[test]
fn the_first_request_may_settle_what_another_stream_got() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    service.publish(&["a", "b"]);
    let taken = service.take(id);
    service.broker.close_stream(service.now, id);
    let next = service.open(&StreamingPullRequest { ack_ids: vec![taken[0].1.clone()], ..first() });
    assert_eq!(service.turn(next), StreamTurn::Nothing, "what the first held is leased");
    service.pass(10);
    assert_eq!(service.bodies(next), ["b"]);
}

#[test]
fn what_the_first_request_settles_is_confirmed_too() {
    let mut service = Service::new(|subscription| subscription.enable_exactly_once_delivery = true);
    let id = service.open(&first());
    service.publish(&["a"]);
    let ids = vec![service.take(id)[0].1.clone()];
    let request = StreamingPullRequest { ack_ids: ids.clone(), ..first() };
    let (_, answer) = service.broker.open_stream(service.now, &request).unwrap();
    assert_eq!(answer.unwrap().acknowledge_confirmation.unwrap().ack_ids, ids);
    assert_eq!(service.broker.open_stream(service.now, &first()).unwrap().1, None);
}

#[test]
fn a_stream_ends_with_its_subscription_even_if_there_is_another_of_the_name() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    let delete = pubsub::DeleteSubscriptionRequest { subscription: SUBSCRIPTION.to_owned() };
    service.broker.delete_subscription(service.now, delete).unwrap();
    assert_eq!(service.broker.take_woken(), [SUBSCRIPTION]);
    assert_eq!(service.ended(id), Code::NotFound);
    service.subscribe(|_| {});
    assert_eq!(service.ended(id), Code::NotFound);
    assert_eq!(service.ask(id, further()).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_stream_ends_when_its_subscription_pushes_or_is_detached() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    let push =
        pubsub::PushConfig { push_endpoint: "https://example.com/push".to_owned(), ..Default::default() };
    let change =
        pubsub::ModifyPushConfigRequest { subscription: SUBSCRIPTION.to_owned(), push_config: Some(push) };
    service.broker.modify_push_config(service.now, change).unwrap();
    assert_eq!(service.ended(id), Code::FailedPrecondition);
}

#[test]
fn when_everything_is_forgotten_streams_end_and_their_numbers_are_not_used_again() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    service.broker.forget_everything();
    assert_eq!(service.ended(id), Code::Unavailable);
    let mut service = Service { broker: service.broker, now: service.now };
    let topic = pubsub::Topic { name: TOPIC.to_owned(), ..Default::default() };
    service.broker.create_topic(service.now, topic).unwrap();
    service.subscribe(|_| {});
    assert_ne!(service.open(&first()), id);
}

#[test]
fn faults_break_streams_before_they_take_anything() {
    let mut service = Service::new(|_| {});
    let id = service.open(&first());
    service.broker.set_faults(Faults { break_streams: 1.0, ..Faults::default() });
    assert_eq!(service.turn(id), StreamTurn::Nothing, "without a response there is nothing to break");
    service.publish(&["a"]);
    assert_eq!(service.ended(id), Code::Unavailable);
    service.broker.close_stream(service.now, id);
    service.broker.set_faults(Faults::default());
    let next = service.open(&first());
    assert_eq!(service.bodies(next), ["a"]);
}

#[test]
fn the_overview_lists_open_streams() {
    let mut service = Service::new(|_| {});
    let id = service.open(&StreamingPullRequest { client_id: "me".to_owned(), ..first() });
    service.publish(&["abc"]);
    service.take(id);
    let overview = StreamOverview {
        id,
        subscription: SUBSCRIPTION.to_owned(),
        client_id: "me".to_owned(),
        messages: 1,
        bytes: 3,
    };
    assert_eq!(service.broker.overview(service.now).streams, [overview]);
    service.broker.close_stream(service.now, id);
    assert_eq!(service.broker.overview(service.now).streams, []);
}
