//! Entities: their types and ids, and the progress of an event that was sent to one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use wakeq::log::{Category, EventSource, InvalidLogName, StreamId, StreamName};
use wakeq::{CanvasId, Name};

/// Longest name of a type, in characters.
const TYPE_MAX: usize = 100;
/// Most entities of a type that are isolated at a time.
pub(crate) const ISOLATED_MAX: usize = 32;
/// A path segment of the API, used in the place where other paths have a type.
const RESERVED: &str = "status";
/// Suffix of the category of a type's inbox.
const INBOX: &str = ".inbox";

/// A type of entities, such as `account`: 1 to 100 of the characters `A-Z a-z 0-9 _ . -`, not
/// ending in `.inbox`, and not `status`.
///
/// ```
/// use wakeq_streams::EntityType;
///
/// let account: EntityType = "account".parse().unwrap();
/// assert_eq!(account.inbox().as_str(), "entities:account.inbox");
/// assert!("account.inbox".parse::<EntityType>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityType {
    name: Name,
    inbox: Category,
    repository: Category,
}

/// A text that is not a valid entity type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid entity type: use 1 to {TYPE_MAX} of the characters A-Z a-z 0-9 _ . -, \
     do not end it with {INBOX}, and do not use {RESERVED}"
)]
pub struct InvalidEntityType {
    /// The refused text, cut to 128 characters.
    pub text: String,
}

impl EntityType {
    /// The type's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.name.as_str()
    }

    /// The category of the log that receives the events sent to entities of this type, in one
    /// stream per entity. Only [`Entities`](crate::Entities) appends to it.
    pub fn inbox(&self) -> &Category {
        &self.inbox
    }

    /// The category of the log that holds the valid events, in one stream per entity. Only the
    /// type's processor appends to it.
    pub fn repository(&self) -> &Category {
        &self.repository
    }

    /// The source that the type's one processor owns: the whole inbox, across all canvases.
    pub fn source(&self) -> EventSource {
        EventSource::Category { canvas: None, category: self.inbox.clone(), partition: None }
    }
}

impl FromStr for EntityType {
    type Err = InvalidEntityType;

    fn from_str(text: &str) -> Result<Self, InvalidEntityType> {
        let invalid = || InvalidEntityType { text: text.chars().take(128).collect() };
        if text.len() > TYPE_MAX || text.ends_with(INBOX) || text == RESERVED {
            return Err(invalid());
        }
        let prefix = Category::ENTITIES_PREFIX;
        let category = |text: &str| text.parse::<Category>().map_err(|_| invalid());
        Ok(Self {
            name: text.parse().map_err(|_| invalid())?,
            inbox: category(&format!("{prefix}{text}{INBOX}"))?,
            repository: category(&format!("{prefix}{text}"))?,
        })
    }
}

impl fmt::Display for EntityType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The id of an entity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId {
    /// The tenant.
    pub canvas: CanvasId,
    /// Its type.
    pub entity_type: EntityType,
    /// Its name, unique within the type and the canvas.
    pub id: StreamName,
}

/// A text that is not a valid entity id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidEntityId {
    /// The type is not valid.
    #[error(transparent)]
    Type(#[from] InvalidEntityType),
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidLogName),
}

impl EntityId {
    /// The entity `id` of a type.
    ///
    /// ```
    /// use wakeq::CanvasId;
    /// use wakeq_streams::EntityId;
    ///
    /// let account = EntityId::new(CanvasId::DEFAULT, "account", "ada").unwrap();
    /// assert_eq!(account.to_string(), "account/ada");
    /// ```
    pub fn new(canvas: CanvasId, entity_type: &str, id: &str) -> Result<Self, InvalidEntityId> {
        Ok(Self { canvas, entity_type: entity_type.parse()?, id: id.parse()? })
    }

    /// The stream that receives its events.
    pub fn inbox(&self) -> StreamId {
        let (category, name) = (self.entity_type.inbox.clone(), self.id.clone());
        StreamId { canvas: self.canvas, category, name }
    }

    /// The stream of its valid events.
    pub fn repository(&self) -> StreamId {
        let (category, name) = (self.entity_type.repository.clone(), self.id.clone());
        StreamId { canvas: self.canvas, category, name }
    }
}

impl fmt::Display for EntityId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.entity_type, self.id)
    }
}

/// An entity whose events are processed apart from the rest of its type, because one of them held
/// up its processor, or crashed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IsolatedEntity {
    pub(crate) canvas: CanvasId,
    pub(crate) id: StreamName,
    /// Its events up to here are done.
    pub(crate) after: i64,
    /// Its events up to here are processed one at a time.
    pub(crate) single_through: i64,
}

/// How far a batch has taken an isolated entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IsolatedStep {
    pub(crate) canvas: CanvasId,
    pub(crate) id: StreamName,
    pub(crate) after: i64,
}

impl IsolatedEntity {
    /// Whether this is the entity with that id on that canvas.
    pub(crate) fn has_id(&self, canvas: CanvasId, id: &StreamName) -> bool {
        self.canvas == canvas && self.id == *id
    }

    /// Whether it has come as far as a step, which may be another entity's.
    pub(crate) fn has_reached(&self, step: &IsolatedStep) -> bool {
        self.has_id(step.canvas, &step.id) && self.after >= step.after
    }
}

/// The progress of an event that was sent to an entity, or of all events with one correlation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityStatus {
    /// The event is in the inbox.
    Accepted,
    /// The event is in the repository and applied to the state; its effects outside the entity have
    /// not all finished.
    Processed,
    /// The event is in the repository and applied to the state, and all its effects have finished.
    Completed,
    /// The event was rejected or died, or one of its effects died.
    Failed,
}

impl EntityStatus {
    /// The status as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Processed => "processed",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// The status of several events together: `Failed` if any has failed, otherwise the least
    /// advanced. `None` without events.
    pub fn of_all(statuses: impl IntoIterator<Item = Self>) -> Option<Self> {
        let worst = |one: Self, other: Self| match (one, other) {
            (Self::Failed, _) | (_, Self::Failed) => Self::Failed,
            (one, other) => one.min(other),
        };
        statuses.into_iter().reduce(worst)
    }
}

impl fmt::Display for EntityStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_name_no_type_are_refused() {
        for text in ["", "a b", "a/b", "a:b", ".inbox", "account.inbox", "status", &"x".repeat(101)] {
            assert!(text.parse::<EntityType>().is_err(), "{text:?}");
        }
        let longest: EntityType = "x".repeat(100).parse().unwrap();
        assert_eq!(longest.source().to_string(), format!("category/entities:{longest}.inbox"));
        assert!(longest.inbox().is_reserved() && longest.repository().is_reserved());
    }

    #[test]
    fn the_combined_status_is_the_least_advanced_unless_one_failed() {
        use EntityStatus::{Accepted, Completed, Failed, Processed};

        assert_eq!(EntityStatus::of_all([]), None);
        assert_eq!(EntityStatus::of_all([Completed, Processed]), Some(Processed));
        assert_eq!(EntityStatus::of_all([Completed, Accepted, Processed]), Some(Accepted));
        assert_eq!(EntityStatus::of_all([Accepted, Failed, Completed]), Some(Failed));
    }
}
