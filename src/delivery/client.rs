//! One attempt: check, token, sign, send, read the answer. Everything within the target's time.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout, timeout_at};

use super::clock::AttemptClock;
use super::connect::{ConnectError, Connector, ROOM_WITHIN};
use super::id_token::IdTokens;
use super::lookups::{LOOKUPS_MAX, Lookups};
use super::rules::{RefusedTarget, Rules};
use super::tls::Tls;
use super::value::Value;
use super::{Delivered, Delivery, DeliveryConfig, DeliveryError, answer, headers};
use crate::event::{Target, TargetUrl};

/// Longest body of an answer that is read; a longer one costs the connection.
const BODY_MAX_BYTES: usize = 64 * 1024;
/// How long it is read: the status has come, and the rest only keeps the connection.
const BODY_WITHIN: Duration = Duration::from_secs(1);
/// Longest head of an answer, with at most so many headers.
const HEAD_MAX_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
/// How long a connection is kept for the next request: shorter than servers keep theirs, because a request that meets
/// the end of a connection fails.
const IDLE: Duration = Duration::from_secs(1);
const IDLE_MAX_PER_HOST: usize = 32;
const TOKEN_WITHIN: Duration = Duration::from_secs(10);
/// Longest time that a policy may give.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Sends events to targets. Cheap to clone; one a process, so that its limits hold for all.
///
/// ```no_run
/// use wakeq::delivery::{Delivered, Delivery, DeliveryConfig, Deliverer};
/// use wakeq::{CanvasId, EventId, HandlerAddress, HandlerScope, Name, Secret, Secrets, Target, TargetPolicy, Traceparent};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let deliverer = Deliverer::new(DeliveryConfig::default())?;
/// let target = Target {
///     url: "https://shop.example/events".parse()?,
///     policy: TargetPolicy::default(),
///     audience: None,
///     secrets: Secrets { current: Secret::generate()?, previous: None },
/// };
/// let scope = HandlerScope::worker(CanvasId::DEFAULT, "greet")?;
/// let delivery = Delivery {
///     event: EventId::new(),
///     address: &HandlerAddress { scope, modifier: Name::no_modifier() },
///     json: "\"Ada\"".into(),
///     attempt: 1,
///     enqueued_at: "2026-01-31T08:00:00Z".parse()?,
///     traceparent: &Traceparent::root(),
///     place: None,
///     copy_of: None,
/// };
/// assert_eq!(deliverer.deliver(&target, delivery).await, Delivered::Completed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Deliverer {
    client: Client<Connector, Value>,
    connector: Connector,
    tokens: Arc<dyn IdTokens>,
}

impl Deliverer {
    /// How much longer than its policy says an attempt takes at most, because there is no room for its connection.
    pub(crate) const ROOM_WITHIN: Duration = ROOM_WITHIN;

    /// Connects to nothing yet.
    pub fn new(config: DeliveryConfig) -> Result<Self, DeliveryError> {
        let DeliveryConfig { allow, allow_http, audiences, connections_max, authorities, resolver, tokens } =
            config;
        let rules = Rules { allow, allow_http, audiences };
        let lookups = Lookups::new(resolver, LOOKUPS_MAX);
        let connector = Connector::new(rules, lookups, Tls::new(&authorities)?, connections_max);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_MAX_PER_HOST)
            .http1_max_buf_size(HEAD_MAX_BYTES)
            .http1_max_headers(HEADERS_MAX)
            .build(connector.clone());
        Ok(Self { client, connector, tokens })
    }

    /// What is refused already when a target is registered, because it needs no name resolved: scheme, port, names and
    /// addresses that stand in the URL. What its name leads to is checked at each connection.
    pub fn check(&self, url: &TargetUrl) -> Result<(), RefusedTarget> {
        self.connector.rules().check(url)
    }

    /// Whether a target may be given a token for this audience: its own origin, or one that the deployment allows for
    /// that origin. A token for somebody else is one that the target could use there, as the account of the queue.
    pub fn check_audience(&self, url: &TargetUrl, audience: &str) -> Result<(), RefusedTarget> {
        self.connector.rules().check_audience(url, audience)
    }

    /// How many connections were begun, ever; also those that failed.
    pub fn connects(&self) -> u64 {
        self.connector.connects()
    }

    /// Sends an event to a target, once, and says how that ended; within the time of the target's policy, in which waiting
    /// for room in this process does not count.
    pub async fn deliver(&self, target: &Target, delivery: Delivery<'_>) -> Delivered {
        let within = target.policy.timeout.min(TIMEOUT_MAX);
        let (clock, begun) = (AttemptClock::new(), Instant::now());
        let answered = match clock.within(within, self.send(target, delivery)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(failure)) => return Delivered::failed(failure.to_string()),
            Err(_) => {
                return Delivered::failed(format!(
                    "the target did not answer within {within:?}: answer earlier and work on, or register a longer \
                     timeout"
                ));
            }
        };
        let (head, body) = answered.into_parts();
        let until = begun + within + clock.waited();
        let body = read(body, until.min(Instant::now() + BODY_WITHIN)).await;
        answer::verdict(head.status, &head.headers, &body, SystemTime::now(), target.policy.delay_max)
    }

    async fn send(
        &self,
        target: &Target,
        delivery: Delivery<'_>,
    ) -> Result<hyper::Response<Incoming>, Failure> {
        self.check(&target.url)?;
        let token = match &target.audience {
            Some(audience) => Some(self.token(&target.url, audience).await?),
            None => None,
        };
        let uri: Uri = target.url.as_str().parse().map_err(|_| RefusedTarget::Unclear)?;
        // The receiver compares it with its own clock, and so it is that of the sender.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let headers = headers::headers(&delivery, &target.secrets, now.as_secs(), token.as_deref())
            .map_err(|_| Failure("the request could not be written".to_owned()))?;
        let mut request = Request::new(Value::new(delivery.json));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        self.client.request(request).await.map_err(|error| Failure(explain(&error)))
    }

    async fn token(&self, url: &TargetUrl, audience: &str) -> Result<String, Failure> {
        self.check_audience(url, audience)?;
        match timeout(TOKEN_WITHIN, self.tokens.token(audience)).await {
            Ok(Ok(token)) => Ok(token),
            Ok(Err(error)) => Err(Failure(format!("nothing was sent to the target: {error}"))),
            Err(_) => {
                Err(Failure("nothing was sent to the target: Google gave no ID token in time".to_owned()))
            }
        }
    }
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Deliverer").field("connects", &self.connects()).finish_non_exhaustive()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failure(String);

impl From<RefusedTarget> for Failure {
    fn from(refused: RefusedTarget) -> Self {
        Self(format!("nothing was sent to the target: {refused}"))
    }
}

/// Reads what there is of a body, up to its limits, and says how long it was.
async fn read(mut body: Incoming, until: Instant) -> String {
    let mut length = 0_usize;
    loop {
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => length += frame.data_ref().map_or(0, Bytes::len),
            Ok(None) => return format!("{length} bytes"),
            Ok(Some(Err(_))) => return format!("{length} bytes that broke off"),
            Err(_) => return format!("{length} bytes so far"),
        }
        if length > BODY_MAX_BYTES {
            return format!("more than {BODY_MAX_BYTES} bytes");
        }
    }
}

/// What went wrong between us and a target, in words for who registered it.
fn explain(error: &(dyn Error + 'static)) -> String {
    if let Some(error) = cause::<ConnectError>(error) {
        return match error {
            ConnectError::Refused(refused) => Failure::from(refused.clone()).0,
            ConnectError::Unresolved(_) => {
                format!("nothing was sent to the target: {error}; check how it is written")
            }
            ConnectError::NoAddress
            | ConnectError::NoRoom
            | ConnectError::Late
            | ConnectError::Tls(_)
            | ConnectError::LateTls
            | ConnectError::NoAuthorities => {
                format!("nothing was sent to the target: {error}")
            }
            ConnectError::Unreachable(source) => {
                format!("nothing was sent to the target: {error}: {source}")
            }
        };
    }
    let broken = match (cause::<hyper::Error>(error), cause::<io::Error>(error)) {
        (Some(error), _) if error.is_parse_too_large() => "its headers are too many or too long",
        (Some(error), _) if error.is_parse() => "what it sent is no HTTP/1.1",
        (Some(error), _) if error.is_incomplete_message() => "it hung up without an answer",
        (_, Some(_)) => "the connection broke before an answer",
        (Some(_) | None, None) => "the exchange broke off",
    };
    format!("the target did not answer: {broken}")
}

fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
