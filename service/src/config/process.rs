//! Options of the long-running processes, from flags and environment: API, worker and delivery.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::oidc::OidcArgs;
use crate::access::{AccessConfig, PushCallers};
use crate::delivery::{AllowedAudience, AllowedPlace, DeliveryConfig, IpRange};
use crate::server::{HttpConfig, TraceUrl};
use wakeq::database::Retention;
use wakeq::{Name, WorkerConfig};

/// How much a worker takes on, and how long it may take to stop.
#[derive(Args, Clone)]
#[command(next_help_heading = "Worker")]
pub(crate) struct WorkerArgs {
    /// Name of this worker in claims [default: host name and eight random digits]
    #[arg(long = "worker", env = "WAKEQ_WORKER", value_name = "NAME")]
    name: Option<Name>,
    /// Build of this program, such as a commit, for `wakeq workers`
    #[arg(long, env = "WAKEQ_BUILD", hide_short_help = true, value_name = "NAME")]
    build: Option<Name>,
    /// Maximum concurrent handlers
    #[arg(long, env = "WAKEQ_CAPACITY", default_value_t = WorkerConfig::default().capacity)]
    capacity: usize,
    /// How many of them are kept for urgent events
    #[arg(long, env = "WAKEQ_URGENT_SLOTS", hide_short_help = true, default_value_t = WorkerConfig::default().urgent_slots)]
    urgent_slots: usize,
    /// Maximum concurrent requests to the HTTP targets of one canvas [default: a quarter of the
    /// capacity, and more while it is free]
    #[arg(long, env = "WAKEQ_TARGET_SHARE", hide_short_help = true)]
    target_share: Option<usize>,
    /// Memory for large values of running events, in bytes; events that do not fit wait
    #[arg(long, env = "WAKEQ_VALUE_BYTES_MAX", hide_short_help = true, default_value_t = WorkerConfig::default().value_bytes_max)]
    value_bytes_max: usize,
    /// How long handlers may keep running after SIGTERM [default: 28s, on Cloud Run 8s]
    #[arg(long, env = "WAKEQ_SHUTDOWN_GRACE", value_parser = humantime::parse_duration)]
    shutdown_grace: Option<Duration>,
    /// How long a handler may keep running after its event was cancelled
    #[arg(long, env = "WAKEQ_CANCEL_GRACE", value_parser = humantime::parse_duration, hide_short_help = true,
          default_value = "10s")]
    cancel_grace: Duration,
    /// Do not call HTTP targets; a program without handlers then receives no notifications
    #[arg(long, env = "WAKEQ_NO_TARGETS", num_args = 0..=1, default_missing_value = "1", default_value = "0",
          value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true, hide_possible_values = true)]
    pub(crate) no_targets: bool,
    /// Send nothing to the database while idle, so that a serverless Postgres may suspend
    #[arg(long, env = "WAKEQ_LET_DATABASE_SLEEP", hide_short_help = true, num_args = 0..=1, default_missing_value = "1", default_value = "0",
          value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true, hide_possible_values = true)]
    let_database_sleep: bool,
    /// How long dead events are kept (30days)
    #[arg(long, env = "WAKEQ_KEEP_DEAD_EVENTS", value_parser = retention, hide_short_help = true)]
    keep_dead_events: Option<Duration>,
    /// How long chosen ids are recognized after their event was due (7days)
    #[arg(long, env = "WAKEQ_KEEP_IDS", value_parser = retention, hide_short_help = true)]
    keep_ids: Option<Duration>,
    /// How long the audit log is kept (90days)
    #[arg(long, env = "WAKEQ_KEEP_RECORD", value_parser = retention, hide_short_help = true)]
    keep_record: Option<Duration>,
    /// How long unused objects without a state, and unprocessed events of entities, are kept
    /// (90days)
    #[arg(long, env = "WAKEQ_KEEP_IDLE", value_parser = retention, hide_short_help = true)]
    keep_idle: Option<Duration>,
    /// How long failed attempts are kept, in whole days (7days)
    #[arg(long, env = "WAKEQ_KEEP_ATTEMPTS", value_parser = retention, hide_short_help = true)]
    keep_attempts: Option<Duration>,
    /// How long the log is kept, unless a consumer group needs it longer [default: forever]
    #[arg(long, env = "WAKEQ_KEEP_LOG", value_parser = retention, hide_short_help = true)]
    keep_log: Option<Duration>,
}

/// How many notifications a worker that fetches them takes ahead, and keeps for later.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Worker")]
pub(crate) struct LotArgs {
    /// Notifications to prefetch beyond what runs [default: four times the capacity, 5,000 more
    /// with quick handlers]
    #[arg(long, env = "WAKEQ_PREFETCH", hide_short_help = true)]
    prefetch: Option<usize>,
    /// Maximum notifications in memory that wait to be due, or for a free slot of their handler
    #[arg(long, env = "WAKEQ_LOT", hide_short_help = true, default_value_t = WorkerConfig::default().lot_max)]
    lot: usize,
}

/// How fast one canvas's events come in, and are woken.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Rates")]
pub(crate) struct RateArgs {
    /// Events per second that one canvas may emit over HTTP beside others; two seconds' worth of a
    /// backlog is woken ahead of what workers take
    #[arg(long, env = "WAKEQ_CANVAS_EVENT_RATE", hide_short_help = true, default_value_t = WorkerConfig::default().canvas_event_rate,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) canvas_event_rate: u32,
}

/// The accounts that may push. With them, the process runs the events that a push subscription
/// sends it.
#[derive(Args, Clone)]
#[command(next_help_heading = "Push mode")]
pub(crate) struct PushArgs {
    /// Audience of the push tokens; must not be an audience of the API
    #[arg(
        id = "push_audiences",
        hide_short_help = true,
        long = "push-audience",
        env = "WAKEQ_PUSH_AUDIENCE",
        value_delimiter = ',',
        value_name = "AUDIENCES"
    )]
    audiences: Vec<String>,
    /// Service accounts whose tokens Pub/Sub and Cloud Scheduler send
    #[arg(
        id = "push_accounts",
        hide_short_help = true,
        long = "push-account",
        env = "WAKEQ_PUSH_ACCOUNTS",
        value_delimiter = ',',
        value_name = "ACCOUNTS"
    )]
    accounts: Vec<String>,
}

/// Where requests to HTTP targets may go.
#[derive(Args, Clone)]
#[command(next_help_heading = "HTTP targets")]
pub(crate) struct DeliveryArgs {
    /// Where targets of a canvas (or `queues`, or `*` for all) may be, besides public addresses on
    /// ports 443, 80 and 8000 to 8999: CANVAS=10.1.2.0/24:8080, CANVAS=orders.internal:9000-9010,
    /// *=public:9443
    #[arg(
        hide_short_help = true,
        long = "deliver-to",
        env = "WAKEQ_DELIVER_TO",
        value_delimiter = ',',
        value_name = "PLACES"
    )]
    places: Vec<String>,
    /// Also allow targets with http://
    #[arg(long = "deliver-http", env = "WAKEQ_DELIVER_HTTP", hide_short_help = true, num_args = 0..=1,
          default_missing_value = "1", default_value = "0", value_parser = clap::builder::BoolishValueParser::new(),
          hide_default_value = true, hide_possible_values = true)]
    allow_http: bool,
    /// Audiences allowed in tokens for targets of a canvas (or `queues`, or `*` for all), and where
    /// those tokens may go: CANVAS=https://orders-x.a.run.app,
    /// CANVAS=orders=https://orders-x.a.run.app
    #[arg(
        id = "deliver_audiences",
        hide_short_help = true,
        long = "deliver-audience",
        env = "WAKEQ_DELIVER_AUDIENCE",
        value_delimiter = ',',
        value_name = "PAIRS"
    )]
    audiences: Vec<String>,
}

/// Parses a retention period: at least an hour, so that people can look at things, at most ten
/// years.
fn retention(text: &str) -> Result<Duration, String> {
    let period = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let hour = Duration::from_secs(3600);
    let ten_years = Duration::from_secs(3653 * 24 * 3600);
    if (hour..=ten_years).contains(&period) { Ok(period) } else { Err("it must be 1h to 10y".into()) }
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
    /// Audiences of Google ID tokens: the URLs of this service; without one, ID tokens are rejected
    #[arg(long = "audience", env = "WAKEQ_AUDIENCE", value_delimiter = ',')]
    audiences: Vec<String>,
    /// Origins of this service besides its audiences; HTTP targets there are refused
    #[arg(
        long = "own-origin",
        env = "WAKEQ_OWN_ORIGINS",
        hide_short_help = true,
        value_delimiter = ',',
        value_name = "ORIGINS"
    )]
    own_origins: Vec<String>,
    /// URL of the public keys that verify ID tokens; for local emulators
    #[arg(long, env = "WAKEQ_JWKS_URL", default_value_t = AccessConfig::default().jwks_url, hide_short_help = true)]
    jwks_url: String,
    /// Audience of Google's identity-aware proxy in front of the pages, as its console shows it:
    /// whom it lets through is signed in there
    #[arg(long, env = "WAKEQ_IAP_AUDIENCE", hide_short_help = true, value_name = "AUDIENCE")]
    iap_audience: Option<String>,
    /// Maximum concurrent connections
    #[arg(long, env = "WAKEQ_MAX_CONNECTIONS", hide_short_help = true, default_value_t = HttpConfig::default().max_connections)]
    max_connections: usize,
    /// Maximum concurrent requests
    #[arg(long, env = "WAKEQ_MAX_REQUESTS", hide_short_help = true, default_value_t = HttpConfig::default().max_requests)]
    max_requests: usize,
    /// Maximum concurrent listeners
    #[arg(long, env = "WAKEQ_MAX_LISTENERS", hide_short_help = true, default_value_t = HttpConfig::default().max_listeners)]
    max_listeners: usize,
    /// Share of these limits for one canvas, credential or client address, in percent
    #[arg(long, env = "WAKEQ_SHARE", hide_short_help = true, default_value_t = HttpConfig::default().share_percent)]
    share: u8,
    /// Requests per second per credential
    #[arg(long, env = "WAKEQ_CREDENTIAL_RATE", hide_short_help = true, default_value_t = HttpConfig::default().credential_rate)]
    credential_rate: u32,
    /// Requests per second per canvas
    #[arg(long, env = "WAKEQ_CANVAS_RATE", hide_short_help = true, default_value_t = HttpConfig::default().canvas_rate)]
    canvas_rate: u32,
    /// Events per second that a canvas may emit while no other canvas uses this process
    #[arg(long, env = "WAKEQ_LONE_CANVAS_EVENT_RATE", hide_short_help = true, default_value_t = HttpConfig::default().lone_canvas_event_rate)]
    lone_canvas_event_rate: u32,
    /// Bytes per second of request and response bodies, per canvas and per credential
    #[arg(long, env = "WAKEQ_CANVAS_BYTE_RATE", hide_short_help = true, default_value_t = HttpConfig::default().canvas_byte_rate)]
    canvas_byte_rate: u32,
    /// Requests per second per address without a valid credential
    #[arg(long, env = "WAKEQ_STRANGER_RATE", hide_short_help = true, default_value_t = HttpConfig::default().stranger_rate)]
    stranger_rate: u32,
    /// Proxies whose X-Forwarded-For is trusted, as address ranges: 35.191.0.0/16,130.211.0.0/22
    #[arg(long, env = "WAKEQ_TRUSTED_PROXIES", value_delimiter = ',', value_name = "RANGES")]
    trusted_proxies: Vec<String>,
    /// Don't serve /docs, /openapi.json and /llms.txt, which need no credential
    #[arg(long, env = "WAKEQ_NO_DOCS", hide_short_help = true, num_args = 0..=1, default_missing_value = "1", default_value = "0",
          value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true, hide_possible_values = true)]
    no_docs: bool,
    /// Don't serve the pages for browsers
    #[arg(long, env = "WAKEQ_NO_PAGE", hide_short_help = true, num_args = 0..=1, default_missing_value = "1", default_value = "0",
          value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true, hide_possible_values = true)]
    no_page: bool,
    /// Where the page of an event links to its trace: https://trace.example/t/{trace_id}
    #[arg(long, env = "WAKEQ_TRACE_URL", hide_short_help = true, value_name = "URL")]
    trace_url: Option<TraceUrl>,
    #[command(flatten)]
    oidc: OidcArgs,
}

/// Cloud Run kills a process ten seconds after asking it to stop; two of them are for releasing
/// claims.
const CLOUD_RUN_GRACE: Duration = Duration::from_secs(8);

/// Variables that Cloud Run sets for its services, worker pools and jobs.
const CLOUD_RUN_VARIABLES: [&str; 3] = ["K_SERVICE", "CLOUD_RUN_WORKER_POOL", "CLOUD_RUN_JOB"];

/// Whether this process runs on Cloud Run.
pub(crate) fn on_cloud_run() -> bool {
    CLOUD_RUN_VARIABLES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

impl LotArgs {
    /// Completes the worker's configuration.
    pub(crate) fn with(self, config: WorkerConfig) -> WorkerConfig {
        WorkerConfig { prefetch: self.prefetch, lot_max: self.lot, ..config }
    }
}

impl PushArgs {
    /// Whether push is configured. An empty variable counts as unset.
    pub(crate) fn is_given(&self) -> bool {
        self.callers() != PushCallers::default()
    }

    /// The callers that may push.
    pub(crate) fn callers(&self) -> PushCallers {
        PushCallers { audiences: non_empty(&self.audiences), accounts: non_empty(&self.accounts) }
    }
}

/// Trims the texts, and drops empty ones.
fn non_empty(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

impl WorkerArgs {
    /// The worker's configuration.
    pub(crate) fn config(&self) -> WorkerConfig {
        self.config_on(on_cloud_run())
    }

    fn config_on(&self, cloud_run: bool) -> WorkerConfig {
        let defaults = WorkerConfig::default();
        let usual = if cloud_run { CLOUD_RUN_GRACE } else { defaults.shutdown_grace };
        WorkerConfig {
            name: self.name.clone(),
            build: self.build.clone(),
            capacity: self.capacity,
            urgent_slots: self.urgent_slots,
            target_share: self.target_share,
            value_bytes_max: self.value_bytes_max,
            shutdown_grace: self.shutdown_grace.unwrap_or(usual),
            cancel_grace: self.cancel_grace,
            lets_database_sleep: self.let_database_sleep,
            retention: Retention {
                emitted_ids: self.keep_ids.unwrap_or(defaults.retention.emitted_ids),
                dead_events: self.keep_dead_events.unwrap_or(defaults.retention.dead_events),
                audit: self.keep_record.unwrap_or(defaults.retention.audit),
                idle: self.keep_idle.unwrap_or(defaults.retention.idle),
                attempts: self.keep_attempts.unwrap_or(defaults.retention.attempts),
                log: self.keep_log.or(defaults.retention.log),
            },
            ..defaults
        }
    }
}

impl DeliveryArgs {
    /// The deliverer's configuration.
    pub(crate) fn config(&self) -> anyhow::Result<DeliveryConfig> {
        let places: Result<Vec<AllowedPlace>, _> =
            non_empty(&self.places).iter().map(|place| place.parse()).collect();
        let audiences: Result<Vec<AllowedAudience>, _> =
            non_empty(&self.audiences).iter().map(|pair| pair.parse()).collect();
        Ok(DeliveryConfig {
            allow: places?,
            allow_http: self.allow_http,
            audiences: audiences?,
            ..DeliveryConfig::default()
        })
    }
}

impl ServeArgs {
    /// The server's configuration.
    pub(crate) fn config(&self) -> anyhow::Result<HttpConfig> {
        let proxies: Result<Vec<IpRange>, _> =
            non_empty(&self.trusted_proxies).iter().map(|range| range.parse()).collect();
        let (audiences, jwks_url) = (non_empty(&self.audiences), self.jwks_url.clone());
        let (iap_audience, oidc) = (self.iap_audience.clone(), self.oidc.provider()?);
        Ok(HttpConfig {
            address: SocketAddr::new(self.listen, self.port),
            own_origins: non_empty(&self.own_origins),
            access: AccessConfig { audiences, jwks_url, iap_audience, oidc, ..AccessConfig::default() },
            max_connections: self.max_connections,
            max_requests: self.max_requests,
            max_listeners: self.max_listeners,
            share_percent: self.share,
            credential_rate: self.credential_rate,
            canvas_rate: self.canvas_rate,
            lone_canvas_event_rate: self.lone_canvas_event_rate,
            canvas_byte_rate: self.canvas_byte_rate,
            stranger_rate: self.stranger_rate,
            docs: !self.no_docs,
            page: !self.no_page,
            trace_url: self.trace_url.clone(),
            trusted_proxies: proxies.context("--trusted-proxies (WAKEQ_TRUSTED_PROXIES)")?,
            ..HttpConfig::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::delivery::{InvalidAllowedAudience, InvalidAllowedPlace};

    // Shows: CARD-08
    #[test]
    fn the_grace_fits_where_the_process_runs() {
        let arguments = |shutdown_grace| WorkerArgs {
            name: Some("orders-1".parse().unwrap()),
            build: Some("7c9e6679".parse().unwrap()),
            capacity: 3,
            urgent_slots: 1,
            target_share: Some(2),
            value_bytes_max: 1024 * 1024,
            shutdown_grace,
            cancel_grace: Duration::from_secs(4),
            no_targets: false,
            let_database_sleep: false,
            keep_dead_events: Some(Duration::from_secs(7200)),
            keep_ids: None,
            keep_record: None,
            keep_idle: None,
            keep_attempts: None,
            keep_log: None,
        };
        let grace = |given, cloud_run| arguments(given).config_on(cloud_run).shutdown_grace.as_secs();
        assert_eq!((grace(None, false), grace(None, true)), (28, 8));
        assert_eq!(grace(Some(Duration::from_secs(90)), true), 90);
        let config = arguments(None).config_on(false);
        let fetching = LotArgs { prefetch: Some(5), lot: 9 }.with(config.clone());
        assert_eq!((fetching.capacity, fetching.prefetch, fetching.lot_max), (3, Some(5), 9));
        assert_eq!(config.urgent_slots, 1);
        assert_eq!((config.target_share, config.cancel_grace), (Some(2), Duration::from_secs(4)));
        assert_eq!(config.name.unwrap().as_str(), "orders-1");
        assert_eq!(config.build.unwrap().as_str(), "7c9e6679");
        let retention = Retention { dead_events: Duration::from_secs(7200), ..Retention::default() };
        assert_eq!(config.retention, retention);
    }

    #[test]
    fn target_ranges_are_configured_or_empty() {
        let arguments = |places: &[&str]| DeliveryArgs {
            places: places.iter().map(|&place| place.to_owned()).collect(),
            allow_http: true,
            audiences: vec![String::new(), "*=orders=https://orders.example".to_owned()],
        };
        let config = arguments(&["*=127.0.0.1", "queues=[fd00::/8]:8080"]).config().unwrap();
        let pair: AllowedAudience = "*=orders=https://orders.example".parse().unwrap();
        assert_eq!((config.allow.len(), config.allow_http, config.audiences), (2, true, vec![pair]));
        assert!(arguments(&[""]).config().unwrap().allow.is_empty(), "an empty variable is none");
        for range in ["*=10.0.0.1/8", "10.0.0.0/8"] {
            let refused = arguments(&[range]).config().unwrap_err();
            assert!(refused.is::<InvalidAllowedPlace>(), "{refused}");
        }
        let unbound = DeliveryArgs { audiences: vec!["orders".to_owned()], ..arguments(&[]) };
        let refused = unbound.config().unwrap_err();
        assert!(refused.is::<InvalidAllowedAudience>(), "for anybody: {refused}");
    }

    #[test]
    fn an_empty_variable_makes_no_push_deployment() {
        let arguments = |audience: &str, account: &str| PushArgs {
            audiences: vec![audience.to_owned()],
            accounts: vec![account.to_owned()],
        };
        assert!(!arguments("", " ").is_given());
        assert!(arguments("push", "").is_given());
        assert_eq!(arguments("push", " a@b.c ").callers().accounts, ["a@b.c"]);
    }

    #[derive(Parser)]
    struct Served {
        #[command(flatten)]
        serve: ServeArgs,
    }

    #[test]
    fn traces_are_shown_where_there_is_a_place_for_their_ids() {
        let config = |url: &str| {
            let served = Served::try_parse_from(["serve", "--trace-url", url]);
            served.map(|served| served.serve.config().unwrap().trace_url)
        };
        let url = "https://trace.example/t/{trace_id}";
        assert_eq!(config(url).unwrap(), Some(url.parse().unwrap()));
        for wrong in ["https://trace.example/", "ftp://trace.example/{trace_id}", "/t/{trace_id}"] {
            let refused = config(wrong).unwrap_err().to_string();
            assert!(refused.contains("an http or https URL with {trace_id} in it"), "{wrong}: {refused}");
        }
    }

    #[test]
    fn retention_must_be_one_hour_to_ten_years() {
        assert_eq!(retention("1h").unwrap().as_secs(), 3600);
        assert!(retention("10y").is_ok());
        for refused in ["59m", "0s", "11y", "soon"] {
            assert!(retention(refused).is_err(), "{refused}");
        }
    }
}
