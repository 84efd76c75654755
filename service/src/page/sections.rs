//! The navigation, as the list of pages has it.

use crate::access::Scope;

/// Some links of the navigation under a heading.
pub(crate) struct Group {
    pub(crate) heading: &'static str,
    pub(crate) links: &'static [Link],
}

/// A link of the navigation.
pub(crate) struct Link {
    /// The first part of the path behind the canvas; empty for the canvas's own page.
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    /// The key that leads there, after `g`.
    pub(crate) key: char,
    /// What it takes to see it.
    pub(crate) scope: Scope,
    /// Where that has to be held.
    pub(crate) held: Held,
}

/// Where a scope has to be held for a page to be of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// For all handlers of the canvas.
    OnCanvas,
    /// On the canvas, even if for some handlers only.
    OnSome,
    /// On every canvas.
    Everywhere,
    /// Nowhere: the page is for all who have any rights on the canvas.
    Nowhere,
}
