//! One delivery attempt: check, get a token, sign, send and read the answer, within the target's
//! timeout.

use std::collections::HashMap;
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

use super::allowed::CanvasFilter;
use super::clock::AttemptClock;
use super::connect::{CAPACITY_WITHIN, ConnectError, Connector, Shared};
use super::id_token::IdTokens;
use super::lookups::{LOOKUPS_MAX, Lookups};
use super::rules::{RefusedTarget, Rules};
use super::tls::Tls;
use super::value::Value;
use super::watched::Passed;
use super::{DeliveryConfig, DeliveryError, DeliveryOutcome, answer, checkpoint, headers};
use wakeq::events::EventOptions;
use wakeq::targets::{OwnDeployment, Target, TargetUrl};
use wakeq::{CanvasId, Execution};

/// Maximum body of an answer in bytes; if it is longer, the connection is closed instead of reused.
const BODY_MAX_BYTES: usize = 64 * 1024;
/// Maximum time for reading the body. The status has arrived already; reading on only lets the
/// connection be reused.
const BODY_WITHIN: Duration = Duration::from_secs(1);
/// Maximum size of an answer's head, and maximum number of its headers.
const HEAD_MAX_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;
/// How long an idle connection is kept. Shorter than servers keep theirs, because a request has to
/// be sent again if the server closes the connection at that moment.
const IDLE: Duration = Duration::from_secs(1);
const IDLE_MAX_PER_HOST: usize = 32;
const TOKEN_WITHIN: Duration = Duration::from_secs(10);
/// Maximum timeout of a policy that takes effect.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// Maximum timeout that an event may ask for: that of a policy, as it is registered.
const ASKED_MAX: Duration = Duration::from_secs(600);

/// Sends events to targets. Cheap to clone. Use one per process, so that its limits apply to all
/// deliveries.
///
/// ```
/// use wakeq::targets::Target;
/// use wakeq::{Execution, HandlerError, HandlerResult};
/// use wakeq_service::delivery::{Deliverer, DeliveryOutcome};
///
/// async fn send(deliverer: &Deliverer, target: &Target, event: Execution) -> HandlerResult {
///     match deliverer.deliver(target, event, None).await {
///         DeliveryOutcome::Completed => Ok(()),
///         outcome => Err(HandlerError::operational(format!("{outcome:?}"))),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Deliverer {
    /// For canvases without rules of their own.
    default_client: OutboundClient,
    /// For canvases with rules of their own, each with its own connection pool: a connection that
    /// one canvas may use must not be reused for another.
    canvas_clients: Arc<HashMap<CanvasId, OutboundClient>>,
    shared: Shared,
    tokens: Arc<dyn IdTokens>,
}

impl Deliverer {
    /// Maximum time by which an attempt may exceed its policy's timeout, while it waits for a
    /// connection permit or a lookup.
    pub(crate) const CAPACITY_WITHIN: Duration = CAPACITY_WITHIN;

    /// Creates the client; does not connect to anything yet.
    pub fn new(config: DeliveryConfig) -> Result<Self, DeliveryError> {
        let lookups = Lookups::new(Arc::clone(&config.resolver), LOOKUPS_MAX);
        let shared = Shared::new(lookups, Tls::new(&config.authorities)?, config.connections_max);
        let places = config.allow.iter().map(|place| place.applies_to);
        let audiences = config.audiences.iter().map(|audience| audience.applies_to);
        let canvases = places.chain(audiences).filter_map(CanvasFilter::single);
        let canvas_clients =
            canvases.map(|canvas| (canvas, OutboundClient::new(Rules::of(&config, Some(canvas)), &shared)));
        Ok(Self {
            default_client: OutboundClient::new(Rules::of(&config, None), &shared),
            canvas_clients: Arc::new(canvas_clients.collect()),
            shared,
            tokens: config.tokens,
        })
    }

    fn client_for(&self, canvas: CanvasId) -> &OutboundClient {
        self.canvas_clients.get(&canvas).unwrap_or(&self.default_client)
    }

    /// The checks that need no name resolution, so that registering a target can already fail them:
    /// scheme, port, host name and literal addresses. The addresses of a name are checked at each
    /// connection.
    pub fn check(&self, canvas: CanvasId, url: &TargetUrl) -> Result<(), RefusedTarget> {
        self.client_for(canvas).connector.rules().check(url)
    }

    /// Whether a target of this canvas may receive tokens for this audience: the deployment must
    /// allow this canvas to have them sent to the URL's origin. A token identifies its sender as
    /// the workers' service account.
    pub fn check_audience(
        &self,
        canvas: CanvasId,
        url: &TargetUrl,
        audience: &str,
    ) -> Result<(), RefusedTarget> {
        self.client_for(canvas).connector.rules().check_audience(url, audience)
    }

    /// How many connections were attempted so far, including failed ones.
    pub fn connects(&self) -> u64 {
        self.shared.connects()
    }

    /// Makes one attempt at delivering an event and returns how it ended. The timeout that the
    /// event asks for applies, or else that of the target's policy, not counting the time spent
    /// waiting for connection permits and lookups in this process. `deployment` is the one that
    /// sends, so that its own API can refuse the event. What the attempt before has left as a
    /// checkpoint goes along, and what the target leaves is stored.
    pub async fn deliver(
        &self,
        target: &Target,
        event: Execution,
        deployment: Option<&OwnDeployment>,
    ) -> DeliveryOutcome {
        self.deliver_for_result(target, event, deployment).await.0
    }

    /// As [`Deliverer::deliver`], with the body of the answer if that says that it is JSON, and is
    /// no longer than a result may be.
    pub(super) async fn deliver_for_result(
        &self,
        target: &Target,
        mut event: Execution,
        deployment: Option<&OwnDeployment>,
    ) -> (DeliveryOutcome, Option<String>) {
        let before = match event.last_checkpoint_json().await {
            Ok(checkpoint) => checkpoint.map(|checkpoint| checkpoint.json),
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::warn!(error, "nothing was sent to a target: the event's checkpoint can't be read");
                return (DeliveryOutcome::NotYet { delay: Duration::ZERO, fault: None }, None);
            }
        };
        let asked = event.options.as_deref().and_then(EventOptions::timeout);
        let within = asked.map_or(target.policy.timeout.min(TIMEOUT_MAX), |asked| asked.min(ASKED_MAX));
        let (clock, begun) = (AttemptClock::new(event.address.scope.canvas), Instant::now());
        let answered = match clock.within(within, self.send(target, &mut event, before, deployment)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(failure)) => return (DeliveryOutcome::failed(failure.to_string()), None),
            Err(_) => {
                let message = format!(
                    "the target did not answer within {within:?}: answer earlier and continue the \
                     work afterwards, or register a longer timeout"
                );
                return (DeliveryOutcome::failed(message), None);
            }
        };
        let (head, body) = answered.into_parts();
        let until = begun + within + clock.waited();
        let mut kept = answer::is_json(&head.headers).then(Vec::new);
        let body = read(body, until.min(Instant::now() + BODY_WITHIN), &mut kept).await;
        let now = SystemTime::now();
        let verdict = answer::verdict(head.status, &head.headers, &body, now, target.policy.delay_max);
        let verdict = match checkpoint::left(head.status, &head.headers) {
            Some(left) => match keep(&event, left).await {
                Ok(()) => verdict,
                Err(remark) => verdict.noting(&remark),
            },
            None => verdict,
        };
        (verdict, kept.and_then(|bytes| String::from_utf8(bytes).ok()))
    }

    async fn send(
        &self,
        target: &Target,
        event: &mut Execution,
        before: Option<String>,
        deployment: Option<&OwnDeployment>,
    ) -> Result<hyper::Response<Incoming>, SendFailure> {
        let canvas = event.address.scope.canvas;
        if let Some(own) = deployment {
            own.check(&target.url, target.audience.as_deref()).map_err(SendFailure::unsent)?;
        }
        self.check(canvas, &target.url)?;
        let token = match &target.audience {
            Some(audience) => Some(self.token(canvas, &target.url, audience).await?),
            None => None,
        };
        let uri: Uri = target.url.as_str().parse().map_err(|_| RefusedTarget::Unclear)?;
        // This machine's clock, because the receiver compares the timestamp with its own clock.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let headers = headers::headers(event, deployment, &target.secrets, now.as_secs(), token.as_deref())
            .and_then(|mut headers| {
                if let Some(json) = &before {
                    checkpoint::add(&mut headers, event, json)?;
                }
                headers::add_own(&mut headers, &target.headers).map(|()| headers)
            })
            .map_err(|_| SendFailure("the request could not be written".to_owned()))?;
        let value = Value::new(std::mem::take(&mut event.json));
        let request = || {
            let mut request = Request::new(value.clone());
            *request.method_mut() = Method::POST;
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            request
        };
        let client = self.client_for(canvas);
        let mut sent = client.http.request(request()).await;
        // Receivers close idle connections, and one may do so just as it is used. The same request
        // goes once more, on a connection of its own; receivers know repeats by their ids.
        if sent.as_ref().is_err_and(was_closed_in_passing) {
            sent = client.unpooled.request(request()).await;
        }
        sent.map_err(|error| SendFailure(explain(&target.url, &error)))
    }

    async fn token(&self, canvas: CanvasId, url: &TargetUrl, audience: &str) -> Result<String, SendFailure> {
        self.check_audience(canvas, url, audience)?;
        match timeout(TOKEN_WITHIN, self.tokens.token(audience)).await {
            Ok(Ok(token)) => Ok(token),
            Ok(Err(error)) => Err(SendFailure(format!("nothing was sent to the target: {error}"))),
            Err(_) => Err(SendFailure(
                "nothing was sent to the target: Google issued no ID token in time".to_owned(),
            )),
        }
    }
}

impl fmt::Debug for Deliverer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Deliverer").field("connects", &self.connects()).finish_non_exhaustive()
    }
}

/// A client with its rules, and the pool of connections opened under them.
#[derive(Clone)]
struct OutboundClient {
    http: Client<Connector, Value>,
    /// Opens a connection for each request.
    unpooled: Client<Connector, Value>,
    connector: Connector,
}

impl OutboundClient {
    fn new(rules: Rules, shared: &Shared) -> Self {
        let connector = Connector::new(rules, shared);
        let client = |idle_max| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(idle_max)
                .http1_max_buf_size(HEAD_MAX_BYTES)
                .http1_max_headers(HEADERS_MAX)
                .build(connector.clone())
        };
        Self { http: client(IDLE_MAX_PER_HOST), unpooled: client(0), connector }
    }
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SendFailure(String);

impl SendFailure {
    fn unsent(why: impl fmt::Display) -> Self {
        Self(format!("nothing was sent to the target: {why}"))
    }
}

impl From<RefusedTarget> for SendFailure {
    fn from(refused: RefusedTarget) -> Self {
        Self::unsent(refused)
    }
}

/// Stores what a target has left for the next attempt; the error is a remark for its owner.
async fn keep(event: &Execution, left: Result<String, &'static str>) -> Result<(), String> {
    let kept = match left {
        Ok(json) => event.checkpoint_json(&json).await.map_err(|error| error.to_string()),
        Err(why) => Err(why.to_owned()),
    };
    kept.map_err(|why| format!("its checkpoint was not stored: {why}"))
}

/// Reads the body up to the limits, and describes its length. If it is to be kept, that is all of
/// it or nothing.
async fn read(mut body: Incoming, until: Instant, kept: &mut Option<Vec<u8>>) -> String {
    let mut bytes = kept.take();
    let mut length = 0_usize;
    loop {
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                length += frame.data_ref().map_or(0, Bytes::len);
                if let (Some(bytes), Some(data)) = (&mut bytes, frame.data_ref()) {
                    bytes.extend_from_slice(data);
                }
            }
            Ok(None) => {
                *kept = bytes;
                return format!("{length} bytes");
            }
            Ok(Some(Err(_))) => return format!("{length} bytes before the connection broke"),
            Err(_) => return format!("{length} bytes so far"),
        }
        if length > BODY_MAX_BYTES {
            return format!("more than {BODY_MAX_BYTES} bytes");
        }
    }
}

/// The message for every host without a public address. Whether such a host exists, and what
/// answers there, is for the operator only.
const NOT_REACHED: &str = "its host could not be reached: its name does not resolve, nothing \
                           answers there as expected, or this deployment does not send there; check \
                           the spelling. The operator's log shows which it is";

/// Whether the connection had been used before, and was closed without a byte of an answer.
fn was_closed_in_passing(error: &hyper_util::client::legacy::Error) -> bool {
    let Some(connection) = error.connect_info() else { return false };
    let mut extras = hyper::http::Extensions::new();
    connection.get_extras(&mut extras);
    let ended = cause::<hyper::Error>(error).is_some_and(hyper::Error::is_incomplete_message)
        || cause::<io::Error>(error).is_some_and(|error| {
            use io::ErrorKind::{
                BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof,
            };
            [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof]
                .contains(&error.kind())
        });
    ended && extras.get::<Passed>().is_some_and(Passed::is_unanswered_reuse)
}

/// Describes a failed exchange for the target's owner.
fn explain(url: &TargetUrl, error: &(dyn Error + 'static)) -> String {
    if let Some(error) = cause::<ConnectError>(error) {
        if error.reveals_internal_network() {
            let (origin, source) = (url.origin(), error.source().map(ToString::to_string));
            tracing::info!(%origin, %error, source, "a target's host could not be reached");
            return SendFailure::unsent(NOT_REACHED).0;
        }
        return match error {
            ConnectError::Unreachable(source) => SendFailure::unsent(format_args!("{error}: {source}")).0,
            ConnectError::Refused(_)
            | ConnectError::Unresolved(_)
            | ConnectError::NoAddress
            | ConnectError::NoCapacity
            | ConnectError::TimedOut
            | ConnectError::Tls(_)
            | ConnectError::TlsTimedOut
            | ConnectError::NoAuthorities
            | ConnectError::NonPublic(_) => SendFailure::unsent(error).0,
        };
    }
    let broken = match (cause::<hyper::Error>(error), cause::<io::Error>(error)) {
        (Some(error), _) if error.is_parse_too_large() => "its headers are too many or too long",
        (Some(error), _) if error.is_parse() => "its answer is not HTTP/1.1",
        (Some(error), _) if error.is_incomplete_message() => "it closed the connection without answering",
        (_, Some(_)) => "the connection broke before it answered",
        (Some(_) | None, None) => "the exchange was interrupted",
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
