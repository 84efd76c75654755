//! The brokers that the tests run on: the in-memory one, Postgres, NATS, the chosen Pub/Sub
//! emulator, and Google's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use google_cloud_auth::credentials::anonymous;
use google_cloud_pubsub::client::{Publisher, SubscriptionAdmin};
use google_cloud_pubsub::model::Message;
use sqlx::{Connection, PgConnection};
use wakeq::Timing;
use wakeq::notify::{Notifier, PostgresNotifier, PubSub, PubSubConfig};
use wakeq::testing::MemoryNotifier;
use wakeq_nats::{NatsConfig, NatsNotifier};
use wakeq_testbed::{GoogleEmulator, NatsServer, PubSub as Emulator, TestDatabase, TestTime};

use super::{connect, database};

pub(crate) struct Broker {
    pub(crate) name: &'static str,
    pub(crate) notifier: Arc<dyn Notifier>,
    kind: Kind,
    _time: TestTime,
}

enum Kind {
    Memory(MemoryNotifier),
    Postgres(TestDatabase),
    Nats { client: async_nats::Client, stream: String },
    PubSub { config: Box<PubSubConfig>, forgets_closed_streams_late: bool },
}

/// On every channel that somebody listens on, by an administrator who sees their names.
const NONSENSE: &str = "select pg_notify(substring(query from '\"(.*)\"'), '* not a notification')
      from pg_stat_activity where query like 'LISTEN%' and datname = current_database()";

impl Broker {
    pub(crate) fn memory() -> Self {
        let notifier = MemoryNotifier::new();
        Self::of("memory", Arc::new(notifier.clone()), Kind::Memory(notifier))
    }

    /// Postgres, with a database of this test's own.
    pub(crate) async fn postgres() -> Self {
        let database = database().await;
        let store = connect(database.url(), Timing::default()).await;
        let notifier = Arc::new(PostgresNotifier::new(&store));
        Self::of("Postgres", notifier, Kind::Postgres(database))
    }

    /// The NATS server of the tests, with a stream of this test's own.
    pub(crate) async fn nats(test: &str) -> Option<Self> {
        let server = NatsServer::shared().await.unwrap()?;
        let client = async_nats::connect(server.url()).await.unwrap();
        let mut config = NatsConfig::default();
        config.stream = unique(test);
        let notifier = Arc::new(NatsNotifier::open(client.clone(), config.clone()).await.unwrap());
        Some(Self::of("NATS", notifier, Kind::Nats { client, stream: config.stream }))
    }

    /// The emulator chosen for the tests, with a topic and a subscription of this test's own.
    pub(crate) async fn pubsub(test: &str) -> Self {
        // Ours forgets them at once; of any other emulator nothing is known.
        let forgets_late = !matches!(Emulator::shared().await.unwrap(), Emulator::Own(_));
        Self::on_pubsub("Pub/Sub", Self::pubsub_config(test).await, forgets_late).await
    }

    /// Google's emulator, with a topic and a subscription of this test's own.
    pub(crate) async fn google(test: &str) -> Option<Self> {
        Some(Self::on_pubsub("Google's emulator", Self::google_config(test).await?, true).await)
    }

    async fn on_pubsub(
        name: &'static str,
        mut config: PubSubConfig,
        forgets_closed_streams_late: bool,
    ) -> Self {
        config.create_missing = true;
        let notifier = Arc::new(PubSub::connect(config.clone()).await.unwrap());
        Self::of(name, notifier, Kind::PubSub { config: Box::new(config), forgets_closed_streams_late })
    }

    fn of(name: &'static str, notifier: Arc<dyn Notifier>, kind: Kind) -> Self {
        Self { name, notifier, kind, _time: TestTime::begin() }
    }

    /// As [`Broker::pubsub`], but nothing is created yet, nor will be automatically.
    pub(crate) async fn pubsub_config(test: &str) -> PubSubConfig {
        Self::config_at(Emulator::shared().await.unwrap().host(), test)
    }

    /// As [`Broker::google`], but nothing is created yet, nor will be automatically.
    pub(crate) async fn google_config(test: &str) -> Option<PubSubConfig> {
        let emulator = GoogleEmulator::shared().await.unwrap()?;
        Some(Self::config_at(emulator.host(), test))
    }

    pub(crate) fn config_at(host: String, test: &str) -> PubSubConfig {
        let unique = unique(test);
        let mut config = PubSubConfig::new("tests");
        config.topic = format!("topic-{unique}");
        config.subscription = format!("subscription-{unique}");
        config.emulator_host = Some(host);
        config
    }

    /// The configuration of the emulator, topic and subscription.
    pub(crate) fn config(&self) -> &PubSubConfig {
        match &self.kind {
            Kind::PubSub { config, .. } => config,
            Kind::Memory(_) | Kind::Postgres(_) | Kind::Nats { .. } => {
                panic!("only Pub/Sub has a configuration")
            }
        }
    }

    /// Publishes 20 bytes that are no notification; no text either, if the broker carries that.
    pub(crate) async fn publish_nonsense(&self) {
        let body = b"\xff not a notification";
        match &self.kind {
            Kind::Memory(notifier) => notifier.inject(body),
            Kind::Postgres(database) => {
                let mut connection = PgConnection::connect(database.url()).await.unwrap();
                sqlx::query(NONSENSE).execute(&mut connection).await.unwrap();
            }
            Kind::Nats { client, stream } => {
                client.publish(format!("{stream}.notifications"), body.as_slice().into()).await.unwrap();
            }
            Kind::PubSub { config, .. } => {
                Publisher::builder(format!("projects/{}/topics/{}", config.project, config.topic))
                    .with_endpoint(endpoint(config))
                    .with_credentials(anonymous::Builder::new().build())
                    .build()
                    .await
                    .unwrap()
                    .publish(Message::new().set_data(body.as_slice()))
                    .await
                    .unwrap();
            }
        }
    }

    /// Whether it hands out what is no notification: Postgres drops what the deployment did not
    /// send.
    pub(crate) fn hands_out_nonsense(&self) -> bool {
        match self.kind {
            Kind::Memory(_) | Kind::Nats { .. } | Kind::PubSub { .. } => true,
            Kind::Postgres(_) => false,
        }
    }

    /// Google's emulator keeps sending messages to streams that their client has closed.
    pub(crate) fn forgets_closed_streams_late(&self) -> bool {
        match self.kind {
            Kind::Memory(_) | Kind::Postgres(_) | Kind::Nats { .. } => false,
            Kind::PubSub { forgets_closed_streams_late, .. } => forgets_closed_streams_late,
        }
    }

    /// Drops what is left in its subscription. Google's emulator would keep sending it to closed
    /// streams, which takes half a processor for as long as it runs.
    pub(crate) async fn forget(self) {
        if let Kind::PubSub { config, .. } = self.kind {
            Self::delete_subscription(&config).await;
        }
    }

    pub(crate) async fn delete_subscription(config: &PubSubConfig) {
        let name = format!("projects/{}/subscriptions/{}", config.project, config.subscription);
        let delete = Self::subscriptions(config).await.delete_subscription().set_subscription(name);
        delete.send().await.unwrap();
    }

    pub(crate) async fn subscriptions(config: &PubSubConfig) -> SubscriptionAdmin {
        let builder = SubscriptionAdmin::builder().with_endpoint(endpoint(config));
        builder.with_credentials(anonymous::Builder::new().build()).build().await.unwrap()
    }
}

fn unique(test: &str) -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("{test}-{}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

fn endpoint(config: &PubSubConfig) -> String {
    format!("http://{}", config.emulator_host.as_ref().unwrap())
}
