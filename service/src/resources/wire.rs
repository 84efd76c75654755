//! Lists in pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wakeq::control::Page;

/// Converts a type of the queue into one of the API: first the fields that both have, then the
/// others with their values.
macro_rules! wire_from {
    (
        $(#[$words:meta])*
        $from:ty => $into:ident, |$source:ident| { $($same:ident),*; $($field:ident: $value:expr,)* }
    ) => {
        $(#[$words])*
        impl From<$from> for $into {
            fn from($source: $from) -> Self {
                Self { $($field: $value,)* $($same: $source.$same,)* }
            }
        }
    };
}
pub(crate) use wire_from;

/// What an answer says in place of values that the caller may not see.
pub(crate) const HIDDEN: &str = "hidden: this needs the scope `values`";

/// A page of a list.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct List<T> {
    /// The items of this page: at most `limit`, and possibly fewer although more follow.
    pub(crate) items: Vec<T>,
    /// The cursor of the next page: the parameter `cursor` of the next request. Null on the last
    /// page.
    pub(crate) next_cursor: Option<String>,
    /// How many rows were examined for this page; omitted if they are all on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub(crate) looked_at: Option<u64>,
}

impl<T> List<T> {
    /// A list of a single page.
    pub(crate) fn whole<S: Into<T>>(items: impl IntoIterator<Item = S>) -> Self {
        Self { items: items.into_iter().map(S::into).collect(), next_cursor: None, looked_at: None }
    }

    /// The first `limit` items. That there are more of them shows that another page follows.
    pub(crate) fn page<S: Into<T>>(mut items: Vec<S>, limit: u32, cursor: impl FnOnce(&S) -> String) -> Self {
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next_cursor = items.last().filter(|_| more).map(cursor);
        Self { next_cursor, ..Self::whole(items) }
    }

    /// The page after a cursor of a list that is read as a whole, because it is short: up to
    /// `limit` of the items, by key.
    pub(crate) fn part<S: Into<T>>(
        mut items: Vec<S>,
        limit: u32,
        after: Option<&str>,
        key: impl Fn(&S) -> String,
    ) -> Self {
        items.sort_by_key(&key);
        let rest = items.into_iter().filter(|item| after.is_none_or(|after| *key(item) > *after));
        Self::page(rest.take(limit as usize + 1).collect(), limit, key)
    }
}

impl<S, T: From<S>> From<Page<S>> for List<T> {
    fn from(page: Page<S>) -> Self {
        let next_cursor = page.next.map(|cursor| cursor.to_string());
        let looked_at = (page.looked_at > page.items.len() as u64).then_some(page.looked_at);
        Self { items: page.items.into_iter().map(T::from).collect(), next_cursor, looked_at }
    }
}
