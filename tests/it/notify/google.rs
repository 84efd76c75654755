//! What only a real broker shows: missing topics, their creation, and its sudden death.

use std::time::{Duration, Instant};

use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::Subscriber;
use tokio::time::timeout;
use wakeq::notify::{Notifier, PubSub, TopicState, create_topics, describe_topics};
use wakeq_testbed::{GoogleEmulator, wait_while};

use super::every_notifier::{TIMEOUT, next, notifications};
use crate::support::brokers::Broker;

#[tokio::test]
async fn the_body_on_the_wire_is_as_agreed() {
    let Some(config) = Broker::google_config("wire").await else { return };
    create_topics(&config).await.unwrap();
    let sent = notifications(1);
    PubSub::connect(config.clone()).await.unwrap().publish(&sent).await.unwrap();

    let subscriber = Subscriber::builder().with_endpoint(format!("http://{}", config.emulator_host.unwrap()));
    let subscriber = subscriber.with_credentials(anonymous::Builder::new().build()).build().await.unwrap();
    let path = format!("projects/{}/subscriptions/{}", config.project, config.subscription);
    let mut stream = subscriber.subscribe(path).build();
    let (message, handler) = timeout(TIMEOUT, stream.next()).await.unwrap().unwrap().unwrap();
    handler.ack();
    let expected = format!(r#"{{"id":"{}","canvasID":"{}"}}"#, sent[0].id, sent[0].canvas);
    assert_eq!(std::str::from_utf8(&message.data).unwrap(), expected);
    assert!(message.attributes.is_empty() && message.ordering_key.is_empty());
}

#[tokio::test]
async fn creating_twice_finds_everything_there_and_as_wanted() {
    let Some(config) = Broker::google_config("twice").await else { return };
    let before = describe_topics(&config).await.unwrap();
    assert_eq!((before.topic_state, before.subscription_state), (TopicState::Missing, TopicState::Missing));
    let first = create_topics(&config).await.unwrap();
    assert_eq!((first.topic_state, first.subscription_state), (TopicState::Created, TopicState::Created));
    let second = create_topics(&config).await.unwrap();
    assert_eq!(
        (second.topic_state, second.subscription_state),
        (TopicState::AlreadyThere, TopicState::AlreadyThere)
    );
    assert_eq!(second.differences, []);
    assert_eq!(describe_topics(&config).await.unwrap(), second);
}

#[tokio::test]
async fn a_missing_topic_is_an_error_that_says_what_to_do() {
    let Some(config) = Broker::google_config("missing").await else { return };
    let notifier = PubSub::connect(config.clone()).await.unwrap();
    let error = notifier.publish(&notifications(3)).await.unwrap_err();
    let words = error.to_string();
    assert!(words.contains(&config.topic) && words.contains("wakeq topics create"), "{words}");
    assert!(std::error::Error::source(&error).is_some());

    create_topics(&config).await.unwrap();
    notifier.publish(&notifications(3)).await.expect("nothing is stuck after an error");
}

#[tokio::test]
async fn a_missing_subscription_is_trouble_until_somebody_creates_it() {
    let Some(config) = Broker::google_config("absent").await else { return };
    let notifier = PubSub::connect(config.clone()).await.unwrap();
    let mut subscription = notifier.subscribe(10).await.unwrap();
    let words = subscription.trouble().expect("in trouble");
    assert!(words.contains(&config.subscription) && words.contains("wakeq topics create"), "{words}");

    create_topics(&config).await.unwrap();
    notifier.publish(&notifications(1)).await.unwrap();
    next(&mut *subscription).await.1.acknowledge();
    assert_eq!(subscription.trouble(), None);
    subscription.close(TIMEOUT).await;
}

#[tokio::test]
async fn publishing_creates_what_is_missing_where_that_is_allowed() {
    let Some(mut config) = Broker::google_config("allowed").await else { return };
    config.create_missing = true;
    let notifier = PubSub::connect(config).await.unwrap();
    notifier.publish(&notifications(5)).await.unwrap();
    let mut subscription = notifier.subscribe(10).await.unwrap();
    for _ in 0..5 {
        next(&mut *subscription).await.1.acknowledge();
    }
    subscription.close(TIMEOUT).await;
}

// Shows: CARD-07
#[tokio::test]
async fn a_broker_killed_and_restarted_is_used_again() {
    let skipped = "a test that kills Google's emulator";
    let Some(mut emulator) = GoogleEmulator::start_if_installed(skipped).await.unwrap() else { return };
    let mut config = Broker::config_at(emulator.host(), "killed");
    config.create_missing = true;
    config.publish_timeout = Duration::from_secs(1);
    let notifier = PubSub::connect(config).await.unwrap();
    let mut subscription = notifier.subscribe(10).await.unwrap();
    notifier.publish(&notifications(2)).await.unwrap();
    next(&mut *subscription).await.1.acknowledge();
    let held = next(&mut *subscription).await.1;

    emulator.kill_9().await.unwrap();
    let error = notifier.publish(&notifications(1)).await.unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains(&emulator.host()), "{error}");
    let is_away = |words: String| words.contains("cannot be reached");
    wait_while!(!subscription.trouble().is_some_and(is_away), "the trouble is not noticed");

    emulator.restart().await.unwrap();
    let started = Instant::now();
    // It has forgotten the subscription, which misses anything published before it is created
    // again.
    wait_while!(subscription.trouble().is_some(), "the trouble does not end");
    let sent = notifications(1);
    notifier.publish(&sent).await.unwrap();
    let published_ms = started.elapsed().as_millis();
    let (id, delivery) = next(&mut *subscription).await;
    let received_ms = started.elapsed().as_millis();
    println!("after kill -9: published after {published_ms} ms, received after {received_ms} ms");
    assert_eq!(id, sent[0].id);
    wait_while!(subscription.trouble().is_some(), "the trouble does not end");
    delivery.acknowledge();
    held.acknowledge();
    subscription.close(TIMEOUT).await;
    emulator.stop().await.unwrap();
}

#[tokio::test]
async fn a_subscription_deleted_under_an_open_stream_is_noticed() {
    let Some(mut config) = Broker::google_config("deleted").await else { return };
    config.create_missing = true;
    let notifier = PubSub::connect(config.clone()).await.unwrap();
    let mut subscription = notifier.subscribe(10).await.unwrap();
    notifier.publish(&notifications(1)).await.unwrap();
    next(&mut *subscription).await.1.acknowledge();

    Broker::delete_subscription(&config).await;
    let state = async || describe_topics(&config).await.unwrap().subscription_state;
    wait_while!(state().await == TopicState::Missing, "it was not created again");
    notifier.publish(&notifications(1)).await.unwrap();
    next(&mut *subscription).await.1.acknowledge();
    subscription.close(TIMEOUT).await;
}
