//! Operations: what is done to all events that match a filter, or that are named.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::wire::HIDDEN;
use wakeq::EventId;
use wakeq::control::{
    ErrorGroupId, EventFilter, EventState, NewOperation, Operation, OperationKind, OperationPreview,
    OperationState,
};

/// An operation to begin, or to preview.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOperation)]
pub(crate) struct NewOperationJson {
    pub(crate) kind: OperationKindJson,
    /// Which events.
    #[serde(default)]
    pub(crate) filter: OperationFilter,
    /// Which events, in place of a filter: by their ids, or those that were chosen for them. Those
    /// that do not exist, or that the kind is not about, are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub(crate) ids: Option<Vec<Uuid>>,
    /// All events of the canvas. Required without a filter and ids, and refused with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) all: bool,
    /// Only events that were emitted or, of dead ones, died before this time. By default, and at
    /// most, the time at which the operation begins: what comes later is not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<DateTime<Utc>>,
    /// For `retag`: tags that each event has afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub(crate) add_tags: Vec<String>,
    /// For `retag`: tags that no event has afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub(crate) remove_tags: Vec<String>,
    /// For a preview: how many events are looked at. Default 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub(crate) look_up_to: Option<u64>,
}

/// What an operation does to each of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = OperationKind)]
pub(crate) enum OperationKindJson {
    /// Deletes events that wait, and has the handlers of running ones told to stop.
    Cancel,
    /// Makes events that wait due at once.
    RunNow,
    /// Deletes events that wait, and leaves running ones alone.
    Delete,
    /// Brings dead events back, with their retry counts reset.
    Redrive,
    /// Deletes dead events.
    DeleteDead,
    /// Changes the tags of events that wait or run.
    Retag,
}

/// Which events an operation is about: those that meet every condition that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OperationFilter {
    /// Only handlers of this module; `WORKER` if only a name is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "WORKER")]
    pub(crate) module: Option<String>,
    /// Only handlers with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "send-email")]
    pub(crate) name: Option<String>,
    /// Only handlers with this modifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "_")]
    pub(crate) modifier: Option<String>,
    /// Only events in one of these states.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 9)]
    pub(crate) states: Vec<SelectedState>,
    /// Only events that have all of these tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10)]
    pub(crate) tags: Vec<String>,
    /// Only events on this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200, example = "work:1")]
    pub(crate) object: Option<String>,
    /// Only members of this batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, example = "import:42")]
    pub(crate) batch: Option<String>,
    /// Only events that this worker has claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    /// Only events that wait for this limit, for a place or for its rate: `canvas`,
    /// `handler:MODULE/NAME`, or a key that they name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 265, example = "customer:7")]
    pub(crate) waits_for: Option<String>,
    /// Only events that were emitted at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) emitted_since: Option<DateTime<Utc>>,
    /// Only events that were emitted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) emitted_before: Option<DateTime<Utc>>,
    /// Only events that are due at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_since: Option<DateTime<Utc>>,
    /// Only events that are due before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) due_before: Option<DateTime<Utc>>,
    /// Only dead events that died at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) died_since: Option<DateTime<Utc>>,
    /// Only dead events that died before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) died_before: Option<DateTime<Utc>>,
    /// Only dead events of this error group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_group: Option<Uuid>,
    /// Only events whose last error contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub(crate) error_text: Option<String>,
    /// Only events whose value contains this text, as it was emitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub(crate) value_text: Option<String>,
    /// Only events whose value meets this condition, a path and a scalar.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = r#"$.customer.id = "7""#)]
    pub(crate) value: Option<String>,
}

/// A state by which events are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SelectedState {
    Ready,
    Behind,
    Halted,
    Held,
    Delayed,
    Running,
    Paused,
    Blocked,
    Limited,
    Dead,
}

/// What an operation would change.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = OperationPreview)]
pub(crate) struct OperationPreviewJson {
    /// How many events match, among those that were looked at.
    #[schema(minimum = 0)]
    pub(crate) count: u64,
    /// Whether there are more events, which were not looked at.
    pub(crate) more: bool,
    /// How many events were looked at.
    #[schema(minimum = 0)]
    pub(crate) looked_at: u64,
    /// The time before which these events were emitted or, if they are dead, died: an operation
    /// with it as `before` changes the same ones.
    pub(crate) before: DateTime<Utc>,
}

/// An operation, and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Operation)]
pub(crate) struct OperationJson {
    pub(crate) id: Uuid,
    pub(crate) kind: OperationKindJson,
    pub(crate) filter: OperationFilter,
    /// How many events were named by their ids; omitted if the filter selects them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub(crate) named: Option<u64>,
    /// Tags that it adds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) add_tags: Vec<String>,
    /// Tags that it removes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) remove_tags: Vec<String>,
    /// Only events that were emitted or, of dead ones, died before this time.
    pub(crate) before: DateTime<Utc>,
    pub(crate) state: OperationStateJson,
    /// How many events matched when it began, as far as they were counted then.
    #[schema(minimum = 0)]
    pub(crate) preview_count: u64,
    /// Whether there were more events than were counted.
    pub(crate) preview_more: bool,
    /// How many events it has looked at.
    #[schema(minimum = 0)]
    pub(crate) looked_at: u64,
    /// How many of these match.
    #[schema(minimum = 0)]
    pub(crate) matched: u64,
    /// How many of those it has changed.
    #[schema(minimum = 0)]
    pub(crate) changed: u64,
    /// How many it left as they were: they run, had ended or changed in the meantime, were held by
    /// another transaction, or would have too many tags.
    #[schema(minimum = 0)]
    pub(crate) skipped: u64,
    /// Who began it.
    #[schema(example = "key:ada")]
    pub(crate) author: String,
    pub(crate) started_at: DateTime<Utc>,
    /// When it last came further.
    pub(crate) updated_at: DateTime<Utc>,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    /// Why it can't be carried on.
    pub(crate) error: Option<String>,
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OperationState)]
pub(crate) enum OperationStateJson {
    /// It is being carried on, or waits for that.
    Open,
    /// It has looked at every event.
    Done,
    /// It was cancelled. What it had done stays.
    Cancelled,
    /// It can't be carried on.
    Failed,
}

impl NewOperationJson {
    /// On all events that match the filter, or all of the canvas if it has no condition.
    pub(crate) fn new(kind: OperationKindJson, filter: OperationFilter) -> Self {
        let all = filter == OperationFilter::default();
        let (add_tags, remove_tags) = Default::default();
        Self { kind, filter, ids: None, all, before: None, add_tags, remove_tags, look_up_to: None }
    }

    /// On these events.
    pub(crate) fn of_ids(kind: OperationKindJson, ids: Vec<Uuid>) -> Self {
        Self { ids: Some(ids), all: false, ..Self::new(kind, OperationFilter::default()) }
    }

    /// As the queue takes it, with how many events to look at; or what is wrong with it.
    pub(crate) fn read(&self) -> Result<NewOperation, String> {
        let is_filtered = self.filter != OperationFilter::default();
        if self.ids.is_some() && is_filtered {
            return Err("select events either by `ids` or by `filter`".to_owned());
        }
        let narrowed = self.ids.is_some() || is_filtered || self.before.is_some();
        if narrowed == self.all {
            return Err("say which: by `filter`, `ids` or `before`; or `all` of the canvas".to_owned());
        }
        if self.kind != OperationKindJson::Retag && !(self.add_tags.is_empty() && self.remove_tags.is_empty())
        {
            return Err("`add_tags` and `remove_tags` are for the kind `retag`".to_owned());
        }
        let kind = match self.kind {
            OperationKindJson::Cancel => OperationKind::Cancel,
            OperationKindJson::RunNow => OperationKind::RunNow,
            OperationKindJson::Delete => OperationKind::Delete,
            OperationKindJson::Redrive => OperationKind::Redrive,
            OperationKindJson::DeleteDead => OperationKind::DeleteDead,
            OperationKindJson::Retag => {
                OperationKind::Retag { add: all(&self.add_tags)?, remove: all(&self.remove_tags)? }
            }
        };
        let mut new = match &self.ids {
            Some(ids) => NewOperation::of_ids(kind, ids.iter().map(|id| EventId(*id))),
            None => NewOperation::new(kind, self.filter.read()?),
        };
        new.before = self.before;
        Ok(new)
    }
}

impl OperationFilter {
    fn read(&self) -> Result<EventFilter, String> {
        Ok(EventFilter {
            module: one(self.module.as_ref())?,
            name: one(self.name.as_ref())?,
            modifier: one(self.modifier.as_ref())?,
            states: self.states.iter().map(|state| EventState::from(*state)).collect(),
            tags: all(&self.tags)?,
            object: one(self.object.as_ref())?,
            batch: one(self.batch.as_ref())?,
            worker: one(self.worker.as_ref())?,
            waits_for: one(self.waits_for.as_ref())?,
            emitted_since: self.emitted_since,
            emitted_before: self.emitted_before,
            due_since: self.due_since,
            due_before: self.due_before,
            died_since: self.died_since,
            died_before: self.died_before,
            error_group: self.error_group.map(ErrorGroupId),
            error_text: one(self.error_text.as_ref())?,
            value_text: one(self.value_text.as_ref())?,
            value: one(self.value.as_ref())?,
        })
    }
}

fn one<T: std::str::FromStr<Err: std::fmt::Display>>(text: Option<&String>) -> Result<Option<T>, String> {
    text.map(|text| text.parse()).transpose().map_err(|error: T::Err| error.to_string())
}

fn all<T: std::str::FromStr<Err: std::fmt::Display>>(texts: &[String]) -> Result<Vec<T>, String> {
    texts.iter().map(|text| text.parse()).collect::<Result<_, T::Err>>().map_err(|error| error.to_string())
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(T::to_string).collect()
}

impl OperationJson {
    /// For callers that may not see values: that its filter asks for them, and not what it asks.
    pub(crate) fn hidden(mut self) -> Self {
        for asked in [&mut self.filter.value, &mut self.filter.value_text].into_iter().flatten() {
            HIDDEN.clone_into(asked);
        }
        self
    }
}

impl From<EventFilter> for OperationFilter {
    fn from(filter: EventFilter) -> Self {
        Self {
            module: filter.module.as_ref().map(ToString::to_string),
            name: filter.name.as_ref().map(ToString::to_string),
            modifier: filter.modifier.as_ref().map(ToString::to_string),
            states: filter.states.iter().map(|state| SelectedState::from(*state)).collect(),
            tags: texts(&filter.tags),
            object: filter.object.as_ref().map(ToString::to_string),
            batch: filter.batch.as_ref().map(ToString::to_string),
            worker: filter.worker.as_ref().map(ToString::to_string),
            waits_for: filter.waits_for.as_ref().map(ToString::to_string),
            emitted_since: filter.emitted_since,
            emitted_before: filter.emitted_before,
            due_since: filter.due_since,
            due_before: filter.due_before,
            died_since: filter.died_since,
            died_before: filter.died_before,
            error_group: filter.error_group.map(|group| group.0),
            error_text: filter.error_text.as_ref().map(ToString::to_string),
            value_text: filter.value_text.as_ref().map(ToString::to_string),
            value: filter.value.as_ref().map(ToString::to_string),
        }
    }
}

impl From<SelectedState> for EventState {
    fn from(state: SelectedState) -> Self {
        match state {
            SelectedState::Ready => Self::Ready,
            SelectedState::Behind => Self::Behind,
            SelectedState::Halted => Self::Halted,
            SelectedState::Held => Self::Held,
            SelectedState::Delayed => Self::Delayed,
            SelectedState::Running => Self::Running,
            SelectedState::Paused => Self::Paused,
            SelectedState::Blocked => Self::Blocked,
            SelectedState::Limited => Self::Limited,
            SelectedState::Dead => Self::Dead,
        }
    }
}

impl From<EventState> for SelectedState {
    fn from(state: EventState) -> Self {
        match state {
            EventState::Ready => Self::Ready,
            EventState::Behind => Self::Behind,
            EventState::Halted => Self::Halted,
            EventState::Held => Self::Held,
            EventState::Delayed => Self::Delayed,
            EventState::Running => Self::Running,
            EventState::Paused => Self::Paused,
            EventState::Blocked => Self::Blocked,
            EventState::Limited => Self::Limited,
            EventState::Dead => Self::Dead,
        }
    }
}

impl From<OperationPreview> for OperationPreviewJson {
    fn from(preview: OperationPreview) -> Self {
        let OperationPreview { count, more, looked_at, before, .. } = preview;
        Self { count, more, looked_at, before }
    }
}

impl From<OperationState> for OperationStateJson {
    fn from(state: OperationState) -> Self {
        match state {
            OperationState::Open => Self::Open,
            OperationState::Done => Self::Done,
            OperationState::Cancelled => Self::Cancelled,
            OperationState::Failed | _ => Self::Failed,
        }
    }
}

impl From<Operation> for OperationJson {
    fn from(operation: Operation) -> Self {
        let (add_tags, remove_tags) = match &operation.kind {
            OperationKind::Retag { add, remove } => (texts(add), texts(remove)),
            OperationKind::Cancel
            | OperationKind::RunNow
            | OperationKind::Delete
            | OperationKind::Redrive
            | OperationKind::DeleteDead
            | _ => (Vec::new(), Vec::new()),
        };
        let kind = match operation.kind {
            OperationKind::Cancel => OperationKindJson::Cancel,
            OperationKind::RunNow => OperationKindJson::RunNow,
            OperationKind::Delete => OperationKindJson::Delete,
            OperationKind::Redrive => OperationKindJson::Redrive,
            OperationKind::Retag { .. } => OperationKindJson::Retag,
            OperationKind::DeleteDead | _ => OperationKindJson::DeleteDead,
        };
        Self {
            id: operation.id.0,
            kind,
            add_tags,
            remove_tags,
            filter: operation.filter.into(),
            named: operation.named,
            before: operation.before,
            state: operation.state.into(),
            preview_count: operation.preview_count,
            preview_more: operation.preview_more,
            looked_at: operation.looked_at,
            matched: operation.matched,
            changed: operation.changed,
            skipped: operation.skipped,
            author: operation.author,
            started_at: operation.started_at,
            updated_at: operation.updated_at,
            ended_at: operation.ended_at,
            error: operation.error,
        }
    }
}
