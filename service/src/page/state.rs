//! The state of the pages.

use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::memo::Memo;
use super::pulse::Pulse;
use super::renewals::Renewals;
use super::sections::Group;
use super::sent::SentBefore;
use super::trace::TraceUrl;
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
    pub(super) renewals: Renewals,
    pub(super) pulse: Pulse,
    pub(super) watchers: Watchers,
    /// The forms whose answer has a secret, and those with lengths of time. The latter are noted
    /// before anybody knows whether they will be refused, and make none of the former forgotten.
    pub(super) sent_before: SentBefore,
    pub(super) sent_first: SentBefore,
    /// Cancelled when the process stops.
    pub(super) stop: CancellationToken,
    /// The sections, as the navigation lists them.
    pub(super) sections: &'static [Group],
    /// Where the traces of events are shown, if anywhere.
    pub(super) trace_url: Option<TraceUrl>,
}

impl Page {
    /// Pages whose requests `inside` answers.
    pub(crate) fn new(
        api: Api,
        inside: Inside,
        stop: CancellationToken,
        sections: &'static [Group],
        trace_url: Option<TraceUrl>,
    ) -> Self {
        let watchers = Watchers::new(WATCHERS_MAX, WATCHERS_SHARE, WATCHERS_OF_CANVAS);
        Self(Arc::new(PageParts {
            api,
            inside,
            memo: Memo::default(),
            renewals: Renewals::default(),
            pulse: Pulse::default(),
            watchers,
            sent_before: SentBefore::default(),
            sent_first: SentBefore::default(),
            stop,
            sections,
            trace_url,
        }))
    }
}

impl Deref for Page {
    type Target = PageParts;

    fn deref(&self) -> &PageParts {
        &self.0
    }
}
