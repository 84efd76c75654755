//! HTTP targets: the services that get the events of handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{Client, Error, Method, Page, Request};

const HANDLER: &str = "/v1/canvases/{canvas}/handlers/{module}/{name}";

/// A target to be registered.
///
/// ```
/// use std::time::Duration;
/// use wakeq_client::{NewTarget, TargetPolicy};
///
/// let policy = TargetPolicy::default().retries(5).delay(Duration::from_secs(1)).factor(2);
/// let target = NewTarget::new("https://mail.example/events").policy(policy);
/// ```
#[derive(Clone, Serialize)]
pub struct NewTarget {
    url: String,
    policy: TargetPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rotate_secret: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    audience: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, String>>,
}

/// How a target is called, and how events are tried again. What is not given has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TargetPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_max_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_death: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_s: Option<u64>,
}

/// A target, without its secret and the values of its headers.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Target {
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// The handler's modifier; `_` if it has none.
    pub modifier: String,
    /// The URL that receives the events.
    pub url: String,
    /// The audience of the OIDC token that is sent with each request.
    pub audience: Option<String>,
    /// The names of the headers that are added to each request, in lower case.
    #[serde(default)]
    pub header_names: Vec<String>,
    /// Until when requests are also signed with the previous secret.
    pub previous_secret_until: Option<DateTime<Utc>>,
    /// Since when nothing is sent there, because it answered 410 Gone.
    pub gone_since: Option<DateTime<Utc>>,
    /// When it was registered first.
    pub created_at: DateTime<Utc>,
    /// Its maker, such as `key:billing`.
    pub created_by: String,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
    /// Who changed it last.
    pub updated_by: String,
}

/// The result of registering a target.
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct TargetSet {
    /// Whether the handler had no target before.
    pub new: bool,
    /// The target as it is now.
    pub target: Target,
    /// The secret that was generated, `whsec_…`, which is in no other answer.
    pub secret: Option<String>,
}

/// Without the secret and the values of the headers.
impl fmt::Debug for NewTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("NewTarget");
        shown.field("url", &self.url).field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// Without the secret.
impl fmt::Debug for TargetSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("TargetSet");
        shown.field("new", &self.new).field("target", &self.target).finish_non_exhaustive()
    }
}

impl NewTarget {
    /// A target at a URL. Its secret is the one that it has, or else is generated.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            policy: TargetPolicy::default(),
            secret: None,
            rotate_secret: false,
            audience: None,
            headers: None,
        }
    }

    /// Sets how it is called.
    pub fn policy(self, policy: TargetPolicy) -> Self {
        Self { policy, ..self }
    }

    /// Sets its secret, `whsec_…`. The former one also signs for 24 more hours.
    pub fn secret(self, secret: &str) -> Self {
        Self { secret: Some(secret.to_owned()), rotate_secret: false, ..self }
    }

    /// Has another secret generated. The former one also signs for 24 more hours.
    pub fn rotate_secret(self) -> Self {
        Self { rotate_secret: true, secret: None, ..self }
    }

    /// Sets the audience of a Google OIDC token that is sent with each request.
    pub fn audience(self, audience: &str) -> Self {
        Self { audience: Some(audience.to_owned()), ..self }
    }

    /// Adds a header to each request, in place of all that the target had.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.get_or_insert_default().insert(name.to_owned(), value.to_owned());
        self
    }
}

impl TargetPolicy {
    /// Sets the retries after the first failure. Default 2.
    pub fn retries(self, retries: u32) -> Self {
        Self { retries: Some(retries), ..self }
    }

    /// Sets the delay of the first retry. Default 5 min.
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay_s: Some(delay.as_secs_f64()), ..self }
    }

    /// Sets what each further delay is multiplied with. Default 1.
    pub fn factor(self, factor: u32) -> Self {
        Self { factor: Some(factor), ..self }
    }

    /// Sets the longest delay. Default a day.
    pub fn delay_max(self, delay_max: Duration) -> Self {
        Self { delay_max_s: Some(delay_max.as_secs_f64()), ..self }
    }

    /// Sets how long a request may take: 1 s to 10 min. Default 30 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout_s: Some(timeout.as_secs_f64()), ..self }
    }

    /// Sets how many requests a worker sends at a time. Default: the canvas's share.
    pub fn concurrency(self, requests: u32) -> Self {
        Self { concurrency: Some(requests), ..self }
    }

    /// Lets the death of an event halt the later ones of its object.
    pub fn halts(self) -> Self {
        Self { on_death: Some("halt"), ..self }
    }

    /// Keeps events for this long after they have ended, in whole seconds: 90 days at most. By
    /// default they are deleted.
    pub fn keep(self, time: Duration) -> Self {
        Self { keep_s: Some(time.as_secs()), ..self }
    }
}

impl Client {
    /// Registers an HTTP target, which gets the events of a handler, or replaces it. A secret that
    /// was generated is in this answer only: if that is lost, ask for another with
    /// [`NewTarget::rotate_secret`].
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::NewTarget;
    ///
    /// let target = NewTarget::new("https://mail.example/events");
    /// let secret = wakeq.set_target("WORKER", "send-email", &target).await?.secret;
    /// assert!(secret.is_some_and(|secret| secret.starts_with("whsec_")), "it had a target before");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_target(&self, module: &str, name: &str, target: &NewTarget) -> Result<TargetSet, Error> {
        self.request(&of_handler(Method::PUT, module, name).json(target)?).await
    }

    /// A page of the targets of the canvas, by handler. [`Client::handler`] has those of one.
    pub async fn targets(&self, limit: u32, cursor: Option<&str>) -> Result<Page<Target>, Error> {
        self.request(&Request::new(Method::GET, "/v1/canvases/{canvas}/targets").page(limit, cursor)).await
    }

    /// Deletes the target of a handler, whose events then wait.
    pub async fn remove_target(&self, module: &str, name: &str) -> Result<(), Error> {
        self.send(&of_handler(Method::DELETE, module, name)).await.map(drop)
    }
}

fn of_handler(method: Method, module: &str, name: &str) -> Request {
    Request::new(method, HANDLER).path("module", module).path("name", name)
}
