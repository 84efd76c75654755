//! Batches: opened with the event to emit at the end, closed, shown and given up.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{Client, Error, Method, Page, Request};

const BATCHES: &str = "/v1/canvases/{canvas}/batches";

/// The event that is emitted at the end of a batch. Its value is a JSON object with `batch`,
/// `completed`, `dead`, `cancelled`, `total`, and as `value` the one that is given here.
#[derive(Clone, Debug, Serialize)]
pub struct OnEnd {
    module: String,
    name: String,
    modifier: String,
    value: Box<RawValue>,
}

/// A batch: many events that share its name, and one that is emitted when all of them have ended.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Batch {
    /// Its name.
    pub name: String,
    /// How far it has come: `open`, `closed` while members are left, `ended`, or `cancelled` if it
    /// was given up.
    pub state: String,
    /// The event that is emitted at its end.
    pub on_end: BatchEnd,
    /// When it was opened.
    pub opened_at: DateTime<Utc>,
    /// When it was closed.
    pub closed_at: Option<DateTime<Utc>>,
    /// When its event was emitted, or when it was given up.
    pub over_at: Option<DateTime<Utc>>,
    /// How its members have ended so far; in lists only once it has ended.
    pub counts: Option<BatchCounts>,
    /// How many members are left, counted up to 1,000,000; not in lists.
    pub left: Option<u64>,
}

/// The event of the end of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct BatchEnd {
    /// Its id, which exists once the batch has ended.
    pub id: Uuid,
    /// The handler's module.
    pub module: String,
    /// The handler's name.
    pub name: String,
    /// The handler's modifier.
    pub modifier: String,
}

/// How the members of a batch have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct BatchCounts {
    /// Their handlers completed them.
    pub completed: u64,
    /// They died.
    pub dead: u64,
    /// They were cancelled, or purged.
    pub cancelled: u64,
    /// All of these.
    pub total: u64,
}

#[derive(Serialize)]
struct OpenBatch<'a> {
    on_end: &'a OnEnd,
}

impl OnEnd {
    /// An event for the handler with this name, in the module `WORKER`.
    ///
    /// Errors: [`Error::Invalid`] for a value that is not JSON.
    pub fn new(name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let value = serde_json::value::to_raw_value(value);
        let value = value.map_err(|error| Error::Invalid(format!("the value can't be written: {error}")))?;
        Ok(Self { module: "WORKER".to_owned(), name: name.to_owned(), modifier: "_".to_owned(), value })
    }

    /// Sets the handler's module.
    pub fn module(self, module: &str) -> Self {
        Self { module: module.to_owned(), ..self }
    }

    /// Sets the handler's modifier.
    pub fn modifier(self, modifier: &str) -> Self {
        Self { modifier: modifier.to_owned(), ..self }
    }
}

impl Client {
    /// Opens a batch, with the event to emit at its end. Opening it again with the same event
    /// changes nothing. Emit its members with [`NewEvent::batch`](crate::NewEvent::batch).
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::{NewEvent, OnEnd};
    ///
    /// wakeq.open_batch("import:42", &OnEnd::new("imported", "customers.csv")?).await?;
    /// for row in 1..=3 {
    ///     wakeq.emit(&NewEvent::new("import-row", &row)?.batch("import:42")).await?;
    /// }
    /// wakeq.close_batch("import:42").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_batch(&self, name: &str, on_end: &OnEnd) -> Result<Batch, Error> {
        let request = of_batch(Method::POST, name, "").json(&OpenBatch { on_end })?;
        self.request(&request.repeatable()).await
    }

    /// Closes a batch: no more members come, except from its members. Its event is emitted once the
    /// last of them has ended.
    pub async fn close_batch(&self, name: &str) -> Result<Batch, Error> {
        self.request(&of_batch(Method::POST, name, "/close").repeatable()).await
    }

    /// A batch, with how many of its members have ended and are left.
    pub async fn batch(&self, name: &str) -> Result<Batch, Error> {
        self.request(&of_batch(Method::GET, name, "")).await
    }

    /// A page of the batches by name, of at most 1,000; `cursor` is the previous page's
    /// `next_cursor`.
    pub async fn batches(&self, limit: u32, cursor: Option<&str>) -> Result<Page<Batch>, Error> {
        self.request(&Request::new(Method::GET, BATCHES).page(limit, cursor)).await
    }

    /// Gives a batch up: its event is never emitted, and its members stay as they are.
    pub async fn cancel_batch(&self, name: &str) -> Result<(), Error> {
        self.send(&of_batch(Method::DELETE, name, "")).await.map(drop)
    }
}

fn of_batch(method: Method, name: &str, action: &str) -> Request {
    Request::new(method, &format!("{BATCHES}/{{batch}}{action}")).path("batch", name)
}
