//! How workers are woken, from flags and environment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::MissingSetting;
use wakeq::Store;
use wakeq::listeners::Broadcasts;
use wakeq::notify::{
    DEVELOPMENT_PROJECT, LocalNotifier, NoNotifier, Notifier, NotifyError, PostgresNotifier, PubSub,
    PubSubConfig,
};

/// How long a command waits at its end for its broadcasts to be published.
const BROADCASTING: Duration = Duration::from_secs(2);

/// The kinds of notifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NotifierKind {
    /// Google Cloud Pub/Sub, or an emulator: any number of processes
    Pubsub,
    /// Postgres only, with LISTEN and NOTIFY: a handful of processes
    Postgres,
    /// Postgres only: a process wakes only itself
    Local,
}

/// How workers are woken.
#[derive(Args, Clone)]
#[command(next_help_heading = "Waking")]
pub(crate) struct NotifierArgs {
    /// How workers are woken; `local` supports one process
    #[arg(long, env = "WAKEQ_NOTIFIER", global = true, default_value = "pubsub")]
    notifier: NotifierKind,
    #[command(flatten)]
    pubsub: PubSubArgs,
    /// Of the notifiers that were connected.
    #[arg(skip)]
    broadcasts: Arc<Mutex<Vec<Broadcasts>>>,
}

impl NotifierArgs {
    /// Whether a process only wakes itself.
    pub(crate) fn is_local(&self) -> bool {
        self.notifier == NotifierKind::Local
    }

    /// Whether Postgres notifies.
    pub(crate) fn is_postgres(&self) -> bool {
        self.notifier == NotifierKind::Postgres
    }

    /// Whether there are no topics to create or check.
    pub(crate) fn is_without_topics(&self) -> bool {
        self.notifier != NotifierKind::Pubsub
    }

    /// The value of `--notifier`.
    pub(crate) fn name(&self) -> &'static str {
        match self.notifier {
            NotifierKind::Pubsub => "pubsub",
            NotifierKind::Postgres => "postgres",
            NotifierKind::Local => "local",
        }
    }

    /// The Pub/Sub options, for commands about Pub/Sub.
    pub(crate) fn pubsub(&self) -> &PubSubArgs {
        &self.pubsub
    }

    /// For a process that takes no notifications itself.
    pub(crate) async fn connect(&self, store: &Store) -> anyhow::Result<Arc<dyn Notifier>> {
        match self.notifier {
            NotifierKind::Local => Ok(Arc::new(NoNotifier)),
            NotifierKind::Pubsub | NotifierKind::Postgres => self.connect_to_work(store).await,
        }
    }

    /// For a process that only listens to broadcasts; connects to the database if they come from
    /// there.
    pub(crate) async fn connect_to_listen(
        &self,
        store: impl AsyncFnOnce() -> anyhow::Result<Store>,
    ) -> anyhow::Result<Option<Broadcasts>> {
        let notifier = match self.notifier {
            NotifierKind::Local => return Ok(None),
            NotifierKind::Pubsub => self.pubsub.connect().await?,
            NotifierKind::Postgres => self.on_postgres(&store().await?)?,
        };
        Ok(self.remembered(notifier).broadcasts())
    }

    fn on_postgres(&self, store: &Store) -> anyhow::Result<Arc<dyn Notifier>> {
        store.can_listen()?;
        Ok(Arc::new(match self.pubsub.broadcast {
            true => PostgresNotifier::broadcasting(store),
            false => PostgresNotifier::new(store),
        }))
    }

    fn remembered(&self, notifier: Arc<dyn Notifier>) -> Arc<dyn Notifier> {
        self.broadcasts.lock().unwrap_or_else(PoisonError::into_inner).extend(notifier.broadcasts());
        notifier
    }

    /// Ends this process's listeners, and waits for its broadcasts to be published.
    pub(crate) async fn close_broadcasts(&self) {
        let all = std::mem::take(&mut *self.broadcasts.lock().unwrap_or_else(PoisonError::into_inner));
        for broadcasts in all {
            broadcasts.close(BROADCASTING).await;
        }
    }

    /// For a process that runs handlers.
    pub(crate) async fn connect_to_work(&self, store: &Store) -> anyhow::Result<Arc<dyn Notifier>> {
        match self.notifier {
            NotifierKind::Pubsub => Ok(self.remembered(self.pubsub.connect().await?)),
            NotifierKind::Postgres => Ok(self.remembered(self.on_postgres(store)?)),
            NotifierKind::Local if self.pubsub.broadcast => Ok(Arc::new(LocalNotifier::broadcasting())),
            NotifierKind::Local => Ok(Arc::new(LocalNotifier::new())),
        }
    }
}

/// Where notifications go in Google Cloud.
#[derive(Args, Clone)]
#[command(next_help_heading = "Pub/Sub")]
pub(crate) struct PubSubArgs {
    /// The Google Cloud project
    #[arg(long, env = "GOOGLE_CLOUD_PROJECT", global = true, default_value = "", hide_default_value = true)]
    project: String,
    /// The topic
    #[arg(long, env = "WAKEQ_TOPIC", global = true, default_value = "wakeq")]
    topic: String,
    /// The subscription that all workers share
    #[arg(long, env = "WAKEQ_SUBSCRIPTION", global = true, default_value = "wakeq")]
    subscription: String,
    /// A second subscription of all workers, to urgent notifications alone [default: none]
    #[arg(long, env = "WAKEQ_URGENT_SUBSCRIPTION", global = true, hide_short_help = true)]
    urgent_subscription: Option<String>,
    /// Also broadcast every emitted event to listeners; must be the same for every process
    #[arg(long, env = "WAKEQ_BROADCAST", global = true, num_args = 0..=1, default_missing_value = "1", require_equals = true,
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true)]
    broadcast: bool,
    /// The topic of broadcasts [default: the topic of notifications with -broadcast appended]
    #[arg(long, env = "WAKEQ_BROADCAST_TOPIC", global = true, hide_short_help = true)]
    broadcast_topic: Option<String>,
    /// host:port of an emulator, instead of Google's service
    #[arg(long, env = "PUBSUB_EMULATOR_HOST", global = true)]
    emulator_host: Option<String>,
}

impl PubSubArgs {
    /// The notifier's configuration. With an emulator, any project will do.
    pub(crate) fn config(&self) -> Result<PubSubConfig, MissingSetting> {
        let project = match (self.project.as_str(), &self.emulator_host) {
            ("", Some(_)) => DEVELOPMENT_PROJECT,
            ("", None) => {
                let example = "export GOOGLE_CLOUD_PROJECT=my-project, or PUBSUB_EMULATOR_HOST=localhost:8085 for an \
                               emulator, or WAKEQ_NOTIFIER=postgres to do without Pub/Sub";
                return Err(MissingSetting { variable: "GOOGLE_CLOUD_PROJECT", example });
            }
            (project, _) => project,
        };
        let named = self.broadcast_topic.clone().filter(|topic| !topic.is_empty());
        let broadcast_topic = named.unwrap_or_else(|| PubSubConfig::broadcast_topic_of(&self.topic));
        Ok(PubSubConfig {
            topic: self.topic.clone(),
            broadcast_topic: self.broadcast.then_some(broadcast_topic),
            subscription: self.subscription.clone(),
            urgent_subscription: self.urgent_subscription.clone().filter(|urgent| !urgent.is_empty()),
            emulator_host: self.emulator_host.clone(),
            ..PubSubConfig::new(project)
        })
    }

    async fn connect(&self) -> anyhow::Result<Arc<dyn Notifier>> {
        let connected: Result<PubSub, NotifyError> = PubSub::connect(self.config()?).await;
        Ok(Arc::new(connected?))
    }
}
