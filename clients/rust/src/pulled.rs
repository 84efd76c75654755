//! Pulled handlers: leasing their events, and saying what became of them. Rust programs usually
//! work in a worker of the package `wakeq` instead, on the database.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{Checkpoint, Client, Error, EventOptions, Method, Request};

const HANDLER: &str = "/v1/canvases/{canvas}/handlers/{module}/{name}";

/// How events of a pulled handler are tried again. What is not given has its default.
///
/// ```
/// use std::time::Duration;
/// use wakeq_client::PullPolicy;
///
/// let patient = PullPolicy::default().retries(5).delay(Duration::from_secs(1)).factor(2);
/// ```
#[derive(Clone, Debug, Default, Serialize)]
pub struct PullPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    factor: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_max_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_death: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_s: Option<u64>,
}

/// A leased event: no one else gets it until its lease ends.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct LeasedEvent {
    /// Its id, which can be a key for effects that must not happen twice.
    pub id: Uuid,
    /// The token that extends, completes and releases it.
    pub lease: String,
    /// When the lease ends.
    pub lease_until: DateTime<Utc>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Its handler's module.
    pub module: String,
    /// Its handler's name.
    pub name: String,
    /// Its handler's modifier; `_` if it has none.
    pub modifier: String,
    /// The value as JSON.
    pub value: Box<RawValue>,
    /// What the attempts before have left, if they have.
    #[serde(default)]
    pub checkpoint: Option<Checkpoint>,
    /// What its emit asked for in place of the policy. The program itself sees to the timeout.
    #[serde(default)]
    pub options: Option<EventOptions>,
    /// The batch that it is a member of.
    #[serde(default)]
    pub batch: Option<String>,
    /// The W3C trace context of the emit.
    #[serde(default)]
    pub traceparent: Option<String>,
    /// When it was emitted.
    pub emitted_at: DateTime<Utc>,
    /// When it was due.
    pub due_at: DateTime<Utc>,
}

/// The end of a lease that was extended.
#[derive(Clone, Copy, Debug, Deserialize)]
#[non_exhaustive]
pub struct Extended {
    /// When it ends now.
    pub lease_until: DateTime<Utc>,
    /// Whether somebody has cancelled the event: stop, and release or complete it.
    pub cancelled: bool,
}

/// Why an event is released, and for how long. By default it can be leased again at once, as if it
/// had not been taken.
///
/// ```
/// use std::time::Duration;
/// use wakeq_client::Release;
///
/// let failed = Release::failed("no route to the mail server").retry(Duration::from_secs(30));
/// let hopeless = Release::dead("no such user");
/// ```
#[derive(Clone, Debug, Default, Serialize)]
pub struct Release {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_s: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dead: bool,
}

/// What happened to an event that was released.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Released {
    /// Whether it is among the dead events.
    pub died: bool,
    /// After how many seconds it can be leased again, if it can.
    pub retry_s: Option<f64>,
}

#[derive(Serialize)]
struct Asked<'a> {
    max: u32,
    lease_s: f64,
    wait_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<&'a str>,
}

#[derive(Deserialize)]
struct Leased {
    events: Vec<LeasedEvent>,
}

#[derive(Serialize)]
struct Holding<'a> {
    lease: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<serde_json::Value>,
    #[serde(flatten)]
    release: Option<&'a Release>,
}

impl PullPolicy {
    /// How often a failed event is tried again. Default 2.
    pub fn retries(self, retries: u32) -> Self {
        Self { retries: Some(retries), ..self }
    }

    /// The delay of the first retry. Default 5 min.
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay_s: Some(delay.as_secs_f64()), ..self }
    }

    /// What each further delay is multiplied with. Default 1.
    pub fn factor(self, factor: u32) -> Self {
        Self { factor: Some(factor), ..self }
    }

    /// The longest delay. Default a day.
    pub fn delay_max(self, delay_max: Duration) -> Self {
        Self { delay_max_s: Some(delay_max.as_secs_f64()), ..self }
    }

    /// Keeps events for this long after they have ended, in whole seconds: 90 days at most. By
    /// default they are deleted.
    pub fn keep(self, time: Duration) -> Self {
        Self { keep_s: Some(time.as_secs()), ..self }
    }

    /// Lets the death of an event halt the later ones of its object.
    pub fn halts(self) -> Self {
        Self { on_death: Some("halt"), ..self }
    }
}

impl Release {
    /// As a failed attempt.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }

    /// As one that no retry can help: it dies now.
    pub fn dead(error: impl Into<String>) -> Self {
        Self { dead: true, ..Self::failed(error) }
    }

    /// Not again before this long.
    pub fn retry(self, after: Duration) -> Self {
        Self { retry_s: Some(after.as_secs_f64()), ..self }
    }
}

impl Client {
    /// Lets programs lease a handler's events: no worker and no target gets them from then on.
    /// Repeated, it replaces the policy.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::PullPolicy;
    ///
    /// wakeq.pull("WORKER", "send-email", &PullPolicy::default().retries(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pull(&self, module: &str, name: &str, policy: &PullPolicy) -> Result<(), Error> {
        let request = of_handler(Method::PUT, "/pull", module, name).json(policy)?;
        self.send(&request.repeatable()).await.map(drop)
    }

    /// Gives the events of a pulled handler to workers and targets again.
    pub async fn unpull(&self, module: &str, name: &str) -> Result<(), Error> {
        self.send(&of_handler(Method::DELETE, "/pull", module, name)).await.map(drop)
    }

    /// Leases up to `max` events of a pulled handler, 1 to 100, for 1 s to 1 h. Waits up to 20 s
    /// for events; after that there may be none.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use std::time::Duration;
    ///
    /// let (minute, wait) = (Duration::from_secs(60), Duration::from_secs(20));
    /// for event in wakeq.lease("WORKER", "send-email", 10, minute, wait).await? {
    ///     println!("{} (attempt {})", event.value, event.attempt);
    ///     wakeq.complete(&event).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lease(
        &self,
        module: &str,
        name: &str,
        max: u32,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<LeasedEvent>, Error> {
        let (lease_s, wait_s) = (lease.as_secs_f64(), wait.as_secs_f64());
        self.leased(module, name, &Asked { max, lease_s, wait_s, worker: None }).await
    }

    /// The same under the name of the program, any that it likes to have: 1 to 128 of
    /// `A-Z a-z 0-9 _ . -`. It is shown with the events while they are leased and in their history,
    /// and among the programs of the canvas.
    pub async fn lease_as(
        &self,
        worker: &str,
        module: &str,
        name: &str,
        max: u32,
        lease: Duration,
        wait: Duration,
    ) -> Result<Vec<LeasedEvent>, Error> {
        let (lease_s, wait_s) = (lease.as_secs_f64(), wait.as_secs_f64());
        self.leased(module, name, &Asked { max, lease_s, wait_s, worker: Some(worker) }).await
    }

    async fn leased(&self, module: &str, name: &str, asked: &Asked<'_>) -> Result<Vec<LeasedEvent>, Error> {
        let request = of_handler(Method::POST, "/leases", module, name).json(asked)?;
        Ok(self.request::<Leased>(&request).await?.events)
    }

    /// Extends a lease to this long from now. One that is over can't be extended: the code is
    /// `lease-over`.
    pub async fn extend(&self, event: &LeasedEvent, lease: Duration) -> Result<Extended, Error> {
        let lease_s = Some(lease.as_secs_f64());
        let holding = Holding { lease: &event.lease, lease_s, result: None, release: None };
        self.request(&of_lease(event, "extend").json(&holding)?).await
    }

    /// Completes a leased event, which deletes it.
    pub async fn complete(&self, event: &LeasedEvent) -> Result<(), Error> {
        let holding = Holding { lease: &event.lease, lease_s: None, result: None, release: None };
        self.send(&of_lease(event, "complete").json(&holding)?).await.map(drop)
    }

    /// The same with a result, which has at most 64 KiB as JSON. It is kept with the event if that
    /// is kept after its end, and otherwise dropped.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client, event: wakeq_client::LeasedEvent) -> Result<(), wakeq_client::Error> {
    /// wakeq.complete_with(&event, &["receipt", "7"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn complete_with<T: Serialize + ?Sized + Sync>(
        &self,
        event: &LeasedEvent,
        result: &T,
    ) -> Result<(), Error> {
        let json = serde_json::to_value(result);
        let json = json.map_err(|error| Error::Invalid(format!("the result can't be written: {error}")))?;
        let (lease, result) = (event.lease.as_str(), Some(json));
        let holding = Holding { lease, lease_s: None, result, release: None };
        self.send(&of_lease(event, "complete").json(&holding)?).await.map(drop)
    }

    /// Releases a leased event: as if it had not been taken, or as a failed attempt.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client, event: wakeq_client::LeasedEvent) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::Release;
    ///
    /// let released = wakeq.release(&event, &Release::failed("no route to the mail server")).await?;
    /// println!("{}", if released.died { "it was tried often enough" } else { "it is tried again" });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(&self, event: &LeasedEvent, release: &Release) -> Result<Released, Error> {
        let holding = Holding { lease: &event.lease, lease_s: None, result: None, release: Some(release) };
        self.request(&of_lease(event, "release").json(&holding)?).await
    }
}

fn of_handler(method: Method, rest: &str, module: &str, name: &str) -> Request {
    Request::new(method, &format!("{HANDLER}{rest}")).path("module", module).path("name", name)
}

fn of_lease(event: &LeasedEvent, verb: &str) -> Request {
    let request = of_handler(Method::POST, &format!("/leases/{{id}}/{verb}"), &event.module, &event.name);
    request.path("id", event.id)
}
