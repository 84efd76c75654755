//! The binary's configuration: one struct per concern, from flags and environment, checked when it is read.
//!
//! The durations of a deployment stand in its database: commands take them from there.

mod notifier;
mod process;
mod secrets;

use std::time::Duration;

use clap::Args;

pub(crate) use notifier::NotifierArgs;
pub(crate) use process::{DeliveryArgs, LotArgs, PushArgs, RateArgs, ServeArgs, WorkerArgs, on_cloud_run};
pub(crate) use secrets::SecretArgs;

use crate::event::{CanvasId, Timing};
use crate::store::{Store, StoreConfig, StoreError, TimingMode};

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
    /// Connect to a database on another host although its certificate is not checked
    #[arg(long, env = "WAKEQ_ALLOW_UNVERIFIED_DATABASE", global = true, num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true)]
    allow_unverified_database: bool,
    #[command(flatten)]
    secrets: SecretArgs,
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

/// The tenant that a command is about.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Tenant")]
pub(crate) struct CanvasArgs {
    /// The canvas, a uuid; the nil uuid for deployments with one tenant
    #[arg(long, env = "WAKEQ_CANVAS", global = true, default_value_t = CanvasId::DEFAULT, value_parser = canvas)]
    pub(crate) canvas: CanvasId,
}

fn canvas(text: &str) -> Result<CanvasId, &'static str> {
    let canvas: Result<CanvasId, _> = text.parse();
    match canvas {
        Ok(canvas) if canvas.is_reserved() => Err("no canvas has the largest uuid: take another one"),
        Ok(canvas) => Ok(canvas),
        Err(_) => Err("a canvas is a uuid, such as 6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
    }
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

    /// What counts for connections that only migrate, and grant.
    pub(crate) fn to_migrate(&self) -> StoreConfig {
        StoreConfig { allow_unverified_database: self.allow_unverified_database, ..StoreConfig::default() }
    }

    /// For who only looks, at whatever is there: nothing is asked of the server yet, not even whether it is there.
    pub(crate) async fn connect_to_look(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        let config = StoreConfig {
            allow_unsafe_durability: true,
            allow_unverified_database: self.allow_unverified_database,
            timing: timing.over(&Timing::default()),
            timing_mode: TimingMode::Unchecked,
            secret_keys: self.secrets.keys()?,
            ..StoreConfig::default()
        };
        let connected: Result<Store, StoreError> = Store::connect(self.url()?, config).await;
        Ok(connected?)
    }

    /// For who emits or works: as [`DatabaseArgs::connect`], and the first one writes its durations for all.
    pub(crate) async fn connect_to_work(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        self.agree(timing, Timing::default()).await
    }

    /// The same for who runs what is pushed: the first one says that nothing can be kept until its time.
    pub(crate) async fn connect_to_be_pushed(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        self.agree(timing, Timing { horizon: Duration::ZERO, ..Timing::default() }).await
    }

    async fn agree(&self, timing: &TimingArgs, first: Timing) -> anyhow::Result<Store> {
        let follower = self.follow(timing, first).await?;
        let agreed = follower.timing().clone();
        follower.close().await;
        self.connect_as(TimingMode::Agree, agreed).await
    }

    /// Connects, and works with the deployment's durations. Refused if others are given.
    pub(crate) async fn connect(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        self.follow(timing, Timing::default()).await
    }

    /// `first`: what counts where nobody has written any durations yet.
    async fn follow(&self, timing: &TimingArgs, first: Timing) -> anyhow::Result<Store> {
        let store = self.connect_as(TimingMode::Follow, timing.over(&first)).await?;
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
            allow_unverified_database: self.allow_unverified_database,
            timing,
            timing_mode,
            secret_keys: self.secrets.keys()?,
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
