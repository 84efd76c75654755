//! Makes the clients of the client library, for Google's service or an emulator.
//!
//! This is the only place that knows endpoints and credentials. It sends nothing itself.

use std::time::Duration;

use google_cloud_gax::client_builder::Error as BuilderError;
use google_cloud_gax::exponential_backoff::ExponentialBackoffBuilder;
use google_cloud_gax::retry_policy::{NeverRetry, RetryPolicyExt};
use google_cloud_pubsub::client::SchemaService;
use google_cloud_pubsub::client::{Publisher, Subscriber, SubscriptionAdmin, TopicAdmin};
use google_cloud_pubsub::retry_policy::RetryableErrors;

use super::config::PubSubConfig;
use super::named;
use crate::notify::NotifyError;

/// Maximum number of messages that Pub/Sub accepts in one request.
const MESSAGES_PER_REQUEST: u32 = 1_000;

/// How long a message waits for others before its request is sent: until the next tick of tokio's
/// timer, at most about a millisecond. A delay of one millisecond would be up to two.
const BATCHING_DELAY: Duration = Duration::ZERO;

/// A publisher to one of the topics.
pub(super) async fn publisher(config: &PubSubConfig, topic: String) -> Result<Publisher, NotifyError> {
    let back_off = ExponentialBackoffBuilder::new()
        .with_initial_delay(Duration::from_millis(50))
        .with_maximum_delay(Duration::from_secs(1))
        .clamp();
    let mut builder = Publisher::builder(topic)
        .set_message_count_threshold(MESSAGES_PER_REQUEST)
        .set_delay_threshold(BATCHING_DELAY)
        .with_retry_policy(RetryableErrors.with_time_limit(config.publish_timeout))
        .with_backoff_policy(back_off);
    if let Some(endpoint) = config.endpoint() {
        builder = builder.with_endpoint(endpoint).with_credentials(named::credentials());
    }
    builder.build().await.map_err(|error| no_client("publisher", error))
}

pub(super) async fn subscriber(config: &PubSubConfig) -> Result<Subscriber, NotifyError> {
    let mut builder = Subscriber::builder();
    if let Some(endpoint) = config.endpoint() {
        builder = builder.with_endpoint(endpoint).with_credentials(named::credentials());
    }
    builder.build().await.map_err(|error| no_client("subscriber", error))
}

/// The two clients that create and describe. They never retry: their callers do, and report it
/// meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Admins {
    pub(super) topics: TopicAdmin,
    pub(super) subscriptions: SubscriptionAdmin,
}

pub(super) async fn admins(config: &PubSubConfig) -> Result<Admins, NotifyError> {
    let mut topics = TopicAdmin::builder().with_retry_policy(NeverRetry);
    let mut subscriptions = SubscriptionAdmin::builder().with_retry_policy(NeverRetry);
    if let Some(endpoint) = config.endpoint() {
        topics = topics.with_endpoint(endpoint.clone()).with_credentials(named::credentials());
        subscriptions = subscriptions.with_endpoint(endpoint).with_credentials(named::credentials());
    }
    Ok(Admins {
        topics: topics.build().await.map_err(|error| no_client("topic administration", error))?,
        subscriptions: subscriptions
            .build()
            .await
            .map_err(|error| no_client("subscription administration", error))?,
    })
}

/// The client that can ask for the account's permissions on topics and subscriptions. For Google's
/// service only.
pub(super) async fn rights() -> Result<SchemaService, NotifyError> {
    let builder = SchemaService::builder().with_retry_policy(NeverRetry);
    builder.build().await.map_err(|error| no_client("rights", error))
}

fn no_client(which: &str, error: BuilderError) -> NotifyError {
    NotifyError {
        what: format!(
            "cannot make the Pub/Sub {which} client; set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth \
             application-default login`, or set PUBSUB_EMULATOR_HOST for an emulator"
        ),
        source: Some(Box::new(error)),
    }
}
