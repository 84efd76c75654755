//! Seeking to a time and to a snapshot.

use std::time::{Duration, SystemTime};

use tonic::{Code, Status};
use wakeq_emulator::proto::protobuf::Timestamp;
use wakeq_emulator::proto::pubsub::seek_request::Target;
use wakeq_emulator::proto::pubsub::{CreateSnapshotRequest, SeekRequest};

use crate::stage::{Stage, message, refused, sorted, texts};

async fn try_seek(stage: &Stage, subscription: &str, target: Option<Target>) -> Result<(), Status> {
    let request = SeekRequest { subscription: subscription.to_owned(), target };
    stage.subscriber.clone().seek(request).await.map(drop)
}

async fn seek(stage: &Stage, subscription: &str, target: Target) {
    try_seek(stage, subscription, Some(target)).await.unwrap();
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
}

fn at(time: SystemTime) -> Target {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Target::Time(Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 })
}

const HOUR: Duration = Duration::from_secs(3_600);

async fn snapshot(stage: &Stage, subscription: &str) -> String {
    let (name, subscription) = (stage.snapshot_name("a-snapshot"), subscription.to_owned());
    let request = CreateSnapshotRequest { name, subscription, ..CreateSnapshotRequest::default() };
    stage.subscriber.clone().create_snapshot(request).await.unwrap().into_inner().name
}

cases! {
    async fn seeking_to_the_future_acknowledges_everything(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["purged", "purged too"]).await;
        seek(&stage, &subscription, at(SystemTime::now() + HOUR)).await;
        seek(&stage, &subscription, at(SystemTime::now() - HOUR)).await;
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn seeking_to_the_past_brings_back_what_was_acknowledged_and_retained(stage) {
        let (topic, subscription) = stage.pair_with(|resource| resource.retain_acked_messages = true).await;
        stage.publish_texts(&topic, &["a", "b"]).await;
        stage.acknowledge(&subscription, &stage.pull_all(&subscription, 2).await).await;
        seek(&stage, &subscription, at(SystemTime::now() - HOUR)).await;
        assert_eq!(sorted(&stage.pull_all(&subscription, 2).await), ["a", "b"]);
    }

    async fn seeking_to_the_past_does_not_bring_back_what_was_not_retained(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["done"]).await;
        stage.acknowledge(&subscription, &stage.pull_all(&subscription, 1).await).await;
        seek(&stage, &subscription, at(SystemTime::now() - HOUR)).await;
        stage.expect_only_new(&topic, &subscription).await;
    }

    async fn seeking_to_a_messages_time_brings_back_that_and_later_ones(stage) {
        let (topic, subscription) = stage.pair_with(|resource| resource.retain_acked_messages = true).await;
        stage.publish_texts(&topic, &["before"]).await;
        let before = stage.pull_one(&subscription).await;
        stage.acknowledge(&subscription, std::slice::from_ref(&before)).await;
        let published = message(&before).publish_time.unwrap();
        // Two messages of one millisecond have the same time.
        let of_it = published.seconds as u128 * 1_000 + published.nanos as u128 / 1_000_000;
        wakeq_testbed::wait_while!(millis(SystemTime::now()) <= of_it, "the clock stands still");
        stage.publish_texts(&topic, &["from here"]).await;
        let from_here = stage.pull_one(&subscription).await;
        stage.publish_texts(&topic, &["after"]).await;
        let after = stage.pull_one(&subscription).await;
        stage.acknowledge(&subscription, &[from_here.clone(), after]).await;
        seek(&stage, &subscription, Target::Time(message(&from_here).publish_time.unwrap())).await;
        assert_eq!(sorted(&stage.pull_all(&subscription, 2).await), ["after", "from here"]);
    }

    async fn seeking_withdraws_what_is_outstanding(stage) {
        let (_, subscription) = stage.pair().await;
        let (topic, snapshot) = (stage.topic_name("a-topic"), snapshot(&stage, &subscription).await);
        for target in [Target::Snapshot(snapshot), at(SystemTime::now() - HOUR)] {
            let ids = stage.publish_texts(&topic, &["outstanding"]).await;
            let outstanding = stage.pull_one(&subscription).await;
            seek(&stage, &subscription, target).await;
            stage.acknowledge(&subscription, &[outstanding]).await; // too late
            let again = stage.pull_one(&subscription).await;
            assert_eq!(message(&again).message_id, ids[0]);
            stage.acknowledge(&subscription, &[again]).await;
        }
    }

    async fn seeking_to_a_snapshot_brings_back_what_was_unacknowledged_then_and_what_came_later(stage) {
        let (topic, subscription) = stage.pair().await;
        stage.publish_texts(&topic, &["done before", "open"]).await;
        let (done, open): (Vec<_>, Vec<_>) = stage
            .pull_all(&subscription, 2)
            .await
            .into_iter()
            .partition(|received| texts(std::slice::from_ref(received)) == ["done before"]);
        stage.acknowledge(&subscription, &done).await;
        let snapshot = snapshot(&stage, &subscription).await;
        stage.publish_texts(&topic, &["later"]).await;
        let later = stage.pull_all(&subscription, 1).await;
        stage.acknowledge(&subscription, &[open, later].concat()).await;
        seek(&stage, &subscription, Target::Snapshot(snapshot)).await;
        assert_eq!(sorted(&stage.pull_all(&subscription, 2).await), ["later", "open"]);
    }

    async fn another_subscription_of_the_topic_seeks_to_a_snapshot_too(stage) {
        let (topic, subscription) = stage.pair().await;
        let other = stage.subscribe(stage.to(&topic, "other")).await;
        stage.publish_texts(&topic, &["open"]).await;
        let snapshot = snapshot(&stage, &subscription).await;
        stage.acknowledge(&other, &stage.pull_all(&other, 1).await).await;
        seek(&stage, &other, Target::Snapshot(snapshot)).await;
        stage.publish_texts(&topic, &["next"]).await;
        let mut received = stage.pull(&other, 10).await;
        while !texts(&received).contains(&"next".to_owned()) {
            received.extend(stage.pull(&other, 10).await);
        }
        assert_eq!(sorted(&received), ["next", "open"]);
    }

    async fn a_snapshot_is_of_the_subscriptions_topic(stage) {
        let (_, subscription) = stage.pair().await;
        let other = stage.topic("other").await;
        let other = stage.subscribe(stage.to(&other, "other")).await;
        let snapshot = snapshot(&stage, &subscription).await;
        refused(try_seek(&stage, &other, Some(Target::Snapshot(snapshot))).await, Code::FailedPrecondition);
    }

    async fn seeking_needs_a_subscription_and_a_target(stage) {
        let (_, subscription) = stage.pair().await;
        refused(try_seek(&stage, &subscription, None).await, Code::InvalidArgument);
        let nowhere = Target::Snapshot(stage.snapshot_name("nowhere"));
        refused(try_seek(&stage, &subscription, Some(nowhere)).await, Code::NotFound);
        let nowhere = stage.subscription_name("nowhere");
        refused(try_seek(&stage, &nowhere, Some(at(SystemTime::now()))).await, Code::NotFound);
    }
}
