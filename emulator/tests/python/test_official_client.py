"""The official Python client, as an application uses it, against the emulator that PUBSUB_EMULATOR_HOST names.

Nothing here waits for a length of time: everything waits for what has to happen, and gives up after PATIENCE.
"""

import collections
import datetime
import http.server
import json
import queue
import threading
import time
import uuid

import pytest
from google.api_core import exceptions as core_exceptions
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber import exceptions
from google.cloud.pubsub_v1.types import FlowControl, PublisherOptions, StreamingPullRequest
from google.pubsub_v1.services.schema_service import SchemaServiceClient

PATIENCE = 30
# How long a client of protocol version 1 waits for the answer to its ping.
PING_PATIENCE = 15
PROJECT = "official-client"


class Stage:
    def __init__(self):
        self.publisher = pubsub_v1.PublisherClient(
            publisher_options=PublisherOptions(enable_message_ordering=True)
        )
        self.subscriber = pubsub_v1.SubscriberClient()
        self.topic = self.make_topic()

    def make_topic(self):
        name = self.publisher.topic_path(PROJECT, f"t-{uuid.uuid4()}")
        return self.publisher.create_topic(name=name).name

    def subscribe(self, topic=None, **settings):
        name = self.subscriber.subscription_path(PROJECT, f"s-{uuid.uuid4()}")
        wish = {"name": name, "topic": topic or self.topic, **settings}
        return self.subscriber.create_subscription(request=wish).name

    def publish(self, *texts, **attributes):
        futures = [self.publisher.publish(self.topic, text.encode(), **attributes) for text in texts]
        return [future.result(PATIENCE) for future in futures]

    def pull_one(self, subscription):
        patience_ends = time.monotonic() + PATIENCE
        while time.monotonic() < patience_ends:
            answer = self.subscriber.pull(subscription=subscription, max_messages=1, timeout=PATIENCE)
            for received in answer.received_messages:
                return received
        raise AssertionError("no message came")


@pytest.fixture
def stage():
    stage = Stage()
    with stage.subscriber:
        yield stage


class Inbox:
    """Messages as a streaming pull hands them to its callback."""

    def __init__(self, stage, subscription, **options):
        self.messages = queue.Queue()
        self.future = stage.subscriber.subscribe(subscription, self.messages.put, **options)

    def next(self):
        return self.messages.get(timeout=PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.future.cancel()
        self.future.result(PATIENCE)


def test_messages_of_a_key_arrive_in_order_also_after_a_nack(stage):
    subscription = stage.subscribe(enable_message_ordering=True)
    keys, count = ["a", "b", "c"], 30
    for number in range(count):
        for key in keys:
            stage.publish(str(number), ordering_key=key)
    done, given_back = collections.defaultdict(list), set()

    def over(key):
        return key in given_back and 10 in done[key] and done[key][-1] == count - 1

    with Inbox(stage, subscription) as inbox:
        while not all(map(over, keys)):
            message = inbox.next()
            key, number = message.ordering_key, int(message.data)
            if number == 10 and key not in given_back:
                given_back.add(key)
                message.nack()
            else:
                done[key].append(number)
                message.ack()
    for key in keys:
        # Later ones may have been on their way before the nack; they come again after what was given back.
        before, again = done[key][:10], done[key][done[key].index(10) :]
        assert before == list(range(10)), done[key]
        assert again == list(range(10, count)), done[key]


def test_exactly_once_tells_what_became_of_an_acknowledgement(stage):
    subscription = stage.subscribe(enable_exactly_once_delivery=True)
    stage.publish("once")
    with Inbox(stage, subscription) as inbox:
        first = inbox.next()
        assert first.nack_with_response().result(PATIENCE) == exceptions.AcknowledgeStatus.SUCCESS
        second = inbox.next()
        assert second.message_id == first.message_id and second.ack_id != first.ack_id
        assert second.ack_with_response().result(PATIENCE) == exceptions.AcknowledgeStatus.SUCCESS
    with pytest.raises(core_exceptions.InvalidArgument) as refused:
        stage.subscriber.acknowledge(subscription=subscription, ack_ids=[first.ack_id])
    assert refused.value.reason == "EXACTLY_ONCE_ACKID_FAILURE"
    assert refused.value.metadata[first.ack_id] == "PERMANENT_FAILURE_INVALID_ACK_ID"


def test_flow_control_leaves_the_rest_to_others(stage):
    subscription = stage.subscribe()
    stage.publish("a", "b", "c", "d", "e")
    with Inbox(stage, subscription, flow_control=FlowControl(max_messages=2)) as inbox:
        held = [inbox.next(), inbox.next()]
        others, patience_ends = [], time.monotonic() + PATIENCE
        while len(others) < 3:
            assert time.monotonic() < patience_ends, "the first stream has taken what was meant for others"
            answer = stage.subscriber.pull(
                subscription=subscription, max_messages=5, timeout=PATIENCE
            )
            others.extend(received.message.data for received in answer.received_messages)
        assert sorted(others + [message.data for message in held]) == [b"a", b"b", b"c", b"d", b"e"]
        for message in held:
            message.ack()


def test_what_always_fails_goes_to_the_dead_letter_topic(stage):
    dead = stage.make_topic()
    letters = stage.subscribe(dead)
    subscription = stage.subscribe(dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5})
    stage.publish("poison", colour="red")
    attempts = []
    with Inbox(stage, subscription) as inbox, Inbox(stage, letters) as dead_inbox:
        while len(attempts) < 5:
            message = inbox.next()
            attempts.append(message.delivery_attempt)
            message.nack()
        letter = dead_inbox.next()
        letter.ack()
    assert attempts == [1, 2, 3, 4, 5]
    assert (letter.data, letter.attributes["colour"]) == (b"poison", "red")
    assert letter.attributes["CloudPubSubDeadLetterSourceSubscription"] == subscription.split("/")[-1]
    assert letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"


def test_a_filter_lets_through_what_matches(stage):
    subscription = stage.subscribe(filter='attributes.colour = "red" OR attributes:last')
    stage.publish("green", colour="green")
    stage.publish("red", colour="red")
    stage.publish("last", last="")
    seen = []
    with Inbox(stage, subscription) as inbox:
        while b"last" not in seen:
            message = inbox.next()
            seen.append(message.data)
            message.ack()
    assert sorted(seen) == [b"last", b"red"]


def test_a_push_endpoint_gets_messages_until_it_agrees(stage):
    posted, statuses = queue.Queue(), iter([500, 204])

    class Endpoint(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            posted.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(next(statuses, 204))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}/"
        subscription = stage.subscribe(push_config={"push_endpoint": endpoint})
        [message_id] = stage.publish("pushed", colour="red")
        first, second = posted.get(timeout=PATIENCE), posted.get(timeout=PATIENCE)
    finally:
        server.shutdown()
    assert first["subscription"] == subscription
    assert first["message"]["messageId"] == second["message"]["messageId"] == message_id
    assert first["message"]["attributes"] == {"colour": "red"}


def test_a_seek_withdraws_the_lease_of_what_it_brings_back(stage):
    subscription = stage.subscribe(retain_acked_messages=True)
    snapshot = stage.subscriber.snapshot_path(PROJECT, f"n-{uuid.uuid4()}")
    stage.subscriber.create_snapshot(name=snapshot, subscription=subscription)
    [message_id] = stage.publish("again")
    an_hour_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    for target in [{"time": an_hour_ago}, {"snapshot": snapshot}]:
        leased = stage.pull_one(subscription)
        stage.subscriber.seek(request={"subscription": subscription, **target})
        stage.subscriber.acknowledge(subscription=subscription, ack_ids=[leased.ack_id])
        again = stage.pull_one(subscription)
        assert again.message.message_id == leased.message.message_id == message_id, target
        assert again.ack_id != leased.ack_id, target
        stage.subscriber.modify_ack_deadline(
            subscription=subscription, ack_ids=[again.ack_id], ack_deadline_seconds=0
        )


def test_a_mask_may_name_a_part_of_a_field(stage):
    dead = stage.make_topic()
    subscription = stage.subscribe(dead_letter_policy={"dead_letter_topic": dead, "max_delivery_attempts": 5})
    changed = {
        "name": subscription,
        "dead_letter_policy": {"max_delivery_attempts": 20},
        "expiration_policy": {"ttl": datetime.timedelta(days=20)},
    }
    mask = {"paths": ["dead_letter_policy.max_delivery_attempts", "expiration_policy.ttl"]}
    updated = stage.subscriber.update_subscription(subscription=changed, update_mask=mask)
    assert updated.dead_letter_policy.max_delivery_attempts == 20
    assert updated.dead_letter_policy.dead_letter_topic == dead
    assert updated.expiration_policy.ttl == datetime.timedelta(days=20)


def test_a_project_has_no_schemas():
    with SchemaServiceClient() as schemas:
        assert list(schemas.list_schemas(parent=f"projects/{PROJECT}", timeout=PATIENCE)) == []
        with pytest.raises(core_exceptions.NotFound):
            schemas.get_schema(name=f"projects/{PROJECT}/schemas/orders", timeout=PATIENCE)


def test_a_topic_takes_what_fits_its_schema(stage):
    project = f"schemas-{uuid.uuid4()}"
    fields = [{"name": "id", "type": "int"}]
    record = {"type": "record", "name": "Order", "fields": fields}
    with SchemaServiceClient() as schemas:
        wish = {"type_": "AVRO", "definition": json.dumps(record)}
        schema = schemas.create_schema(parent=f"projects/{project}", schema=wish, schema_id="orders")
        fields.append({"name": "note", "type": ["null", "string"], "default": None})
        wish["definition"] = json.dumps(record)
        revision = schemas.commit_schema(name=schema.name, schema=wish).revision_id
        listed = schemas.list_schema_revisions(name=schema.name)
        assert [each.revision_id for each in listed] == [revision, schema.revision_id]

        settings = {"schema": schema.name, "encoding": "JSON"}
        name = stage.publisher.topic_path(project, "orders")
        stage.topic = stage.publisher.create_topic(request={"name": name, "schema_settings": settings}).name
        subscription = stage.subscribe()
        stage.publish('{"id": 7, "note": null}')
        attributes = {
            "googclient_schemaname": schema.name,
            "googclient_schemaencoding": "JSON",
            "googclient_schemarevisionid": revision,
        }
        assert stage.pull_one(subscription).message.attributes == attributes
        with pytest.raises(core_exceptions.InvalidArgument) as refused:
            stage.publish('{"id": "seven"}')
        assert refused.value.reason == "INVALID_JSON_AVRO_MESSAGE"

        schemas.delete_schema(name=schema.name)
        assert stage.publisher.get_topic(topic=name).schema_settings.schema == "_deleted-schema_"


def test_the_time_of_publication_has_whole_milliseconds(stage):
    subscription = stage.subscribe()
    # One of a thousand would be in whole milliseconds by chance.
    for text in ["a", "b", "c"]:
        stage.publish(text)
        published = stage.pull_one(subscription).message.publish_time
        assert published.nanosecond % 1_000_000 == 0, published


def test_an_acknowledgement_of_many_messages_is_too_large(stage):
    subscription = stage.subscribe()
    stage.publish("one")
    ack_id = stage.pull_one(subscription).ack_id
    with pytest.raises(core_exceptions.InvalidArgument) as refused:
        stage.subscriber.acknowledge(subscription=subscription, ack_ids=[ack_id] * 5_000)
    assert "524288 bytes" in refused.value.message
    stage.subscriber.acknowledge(subscription=subscription, ack_ids=[ack_id] * 2_500)


def test_a_ping_on_a_stream_is_answered_at_once(stage):
    requests = queue.SimpleQueue()
    requests.put(
        StreamingPullRequest(subscription=stage.subscribe(), stream_ack_deadline_seconds=60, protocol_version=1)
    )
    answers = stage.subscriber.transport.streaming_pull(iter(requests.get, None), timeout=PING_PATIENCE)
    try:
        for _ in range(3):
            requests.put(StreamingPullRequest())
            assert not next(answers).received_messages
    finally:
        answers.cancel()
        requests.put(None)
