//! How the API is served: every bound of it, with its default, checked at the start.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::HttpError;
use crate::access::AccessConfig;
use crate::delivery::{DeliveryConfig, IpRange};
use crate::http::bytes::{Answers, Budget};
use crate::http::connection::Pace;
use crate::http::limits::Limits;
use crate::http::listen::ListeningLimits;
use crate::http::shares::ShareLimits;
use crate::store::Retention;

/// Most bytes that either of bodies and answers may be given.
const BYTES_MAX: usize = 64 * 1024 * 1024 * 1024;

/// How the API is served.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Where it listens. Default `0.0.0.0:8080`.
    pub address: SocketAddr,
    /// Whose credentials count.
    pub access: AccessConfig,
    /// Which targets may be registered: as the workers have it.
    pub delivery: DeliveryConfig,
    /// Where this API is reached, such as `https://queue.example`: no target may be there, on any process. The audiences of
    /// [`AccessConfig`] are among these without being named. Default: none.
    pub own_origins: Vec<String>,
    /// How long things are kept, for `POST /v1/wake`, which then deletes what is older. Default none: it deletes nothing.
    pub retention: Option<Retention>,
    /// Connections at a time; more are answered 503. Default 4,096.
    pub max_connections: usize,
    /// Requests at a time; more are answered 429. Default 512.
    pub max_requests: usize,
    /// Listeners at a time (`GET /v1/listen`); more are answered 429. Default 64; each may hold 4 MiB.
    pub max_listeners: usize,
    /// How much of these one canvas, one credential, and for connections one client address may take at a time, in percent,
    /// rounded up; more is answered 429. Of the bytes of bodies, too. Default 25; 100 leaves everything to everybody.
    pub share_percent: u8,
    /// Requests a second with one credential, and twice as many at once; more are answered 429. Default 1,000.
    pub credential_rate: u32,
    /// The same for one canvas, with all its credentials. Default 2,000.
    pub canvas_rate: u32,
    /// Events a second that one canvas emits, singly, in batches and on objects, and twice as many at once; emits are answered
    /// 429 until that much time has passed. As fast those are woken that a rule held. Default 1,000: what quick handlers on a
    /// small worker do.
    pub canvas_event_rate: u32,
    /// Bytes a second of one canvas, or of one credential on whatever canvases, of bodies and of answers, and as many at once; requests are answered 429 until that much
    /// time has passed. Default 8 MiB.
    pub canvas_byte_rate: u32,
    /// The same as `credential_rate` for requests from one client address whose credential does not count; they are answered 401 before.
    /// Default 20.
    pub stranger_rate: u32,
    /// Proxies whose `x-forwarded-for` is believed: the rightmost address there that is none of them is the client's.
    /// Default none: the client is the other end of the connection. Connections from them are not counted by address.
    pub trusted_proxies: Vec<IpRange>,
    /// Whether `/docs` and `/openapi.json` are served, to anybody. Default true.
    pub docs: bool,
    /// How often a listener is told that its stream lives, and its credential is looked at again. Default 15 s, at most
    /// 30 s, so that a revocation counts within 60 s.
    pub listener_keep_alive: Duration,
    /// Largest body. Default 256 KiB, at most 16 MiB.
    pub body_limit_bytes: usize,
    /// Bytes of the bodies of all requests at a time, until they are answered; more are answered 429. A canvas may hold as
    /// much as it leaves to others: half of it alone, a third beside one other. Default 64 MiB; four of the largest bodies,
    /// if that is more.
    pub bodies_bytes_max: usize,
    /// Bytes of answers that are on their way, in the same shares, those of more than 32 KiB; a request that only reads, and
    /// whose answer does not fit, is answered 429. Default 40 MiB; four of the largest bodies, if that is more.
    pub answers_bytes_max: usize,
    /// How long a connection may take over a request's header. Default 10 s.
    pub header_timeout: Duration,
    /// How long a connection may rest between two requests: longer than the load balancer keeps it, so that none is
    /// closed just as the next request comes. Default 620 s; `header_timeout`, once a quarter of the connections is left.
    pub idle_timeout: Duration,
    /// How long a body may take to arrive. Default 10 s.
    pub body_timeout: Duration,
    /// How long a request may take altogether. Default 30 s.
    pub request_timeout: Duration,
    /// How long the caller may take over an answer that doesn't fit into the kernel's buffers. Default 30 s.
    pub write_timeout: Duration,
    /// How long requests may run on after a shutdown was asked for. Default 8 s, within Cloud Run's 10.
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
            canvas_byte_rate: 8 * 1024 * 1024,
            stranger_rate: 20,
            trusted_proxies: Vec::new(),
            docs: true,
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
    pub(super) fn pace(&self, room: &Arc<Semaphore>) -> Pace {
        Pace {
            header: self.header_timeout,
            rest: self.idle_timeout,
            answer: self.write_timeout,
            room: Arc::clone(room),
            little: self.max_connections / 4,
        }
    }

    /// What one of many may take of so much; something in any case.
    pub(super) fn share_of(&self, whole: usize) -> usize {
        whole.saturating_mul(usize::from(self.share_percent)).div_ceil(100)
    }

    pub(super) fn share_limits(&self) -> ShareLimits {
        ShareLimits {
            requests: self.share_of(self.max_requests),
            per_credential: self.credential_rate,
            per_canvas: self.canvas_rate,
            events_per_canvas: self.canvas_event_rate,
            bytes: self.canvas_byte_rate,
            of_strangers: self.stranger_rate,
        }
    }

    pub(super) fn listening(&self) -> ListeningLimits {
        ListeningLimits {
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
            late: self.max_connections / 2,
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
        let rates = [self.credential_rate, self.canvas_rate, self.canvas_event_rate, self.stranger_rate];
        if rates.iter().any(|rate| !(1..=1_000_000).contains(rate)) {
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
