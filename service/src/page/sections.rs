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
    /// Whether that has to be held on every canvas.
    pub(crate) everywhere: bool,
}
