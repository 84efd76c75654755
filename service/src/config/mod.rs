//! The binary's configuration: one struct per concern, from flags and environment, validated when
//! parsed.
//!
//! The durations of a deployment are stored in its database, from which commands read them.

mod notifier;
mod oidc;
mod process;
mod secrets;

use std::time::Duration;

use clap::Args;
use wakeq::database::TimingMode;
use wakeq::{CanvasId, Store, StoreConfig, StoreError, Timing};

pub(crate) use notifier::NotifierArgs;
pub(crate) use process::{DeliveryArgs, LotArgs, PushArgs, RateArgs, ServeArgs, WorkerArgs, on_cloud_run};
pub(crate) use secrets::SecretArgs;

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
    /// Use a server that may lose commits (fsync or synchronous_commit off)
    #[arg(long, env = "WAKEQ_ALLOW_UNSAFE_DURABILITY", global = true, num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true)]
    allow_unsafe_durability: bool,
    /// Connect to a database on another host without verifying its certificate
    #[arg(long, env = "WAKEQ_ALLOW_UNVERIFIED_DATABASE", global = true, num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true)]
    allow_unverified_database: bool,
    /// A pooler in transaction mode stands before the server, and the role has the settings
    #[arg(long, env = "WAKEQ_TRANSACTION_POOLER", global = true, num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true, hide_short_help = true)]
    transaction_pooler: bool,
    #[command(flatten)]
    secrets: SecretArgs,
}

/// The durations that all processes of a deployment share. Those that are not given stay as the
/// deployment has them.
#[derive(Args, Clone)]
#[command(next_help_heading = "Timing [default: the deployment's]")]
pub(crate) struct TimingArgs {
    /// How long a claim lasts without renewal (60s)
    #[arg(long, env = "WAKEQ_LEASE", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    lease: Option<Duration>,
    /// How long before it is due a worker may receive an event (10m)
    #[arg(long, env = "WAKEQ_HORIZON", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    horizon: Option<Duration>,
    /// How long after an event is due its notification counts as lost (30s)
    #[arg(long, env = "WAKEQ_GRACE", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    grace: Option<Duration>,
    /// How often to sweep for overdue events (60s)
    #[arg(long, env = "WAKEQ_PROBE_PERIOD", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    probe_period: Option<Duration>,
    /// Delay before an event is woken again; doubled each time, up to --probe-backoff-max (10m)
    #[arg(long, env = "WAKEQ_PROBE_BACKOFF", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    probe_backoff: Option<Duration>,
    /// Longest delay before an event is woken again (1h)
    #[arg(long, env = "WAKEQ_PROBE_BACKOFF_MAX", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    probe_backoff_max: Option<Duration>,
    /// Delay before an event with a handler unknown to the worker is retried (5m)
    #[arg(long, env = "WAKEQ_UNKNOWN_HANDLER_WAIT", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    unknown_handler_wait: Option<Duration>,
    /// Longest delay before a retry, also where a handler's policy allows a longer one (365days)
    #[arg(long, env = "WAKEQ_RETRY_DELAY_MAX", value_parser = humantime::parse_duration, global = true,
          hide_short_help = true)]
    retry_delay_max: Option<Duration>,
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
        Ok(canvas) if canvas.is_reserved() => {
            Err("the largest uuid is reserved and can't be a canvas: choose another one")
        }
        Ok(canvas) => Ok(canvas),
        Err(_) => Err("a canvas is a uuid, such as 6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
    }
}

/// A required setting is missing.
#[derive(Debug, thiserror::Error)]
#[error("{variable} is not set: {example}")]
pub(crate) struct MissingSetting {
    variable: &'static str,
    example: &'static str,
}

/// `DATABASE_URL` is not a Postgres URL. It is not repeated, because it may contain a password.
#[derive(Debug, thiserror::Error)]
#[error(
    "DATABASE_URL is not the URL of a Postgres database: it should look like \
     postgres://user:password@host:5432/database"
)]
pub(crate) struct NotPostgres;

/// `DATABASE_URL` has a password that ends its authority.
#[derive(Debug, thiserror::Error)]
#[error(
    "the password in DATABASE_URL contains /, ? or # as it is, which ends the name of the host: \
     percent-encode it (/ as %2F, ? as %3F, # as %23, @ as %40)"
)]
pub(crate) struct PlainPassword;

/// Whether the authority is a name and the beginning of a password, and its @ comes after its end.
/// An @ in the path or the query alone is valid there, such as that of `?user=`.
fn has_plain_password(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The colons within an IPv6 address are not followed by a port.
    let after_address = authority.rsplit_once(']').map_or(authority, |(_, port)| port);
    let Some((_, port)) = after_address.split_once(':') else { return false };
    // Digits after a name may be a port, or a password that goes on in the path.
    let in_path = rest.split(['?', '#']).next().is_some_and(|path| path.contains('@'));
    let goes_on = in_path && !authority.starts_with('[');
    !authority.contains('@') && (goes_on || !is_port(port) && rest.contains('@'))
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

impl DatabaseArgs {
    /// Whether a connection URL is given.
    pub(crate) fn is_given(&self) -> bool {
        !self.database_url.is_empty()
    }

    /// The connection URL, which is required.
    pub(crate) fn url(&self) -> anyhow::Result<&str> {
        let example =
            "export DATABASE_URL=postgres://user:password@host:5432/database, or pass --database-url";
        if self.database_url.is_empty() {
            return Err(MissingSetting { variable: "DATABASE_URL", example }.into());
        }
        let is_postgres =
            ["postgres://", "postgresql://"].iter().any(|scheme| self.database_url.starts_with(scheme));
        anyhow::ensure!(is_postgres, NotPostgres);
        anyhow::ensure!(!has_plain_password(&self.database_url), PlainPassword);
        Ok(&self.database_url)
    }

    /// Whether servers that may lose commits are accepted.
    pub(crate) fn allows_unsafe_durability(&self) -> bool {
        self.allow_unsafe_durability
    }

    /// For connections that only migrate and grant.
    pub(crate) fn to_migrate(&self) -> StoreConfig {
        StoreConfig {
            allow_unverified_database: self.allow_unverified_database,
            transaction_pooler: self.transaction_pooler,
            ..StoreConfig::default()
        }
    }

    /// Whether a pooler in transaction mode was announced.
    pub(crate) fn has_transaction_pooler(&self) -> bool {
        self.transaction_pooler
    }

    /// For commands that only inspect whatever there is: contacts no server, and checks none.
    pub(crate) fn unchecked_store(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        let config = StoreConfig {
            allow_unverified_database: self.allow_unverified_database,
            transaction_pooler: self.transaction_pooler,
            timing: Some(timing.over(&Timing::default())),
            secret_keys: self.secrets.keys()?,
            ..StoreConfig::default()
        };
        Ok(Store::unchecked(self.url()?, config)?)
    }

    /// For processes that emit or work: like [`DatabaseArgs::connect`], but the first process of a
    /// deployment writes its durations.
    pub(crate) async fn connect_to_work(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        self.agree(timing, Timing::default()).await
    }

    /// The same for processes that run pushed events: the first one sets the horizon to zero, since
    /// they can't keep notifications until their time.
    pub(crate) async fn connect_to_be_pushed(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        self.agree(timing, Timing { horizon: Duration::ZERO, ..Timing::default() }).await
    }

    async fn agree(&self, timing: &TimingArgs, first: Timing) -> anyhow::Result<Store> {
        let follower = self.follow(timing, first).await?;
        let agreed = follower.timing().clone();
        follower.close().await;
        self.connect_as(TimingMode::Agree, agreed).await
    }

    /// Connects with the deployment's durations. Fails if other ones are given.
    pub(crate) async fn connect(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        self.follow(timing, Timing::default()).await
    }

    /// `first` are the durations if the deployment has none yet.
    async fn follow(&self, timing: &TimingArgs, first: Timing) -> anyhow::Result<Store> {
        let store = self.connect_as(TimingMode::Follow, timing.over(&first)).await?;
        let ours = timing.over(store.timing());
        if let Some((name, ours, deployment)) = ours.first_difference(store.timing()) {
            anyhow::bail!(StoreError::OtherTiming { name, ours, deployment });
        }
        Ok(store)
    }

    /// Connects, and replaces the deployment's durations by the given ones.
    pub(crate) async fn replace(&self, timing: &TimingArgs) -> anyhow::Result<Store> {
        let standing = self.connect_as(TimingMode::Follow, Timing::default()).await?;
        self.connect_as(TimingMode::Replace, timing.over(standing.timing())).await
    }

    async fn connect_as(&self, timing_mode: TimingMode, timing: Timing) -> anyhow::Result<Store> {
        let config = StoreConfig {
            allow_unsafe_durability: self.allow_unsafe_durability,
            allow_unverified_database: self.allow_unverified_database,
            transaction_pooler: self.transaction_pooler,
            timing: Some(timing),
            timing_mode,
            secret_keys: self.secrets.keys()?,
            ..StoreConfig::default()
        };
        let connected: Result<Store, StoreError> = Store::connect(self.url()?, config).await;
        Ok(connected?)
    }
}

impl TimingArgs {
    /// These durations, overridden by the given ones.
    pub(crate) fn over(&self, timing: &Timing) -> Timing {
        Timing {
            lease: self.lease.unwrap_or(timing.lease),
            horizon: self.horizon.unwrap_or(timing.horizon),
            grace: self.grace.unwrap_or(timing.grace),
            probe_period: self.probe_period.unwrap_or(timing.probe_period),
            probe_backoff: self.probe_backoff.unwrap_or(timing.probe_backoff),
            probe_backoff_max: self.probe_backoff_max.unwrap_or(timing.probe_backoff_max),
            unknown_handler_wait: self.unknown_handler_wait.unwrap_or(timing.unknown_handler_wait),
            retry_delay_max: self.retry_delay_max.unwrap_or(timing.retry_delay_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_password_ends_the_authority_and_an_at_sign_in_the_query_does_not() {
        for url in [
            "postgres://ada:p/w@127.0.0.1/queue",
            "postgres://ada:p?w@db.example:5432/queue",
            "postgres://ada:p#w@db.example/queue",
            "postgres://ada:12:3/w@db.example/queue",
            "postgres://ada:123456/w@db.example/queue",
            "postgres://ada:+5/w@db.example/queue",
            "postgres://ada:1234/w@db.example/queue",
            "postgres://ada:/w@db.example/queue",
        ] {
            assert!(has_plain_password(url), "{url}");
        }
        for url in [
            "postgres://localhost/q?host=/cloudsql/p:r:i&user=sa@p.iam",
            "postgres://localhost:5432/q?user=sa@p.iam",
            "postgres://localhost:/q?user=sa@p.iam",
            "postgres://localhost/q?user=ada&password=p@ss",
            "postgres:///q?host=/run/postgresql&user=sa@p.iam",
            "postgres://[::1]/q?user=sa@p.iam",
            "postgres://[::1]:5432/q@home",
            "postgres://ada:p%2Fw@127.0.0.1/queue",
            "postgres://ada@127.0.0.1/queue?application_name=a@b",
            "postgres://localhost/queue",
        ] {
            assert!(!has_plain_password(url), "{url}");
        }
    }
}
