//! Pulls that wait.

use std::time::Duration;

use tonic::Code;
use wakeq_emulator::proto::pubsub::PullRequest;

use super::{SUBSCRIPTION, Stage, soon, texts};

fn request() -> PullRequest {
    PullRequest { subscription: SUBSCRIPTION.to_owned(), max_messages: 10, ..PullRequest::default() }
}

#[tokio::test]
async fn a_pull_waits_for_its_message() {
    let stage = Stage::new().await;
    let pull = tokio::spawn(stage.pull());
    stage.publish(&["one"]).await;
    assert_eq!(texts(&soon(pull).await.unwrap().unwrap()), ["one"]);
}

#[tokio::test]
async fn a_pull_with_return_immediately_does_not_wait() {
    let stage = Stage::new().await;
    #[expect(deprecated, reason = "clients that set it still get what it says")]
    let request = PullRequest { return_immediately: true, ..request() };
    let answer = soon(stage.subscriber.clone().pull(request)).await.unwrap();
    assert!(answer.into_inner().received_messages.is_empty());
}

#[tokio::test]
async fn a_pull_ends_with_the_callers_timeout() {
    let stage = Stage::new().await;
    // Over REST, as a gRPC client would give up by itself soon after.
    let url = format!("http://{}/v1/{SUBSCRIPTION}:pull", stage.emulator.host());
    let pull =
        reqwest::Client::new().post(url).header("x-server-timeout", "0.01").body(r#"{"maxMessages":1}"#);
    let answer: serde_json::Value = soon(pull.send()).await.unwrap().json().await.unwrap();
    assert_eq!(answer, serde_json::json!({}));
}

#[tokio::test]
async fn an_abandoned_pull_leases_no_messages() {
    let stage = Stage::new().await;
    for _ in 0..20 {
        assert!(tokio::time::timeout(Duration::from_millis(1), stage.pull()).await.is_err());
    }
    stage.publish(&["one"]).await;
    assert_eq!(texts(&soon(stage.pull()).await.unwrap()), ["one"]);
}

#[tokio::test]
async fn a_pull_of_what_is_deleted_meanwhile_ends() {
    let stage = Stage::new().await;
    let pull = tokio::spawn(stage.pull());
    stage.emulator.broker(|broker, now| {
        let subscription = SUBSCRIPTION.to_owned();
        let request = wakeq_emulator::proto::pubsub::DeleteSubscriptionRequest { subscription };
        broker.delete_subscription(now, request).unwrap();
    });
    assert_eq!(soon(pull).await.unwrap().unwrap_err().code(), Code::NotFound);
}
