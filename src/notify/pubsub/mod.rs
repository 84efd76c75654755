//! Google Cloud Pub/Sub, or an emulator of it, as the notifier.
//!
//! Publishes in batches, and receives by streaming pull. The promises on the rows make up for
//! everything that the broker may lose, so nothing here may be the only place that knows something.

mod access;
mod broadcasts;
mod clients;
mod config;
mod failure;
mod named;
mod publisher;
mod rights;
mod settings;
mod stream;
mod subscription;
mod topics;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use google_cloud_pubsub::model::Message;
use tokio::sync::RwLock;

pub use config::{DEVELOPMENT_PROJECT, PubSubConfig, PushSettings};
pub use rights::{MissingPermission, PubSubRights, missing_permissions};
pub use settings::SettingDifference;
pub use topics::{SubscriptionReport, TopicState, TopicsReport, create_topics, describe_topics};

use super::{Notifier, NotifyError, Subscription};
use crate::broadcast::{Broadcasts, Signals};
use crate::event::Notification;
use access::BrokerAccess;
use broadcasts::BroadcastTopic;
use config::Class;
use publisher::TopicPublisher;
use topics::{check_subscription, check_topic};

/// Notifications over a topic and a subscription of Google Cloud Pub/Sub.
///
/// ```no_run
/// use wakeq::notify::{Notifier, PubSub, PubSubConfig};
///
/// # async fn receive() -> Result<(), wakeq::notify::NotifyError> {
/// let notifier = PubSub::connect(PubSubConfig::new("my-project")).await?;
/// let mut subscription = notifier.subscribe(100).await?;
/// while let Some(delivery) = subscription.next().await {
///     delivery.acknowledge();
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PubSub {
    config: Arc<PubSubConfig>,
    broker: Arc<BrokerAccess>,
    publisher: Arc<TopicPublisher>,
    broadcasts: Option<Broadcasts>,
    signals: Signals,
    /// Whether this process has subscribed, so that the subscription is its concern.
    is_consumed: Arc<AtomicBool>,
}

impl PubSub {
    /// Makes the clients. Nothing is sent yet, so a broker that is down is not an error here.
    pub async fn connect(config: PubSubConfig) -> Result<Self, NotifyError> {
        config.check()?;
        let config = Arc::new(config);
        let broker =
            Arc::new(BrokerAccess { admins: clients::admins(&config).await?, creating: RwLock::new(()) });
        let publisher = Arc::new(TopicPublisher::new(Arc::clone(&config), Arc::clone(&broker)).await?);
        let broadcasts = match config.broadcast_path() {
            Some(topic) => {
                let channel = BroadcastTopic::new(topic, Arc::clone(&config), broker.admins.clone()).await?;
                Some(Broadcasts::over(Arc::new(channel)))
            }
            None => None,
        };
        let signals = Signals::over(broadcasts.clone());
        Ok(Self { config, broker, publisher, broadcasts, signals, is_consumed: Arc::default() })
    }

    /// The name under which wakeq's own emulator lists this process's streams. Google's service
    /// does not get it.
    pub fn client_name() -> &'static str {
        named::of_this_process()
    }

    /// The configuration that it was made with.
    pub fn config(&self) -> &PubSubConfig {
        &self.config
    }
}

#[async_trait]
impl Notifier for PubSub {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        let messages: Vec<Message> = notifications.iter().map(message).collect();
        self.publisher.publish(&messages).await
    }

    async fn check(&self) -> Result<(), NotifyError> {
        check_topic(&self.broker.admins, &self.config).await?;
        if self.is_consumed.load(Ordering::Relaxed) {
            for class in self.config.classes() {
                check_subscription(&self.broker.admins, &self.config, class).await?;
            }
        }
        Ok(())
    }

    fn broadcasts(&self) -> Option<Broadcasts> {
        self.broadcasts.clone()
    }

    fn signals(&self) -> Signals {
        self.signals.clone()
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.open(Class::Ordinary, max_outstanding).await
    }

    async fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        if self.config.urgent_subscription.is_none() {
            return Ok(None);
        }
        self.open(Class::Urgent, max_outstanding).await.map(Some)
    }
}

impl PubSub {
    async fn open(&self, class: Class, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        let (config, broker) = (Arc::clone(&self.config), Arc::clone(&self.broker));
        let opened = subscription::open(config, broker, class, max_outstanding).await?;
        self.is_consumed.store(true, Ordering::Relaxed);
        Ok(Box::new(opened))
    }
}

/// A message, with the attribute by which subscriptions tell urgent ones from the others.
fn message(notification: &Notification) -> Message {
    let message = Message::new().set_data(notification.body());
    if notification.urgent { message.set_attributes([("urgent", "true")]) } else { message }
}
