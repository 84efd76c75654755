//! Snapshots: created, listed, updated, deleted.

use std::time::{Duration, SystemTime};

use tonic::Code;
use wakeq_emulator::proto::protobuf::FieldMask;
use wakeq_emulator::proto::pubsub::{
    CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest,
    ListTopicSnapshotsRequest, Snapshot, UpdateSnapshotRequest,
};

use crate::stage::{Stage, map, refused};

fn create(stage: &Stage, id: &str, subscription: &str) -> CreateSnapshotRequest {
    CreateSnapshotRequest {
        name: stage.snapshot_name(id),
        subscription: subscription.to_owned(),
        labels: map(&[("team", "shop")]),
        ..CreateSnapshotRequest::default()
    }
}

fn get(name: &str) -> GetSnapshotRequest {
    GetSnapshotRequest { snapshot: name.to_owned() }
}

cases! {
    async fn a_snapshot_is_of_a_topic_and_lives_for_at_most_a_week(mut stage) {
        let (topic, subscription) = stage.pair().await;
        let request = create(&stage, "a-snapshot", &subscription);
        let created = stage.subscriber.create_snapshot(request.clone()).await.unwrap().into_inner();
        let got = stage.subscriber.get_snapshot(get(&request.name)).await.unwrap().into_inner();
        assert_eq!((&got.name, &got.topic, &got.labels), (&request.name, &topic, &request.labels));
        assert_eq!(got, created);
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs(got.expire_time.unwrap().seconds as u64);
        let left = until.duration_since(SystemTime::now()).unwrap();
        let day = Duration::from_secs(86_400);
        assert!(left > day * 6 && left <= day * 7, "{left:?}");
    }

    async fn a_snapshot_is_created_once_and_of_a_subscription_that_is_there(mut stage) {
        let (_, subscription) = stage.pair().await;
        let request = create(&stage, "a-snapshot", &subscription);
        stage.subscriber.create_snapshot(request.clone()).await.unwrap();
        refused(stage.subscriber.create_snapshot(request).await, Code::AlreadyExists);
        let nowhere = create(&stage, "other", &stage.subscription_name("nowhere"));
        refused(stage.subscriber.create_snapshot(nowhere).await, Code::NotFound);
    }

    async fn snapshots_are_listed_for_the_project_and_for_the_topic(mut stage) {
        let (topic, subscription) = stage.pair().await;
        let other = stage.topic("other").await;
        let other = stage.subscribe(stage.to(&other, "other")).await;
        for (id, subscription) in [("one", &subscription), ("two", &subscription), ("elsewhere", &other)] {
            stage.subscriber.create_snapshot(create(&stage, id, subscription)).await.unwrap();
        }
        let request =
            ListSnapshotsRequest { project: format!("projects/{}", stage.project), ..Default::default() };
        assert_eq!(stage.subscriber.list_snapshots(request).await.unwrap().into_inner().snapshots.len(), 3);
        let request = ListTopicSnapshotsRequest { topic, ..Default::default() };
        let mut of_topic = stage.publisher.list_topic_snapshots(request).await.unwrap().into_inner().snapshots;
        of_topic.sort();
        assert_eq!(of_topic, [stage.snapshot_name("one"), stage.snapshot_name("two")]);
    }

    async fn a_snapshots_labels_are_changed(mut stage) {
        let (_, subscription) = stage.pair().await;
        let request = create(&stage, "a-snapshot", &subscription);
        let before = stage.subscriber.create_snapshot(request).await.unwrap().into_inner();
        let labels = map(&[("team", "stock")]);
        let request = UpdateSnapshotRequest {
            snapshot: Some(Snapshot { labels: labels.clone(), ..before.clone() }),
            update_mask: Some(FieldMask { paths: vec!["labels".to_owned()] }),
        };
        let after = stage.subscriber.update_snapshot(request).await.unwrap().into_inner();
        assert_eq!(after, Snapshot { labels, ..before });
    }

    async fn a_deleted_snapshot_is_gone(mut stage) {
        let (_, subscription) = stage.pair().await;
        let request = create(&stage, "a-snapshot", &subscription);
        let name = request.name.clone();
        stage.subscriber.create_snapshot(request).await.unwrap();
        let delete = DeleteSnapshotRequest { snapshot: name.clone() };
        stage.subscriber.delete_snapshot(delete.clone()).await.unwrap();
        refused(stage.subscriber.delete_snapshot(delete).await, Code::NotFound);
        refused(stage.subscriber.get_snapshot(get(&name)).await, Code::NotFound);
    }
}
