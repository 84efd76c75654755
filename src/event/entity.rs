//! Entities: their types and ids, and how far an event that was sent to one has come.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{CanvasId, Category, EventSource, InvalidLogName, Name, StreamId, StreamName};

/// The most characters of a type's name.
const TYPE_MAX: usize = 100;
/// What stands in the place of a type in the paths of the API.
const RESERVED: &str = "status";
/// What the category of a type's inbox ends with.
const INBOX: &str = ".inbox";

/// A kind of entities, such as `account`: 1 to 100 of the characters `A-Z a-z 0-9 _ . -`, not ending in `.inbox`, and not
/// `status`.
///
/// ```
/// use wakeq::EntityType;
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

/// A text that names no type of entities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no type of entities: use 1 to {TYPE_MAX} of the characters A-Z a-z 0-9 _ . -, another end than {INBOX}, \
     and not {RESERVED}"
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

    /// The category of the log in which events are sent to its entities: each has a stream of its name. Only
    /// [`Entities`](crate::Entities) appends there.
    pub fn inbox(&self) -> &Category {
        &self.inbox
    }

    /// The category of the log with the events that were valid: each entity has a stream of its name. Only its processor appends
    /// there.
    pub fn repository(&self) -> &Category {
        &self.repository
    }

    /// What its one processor owns: the whole inbox, of every canvas.
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

/// One entity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId {
    /// The tenant.
    pub canvas: CanvasId,
    /// Its type.
    pub entity_type: EntityType,
    /// Its name among those of its type.
    pub id: StreamName,
}

/// A text that names no entity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntityId {
    /// Its type.
    #[error(transparent)]
    Type(#[from] InvalidEntityType),
    /// Its name.
    #[error(transparent)]
    Name(#[from] InvalidLogName),
}

impl EntityId {
    /// The entity `id` of a type.
    ///
    /// ```
    /// use wakeq::{CanvasId, EntityId};
    ///
    /// let account = EntityId::new(CanvasId::DEFAULT, "account", "ada").unwrap();
    /// assert_eq!(account.to_string(), "account/ada");
    /// ```
    pub fn new(canvas: CanvasId, entity_type: &str, id: &str) -> Result<Self, InvalidEntityId> {
        Ok(Self { canvas, entity_type: entity_type.parse()?, id: id.parse()? })
    }

    /// Where its events arrive.
    pub fn inbox(&self) -> StreamId {
        let (category, name) = (self.entity_type.inbox.clone(), self.id.clone());
        StreamId { canvas: self.canvas, category, name }
    }

    /// Where its valid events are.
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

/// How far an event that was sent to an entity has come, or all events with one correlation id together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityStatus {
    /// It is in the inbox.
    Accepted,
    /// It is in the repository and in the state; what follows from it, outside the entity, has not ended.
    Processed,
    /// It is in the repository and in the state, and what followed from it has ended.
    Completed,
    /// It was rejected, it died, or what followed from it died.
    Failed,
}

impl EntityStatus {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Processed => "processed",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// What several events come to: failed if one has; else the one that came least far.
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
    fn several_have_come_as_far_as_the_last_unless_one_failed() {
        use EntityStatus::{Accepted, Completed, Failed, Processed};

        assert_eq!(EntityStatus::of_all([]), None);
        assert_eq!(EntityStatus::of_all([Completed, Processed]), Some(Processed));
        assert_eq!(EntityStatus::of_all([Completed, Accepted, Processed]), Some(Accepted));
        assert_eq!(EntityStatus::of_all([Accepted, Failed, Completed]), Some(Failed));
    }
}
