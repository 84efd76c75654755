//! What callers see while the disk hangs, and once it has failed. The disk is a pipe that nobody
//! reads.

use std::fs::File;
use std::io::{PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;
use crate::broker::Answer;
use crate::clock::Clock;
use crate::proto::pubsub::PublishResponse;
use crate::server::core::Core;

const ROOM: u64 = 1 << 20;
const BODY: usize = 300_000;
/// The last of them takes the rest of the room.
const TAKEN: usize = 4;
const CALLS: usize = 20;

struct Stage {
    core: Arc<Core>,
    stop: CancellationToken,
    disk: PipeReader,
    calls: JoinSet<Answer<PublishResponse>>,
    _folder: Folder,
}

impl Stage {
    /// With a subscription that has one message.
    async fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let (disk, file) = std::io::pipe().unwrap();
        let file = DataFile::on(&folder.0, File::from(OwnedFd::from(file))).unwrap();
        let journal = Journal::with_room_for(ROOM, file).unwrap();
        let stop = CancellationToken::new();
        let core = Core::new(Broker::new(Faults::default()), Clock::system(), stop.clone());
        let core = Arc::new(core.with_journal(Some(journal)));
        core.with(|broker, now| {
            broker.note_changes();
            let topic = pubsub::Topic { name: TOPIC.to_owned(), ..Default::default() };
            broker.create_topic(now, topic).unwrap();
            let subscription = pubsub::Subscription {
                name: SUBSCRIPTION.to_owned(),
                topic: TOPIC.to_owned(),
                ..Default::default()
            };
            broker.create_subscription(now, subscription).unwrap();
            publish(broker, now, "first".to_owned());
        });
        core.saved().await.unwrap();
        Self { core, stop, disk, calls: JoinSet::new(), _folder: folder }
    }

    /// Publishes more than there is room for, and goes on once all calls wait.
    async fn publish(&mut self) {
        for number in 0..CALLS {
            let core = Arc::clone(&self.core);
            self.calls.spawn(async move {
                let message =
                    pubsub::PubsubMessage { data: vec![b'x'; BODY + number].into(), ..Default::default() };
                let request = pubsub::PublishRequest { topic: TOPIC.to_owned(), messages: vec![message] };
                core.change(|broker, now| broker.publish(now, request)).await?
            });
        }
        settle().await;
    }

    fn backlog(&self) -> usize {
        self.core.with(|broker, now| broker.overview(now).subscriptions[0].messages.backlog)
    }

    /// Takes what was written, up to the end.
    fn read(disk: PipeReader) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let (mut disk, mut bytes) = (disk, FIRST_LINE.to_vec());
            disk.read_to_end(&mut bytes).unwrap();
            bytes
        })
    }
}

/// Everything that can go on without the disk does.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn callers_wait_while_the_disk_hangs_and_nothing_is_lost_of_what_they_did() {
    let mut stage = Stage::new("hangs").await;
    let ack_ids = stage.core.with(|broker, now| {
        let received = broker.pull(now, &pull()).unwrap().received_messages;
        received.into_iter().map(|received| received.ack_id).collect()
    });
    stage.publish().await;
    assert_eq!(stage.backlog(), 1 + TAKEN, "and what only reads is answered");
    assert!(stage.core.is_full());
    let core = Arc::clone(&stage.core);
    let acknowledged = tokio::spawn(async move {
        let request = pubsub::AcknowledgeRequest { subscription: SUBSCRIPTION.to_owned(), ack_ids };
        core.change(|broker, now| broker.acknowledge(now, &request)).await?
    });
    settle().await;
    assert!(!acknowledged.is_finished() && stage.calls.try_join_next().is_none());
    assert_eq!(stage.backlog(), 1 + TAKEN, "an acknowledgement waits, and is not done");

    let Stage { core, disk, mut calls, .. } = stage;
    let written = Stage::read(disk);
    while let Some(answer) = calls.join_next().await {
        assert_eq!(answer.unwrap().unwrap().message_ids.len(), 1);
    }
    acknowledged.await.unwrap().unwrap();
    assert!(!core.is_full());
    core.close().await;
    let bytes = written.join().unwrap();
    let mut saved = Saved::default();
    let mut frames = Frames::open(bytes.as_slice(), bytes.len() as u64).unwrap().unwrap();
    while let Next::Frame(content) = frames.read().unwrap() {
        records::decode(&content).unwrap().into_iter().for_each(|change| saved.apply(change).unwrap());
    }
    let mut after = Broker::new(Faults::default());
    after.load(Time::from_secs(1_700_000_000), saved).unwrap();
    let overview = after.overview(Time::from_secs(1_700_000_000));
    assert_eq!(overview.subscriptions[0].messages.backlog, CALLS);
}

#[tokio::test]
async fn after_a_failure_nothing_more_is_changed() {
    let mut stage = Stage::new("fails").await;
    stage.publish().await;
    drop(stage.disk);
    while let Some(answer) = stage.calls.join_next().await {
        assert_eq!(answer.unwrap().unwrap_err().code, Code::Internal);
    }
    assert!(!stage.core.is_full(), "messages are delivered");
    let backlog = || stage.core.with(|broker, now| broker.overview(now).subscriptions[0].messages.backlog);
    assert_eq!(backlog(), 1 + TAKEN);
    let refusal = stage.core.change(|broker, _| broker.forget_everything()).await.unwrap_err();
    assert!(refusal.message.starts_with("The change was not written to the data folder: "), "{refusal:?}");
    assert_eq!(backlog(), 1 + TAKEN);
}

#[tokio::test]
async fn an_emulator_that_stops_refuses_those_who_wait_for_room() {
    let mut stage = Stage::new("stops").await;
    stage.publish().await;
    stage.stop.cancel();
    for _ in TAKEN..CALLS {
        let answer = stage.calls.join_next().await.unwrap();
        assert_eq!(answer.unwrap().unwrap_err().code, Code::Unavailable);
    }
    assert_eq!(stage.backlog(), 1 + TAKEN);
}
