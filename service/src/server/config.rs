//! Configuration of the API server: all its limits with their defaults, validated at the start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::error::HttpError;
use crate::access::AccessConfig;
use crate::delivery::{DeliveryConfig, IpRange};
use crate::http::bytes::{Answers, Budget};
use crate::http::connection::ConnectionLimits;
use crate::http::limits::Limits;
use crate::http::listeners::ListenerLimits;
use crate::http::shares::ShareLimits;
use crate::page::TraceUrl;
use wakeq::database::Retention;

/// Maximum of `bodies_bytes_max` and of `answers_bytes_max`.
const BYTES_MAX: usize = 64 * 1024 * 1024 * 1024;

/// Configuration of the API server.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The address to listen on. Default `0.0.0.0:8080`.
    pub address: SocketAddr,
    /// Which credentials are accepted, and how they are checked.
    pub access: AccessConfig,
    /// Which targets may be registered. Should be the same as that of the workers.
    pub delivery: DeliveryConfig,
    /// The origins under which this API is reached, such as `https://queue.example`: no process of
    /// the deployment delivers to them. The audiences of [`AccessConfig`] are included
    /// automatically. Default none.
    pub own_origins: Vec<String>,
    /// Retention for `POST /v1/wake`, which deletes what is older. Default none: it deletes
    /// nothing.
    pub retention: Option<Retention>,
    /// Maximum number of open connections; further ones are answered 503. Default 4,096.
    pub max_connections: usize,
    /// Maximum number of concurrent requests; further ones are answered 429. Default 512.
    pub max_requests: usize,
    /// Maximum number of concurrent listeners (`GET /v1/listen`); further ones are answered 429.
    /// Default 64; each may hold 4 MiB.
    pub max_listeners: usize,
    /// The share of these three limits that a single canvas or credential may use at once (for
    /// connections: a single client address), in percent, rounded up; more is answered 429. Default
    /// 25; with 100, a single one may use everything.
    pub share_percent: u8,
    /// Requests per second with one credential, with bursts of twice as many; beyond that, they are
    /// answered 429. Default 1,000.
    pub credential_rate: u32,
    /// Requests per second for one canvas, with all its credentials, with bursts of twice as many;
    /// more are answered 429. Default 2,000.
    pub canvas_rate: u32,
    /// Events per second that one canvas may emit beside others, singly, in batches and on objects,
    /// with bursts of twice as many; further emits are answered 429 until the rate permits them.
    /// Two seconds' worth of a backlog is woken ahead of what workers take, and a tenth of the rate
    /// whatever they take. Default 1,000: about what quick handlers on a small worker process.
    pub canvas_event_rate: u32,
    /// Events per second that a canvas may emit while no other canvas has used this process for ten
    /// minutes. Default 100,000.
    pub lone_canvas_event_rate: u32,
    /// Bytes per second of request bodies and answers, for one canvas and for one credential across
    /// canvases, with bursts of one second's worth; further requests are answered 429 until the
    /// rate permits them. Default 8 MiB.
    pub canvas_byte_rate: u32,
    /// Requests per second without a valid credential from one client address, with bursts of twice
    /// as many; up to this rate they are answered 401, beyond it 429. Default 20.
    pub stranger_rate: u32,
    /// Proxies whose `x-forwarded-for` is trusted: the client is the rightmost address there that
    /// is not one of them. Default none: the client is the peer of the connection. Connections from
    /// these proxies are not limited by address.
    pub trusted_proxies: Vec<IpRange>,
    /// Whether `/docs`, `/openapi.json` and `/llms.txt` are served, without a credential. Default
    /// true.
    pub docs: bool,
    /// Whether the pages for browsers are served, at `/`: nobody sees more there than how to sign
    /// in, unless with a key. Default true.
    pub page: bool,
    /// Where the trace of an event is shown, to which its page links. Only browsers ever go there.
    /// Default none.
    pub trace_url: Option<TraceUrl>,
    /// How often a listener is sent a keep-alive and its credential is checked again. Default 15 s,
    /// at most 30 s, so that a revocation takes effect within 60 s.
    pub listener_keep_alive: Duration,
    /// Maximum size of a request body. Default 256 KiB, at most 16 MiB.
    pub body_limit_bytes: usize,
    /// Maximum bytes of all request bodies together, until their requests are answered; requests
    /// beyond it are answered 429. A canvas may hold up to as much as is left for the others: half
    /// of the maximum if it is alone, a third beside another one. Default 64 MiB; always at least
    /// four of the largest bodies.
    pub bodies_bytes_max: usize,
    /// Maximum bytes of all answers larger than 32 KiB that are being sent, shared in the same way;
    /// a request that only reads and whose answer does not fit is answered 429. Default 40 MiB;
    /// always at least four of the largest bodies.
    pub answers_bytes_max: usize,
    /// How long a connection may take to send a request's header. Default 10 s.
    pub header_timeout: Duration,
    /// How long a connection may be idle between two requests. Should be longer than the load
    /// balancer keeps idle connections, so that none is closed just as a request arrives. Default
    /// 620 s; while less than a quarter of `max_connections` is free, `header_timeout` applies
    /// instead.
    pub idle_timeout: Duration,
    /// How long a request body may take to arrive. Default 10 s.
    pub body_timeout: Duration,
    /// How long a request may take altogether. Default 30 s.
    pub request_timeout: Duration,
    /// How long the caller may take to receive an answer that does not fit into the kernel's
    /// buffers. Default 30 s.
    pub write_timeout: Duration,
    /// How long requests may continue after a shutdown was requested. Default 8 s, within Cloud
    /// Run's 10 s.
    pub shutdown_grace: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([0, 0, 0, 0], 8080)),
            access: AccessConfig::default(),
            delivery: DeliveryConfig::default(),
            own_origins: Vec::new(),
            retention: None,
            max_connections: 4096,
            max_requests: 512,
            max_listeners: 64,
            share_percent: 25,
            credential_rate: 1000,
            canvas_rate: 2000,
            canvas_event_rate: 1000,
            lone_canvas_event_rate: 100_000,
            canvas_byte_rate: 8 * 1024 * 1024,
            stranger_rate: 20,
            trusted_proxies: Vec::new(),
            docs: true,
            page: true,
            trace_url: None,
            listener_keep_alive: Duration::from_secs(15),
            body_limit_bytes: 256 * 1024,
            bodies_bytes_max: 64 * 1024 * 1024,
            answers_bytes_max: 40 * 1024 * 1024,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(620),
            body_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(8),
        }
    }
}

impl HttpConfig {
    pub(super) fn connection_limits(&self, permits: &Arc<Semaphore>) -> ConnectionLimits {
        ConnectionLimits {
            header: self.header_timeout,
            idle: self.idle_timeout,
            answer: self.write_timeout,
            permits: Arc::clone(permits),
            low_mark: self.max_connections / 4,
        }
    }

    /// The share of a limit that one party may use, rounded up.
    pub(super) fn share_of(&self, whole: usize) -> usize {
        whole.saturating_mul(usize::from(self.share_percent)).div_ceil(100)
    }

    pub(super) fn share_limits(&self) -> ShareLimits {
        ShareLimits {
            requests: self.share_of(self.max_requests),
            per_credential: self.credential_rate,
            per_canvas: self.canvas_rate,
            events_per_canvas: self.canvas_event_rate,
            events_alone: self.lone_canvas_event_rate,
            bytes: self.canvas_byte_rate,
            of_strangers: self.stranger_rate,
        }
    }

    pub(super) fn listener_limits(&self) -> ListenerLimits {
        ListenerLimits {
            most: self.max_listeners,
            share: self.share_of(self.max_listeners),
            keep_alive: self.listener_keep_alive,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            body_bytes: self.body_limit_bytes,
            body_time: self.body_timeout,
            request_time: self.request_timeout,
            requests: self.max_requests,
            delayed_refusals: self.max_connections / 2,
            bodies: Budget::new(self.bodies_bytes_max.max(4 * self.body_limit_bytes)),
            answers: Answers::new(self.answers_bytes_max.max(4 * self.body_limit_bytes), self.write_timeout),
        }
    }

    pub(super) fn check(&self) -> Result<(), HttpError> {
        let hour = Duration::from_secs(3600);
        let times = [
            self.header_timeout,
            self.idle_timeout,
            self.body_timeout,
            self.request_timeout,
            self.write_timeout,
        ];
        if !(1..=100_000).contains(&self.max_connections) || !(1..=100_000).contains(&self.max_requests) {
            return Err(HttpError::Config("max_connections and max_requests must be 1 to 100,000"));
        }
        if !(1..=100).contains(&self.share_percent) {
            return Err(HttpError::Config("share_percent must be 1 to 100"));
        }
        let events = [self.canvas_event_rate, self.lone_canvas_event_rate];
        let rates = [self.credential_rate, self.canvas_rate, self.stranger_rate].into_iter().chain(events);
        if rates.into_iter().any(|rate| !(1..=1_000_000).contains(&rate)) {
            return Err(HttpError::Config(
                "the rates of credentials, canvases and strangers must be 1 to 1,000,000",
            ));
        }
        if self.canvas_byte_rate < 1024 {
            return Err(HttpError::Config("canvas_byte_rate must be 1 KiB at least"));
        }
        if self.max_listeners > 10_000 {
            return Err(HttpError::Config("max_listeners must be 10,000 at most"));
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(30)).contains(&self.listener_keep_alive) {
            return Err(HttpError::Config("listener_keep_alive must be 100 ms to 30 s"));
        }
        if !(1024..=16 * 1024 * 1024).contains(&self.body_limit_bytes) {
            return Err(HttpError::Config("the body limit must be 1 KiB to 16 MiB"));
        }
        if self.bodies_bytes_max > BYTES_MAX || self.answers_bytes_max > BYTES_MAX {
            return Err(HttpError::Config("bodies_bytes_max and answers_bytes_max must be 64 GiB at most"));
        }
        if times.iter().any(|time| !(Duration::from_millis(100)..=hour).contains(time)) {
            return Err(HttpError::Config(
                "the time-outs of header, rest, body, request and answer must be 100 ms to one hour",
            ));
        }
        Ok(())
    }
}
