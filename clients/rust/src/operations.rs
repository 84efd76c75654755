//! Operations: what is done to all events that match a filter, or that are named.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::calls::fresh_key;
use crate::{Client, Error, Method, Page, Request};

const OPERATIONS: &str = "/v1/canvases/{canvas}/operations";

/// An operation to begin, or to preview.
///
/// ```
/// use wakeq_client::{NewOperation, OperationFilter, OperationKind};
///
/// let paused = OperationFilter {
///     name: Some("send-email".into()),
///     states: vec!["paused".into()],
///     ..OperationFilter::default()
/// };
/// let cancel = NewOperation::new(OperationKind::Cancel, paused);
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct NewOperation {
    kind: OperationKind,
    filter: OperationFilter,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Vec<Uuid>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    all: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    add_tags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remove_tags: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    look_up_to: Option<u64>,
}

/// What an operation does to each of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OperationKind {
    /// Deletes events that wait, and has the handlers of running ones told to stop.
    Cancel,
    /// Makes events that wait due at once.
    RunNow,
    /// Deletes events that wait, and leaves running ones alone.
    Delete,
    /// Brings dead events back.
    Redrive,
    /// Deletes dead events.
    DeleteDead,
    /// Changes the tags of events that wait or run.
    Retag,
    /// One that this client does not know.
    #[serde(other)]
    Unknown,
}

/// Which events an operation is about: those that meet every condition that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationFilter {
    /// The handler's module; `WORKER` if only a name is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The handler's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The handler's modifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modifier: Option<String>,
    /// States, such as `paused`, in one of which each event is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// Tags, all of which each event has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The object that they are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The batch that they are members of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The worker that has claimed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The limit that they wait for, by the name under which it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Emitted at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emitted_since: Option<DateTime<Utc>>,
    /// Emitted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emitted_before: Option<DateTime<Utc>>,
    /// Due at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_since: Option<DateTime<Utc>>,
    /// Due before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_before: Option<DateTime<Utc>>,
    /// Died at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub died_since: Option<DateTime<Utc>>,
    /// Died before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub died_before: Option<DateTime<Utc>>,
    /// The error group of dead events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_group: Option<Uuid>,
    /// A text in their last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
    /// A text in their value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_text: Option<String>,
    /// A condition on their value, such as `$.customer.id = "7"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// What an operation would change.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct OperationPreview {
    /// How many events match, among those that were looked at.
    pub count: u64,
    /// Whether there are more events, which were not looked at.
    pub more: bool,
    /// How many events were looked at.
    pub looked_at: u64,
    /// An operation with this time as its `before` changes the same events.
    pub before: DateTime<Utc>,
}

/// An operation, and how far it has come.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Operation {
    /// Its id.
    pub id: Uuid,
    /// What it does.
    pub kind: OperationKind,
    /// To which events.
    pub filter: OperationFilter,
    /// How many events were named by their ids, if the filter does not select them.
    #[serde(default)]
    pub named: Option<u64>,
    /// Only those that were emitted or, of dead ones, died before this time.
    pub before: DateTime<Utc>,
    /// How far it has come.
    pub state: OperationState,
    /// How many events matched when it began, as far as they were counted then.
    pub preview_count: u64,
    /// Whether there were more events than were counted.
    pub preview_more: bool,
    /// How many events it has looked at.
    pub looked_at: u64,
    /// How many of these match.
    pub matched: u64,
    /// How many of those it has changed.
    pub changed: u64,
    /// How many it left as they were.
    pub skipped: u64,
    /// Who began it.
    pub author: String,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it last came further.
    pub updated_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// Why it can't be carried on.
    pub error: Option<String>,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationState {
    /// It is being carried on.
    Open,
    /// It has looked at every event.
    Done,
    /// It was cancelled. What it had done stays.
    Cancelled,
    /// It can't be carried on.
    Failed,
    /// One that this client does not know.
    #[serde(other)]
    Unknown,
}

impl NewOperation {
    /// On all events that match the filter; without a condition, on all of the canvas.
    pub fn new(kind: OperationKind, filter: OperationFilter) -> Self {
        let all = filter == OperationFilter::default();
        Self {
            kind,
            filter,
            ids: None,
            all,
            before: None,
            add_tags: Vec::new(),
            remove_tags: Vec::new(),
            look_up_to: None,
        }
    }

    /// On these events, 1 to 1,000. Those that do not exist, or that the kind is not about, are
    /// left out.
    pub fn of_ids(kind: OperationKind, ids: Vec<Uuid>) -> Self {
        Self { ids: Some(ids), all: false, ..Self::new(kind, OperationFilter::default()) }
    }

    /// Only events that were emitted or, of dead ones, died before this time.
    pub fn before(self, before: DateTime<Utc>) -> Self {
        Self { before: Some(before), all: false, ..self }
    }

    /// For [`OperationKind::Retag`]: a tag that each event has afterwards.
    pub fn add_tag(mut self, tag: &str) -> Self {
        self.add_tags.push(tag.to_owned());
        self
    }

    /// For [`OperationKind::Retag`]: a tag that no event has afterwards.
    pub fn remove_tag(mut self, tag: &str) -> Self {
        self.remove_tags.push(tag.to_owned());
        self
    }

    /// For a preview: how many events are looked at, up to 1,000,000. Default 10,000.
    pub fn look_up_to(self, events: u64) -> Self {
        Self { look_up_to: Some(events), ..self }
    }
}

impl Client {
    /// Begins an operation on many events. It returns at once, and the service carries the
    /// operation on: [`Client::operation`] says how far it has come.
    ///
    /// ```no_run
    /// # async fn example(wakeq: wakeq_client::Client) -> Result<(), wakeq_client::Error> {
    /// use wakeq_client::{NewOperation, OperationFilter, OperationKind};
    ///
    /// let dead = OperationFilter { name: Some("send-email".into()), ..OperationFilter::default() };
    /// let redrive = NewOperation::new(OperationKind::Redrive, dead);
    /// println!("{} events", wakeq.preview_operation(&redrive).await?.count);
    /// let begun = wakeq.begin_operation(&redrive).await?;
    /// println!("{} brought back so far", wakeq.operation(begun.id).await?.changed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin_operation(&self, new: &NewOperation) -> Result<Operation, Error> {
        let request = Request::new(Method::POST, OPERATIONS).json(new)?;
        self.request(&request.idempotency_key(fresh_key())).await
    }

    /// What an operation would change.
    pub async fn preview_operation(&self, new: &NewOperation) -> Result<OperationPreview, Error> {
        let request = Request::new(Method::POST, &format!("{OPERATIONS}/preview"));
        self.request(&request.json(new)?.repeatable()).await
    }

    /// An operation, and how far it has come.
    pub async fn operation(&self, id: Uuid) -> Result<Operation, Error> {
        self.request(&of_operation(Method::GET, id)).await
    }

    /// A page of the canvas's operations, the latest first.
    pub async fn operations(&self, limit: u32, cursor: Option<&str>) -> Result<Page<Operation>, Error> {
        self.request(&Request::new(Method::GET, OPERATIONS).page(limit, cursor)).await
    }

    /// Cancels an operation. What it has done stays, and the answer says how much that is.
    pub async fn cancel_operation(&self, id: Uuid) -> Result<Operation, Error> {
        self.request(&of_operation(Method::DELETE, id)).await
    }
}

fn of_operation(method: Method, id: Uuid) -> Request {
    Request::new(method, &format!("{OPERATIONS}/{{operation}}")).path("operation", id)
}
