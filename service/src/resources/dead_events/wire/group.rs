//! Error groups: dead events that died of the same error, and what is known of it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::resources::wire::wire_from;
use wakeq::control::{ErrorGroup, ErrorGroupOrder, ErrorGroups};

/// Dead events of a handler that died of the same cause, and of errors that say the same but for
/// numbers, ids and quoted texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ErrorGroup)]
pub(crate) struct ErrorGroupJson {
    /// The group's id, which is the `error_group` of filters.
    pub(crate) id: Uuid,
    #[schema(example = "WORKER")]
    pub(crate) module: String,
    #[schema(example = "send-email")]
    pub(crate) name: String,
    /// Why the events died: `retries`, `rejected`, `expired` or `poison`.
    #[schema(example = "retries")]
    pub(crate) cause: String,
    /// The first line of their last errors, with `#` for what varies.
    #[schema(max_length = 200, example = "no answer after #")]
    pub(crate) fingerprint: String,
    /// How many of the dead events that were grouped are of it.
    #[schema(minimum = 1, maximum = 100_000)]
    pub(crate) count: u64,
    /// When the first of these died.
    pub(crate) first_died_at: DateTime<Utc>,
    /// When the last of these died.
    pub(crate) last_died_at: DateTime<Utc>,
    /// The one that died last.
    pub(crate) example_id: Uuid,
    /// Its last error, up to 1,000 characters.
    pub(crate) error: Option<String>,
    /// What is known of the group; null if it is not marked as known.
    pub(crate) known: Option<KnownErrorJson>,
}

/// What is known of an error group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = KnownError)]
pub(crate) struct KnownErrorJson {
    /// What is known: a ticket, the cause, or what to do.
    #[schema(example = "ticket 17: the mail server is being moved")]
    pub(crate) note: Option<String>,
    /// Who marked it.
    #[schema(example = "key:ada")]
    pub(crate) by: String,
    /// When it was marked.
    pub(crate) at: DateTime<Utc>,
}

/// What is known of an error group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KnowError {
    /// What is known: a ticket, the cause, or what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 1000, example = "ticket 17: the mail server is being moved")]
    pub(crate) note: Option<String>,
}

/// A page of error groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ErrorGroups)]
pub(crate) struct ErrorGroupsJson {
    /// The groups of this page.
    pub(crate) items: Vec<ErrorGroupJson>,
    /// The cursor of the next page: the parameter `cursor` of the next request. Null on the last
    /// page.
    pub(crate) next_cursor: Option<String>,
    /// How many dead events were grouped: at most 100,000, those that died last.
    #[schema(minimum = 0, maximum = 100_000)]
    pub(crate) looked_at: u64,
    /// Whether there may be older dead events, which were not grouped.
    pub(crate) more: bool,
}

/// The order of a list of error groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ErrorGroupOrder)]
pub(crate) enum ErrorGroupOrderJson {
    /// Those with the most events first.
    #[default]
    Count,
    /// Those of which an event died last first.
    LastDied,
}

impl From<ErrorGroupOrderJson> for ErrorGroupOrder {
    fn from(order: ErrorGroupOrderJson) -> Self {
        match order {
            ErrorGroupOrderJson::Count => Self::Count,
            ErrorGroupOrderJson::LastDied => Self::LastDied,
        }
    }
}

wire_from! { wakeq::control::KnownError => KnownErrorJson, |known| {
    note, by, at;
} }

wire_from! { ErrorGroup => ErrorGroupJson, |group| {
    cause, fingerprint, count, first_died_at, last_died_at, error;
    id: group.id.0,
    module: group.handler.module.to_string(),
    name: group.handler.name.to_string(),
    example_id: group.example.0,
    known: group.known.map(KnownErrorJson::from),
} }

impl From<ErrorGroups> for ErrorGroupsJson {
    fn from(groups: ErrorGroups) -> Self {
        let page = groups.page;
        Self {
            items: page.items.into_iter().map(ErrorGroupJson::from).collect(),
            next_cursor: page.next.map(|cursor| cursor.to_string()),
            looked_at: page.looked_at,
            more: groups.more,
        }
    }
}
