//! Operations: what is done to all events that match a filter, or to those that are named by their
//! ids, and how far that has come.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{CanvasId, EventFilter, EventId, InvalidFilter, Tag, Timestamp};

/// How many tags an operation adds or removes at most.
const TAGS_MAX: usize = 10;

/// What an operation does to each of its events.
///
/// ```
/// use wakeq::control::OperationKind;
///
/// let retag = OperationKind::Retag { add: vec!["urgent".parse().unwrap()], remove: Vec::new() };
/// assert_eq!((retag.as_str(), retag.of_dead()), ("retag", false));
/// assert!(OperationKind::Redrive.of_dead());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Changes the tags of events that wait or run. One that would have too many stays as it is.
    Retag {
        /// Tags that each event has afterwards.
        add: Vec<Tag>,
        /// Tags that no event has afterwards.
        remove: Vec<Tag>,
    },
}

/// The tags of [`OperationKind::Retag`], as its row has them.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct TagChange {
    add: Vec<Tag>,
    remove: Vec<Tag>,
}

impl OperationKind {
    /// Its name in the API, on the command line and in the database.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::RunNow => "run-now",
            Self::Delete => "delete",
            Self::Redrive => "redrive",
            Self::DeleteDead => "delete-dead",
            Self::Retag { .. } => "retag",
        }
    }

    /// Whether it is about dead events, and not about those that have not ended.
    pub fn of_dead(&self) -> bool {
        match self {
            Self::Redrive | Self::DeleteDead => true,
            Self::Cancel | Self::RunNow | Self::Delete | Self::Retag { .. } => false,
        }
    }

    /// Whether it also changes events that run.
    pub(crate) fn of_running(&self) -> bool {
        match self {
            Self::Cancel | Self::Retag { .. } => true,
            Self::RunNow | Self::Delete | Self::Redrive | Self::DeleteDead => false,
        }
    }

    /// Whether it makes events due, of which workers are notified.
    pub(crate) fn publishes(&self) -> bool {
        match self {
            Self::RunNow | Self::Redrive => true,
            Self::Cancel | Self::Delete | Self::DeleteDead | Self::Retag { .. } => false,
        }
    }

    /// What it needs beyond its name, as JSON.
    pub(crate) fn arguments(&self) -> String {
        match self {
            Self::Retag { add, remove } => {
                let change = TagChange { add: add.clone(), remove: remove.clone() };
                serde_json::to_string(&change).unwrap_or_else(|_| "{}".to_owned())
            }
            Self::Cancel | Self::RunNow | Self::Delete | Self::Redrive | Self::DeleteDead => "{}".to_owned(),
        }
    }

    /// From its name and its arguments; `None` for one of a newer release.
    pub(crate) fn of_row(name: &str, arguments: &str) -> Option<Self> {
        Some(match name {
            "cancel" => Self::Cancel,
            "run-now" => Self::RunNow,
            "delete" => Self::Delete,
            "redrive" => Self::Redrive,
            "delete-dead" => Self::DeleteDead,
            "retag" => {
                let TagChange { add, remove } = serde_json::from_str(arguments).ok()?;
                Self::Retag { add, remove }
            }
            _ => return None,
        })
    }

    /// What is wrong with the tags, if anything.
    fn check(&self) -> Result<(), &'static str> {
        let Self::Retag { add, remove } = self else { return Ok(()) };
        if add.is_empty() && remove.is_empty() {
            return Err("say which tags to add or to remove");
        }
        if add.len() > TAGS_MAX || remove.len() > TAGS_MAX {
            return Err("an operation adds at most 10 tags, and removes at most 10");
        }
        if add.iter().any(|tag| remove.contains(tag)) {
            return Err("a tag is either added or removed");
        }
        Ok(())
    }
}

#[cfg(feature = "testing")]
impl super::NewEvent {
    /// Changes the event's tags; `false` if it has these already, or would have too many.
    pub(crate) fn retag(&mut self, add: &[Tag], remove: &[Tag]) -> bool {
        let mut options = self.options.clone().unwrap_or_default();
        let before = options.tags.clone();
        options.tags.retain(|tag| !remove.contains(tag));
        for tag in add {
            if !options.tags.contains(tag) {
                options.tags.push(tag.clone());
            }
        }
        if options.tags == before || options.check().is_err() {
            return false;
        }
        self.options = Some(options).filter(|options| **options != super::EventOptions::default());
        true
    }
}

/// An operation to begin.
///
/// ```
/// use wakeq::control::{EventFilter, NewOperation, OperationKind};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let filter = EventFilter { name: Some("send-email".parse()?), ..EventFilter::default() };
/// let cancel = NewOperation::new(OperationKind::Cancel, filter);
/// assert_eq!(cancel.kind.as_str(), "cancel");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewOperation {
    /// What is done.
    pub kind: OperationKind,
    /// To which events. Copies in registered queues are left alone unless they are dead.
    pub filter: EventFilter,
    /// Only events that were emitted or, of dead ones, died before this. By default the moment at
    /// which the operation begins. What comes later is never changed.
    pub before: Option<Timestamp>,
    /// Only these, in their order and each once. The filter has no condition then.
    ids: Option<Vec<EventId>>,
}

impl NewOperation {
    /// How many events can be named by their ids.
    pub const IDS_MAX: usize = 1000;

    /// An operation on all events that match the filter when it begins.
    pub fn new(kind: OperationKind, filter: EventFilter) -> Self {
        Self { kind, filter, before: None, ids: None }
    }

    /// An operation on up to [`NewOperation::IDS_MAX`] events, by their own ids or those that their
    /// callers chose. Those that the canvas does not have, or that the kind is not about, are left
    /// out.
    ///
    /// ```
    /// use wakeq::EventId;
    /// use wakeq::control::{NewOperation, OperationKind};
    ///
    /// let id = EventId::new();
    /// let cancel = NewOperation::of_ids(OperationKind::Cancel, [id, id]);
    /// assert_eq!(cancel.ids(), Some([id].as_slice()));
    /// ```
    pub fn of_ids(kind: OperationKind, ids: impl IntoIterator<Item = EventId>) -> Self {
        let mut ids: Vec<EventId> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        Self { ids: Some(ids), ..Self::new(kind, EventFilter::default()) }
    }

    /// The events that are named, if a filter does not select them.
    pub fn ids(&self) -> Option<&[EventId]> {
        self.ids.as_deref()
    }

    /// Refuses what exceeds a limit, or can match nothing.
    pub(crate) fn check(&self) -> Result<(), InvalidFilter> {
        self.filter.check()?;
        self.kind.check().map_err(InvalidFilter)?;
        if let Some(ids) = self.ids() {
            if !(1..=Self::IDS_MAX).contains(&ids.len()) {
                return Err(InvalidFilter(
                    "an operation names 1 to 1,000 events: begin another for the rest",
                ));
            }
            if self.filter != EventFilter::default() {
                return Err(InvalidFilter("events are either named by their ids or selected by a filter"));
            }
        }
        let names_dead = self.filter.states.contains(&super::EventState::Dead);
        if names_dead && !self.kind.of_dead() {
            return Err(InvalidFilter(
                "this operation is about events that have not ended: leave the state `dead` out, or redrive \
                 or delete dead events",
            ));
        }
        let names_live = self.filter.states.iter().any(|state| *state != super::EventState::Dead);
        if names_live && self.kind.of_dead() {
            return Err(InvalidFilter("this operation is about dead events: leave the other states out"));
        }
        Ok(())
    }
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationState {
    /// It is being carried on, or waits for that.
    Open,
    /// It has looked at every event.
    Done,
    /// It was cancelled. What it had done stays.
    Cancelled,
    /// It can't be carried on.
    Failed,
}

impl OperationState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Open, Self::Done, Self::Cancelled, Self::Failed];

    /// The state as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

displayed_as_text!(OperationState);

impl FromStr for OperationState {
    type Err = InvalidFilter;

    fn from_str(word: &str) -> Result<Self, InvalidFilter> {
        let state = Self::ALL.into_iter().find(|state| state.as_str() == word);
        state.ok_or(InvalidFilter("the state of an operation is open, done, cancelled or failed"))
    }
}

/// The id of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub Uuid);

impl OperationId {
    /// A new id, ordered by time (uuid version 7).
    pub(crate) fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

displayed_as_uuid!(OperationId);

/// What an operation would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationPreview {
    /// How many events match, among those that were looked at.
    pub count: u64,
    /// Whether there are more events, which were not looked at.
    pub more: bool,
    /// How many events were looked at.
    pub looked_at: u64,
    /// Only events that were emitted or, of dead ones, died before this were counted. An operation
    /// that begins with it changes the same events, as long as nobody else does.
    pub before: Timestamp,
}

/// An operation: what it does, to which events, and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// Its id.
    pub id: OperationId,
    /// Its canvas.
    pub canvas: CanvasId,
    /// What it does.
    pub kind: OperationKind,
    /// To which events.
    pub filter: EventFilter,
    /// How many events were named by their ids, if the filter does not select them.
    pub named: Option<u64>,
    /// Only those that were emitted or, of dead ones, died before this.
    pub before: Timestamp,
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
    /// How many it left as they were: they run, had ended or changed in the meantime, were held by
    /// another session, or would have too many tags.
    pub skipped: u64,
    /// Who began it.
    pub author: String,
    /// When it began.
    pub started_at: Timestamp,
    /// When it last came further.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it can't be carried on.
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventState;

    fn retag(add: &[&str], remove: &[&str]) -> OperationKind {
        let tags = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        OperationKind::Retag { add: tags(add), remove: tags(remove) }
    }

    #[test]
    fn a_kind_is_its_name_and_its_arguments() {
        let plain = [
            OperationKind::Cancel,
            OperationKind::RunNow,
            OperationKind::Delete,
            OperationKind::Redrive,
            OperationKind::DeleteDead,
        ];
        for kind in plain.into_iter().chain([retag(&["a"], &["b", "c"])]) {
            assert_eq!(OperationKind::of_row(kind.as_str(), &kind.arguments()), Some(kind));
        }
        assert_eq!(OperationKind::of_row("retag", "1"), None);
        assert_eq!(OperationKind::of_row("of-a-newer-release", "{}"), None);
    }

    #[test]
    fn what_can_match_nothing_is_refused() {
        let of_states = |kind: OperationKind, states: &[EventState]| {
            let filter = EventFilter { states: states.to_vec(), ..EventFilter::default() };
            NewOperation::new(kind, filter).check().is_ok()
        };
        assert!(of_states(OperationKind::Cancel, &[EventState::Running, EventState::Ready]));
        assert!(of_states(OperationKind::Redrive, &[EventState::Dead]));
        assert!(!of_states(OperationKind::Cancel, &[EventState::Dead]));
        assert!(!of_states(OperationKind::DeleteDead, &[EventState::Dead, EventState::Ready]));
        assert!(of_states(retag(&["a"], &["b"]), &[]));
        for kind in [retag(&[], &[]), retag(&["a"], &["a"]), retag(&[], &["x"; 11])] {
            assert!(!of_states(kind.clone(), &[]), "{kind:?}");
        }
    }

    #[test]
    fn events_are_named_or_selected() {
        let id = |number: u128| EventId(Uuid::from_u128(number));
        let of = |ids: std::ops::Range<u128>| NewOperation::of_ids(OperationKind::Cancel, ids.map(id));
        assert_eq!(of(0..1000).check(), Ok(()));
        assert!(of(0..0).check().is_err() && of(0..1001).check().is_err());
        let filter = EventFilter { name: Some("h".parse().unwrap()), ..EventFilter::default() };
        assert!(NewOperation { filter, ..of(0..3) }.check().is_err());
    }

    #[test]
    fn states_are_their_words() {
        for state in OperationState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("paused".parse::<OperationState>().is_err());
    }
}
