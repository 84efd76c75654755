//! Position writes whose answers are lost: whether or not the write was carried out, no event is
//! handled twice because of that.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Notify;
use wakeq_streams::consumers::{DeadLetter, MemoryPositions, PositionKey};
use wakeq_streams::{ConsumerConfig, ConsumerError, ErrorStrategy, EventSubscriber, PositionStore};

use super::scene::{Kind, Scene, Trouble, category};

/// What happened to a write whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostWrite {
    CarriedOut,
    NotCarriedOut,
}

/// A write of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteKind {
    Commit,
    Skip,
}

/// Positions that lose the first answer to a given kind of write.
struct LossyPositions {
    inner: Arc<MemoryPositions>,
    loses: Mutex<Option<(WriteKind, LostWrite)>>,
    /// Notified when that has happened.
    lost: Notify,
}

impl LossyPositions {
    /// Whether the answer to this write is lost, and if so, what happened to the write.
    fn loses(&self, write: WriteKind) -> Option<LostWrite> {
        self.loses.lock().unwrap().take_if(|(lost, _)| *lost == write).map(|(_, becomes)| becomes)
    }

    async fn write(
        &self,
        write: WriteKind,
        carried_out: impl Future<Output = Result<(), ConsumerError>>,
    ) -> Result<(), ConsumerError> {
        match self.loses(write) {
            None => return carried_out.await,
            Some(LostWrite::CarriedOut) => carried_out.await.unwrap(),
            Some(LostWrite::NotCarriedOut) => {}
        }
        self.lost.notify_one();
        Err(ConsumerError::unavailable("the answer got lost", std::io::Error::other("cut off")))
    }
}

#[async_trait]
impl PositionStore for LossyPositions {
    async fn open(&self, key: &PositionKey, epoch: i64) -> Result<i64, ConsumerError> {
        self.inner.open(key, epoch).await
    }

    async fn commit(&self, key: &PositionKey, epoch: i64, from: i64, to: i64) -> Result<(), ConsumerError> {
        self.write(WriteKind::Commit, self.inner.commit(key, epoch, from, to)).await
    }

    async fn skip(
        &self,
        key: &PositionKey,
        epoch: i64,
        from: i64,
        dead: &DeadLetter<'_>,
    ) -> Result<(), ConsumerError> {
        self.write(WriteKind::Skip, self.inner.skip(key, epoch, from, dead)).await
    }
}

/// Runs a consumer over five events, of which the third fails once, while the first answer to such
/// a write is lost; then over a sixth. Returns the numbers, from 1, of the events that were handled
/// and of those that were given up.
async fn handled(write: WriteKind, becomes: LostWrite, commit_every: u32) -> (Vec<usize>, Vec<usize>) {
    let inner = Arc::new(MemoryPositions::default());
    let loses = Mutex::new(Some((write, becomes)));
    let lossy = Arc::new(LossyPositions { inner: inner.clone(), loses, lost: Notify::new() });
    let mut scene = Scene::new(Kind::Memory).await;
    scene.positions = lossy.clone();
    let config =
        ConsumerConfig { on_error: ErrorStrategy::skip(), commit_every, ..ConsumerConfig::default() };
    let (consumer, recorder, mut handed) = scene.consumer(config);
    recorder.trouble(3, Trouble::Fails, 1);
    let mut seqs = scene.append_all(1..=5).await;
    consumer.accept(category(), 1);
    lossy.lost.notified().await;
    seqs.push(scene.append("one", 6).await);
    let key = PositionKey { group: "projection".parse().unwrap(), source: category() };
    // The clock of these tests is paused: the sleep lets the consumer run and takes no real time.
    while inner.position(&key) < seqs[5] {
        tokio::time::sleep(config.poll_interval).await;
    }
    consumer.withdraw(&category()).await;
    assert_eq!(inner.position(&key), seqs[5]);
    let number = |seq| seqs.iter().position(|one| *one == seq).unwrap() + 1;
    let dead = inner.dead(&key).iter().map(|event| number(event.seq)).collect();
    let mut all = Vec::new();
    while let Ok(event) = handed.0.try_recv() {
        all.push(number(event.seq));
    }
    (all, dead)
}

/// An event that was given up is a dead letter and is not handled again; nor is any later event.
// Shows: SUB-15
#[tokio::test(start_paused = true)]
async fn dead_events_are_not_handled_again() {
    assert_eq!(handled(WriteKind::Skip, LostWrite::CarriedOut, 100).await, (vec![1, 2, 3, 4, 5, 6], vec![3]));
}

/// An event that was not given up is retried and then handled; earlier events are not.
// Shows: SUB-15
#[tokio::test(start_paused = true)]
async fn an_event_that_was_not_given_up_is_retried_alone() {
    let expected = (vec![1, 2, 3, 3, 4, 5, 6], vec![]);
    assert_eq!(handled(WriteKind::Skip, LostWrite::NotCarriedOut, 100).await, expected);
}

// Shows: SUB-15
#[tokio::test(start_paused = true)]
async fn committed_events_are_not_handled_again() {
    for becomes in [LostWrite::CarriedOut, LostWrite::NotCarriedOut] {
        for commit_every in [1, 2, 100] {
            let expected = (vec![1, 2, 3, 4, 5, 6], vec![3]);
            let found = handled(WriteKind::Commit, becomes, commit_every).await;
            assert_eq!(found, expected, "{becomes:?}, {commit_every}");
        }
    }
}
