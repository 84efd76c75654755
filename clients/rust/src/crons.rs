//! Crons: schedules, each of which emits an event for the handler `CRON/name` at its times.

use chrono::{DateTime, FixedOffset, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::calls::{TheEvent, fresh_key};
use crate::{Client, Error, EventState, Method, Page, Request};

const CRONS: &str = "/v1/canvases/{canvas}/cron";

/// A cron to be created or replaced.
///
/// ```
/// # fn example() -> Result<(), wakeq_client::Error> {
/// use wakeq_client::{MissedTicks, NewCron};
///
/// let report = NewCron::new("30 8 * * MON-FRI").zone("Europe/Berlin").missed(MissedTicks::Once);
/// let report = report.value(&["sales", "returns"])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct NewCron {
    expression: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modifier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<MissedTicks>,
}

/// What is done about ticks that were missed because no process was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MissedTicks {
    /// They are left out.
    Skip,
    /// The last one is emitted.
    Once,
    /// All are emitted, at most 1,000.
    All,
    /// One that this client does not know.
    #[serde(other)]
    Unknown,
}

/// A cron.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Cron {
    /// Its name.
    pub name: String,
    /// Minute, hour, day of the month, month and weekday; with six fields, the first is seconds.
    pub expression: String,
    /// The time zone of the expression.
    pub zone: String,
    /// The handler's modifier; `_` if it has none.
    pub modifier: String,
    /// The value of each event, as JSON; not in lists, nor of a cron that was paused or resumed.
    pub value: Option<Box<RawValue>>,
    /// What is done about missed ticks.
    pub missed: MissedTicks,
    /// Its pause.
    pub paused: Option<CronPause>,
    /// The next ticks: five, or one in lists. None while it is paused.
    pub next: Vec<CronTick>,
    /// The last tick.
    pub last: Option<DateTime<Utc>>,
    /// The event of the last tick.
    pub last_event: Option<CronEvent>,
    /// How many events were emitted for ticks.
    pub ticks: u64,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// Its maker, such as `key:billing`.
    pub created_by: String,
    /// When it was last replaced.
    pub changed_at: DateTime<Utc>,
}

/// The pause of a cron.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct CronPause {
    /// Since when it is paused.
    pub since: DateTime<Utc>,
    /// Who paused it.
    pub by: String,
    /// The reason.
    pub reason: Option<String>,
}

/// A time at which a cron ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct CronTick {
    /// The time.
    pub at: DateTime<Utc>,
    /// The same in the cron's time zone.
    pub local: DateTime<FixedOffset>,
}

/// The event of a cron's last tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct CronEvent {
    /// Its id.
    pub id: Uuid,
    /// What became of it.
    pub state: EventState,
    /// Retries so far: failed attempts that another one follows.
    pub retries: i32,
}

#[derive(Serialize)]
struct PauseCron<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl NewCron {
    /// A cron with this expression, in UTC, whose events have the value null.
    pub fn new(expression: &str) -> Self {
        Self { expression: expression.to_owned(), zone: None, value: None, modifier: None, missed: None }
    }

    /// Sets the time zone of the expression, by its name in the IANA database.
    pub fn zone(self, zone: &str) -> Self {
        Self { zone: Some(zone.to_owned()), ..self }
    }

    /// Sets the value of each event, which has at most 64 KiB as JSON.
    ///
    /// Errors: [`Error::Invalid`] for a value that is not JSON.
    pub fn value(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let value = serde_json::value::to_raw_value(value);
        let value = value.map_err(|error| Error::Invalid(format!("the value can't be written: {error}")))?;
        Ok(Self { value: Some(value), ..self })
    }

    /// Sets the handler's modifier. Default `_`.
    pub fn modifier(self, modifier: &str) -> Self {
        Self { modifier: Some(modifier.to_owned()), ..self }
    }

    /// Sets what is done about ticks that were missed. Default: they are left out.
    pub fn missed(self, missed: MissedTicks) -> Self {
        Self { missed: Some(missed), ..self }
    }
}

impl Client {
    /// Creates a cron, or replaces the one of that name. One that is paused stays paused.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::NewCron;
    ///
    /// let cron = wakeq.set_cron("report", &NewCron::new("30 8 * * MON-FRI").zone("Europe/Berlin")).await?;
    /// println!("{}", cron.next[0].local);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_cron(&self, name: &str, cron: &NewCron) -> Result<Cron, Error> {
        self.request(&of_cron(Method::PUT, name, "").json(cron)?.repeatable()).await
    }

    /// A cron, with what became of its last tick.
    pub async fn cron(&self, name: &str) -> Result<Cron, Error> {
        self.request(&of_cron(Method::GET, name, "")).await
    }

    /// A page of the crons of the canvas, by name.
    pub async fn crons(&self, limit: u32, cursor: Option<&str>) -> Result<Page<Cron>, Error> {
        self.request(&Request::new(Method::GET, CRONS).page(limit, cursor)).await
    }

    /// Emits an event of a cron now, and returns its id; the ticks stay as they are. Attempts after
    /// a lost answer emit nothing twice.
    pub async fn run_cron(&self, name: &str) -> Result<Uuid, Error> {
        let request = of_cron(Method::POST, name, "/run-now").idempotency_key(fresh_key());
        Ok(self.request::<TheEvent>(&request).await?.id)
    }

    /// Pauses a cron. Ticks that pass meanwhile are not made up for.
    pub async fn pause_cron(&self, name: &str, reason: Option<&str>) -> Result<Cron, Error> {
        let request = of_cron(Method::PUT, name, "/pause").json(&PauseCron { reason })?;
        self.request(&request.repeatable()).await
    }

    /// Resumes a cron, with its next tick.
    pub async fn unpause_cron(&self, name: &str) -> Result<Cron, Error> {
        self.request(&of_cron(Method::DELETE, name, "/pause")).await
    }

    /// Deletes a cron. Events that are due stay.
    pub async fn remove_cron(&self, name: &str) -> Result<(), Error> {
        self.send(&of_cron(Method::DELETE, name, "")).await.map(drop)
    }
}

fn of_cron(method: Method, name: &str, action: &str) -> Request {
    Request::new(method, &format!("{CRONS}/{{cron}}{action}")).path("cron", name)
}
