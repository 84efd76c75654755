//! What is in the data folder survives the process, however that ends.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use wakeq_emulator::proto::protobuf::FieldMask;
use wakeq_emulator::proto::pubsub::publisher_client::PublisherClient;
use wakeq_emulator::proto::pubsub::schema_service_client::SchemaServiceClient;
use wakeq_emulator::proto::pubsub::seek_request::Target;
use wakeq_emulator::proto::pubsub::subscriber_client::SubscriberClient;
use wakeq_emulator::proto::pubsub::{
    AcknowledgeRequest, CommitSchemaRequest, CreateSchemaRequest, CreateSnapshotRequest,
    DeleteSchemaRevisionRequest, DeleteTopicRequest, Encoding, GetSubscriptionRequest,
    ListSchemaRevisionsRequest, ListTopicsRequest, PublishRequest, PubsubMessage, PullRequest,
    ReceivedMessage, Schema, SchemaSettings, SchemaView, SeekRequest, Subscription, Topic,
    UpdateTopicRequest, schema,
};
use wakeq_testbed::TestTime;

use super::binary::program;
use super::{soon, texts};

const TOPIC: &str = "projects/demo/topics/orders";
const SUBSCRIPTION: &str = "projects/demo/subscriptions/worker";
const SNAPSHOT: &str = "projects/demo/snapshots/friday";
const SCHEMA: &str = "projects/demo/schemas/order";
const ORDER: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}"#;
const OTHER_TOPIC: &str = "projects/other/topics/orders";

/// A folder of this test's own, which is not there yet.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("data-{name}-{}", std::process::id()));
    let _earlier = std::fs::remove_dir_all(&path);
    path
}

/// The program on a data folder, and clients of it.
struct Process {
    child: Child,
    publisher: PublisherClient<Channel>,
    subscriber: SubscriberClient<Channel>,
    schemas: SchemaServiceClient<Channel>,
}

impl Process {
    async fn start(folder: &Path) -> Self {
        let mut command = program(&["--port", "0", "--project", "demo,orders:worker", "--data"]);
        let mut child = command.arg(folder).spawn().unwrap();
        let mut line = String::new();
        let output = child.stdout.as_mut().unwrap();
        soon(BufReader::new(output).read_line(&mut line)).await.unwrap();
        let (_, host) = line.trim().rsplit_once("PUBSUB_EMULATOR_HOST=").unwrap();
        let channel = soon(Endpoint::from_shared(format!("http://{host}")).unwrap().connect()).await.unwrap();
        let publisher = PublisherClient::new(channel.clone());
        let subscriber = SubscriberClient::new(channel.clone());
        Self { child, publisher, subscriber, schemas: SchemaServiceClient::new(channel) }
    }

    /// Ends it by SIGKILL.
    async fn kill(mut self) {
        soon(self.child.kill()).await.unwrap();
    }

    async fn publish(&mut self, topic: &str, texts: &[&str]) {
        let message = |text: &&str| PubsubMessage { data: (*text).to_owned().into(), ..Default::default() };
        let messages = texts.iter().map(message).collect();
        soon(self.publisher.publish(PublishRequest { topic: topic.to_owned(), messages })).await.unwrap();
    }

    async fn pull(&mut self) -> Vec<ReceivedMessage> {
        let subscription = SUBSCRIPTION.to_owned();
        #[expect(deprecated, reason = "there may be none")]
        let request = PullRequest { subscription, max_messages: 100, return_immediately: true };
        soon(self.subscriber.pull(request)).await.unwrap().into_inner().received_messages
    }

    async fn acknowledge(&mut self, received: &[ReceivedMessage]) {
        let ack_ids = received.iter().map(|received| received.ack_id.clone()).collect();
        let request = AcknowledgeRequest { subscription: SUBSCRIPTION.to_owned(), ack_ids };
        soon(self.subscriber.acknowledge(request)).await.unwrap();
    }

    async fn topics(&mut self, project: &str) -> Vec<String> {
        let request = ListTopicsRequest { project: project.to_owned(), ..Default::default() };
        let topics = soon(self.publisher.list_topics(request)).await.unwrap().into_inner().topics;
        topics.into_iter().map(|topic| topic.name).collect()
    }
}

#[tokio::test]
async fn kill_9_loses_nothing_and_brings_nothing_back() {
    let _time = TestTime::begin();
    let folder = folder("killed");
    let mut process = Process::start(&folder).await;
    let other = Topic { name: OTHER_TOPIC.to_owned(), ..Topic::default() };
    soon(process.publisher.create_topic(other)).await.unwrap();
    process.publish(TOPIC, &["a", "b", "c", "d"]).await;
    process.publish(OTHER_TOPIC, &["of nobody"]).await;
    let received = process.pull().await;
    assert_eq!(texts(&received), ["a", "b", "c", "d"]);
    process.acknowledge(&received[1..3]).await;
    process.kill().await;

    let mut process = Process::start(&folder).await;
    assert_eq!(process.topics("projects/demo").await, [TOPIC]);
    assert_eq!(process.topics("projects/other").await, [OTHER_TOPIC]);
    let again = process.pull().await;
    assert_eq!(texts(&again), ["a", "d"], "exactly what was not acknowledged");
    process.acknowledge(&received).await;
    process.acknowledge(&again).await;
    process.kill().await;

    let mut process = Process::start(&folder).await;
    assert!(process.pull().await.is_empty());
    process.publish(TOPIC, &["e"]).await;
    assert_eq!(texts(&process.pull().await), ["e"]);
}

/// The bodies that were published and not acknowledged.
#[derive(Default)]
struct Log {
    waiting: BTreeSet<String>,
    /// What was to be published or acknowledged when the process ended: either is right.
    doubtful: Option<String>,
    next: u32,
}

impl Log {
    /// Publishes messages and acknowledges most of them.
    async fn fill(&mut self, process: &mut Process) {
        for _ in 0..1_000 {
            self.next += 1;
            let body = format!("{:06}{}", self.next, "x".repeat(10_000));
            self.doubtful = Some(body.clone());
            process.publish(TOPIC, &[&body]).await;
            self.waiting.insert(body.clone());
            self.doubtful = None;
            if self.next.is_multiple_of(10) {
                continue;
            }
            let mut received = process.pull().await;
            received.retain(|received| texts(std::slice::from_ref(received)) == [body.as_str()]);
            assert_eq!(received.len(), 1);
            self.doubtful = Some(body.clone());
            process.acknowledge(&received).await;
            self.waiting.remove(&body);
            self.doubtful = None;
        }
    }

    async fn check(&mut self, process: &mut Process) {
        let mut found = BTreeSet::new();
        loop {
            let received = process.pull().await;
            if received.is_empty() {
                break;
            }
            found.extend(texts(&received));
        }
        if let Some(doubtful) = self.doubtful.take() {
            if found.contains(&doubtful) {
                self.waiting.insert(doubtful);
            } else {
                self.waiting.remove(&doubtful);
            }
        }
        let numbers = |bodies: &BTreeSet<String>| -> Vec<String> {
            bodies.iter().map(|body| body[..6].to_owned()).collect()
        };
        assert_eq!(numbers(&found), numbers(&self.waiting));
    }
}

#[tokio::test]
async fn kill_9_while_the_file_is_written_anew_loses_nothing() {
    let _time = TestTime::begin();
    let folder = folder("anew");
    let (mut log, mut caught) = (Log::default(), 0);
    for _ in 0..5 {
        let mut process = Process::start(&folder).await;
        log.check(&mut process).await;
        // It ends with the other one at the latest.
        let begun = async {
            loop {
                if folder.join("data.new").exists() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = begun => caught += 1,
            () = log.fill(&mut process) => {}
        }
        process.kill().await;
    }
    assert_eq!(caught, 5, "the file is written anew after a hundred of these messages");
    let mut process = Process::start(&folder).await;
    log.check(&mut process).await;
}

#[tokio::test]
async fn snapshots_and_settings_survive_and_what_was_deleted_does_not() {
    let _time = TestTime::begin();
    let folder = folder("snapshots");
    let mut process = Process::start(&folder).await;
    process.publish(TOPIC, &["a", "b"]).await;
    let (name, subscription) = (SNAPSHOT.to_owned(), SUBSCRIPTION.to_owned());
    let request = CreateSnapshotRequest { name, subscription, ..Default::default() };
    soon(process.subscriber.create_snapshot(request)).await.unwrap();
    let received = process.pull().await;
    process.acknowledge(&received).await;
    let picky = Subscription {
        name: "projects/demo/subscriptions/picky".to_owned(),
        topic: TOPIC.to_owned(),
        filter: "attributes:a".to_owned(),
        ..Subscription::default()
    };
    let picky = soon(process.subscriber.create_subscription(picky)).await.unwrap().into_inner();
    let gone = Topic { name: OTHER_TOPIC.to_owned(), ..Topic::default() };
    soon(process.publisher.create_topic(gone)).await.unwrap();
    let request = DeleteTopicRequest { topic: OTHER_TOPIC.to_owned() };
    soon(process.publisher.delete_topic(request)).await.unwrap();
    process.kill().await;

    let mut process = Process::start(&folder).await;
    assert!(process.topics("projects/other").await.is_empty());
    let request = GetSubscriptionRequest { subscription: picky.name.clone() };
    assert_eq!(soon(process.subscriber.get_subscription(request)).await.unwrap().into_inner(), picky);
    assert!(process.pull().await.is_empty());
    let target = Some(Target::Snapshot(SNAPSHOT.to_owned()));
    let request = SeekRequest { subscription: SUBSCRIPTION.to_owned(), target };
    soon(process.subscriber.seek(request)).await.unwrap();
    assert_eq!(texts(&process.pull().await), ["a", "b"]);
}

#[tokio::test]
async fn schemas_survive_with_their_topics_and_messages() {
    let _time = TestTime::begin();
    let folder = folder("schemas");
    let mut process = Process::start(&folder).await;
    let definition = ORDER.to_owned();
    let order = Schema { r#type: schema::Type::Avro.into(), definition, ..Schema::default() };
    let mut create = async |project: &str| {
        let (parent, schema_id) = (format!("projects/{project}"), "order".to_owned());
        let request = CreateSchemaRequest { parent, schema: Some(order.clone()), schema_id };
        soon(process.schemas.create_schema(request)).await.unwrap().into_inner()
    };
    let one = create("demo").await;
    let other = create("other").await;
    let request = CommitSchemaRequest { name: SCHEMA.to_owned(), schema: Some(order) };
    let two = soon(process.schemas.commit_schema(request)).await.unwrap().into_inner();
    let settings = SchemaSettings {
        schema: SCHEMA.to_owned(),
        encoding: Encoding::Json.into(),
        ..SchemaSettings::default()
    };
    let topic = Topic { name: TOPIC.to_owned(), schema_settings: Some(settings), ..Topic::default() };
    let update_mask = Some(FieldMask { paths: vec!["schema_settings".to_owned()] });
    let request = UpdateTopicRequest { topic: Some(topic), update_mask };
    soon(process.publisher.update_topic(request)).await.unwrap();
    process.publish(TOPIC, &[r#"{"id":7}"#]).await;
    process.kill().await;

    let mut process = Process::start(&folder).await;
    let mut listed = async |name: &str| {
        let view = SchemaView::Full.into();
        let request = ListSchemaRevisionsRequest { name: name.to_owned(), view, ..Default::default() };
        soon(process.schemas.list_schema_revisions(request)).await.unwrap().into_inner().schemas
    };
    assert_eq!(listed(SCHEMA).await, [two.clone(), one]);
    let others = listed(&other.name).await;
    assert_eq!(others, [other]);
    let name = format!("{SCHEMA}@{}", two.revision_id);
    let request = DeleteSchemaRevisionRequest { name, ..Default::default() };
    soon(process.schemas.delete_schema_revision(request)).await.unwrap();
    process.kill().await;

    let mut process = Process::start(&folder).await;
    let messages = vec![PubsubMessage { data: "not an order".into(), ..Default::default() }];
    let request = PublishRequest { topic: TOPIC.to_owned(), messages };
    let refusal = soon(process.publisher.publish(request)).await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    let received = process.pull().await;
    let attributes = &received[0].message.as_ref().unwrap().attributes;
    let marks: Vec<_> = attributes.values().map(String::as_str).collect();
    assert_eq!(marks, ["JSON", SCHEMA, "_deleted-schema-revision_"]);
}

#[tokio::test]
async fn a_folder_in_use_or_with_another_file_is_refused() {
    let _time = TestTime::begin();
    let used = folder("used");
    let _process = Process::start(&used).await;
    let foreign = folder("foreign");
    std::fs::create_dir_all(&foreign).unwrap();
    std::fs::write(foreign.join("data"), "something else").unwrap();
    for (folder, words) in
        [(&used, "another emulator uses this folder"), (&foreign, "is not a file of this emulator")]
    {
        let output = soon(program(&["--port", "0", "--data"]).arg(folder).output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
