//! Limits: how many events run at a time, and how many start in a period.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Client, Error, Method, Page, Request};

const LIMITS: &str = "/v1/canvases/{canvas}/limits";

/// A limit to be set: with a concurrency, a rate, or both.
///
/// ```
/// use std::time::Duration;
/// use wakeq_client::{NewLimit, Rate};
///
/// let rate = Rate::new(100, Duration::from_secs(60)).burst(10);
/// let limit = NewLimit::default().concurrency(5).rate(rate);
/// ```
#[derive(Clone, Debug, Default, Serialize)]
pub struct NewLimit {
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_full: Option<OnFull>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_max: Option<u32>,
}

/// How many events start in a period. Starts are spread evenly over it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rate {
    /// Starts in a period, retries included.
    pub count: u32,
    /// The period, in seconds.
    pub period_s: f64,
    /// How many may start at once if none started for a while. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// What happens to an event that would start while a limit is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnFull {
    /// It waits for a place.
    Wait,
    /// It is cancelled.
    Drop,
    /// It waits, and the oldest of those that wait already is cancelled.
    Replace,
    /// It waits, and the running event that has had its place the longest is cancelled.
    Cancel,
    /// One that this client does not know.
    #[serde(other)]
    Unknown,
}

/// A limit.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Limit {
    /// What it limits: `canvas`, `handler:MODULE/NAME`, a key that emits name, or a family of keys.
    pub name: String,
    /// How many events run at a time; `None` for any number.
    pub concurrency: Option<u32>,
    /// How many events start in a period; `None` for any number.
    pub rate: Option<Rate>,
    /// What happens to an event that finds no place.
    pub on_full: OnFull,
    /// How many events may wait for a place of a key; `None` for any number.
    pub waiting_max: Option<u32>,
    /// Whether it is the operator's default, which counts because the canvas has no limit of this
    /// name.
    #[serde(rename = "default")]
    pub is_default: bool,
    /// When it was set first.
    pub created_at: DateTime<Utc>,
    /// Its maker, such as `key:billing`.
    pub created_by: String,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
    /// Who changed it last.
    pub updated_by: String,
}

/// The result of setting a limit.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct LimitSet {
    /// Whether there was no limit of this name before.
    pub new: bool,
    /// The limit as it is now.
    pub limit: Limit,
}

/// What is in use of a limit, of a family under one of its keys.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct LimitUse {
    /// The counted name, which of a family is a key.
    pub name: String,
    /// How many events hold a place.
    pub running: u32,
    /// The first of these events.
    pub holders: Vec<Uuid>,
    /// How many events wait for a place; 10,000 stands for that many or more.
    pub waiting: u64,
    /// When the rate lets the next event start; `None` if one may start now.
    pub next_start: Option<DateTime<Utc>>,
}

impl NewLimit {
    /// Sets how many events run at a time: 1 to 1,000.
    pub fn concurrency(self, events: u32) -> Self {
        Self { concurrency: Some(events), ..self }
    }

    /// Sets how many events start in a period.
    pub fn rate(self, rate: Rate) -> Self {
        Self { rate: Some(rate), ..self }
    }

    /// Sets what happens to an event that would start while as many as the concurrency run.
    /// Default: it waits.
    pub fn on_full(self, on_full: OnFull) -> Self {
        Self { on_full: Some(on_full), ..self }
    }

    /// Sets how many events may wait for a place of a key, up to 10,000: while they do, emits that
    /// name it are refused. Default: any number.
    pub fn waiting_max(self, events: u32) -> Self {
        Self { waiting_max: Some(events), ..self }
    }
}

impl Rate {
    /// This many starts in a period of up to 31 days, one at a time.
    pub fn new(count: u32, period: Duration) -> Self {
        Self { count, period_s: period.as_secs_f64(), burst: None }
    }

    /// Sets how many may start at once if none started for a while.
    pub fn burst(self, events: u32) -> Self {
        Self { burst: Some(events), ..self }
    }
}

impl Client {
    /// Sets a limit of the canvas, and replaces the one of that name. The name is `canvas` for all
    /// its events, `handler:MODULE/NAME`, a key that emits name, or a family of keys.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::{EventOptions, NewEvent, NewLimit};
    ///
    /// wakeq.set_limit("customer", &NewLimit::default().concurrency(5)).await?;
    /// let options = EventOptions::default().limit("customer:7");
    /// wakeq.emit(&NewEvent::new("sync-orders", &42)?.options(options)).await?;
    /// for used in wakeq.limit_uses("customer", 100, None).await?.items {
    ///     println!("{}: {} run, {} wait", used.name, used.running, used.waiting);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_limit(&self, name: &str, limit: &NewLimit) -> Result<LimitSet, Error> {
        self.request(&of_limit(Method::PUT, name, "").json(limit)?.repeatable()).await
    }

    /// A limit that counts on the canvas, which may be the operator's default.
    pub async fn limit(&self, name: &str) -> Result<Limit, Error> {
        self.request(&of_limit(Method::GET, name, "")).await
    }

    /// A page of the limits of the canvas, by name.
    pub async fn limits(&self, limit: u32, cursor: Option<&str>) -> Result<Page<Limit>, Error> {
        self.request(&Request::new(Method::GET, LIMITS).page(limit, cursor)).await
    }

    /// A page of what is in use of a limit, of a family for each of its keys.
    pub async fn limit_uses(
        &self,
        name: &str,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<LimitUse>, Error> {
        self.request(&of_limit(Method::GET, name, "/uses").page(limit, cursor)).await
    }

    /// Removes a limit of the canvas, and wakes what waited for it.
    pub async fn remove_limit(&self, name: &str) -> Result<(), Error> {
        self.send(&of_limit(Method::DELETE, name, "")).await.map(drop)
    }
}

fn of_limit(method: Method, name: &str, action: &str) -> Request {
    Request::new(method, &format!("{LIMITS}/{{limit}}{action}")).path("limit", name)
}
