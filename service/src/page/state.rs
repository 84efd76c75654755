//! The state of the pages.

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::memo::Memo;
use super::pulse::Pulse;
use super::sections::Group;
use super::sent::SentOnce;
use crate::http::Api;
use crate::http::inside::Inside;
use crate::http::visitors::Watchers;

/// How many browsers may watch a page at once, how many of them with one credential, and how many
/// of them pages of one canvas, however many keys it makes.
const WATCHERS_MAX: usize = 256;
const WATCHERS_SHARE: usize = 64;
const WATCHERS_OF_CANVAS: usize = 192;

/// The state of the pages.
#[derive(Clone)]
pub(crate) struct Page(Arc<PageParts>);

/// What the pages use.
pub(crate) struct PageParts {
    pub(super) api: Api,
    pub(super) inside: Inside,
    pub(super) memo: Memo,
    pub(super) pulse: Pulse,
    pub(super) watchers: Watchers,
    pub(super) sent_once: SentOnce,
    /// Cancelled when the process stops.
    pub(super) stop: CancellationToken,
    /// The sections, as the navigation lists them.
    pub(super) sections: &'static [Group],
}

impl Page {
    /// Pages whose requests `inside` answers.
    pub(crate) fn new(api: Api, inside: Inside, stop: CancellationToken, sections: &'static [Group]) -> Self {
        let watchers = Watchers::new(WATCHERS_MAX, WATCHERS_SHARE, WATCHERS_OF_CANVAS);
        Self(Arc::new(PageParts {
            api,
            inside,
            memo: Memo::default(),
            pulse: Pulse::default(),
            watchers,
            sent_once: SentOnce::default(),
            stop,
            sections,
        }))
    }
}

impl Deref for Page {
    type Target = PageParts;

    fn deref(&self) -> &PageParts {
        &self.0
    }
}
