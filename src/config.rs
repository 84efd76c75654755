//! The binary's configuration: one struct per concern, from flags and environment, checked when it is read.
//!
//! The durations of a deployment stand in its database: commands take them from there.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::access::AccessConfig;
use crate::delivery::{DeliveryConfig, InvalidIpRange, IpRange};
use crate::event::{CanvasId, Timing};
use crate::http::HttpConfig;
use crate::notify::{
    DEVELOPMENT_PROJECT, LocalNotifier, NoNotifier, Notifier, NotifyError, PubSub, PubSubConfig,
};
use crate::store::{Retention, Store, StoreConfig, StoreError, TimingMode};
use crate::worker::WorkerConfig;

/// Where the events are.
#[derive(Args, Clone)]
#[command(next_help_heading = "Database")]
pub(crate) struct DatabaseArgs {
    /// postgres://user:password@host:port/database
    #[arg(
        long,
        env = "DATABASE_URL",
        hide_env_values = true,
        global = true,
        default_value = "",
        hide_default_value = true
    )]
    database_url: String,
    /// Work on a server that may forget commits (fsync or synchronous_commit off)
    #[arg(long, env = "WAKEQ_ALLOW_UNSAFE_DURABILITY", global = true, num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true)]
    allow_unsafe_durability: bool,
}

/// The durations that all processes of a deployment share. What is not given is what the deployment has.
#[derive(Args, Clone)]
#[command(next_help_heading = "Timing, as the deployment has it unless given")]
pub(crate) struct TimingArgs {
    /// How long a claim stands without renewal (60s)
    #[arg(long, env = "WAKEQ_LEASE", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    lease: Option<Duration>,
    /// How far ahead of its time an event is given to a worker (10m)
    #[arg(long, env = "WAKEQ_HORIZON", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    horizon: Option<Duration>,
    /// How long after an event is due its notification counts as lost (30s)
    #[arg(long, env = "WAKEQ_GRACE", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    grace: Option<Duration>,
    /// How often the overdue is looked for (60s)
    #[arg(long, env = "WAKEQ_PROBE_PERIOD", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    probe_period: Option<Duration>,
    /// How long after waking an event it is woken again; doubled each time, up to an hour (10m)
    #[arg(long, env = "WAKEQ_PROBE_BACKOFF", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    probe_backoff: Option<Duration>,
    /// The longest such wait (1h)
    #[arg(long, env = "WAKEQ_PROBE_BACKOFF_MAX", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    probe_backoff_max: Option<Duration>,
    /// When an event is looked at again whose handler a worker did not know (5m)
    #[arg(long, env = "WAKEQ_UNKNOWN_HANDLER_WAIT", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    unknown_handler_wait: Option<Duration>,
}

/// What wakes workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NotifierKind {
    /// Google Cloud Pub/Sub, or an emulator: any number of processes
    Pubsub,
    /// Nothing but Postgres: a process wakes itself, and no other
    Local,
}

/// How workers are woken.
#[derive(Args, Clone)]
#[command(next_help_heading = "Waking")]
pub(crate) struct NotifierArgs {
    /// What wakes workers; `local` needs Postgres alone, and is for one process
    #[arg(long, env = "WAKEQ_NOTIFIER", global = true, default_value = "pubsub")]
    notifier: NotifierKind,
    #[command(flatten)]
    pubsub: PubSubArgs,
}

impl NotifierArgs {
    /// Whether a process wakes only itself.
    pub(crate) fn is_local(&self) -> bool {
        self.notifier == NotifierKind::Local
    }

    /// Pub/Sub's part, for what is about Pub/Sub.
    pub(crate) fn pubsub(&self) -> &PubSubArgs {
        &self.pubsub
    }

    /// For a process that takes no notifications itself.
    pub(crate) async fn connect(&self) -> anyhow::Result<Arc<dyn Notifier>> {
        match self.notifier {
            NotifierKind::Pubsub => self.pubsub.connect().await,
            NotifierKind::Local => Ok(Arc::new(NoNotifier)),
        }
    }

    /// For a process that runs handlers.
    pub(crate) async fn connect_to_work(&self) -> anyhow::Result<Arc<dyn Notifier>> {
        match self.notifier {
            NotifierKind::Pubsub => self.pubsub.connect().await,
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
    /// host:port of an emulator, instead of Google's service
    #[arg(long, env = "PUBSUB_EMULATOR_HOST", global = true)]
    emulator_host: Option<String>,
}

/// How much a worker takes on, and how long it may take to stop.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Worker")]
pub(crate) struct WorkerArgs {
    /// Handlers that run at a time
    #[arg(long, env = "WAKEQ_CAPACITY", default_value_t = WorkerConfig::default().capacity)]
    capacity: usize,
    /// HTTP targets of one canvas that are called at a time [default: a quarter of the capacity]
    #[arg(long, env = "WAKEQ_TARGET_SHARE")]
    target_share: Option<usize>,
    /// Notifications that wait in this process for their time
    #[arg(long, env = "WAKEQ_LOT", default_value_t = WorkerConfig::default().lot_max)]
    lot: usize,
    /// How long handlers may run on after SIGTERM [default: 28s, on Cloud Run 8s]
    #[arg(long, env = "WAKEQ_SHUTDOWN_GRACE", value_parser = humantime::parse_duration)]
    shutdown_grace: Option<Duration>,
    /// Leave HTTP targets to other workers; a program without handlers then takes no notifications
    #[arg(long, env = "WAKEQ_NO_TARGETS", num_args = 0..=1, default_missing_value = "1", default_value = "0",
          value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true, hide_possible_values = true)]
    pub(crate) no_targets: bool,
    /// How long dead events are kept (30days)
    #[arg(long, env = "WAKEQ_KEEP_DEAD_EVENTS", value_parser = kept, hide_short_help = true)]
    keep_dead_events: Option<Duration>,
    /// How long chosen ids are recognized after their event was due (7days)
    #[arg(long, env = "WAKEQ_KEEP_IDS", value_parser = kept, hide_short_help = true)]
    keep_ids: Option<Duration>,
    /// How long the record of changes and refusals is kept (90days)
    #[arg(long, env = "WAKEQ_KEEP_RECORD", value_parser = kept, hide_short_help = true)]
    keep_record: Option<Duration>,
}

/// Where requests to HTTP targets may go.
#[derive(Args, Clone)]
#[command(next_help_heading = "HTTP targets")]
pub(crate) struct DeliveryArgs {
    /// Addresses that targets may have although they are not public: 10.0.0.0/8,fd00::/8
    #[arg(long = "deliver-to", env = "WAKEQ_DELIVER_TO", value_delimiter = ',', value_name = "RANGES")]
    ranges: Vec<String>,
    /// Send to http:// as well
    #[arg(long = "deliver-http", env = "WAKEQ_DELIVER_HTTP", num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true)]
    allow_http: bool,
    /// Audiences that targets may be given tokens for, beside their own origins
    #[arg(
        id = "deliver_audiences",
        long = "deliver-audience",
        env = "WAKEQ_DELIVER_AUDIENCE",
        value_delimiter = ',',
        value_name = "AUDIENCES"
    )]
    audiences: Vec<String>,
}

/// How long things are kept: long enough that somebody can look at them, and not so long that no clock reaches it.
fn kept(text: &str) -> Result<Duration, String> {
    let kept = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let hour = Duration::from_secs(3600);
    let ten_years = Duration::from_secs(3653 * 24 * 3600);
    if (hour..=ten_years).contains(&kept) { Ok(kept) } else { Err("it must be 1h to 10y".into()) }
}

/// How the HTTP API is served.
#[derive(Args, Clone)]
#[command(next_help_heading = "HTTP API")]
pub(crate) struct ServeArgs {
    /// The port to listen on
    #[arg(long, env = "PORT", default_value_t = HttpConfig::default().address.port())]
    port: u16,
    /// The address to listen on
    #[arg(long, env = "WAKEQ_LISTEN", default_value_t = HttpConfig::default().address.ip())]
    listen: IpAddr,
    /// The URLs of this service that Google's ID tokens are made for; without one no ID token is taken
    #[arg(long = "audience", env = "WAKEQ_AUDIENCE", value_delimiter = ',')]
    audiences: Vec<String>,
    /// Connections at a time
    #[arg(long, env = "WAKEQ_MAX_CONNECTIONS", default_value_t = HttpConfig::default().max_connections)]
    max_connections: usize,
    /// Requests at a time
    #[arg(long, env = "WAKEQ_MAX_REQUESTS", default_value_t = HttpConfig::default().max_requests)]
    max_requests: usize,
}

/// Cloud Run ends a process ten seconds after it asked it to stop; two of them are for releasing claims.
const CLOUD_RUN_GRACE: Duration = Duration::from_secs(8);

/// What Cloud Run sets for its services, worker pools and jobs.
const CLOUD_RUN_VARIABLES: [&str; 3] = ["K_SERVICE", "CLOUD_RUN_WORKER_POOL", "CLOUD_RUN_JOB"];

/// Whether this process runs on Cloud Run.
pub(crate) fn on_cloud_run() -> bool {
    CLOUD_RUN_VARIABLES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// The tenant that a command is about.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Tenant")]
pub(crate) struct CanvasArgs {
    /// The canvas, a uuid; the nil uuid for deployments with one tenant
    #[arg(long, env = "WAKEQ_CANVAS", global = true, default_value_t = CanvasId::DEFAULT, value_parser = canvas)]
    pub(crate) canvas: CanvasId,
}

fn canvas(text: &str) -> Result<CanvasId, &'static str> {
    text.parse().map_err(|_| "a canvas is a uuid, such as 6ba7b810-9dad-41d1-80b4-00c04fd430c8")
}

/// A setting that is missing.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is not set: {example}")]
pub(crate) struct Missing {
    variable: &'static str,
    example: &'static str,
}

/// A connection URL that is none of Postgres. It is not repeated: there may be a password in it.
#[derive(Debug, thiserror::Error)]
#[error(
    "DATABASE_URL is no URL of a Postgres database: it looks like postgres://user:password@host:5432/database"
)]
pub(crate) struct NotPostgres;

impl DatabaseArgs {
    /// Whether a connection URL was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.database_url.is_empty()
    }

    /// The connection URL, which must be given.
    pub(crate) fn url(&self) -> anyhow::Result<&str> {
        let example =
            "export DATABASE_URL=postgres://user:password@host:5432/database, or pass --database-url";
        if self.database_url.is_empty() {
            return Err(Missing { variable: "DATABASE_URL", example }.into());
        }
        let is_postgres =
            ["postgres://", "postgresql://"].iter().any(|scheme| self.database_url.starts_with(scheme));
        anyhow::ensure!(is_postgres, NotPostgres);
        Ok(&self.database_url)
    }

    /// Whether a server that may forget commits will do.
    pub(crate) fn allows_unsafe_durability(&self) -> bool {
        self.allow_unsafe_durability
    }

    /// For who only looks, at whatever is there: nothing is asked of the server yet, not even whether it is there.
    pub(crate) async fn connect_to_look(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        let config = StoreConfig {
            allow_unsafe_durability: true,
            timing: timing.over(&Timing::default()),
            timing_mode: TimingMode::Unchecked,
            ..StoreConfig::default()
        };
        let connected: Result<Store, StoreError> = Store::connect(self.url()?, config).await;
        Ok(connected?)
    }

    /// For who emits or works: as [`DatabaseArgs::connect`], and the first one writes its durations for all.
    pub(crate) async fn connect_to_work(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        let follower = self.connect(timing).await?;
        let agreed = follower.timing().clone();
        follower.close().await;
        self.connect_as(TimingMode::Agree, agreed).await
    }

    /// Connects, and works with the deployment's durations. Refused if others are given.
    pub(crate) async fn connect(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        let store = self.connect_as(TimingMode::Follow, timing.over(&Timing::default())).await?;
        let ours = timing.over(store.timing());
        if let Some((name, ours, deployment)) = ours.first_difference(store.timing()) {
            anyhow::bail!(StoreError::OtherTiming { name, ours, deployment });
        }
        Ok(store)
    }

    /// Connects, and writes these durations over the deployment's.
    pub(crate) async fn replace(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        let standing = self.connect_as(TimingMode::Follow, Timing::default()).await?;
        self.connect_as(TimingMode::Replace, timing.over(standing.timing())).await
    }

    async fn connect_as(&self, timing_mode: TimingMode, timing: Timing) -> anyhow::Result<Store> {
        let config = StoreConfig {
            allow_unsafe_durability: self.allow_unsafe_durability,
            timing,
            timing_mode,
            ..StoreConfig::default()
        };
        let connected: Result<Store, StoreError> = Store::connect(self.url()?, config).await;
        Ok(connected?)
    }
}

impl TimingArgs {
    /// These durations with what was given in their place.
    pub(crate) fn over(&self, timing: &Timing) -> Timing {
        Timing {
            lease: self.lease.unwrap_or(timing.lease),
            horizon: self.horizon.unwrap_or(timing.horizon),
            grace: self.grace.unwrap_or(timing.grace),
            probe_period: self.probe_period.unwrap_or(timing.probe_period),
            probe_backoff: self.probe_backoff.unwrap_or(timing.probe_backoff),
            probe_backoff_max: self.probe_backoff_max.unwrap_or(timing.probe_backoff_max),
            unknown_handler_wait: self.unknown_handler_wait.unwrap_or(timing.unknown_handler_wait),
        }
    }
}

impl WorkerArgs {
    /// As the worker takes them.
    pub(crate) fn config(self) -> WorkerConfig {
        self.config_on(on_cloud_run())
    }

    fn config_on(self, cloud_run: bool) -> WorkerConfig {
        let defaults = WorkerConfig::default();
        let usual = if cloud_run { CLOUD_RUN_GRACE } else { defaults.shutdown_grace };
        WorkerConfig {
            capacity: self.capacity,
            target_share: self.target_share,
            lot_max: self.lot,
            shutdown_grace: self.shutdown_grace.unwrap_or(usual),
            retention: Retention {
                emitted_ids: self.keep_ids.unwrap_or(defaults.retention.emitted_ids),
                dead_events: self.keep_dead_events.unwrap_or(defaults.retention.dead_events),
                audit: self.keep_record.unwrap_or(defaults.retention.audit),
            },
            ..defaults
        }
    }
}

impl DeliveryArgs {
    /// As the deliverer takes them.
    pub(crate) fn config(&self) -> Result<DeliveryConfig, InvalidIpRange> {
        let given =
            |texts: &[String]| texts.iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>();
        let ranges: Result<Vec<IpRange>, _> = given(&self.ranges).iter().map(|range| range.parse()).collect();
        let audiences = given(&self.audiences);
        Ok(DeliveryConfig {
            allow: ranges?,
            allow_http: self.allow_http,
            audiences,
            ..DeliveryConfig::default()
        })
    }
}

impl ServeArgs {
    /// As the server takes them.
    pub(crate) fn config(&self) -> HttpConfig {
        let audiences = self.audiences.iter().filter(|audience| !audience.is_empty()).cloned().collect();
        HttpConfig {
            address: SocketAddr::new(self.listen, self.port),
            access: AccessConfig { audiences, ..AccessConfig::default() },
            max_connections: self.max_connections,
            max_requests: self.max_requests,
            ..HttpConfig::default()
        }
    }
}

impl PubSubArgs {
    /// As the notifier takes them. With an emulator any project will do.
    pub(crate) fn config(&self) -> Result<PubSubConfig, Missing> {
        let project = match (self.project.as_str(), &self.emulator_host) {
            ("", Some(_)) => DEVELOPMENT_PROJECT,
            ("", None) => {
                let example = "export GOOGLE_CLOUD_PROJECT=my-project, or PUBSUB_EMULATOR_HOST=localhost:8085 for an \
                               emulator, or WAKEQ_NOTIFIER=local for one process without Pub/Sub";
                return Err(Missing { variable: "GOOGLE_CLOUD_PROJECT", example });
            }
            (project, _) => project,
        };
        Ok(PubSubConfig {
            topic: self.topic.clone(),
            subscription: self.subscription.clone(),
            emulator_host: self.emulator_host.clone(),
            ..PubSubConfig::new(project)
        })
    }

    async fn connect(&self) -> anyhow::Result<Arc<dyn Notifier>> {
        let connected: Result<PubSub, NotifyError> = PubSub::connect(self.config()?).await;
        Ok(Arc::new(connected?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_fits_where_the_process_runs() {
        let arguments = |shutdown_grace| WorkerArgs {
            capacity: 3,
            target_share: Some(2),
            lot: 9,
            shutdown_grace,
            no_targets: false,
            keep_dead_events: Some(Duration::from_secs(7200)),
            keep_ids: None,
            keep_record: None,
        };
        let grace = |given, cloud_run| arguments(given).config_on(cloud_run).shutdown_grace.as_secs();
        assert_eq!((grace(None, false), grace(None, true)), (28, 8));
        assert_eq!(grace(Some(Duration::from_secs(90)), true), 90);
        let config = arguments(None).config_on(false);
        assert_eq!((config.capacity, config.target_share, config.lot_max), (3, Some(2), 9));
        let retention = Retention { dead_events: Duration::from_secs(7200), ..Retention::default() };
        assert_eq!(config.retention, retention);
    }

    #[test]
    fn what_targets_may_reach_is_given_or_nothing() {
        let arguments = |ranges: &[&str]| DeliveryArgs {
            ranges: ranges.iter().map(|&range| range.to_owned()).collect(),
            allow_http: true,
            audiences: vec![String::new(), "orders".to_owned()],
        };
        let config = arguments(&["127.0.0.1", "fd00::/8"]).config().unwrap();
        assert_eq!(
            (config.allow.len(), config.allow_http, config.audiences),
            (2, true, vec!["orders".to_owned()])
        );
        assert!(arguments(&[""]).config().unwrap().allow.is_empty(), "an empty variable is none");
        assert_eq!(arguments(&["10.0.0.1/8"]).config().unwrap_err(), InvalidIpRange);
    }

    #[test]
    fn nothing_is_kept_for_seconds_or_for_ever() {
        assert_eq!(kept("1h").unwrap().as_secs(), 3600);
        assert!(kept("10y").is_ok());
        for refused in ["59m", "0s", "11y", "soon"] {
            assert!(kept(refused).is_err(), "{refused}");
        }
    }
}
