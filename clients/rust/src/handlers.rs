//! Handlers: their counts, their last attempts, how much they have to do, and purges.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Client, Error, Method, Page, Request, Rule, Statistics, StatisticsRange, Target};

const CANVAS: &str = "/v1/canvases/{canvas}";

/// A handler with its counts, which are cut off at 10,000.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Handler {
    /// Its module.
    pub module: String,
    /// Its name.
    pub name: String,
    /// Events that are due and free to run.
    pub waiting: i64,
    /// Events that are not due yet.
    pub delayed: i64,
    /// Events that are due and held by a pause or a block.
    pub paused: i64,
    /// Events that are running on a worker.
    pub running: i64,
    /// Dead events, which are kept.
    pub dead: i64,
    /// Objects that are halted for it by a dead event.
    #[serde(default)]
    pub halted: i64,
    /// Since when the oldest due event has been due.
    pub oldest_due: Option<DateTime<Utc>>,
    /// The rules in force, a block first.
    pub rules: Vec<Rule>,
    /// Its HTTP targets, by modifier: in lists the first ten.
    #[serde(default)]
    pub targets: Vec<Target>,
}

/// The last attempts at the events of a handler, the latest first.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct LastAttempts {
    /// The attempts that failed, were too early, or ended an event that is kept.
    pub attempts: Vec<HandlerAttempt>,
    /// Whether there may be more. [`Client::explain`] has those of one event.
    pub more: bool,
}

/// An attempt at an event of a handler.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct HandlerAttempt {
    /// The event.
    pub event: Uuid,
    /// The event's modifier.
    pub modifier: String,
    /// Its number, from 1.
    pub number: u32,
    /// What came of it: `retried`, `postponed` or `dead`; or `completed`, `failed` or `cancelled`,
    /// if it ended an event that is kept.
    pub outcome: String,
    /// The worker that made it, or the program that leased the event.
    pub worker: Option<String>,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// How long it took, in seconds.
    pub took_s: f64,
    /// Its error.
    pub error: Option<String>,
    /// The status that a target answered with, if its error says so.
    pub status: Option<u16>,
}

/// How many events could run now with more workers.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Depth {
    /// Events that are due and free to run.
    pub depth: u64,
    /// Whether there may be more: at most 10,000 of a canvas are counted, and about 20,000 of all
    /// canvases.
    pub capped: bool,
    /// For how long the oldest of them has been due, in seconds.
    pub oldest_age_s: Option<f64>,
}

/// The result of a purge.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Purged {
    /// Number of events that were deleted, at most 10,000.
    pub purged: u64,
    /// Whether there are more: repeat it with `before`.
    pub more: bool,
    /// Before which time all of these had been emitted.
    pub before: Option<DateTime<Utc>>,
}

#[derive(Serialize)]
struct PurgeBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<DateTime<Utc>>,
    dry_run: bool,
}

impl Client {
    /// All handlers of the canvas that have events, rules or targets: one request for each
    /// thousand.
    pub async fn handlers(&self) -> Result<Vec<Handler>, Error> {
        let list = || Request::new(Method::GET, &format!("{CANVAS}/handlers")).query("limit", "1000");
        let mut page: Page<Handler> = self.request(&list()).await?;
        let mut all = page.items;
        while let Some(cursor) = page.next_cursor {
            page = self.request(&list().query("cursor", &cursor)).await?;
            all.extend(page.items);
        }
        Ok(all)
    }

    /// A handler. One without events, rules and targets has counts of 0.
    pub async fn handler(&self, module: &str, name: &str) -> Result<Handler, Error> {
        self.request(&of_handler(Method::GET, module, name, "")).await
    }

    /// The last attempts at the events of a handler, at most `limit`, which is 1 to 100.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// for attempt in wakeq.attempts("WORKER", "send-email", 20).await?.attempts {
    ///     println!("{} {}: {}", attempt.event, attempt.outcome, attempt.error.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn attempts(&self, module: &str, name: &str, limit: u32) -> Result<LastAttempts, Error> {
        let request = Request::new(Method::GET, &format!("{CANVAS}/attempts")).query("limit", limit);
        self.request(&request.query("module", module).query("name", name)).await
    }

    /// How many events of the canvas are due and free to run.
    pub async fn depth(&self) -> Result<Depth, Error> {
        self.request(&Request::new(Method::GET, &format!("{CANVAS}/depth"))).await
    }

    /// How many events of a handler are due and free to run.
    pub async fn handler_depth(&self, module: &str, name: &str) -> Result<Depth, Error> {
        let request = Request::new(Method::GET, &format!("{CANVAS}/depth"));
        self.request(&request.query("module", module).query("name", name)).await
    }

    /// How many events of all canvases are due and free to run, for keys of every canvas.
    pub async fn total_depth(&self) -> Result<Depth, Error> {
        self.request(&Request::new(Method::GET, "/v1/admin/depth")).await
    }

    /// Deletes the events of a handler that are not running, up to 10,000: those that were emitted
    /// before a time, by default that of the request. On `more`, repeat it with the answer's
    /// `before`.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// let mut purged = wakeq.purge("WORKER", "send-email", None).await?;
    /// while purged.more {
    ///     purged = wakeq.purge("WORKER", "send-email", purged.before).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn purge(
        &self,
        module: &str,
        name: &str,
        before: Option<DateTime<Utc>>,
    ) -> Result<Purged, Error> {
        let request = of_handler(Method::POST, module, name, "/purge");
        self.request(&request.json(&PurgeBody { before, dry_run: false })?).await
    }

    /// The number of events that [`Client::purge`] would delete, up to 10,000.
    pub async fn count_purge(
        &self,
        module: &str,
        name: &str,
        before: Option<DateTime<Utc>>,
    ) -> Result<u64, Error> {
        let request = of_handler(Method::POST, module, name, "/purge");
        let counted: Purged = self.request(&request.json(&PurgeBody { before, dry_run: true })?).await?;
        Ok(counted.purged)
    }

    /// What happened to the events of a handler, in columns for a chart.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// let last_day = wakeq_client::StatisticsRange::default();
    /// let chart = wakeq.handler_statistics("WORKER", "send-email", &last_day).await?;
    /// println!("{} emails", chart.completed.iter().sum::<u64>());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn handler_statistics(
        &self,
        module: &str,
        name: &str,
        range: &StatisticsRange,
    ) -> Result<Statistics, Error> {
        self.request(&of_range(of_handler(Method::GET, module, name, "/statistics"), range)).await
    }

    /// The same for all handlers of the canvas together.
    pub async fn statistics(&self, range: &StatisticsRange) -> Result<Statistics, Error> {
        let request = Request::new(Method::GET, &format!("{CANVAS}/statistics"));
        self.request(&of_range(request, range)).await
    }
}

fn of_handler(method: Method, module: &str, name: &str, action: &str) -> Request {
    let request = Request::new(method, &format!("{CANVAS}/handlers/{{module}}/{{name}}{action}"));
    request.path("module", module).path("name", name)
}

fn of_range(request: Request, range: &StatisticsRange) -> Request {
    let times = [("from", range.from), ("to", range.to)];
    let times = times.into_iter().filter_map(|(name, time)| Some((name, time?.to_rfc3339())));
    let step = range.step_s.map(|step_s| ("step_s", step_s.to_string()));
    times.chain(step).fold(request, |request, (name, value)| request.query(name, value))
}
