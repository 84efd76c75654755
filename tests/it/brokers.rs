//! The brokers that the tests run on: the in-memory one, and Google's emulator.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::{Publisher, SubscriptionAdmin};
use google_cloud_pubsub::model::Message;
use wakeq::notify::{MemoryNotifier, Notifier, PubSub, PubSubConfig};
use wakeq_services::{EmulatorError, GoogleEmulator, Source};

pub(crate) struct Broker {
    pub(crate) name: &'static str,
    pub(crate) notifier: Arc<dyn Notifier>,
    kind: Kind,
}

enum Kind {
    Memory(MemoryNotifier),
    Google(PubSubConfig),
}

impl Broker {
    pub(crate) fn memory() -> Self {
        let notifier = MemoryNotifier::new();
        Self { name: "memory", notifier: Arc::new(notifier.clone()), kind: Kind::Memory(notifier) }
    }

    /// Google's emulator, with a topic and a subscription of this test's own.
    pub(crate) async fn google(test: &str) -> Option<Self> {
        let mut config = Self::google_config(test).await?;
        config.create_missing = true;
        let notifier = Arc::new(PubSub::connect(config.clone()).await.unwrap());
        Some(Self { name: "Google's emulator", notifier, kind: Kind::Google(config) })
    }

    /// As [`Broker::google`], but nothing is created yet, nor will be by itself.
    pub(crate) async fn google_config(test: &str) -> Option<PubSubConfig> {
        let source = Source::shared().await.unwrap()?;
        Some(Self::config_at(source.host(), test))
    }

    pub(crate) fn config_at(host: String, test: &str) -> PubSubConfig {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{test}-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed));
        let mut config = PubSubConfig::new("tests");
        config.topic = format!("topic-{unique}");
        config.subscription = format!("subscription-{unique}");
        config.emulator_host = Some(host);
        config
    }

    /// Where Google's emulator has it.
    pub(crate) fn config(&self) -> &PubSubConfig {
        match &self.kind {
            Kind::Google(config) => config,
            Kind::Memory(_) => panic!("a notifier in memory has no configuration"),
        }
    }

    /// Publishes a body that no notification was made into.
    pub(crate) async fn publish_raw(&self, body: &'static [u8]) {
        match &self.kind {
            Kind::Memory(notifier) => notifier.inject(body),
            Kind::Google(config) => {
                Publisher::builder(format!("projects/{}/topics/{}", config.project, config.topic))
                    .with_endpoint(endpoint(config))
                    .with_credentials(anonymous::Builder::new().build())
                    .build()
                    .await
                    .unwrap()
                    .publish(Message::new().set_data(body))
                    .await
                    .unwrap();
            }
        }
    }

    /// Google's emulator goes on giving messages to streams that their client has closed.
    pub(crate) fn forgets_closed_streams_late(&self) -> bool {
        match self.kind {
            Kind::Memory(_) => false,
            Kind::Google(_) => true,
        }
    }

    pub(crate) async fn delete_subscription(config: &PubSubConfig) {
        SubscriptionAdmin::builder()
            .with_endpoint(endpoint(config))
            .with_credentials(anonymous::Builder::new().build())
            .build()
            .await
            .unwrap()
            .delete_subscription()
            .set_subscription(format!("projects/{}/subscriptions/{}", config.project, config.subscription))
            .send()
            .await
            .unwrap();
    }
}

fn endpoint(config: &PubSubConfig) -> String {
    format!("http://{}", config.emulator_host.as_ref().unwrap())
}

/// An emulator that only the caller uses, and may kill.
pub(crate) async fn own_google_emulator() -> Option<GoogleEmulator> {
    match GoogleEmulator::start(None).await {
        Ok(emulator) => {
            say(format_args!(
                "Pub/Sub: Google's emulator {} on {}, to be killed",
                emulator.version(),
                emulator.host()
            ));
            Some(emulator)
        }
        Err(EmulatorError::NotInstalled(why)) if !Source::is_required() => {
            say(format_args!("SKIPPED: a test that kills its emulator. {why}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Past the capturing of test output, which would hide it.
fn say(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
