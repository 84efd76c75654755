//! What the pages of a queue have in common: how copies are counted, and the way back to it.

use maud::{Markup, html};

use crate::page::parts::number;
use crate::page::visit::Visit;

/// A number of copies: there may be more if it is capped.
pub(super) fn counted(count: u64, is_capped: bool) -> String {
    if is_capped { format!("{} or more", number(count)) } else { number(count) }
}

/// The way back to a queue.
pub(super) fn back(visit: &Visit, queue: &str) -> Markup {
    html! { p { a href=(visit.link(&["queues", queue])) { "The queue " (queue) } } }
}
