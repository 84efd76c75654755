//! Lists in pages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wakeq::control::Page;

/// A page of a list.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct List<T> {
    /// The items of this page: at most `limit`, and possibly fewer although more follow.
    pub(crate) items: Vec<T>,
    /// The cursor of the next page: the parameter `cursor` of the next request. Null on the last
    /// page.
    pub(crate) next_cursor: Option<String>,
}

impl<T> List<T> {
    /// A list of a single page.
    pub(crate) fn whole(items: Vec<T>) -> Self {
        Self { items, next_cursor: None }
    }
}

impl<S, T: From<S>> From<Page<S>> for List<T> {
    fn from(page: Page<S>) -> Self {
        let next_cursor = page.next.map(|cursor| cursor.to_string());
        Self { items: page.items.into_iter().map(T::from).collect(), next_cursor }
    }
}
