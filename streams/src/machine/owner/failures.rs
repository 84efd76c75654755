//! What the database did not answer, or refused, in a row: when an owner asks for less, and when it
//! gives up.

use crate::machine::Narrowing;

/// An owner gives up after this many refusals in the same words, or time-outs of the smallest
/// requests.
const GIVES_UP_AFTER: u32 = 20;

/// The failures of an owner, in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failures {
    narrowing: Narrowing,
    time_outs: u32,
    /// What was refused last, and how often.
    refusal: (String, u32),
}

impl Failures {
    pub(super) fn new() -> Self {
        Self { narrowing: Narrowing::NONE, time_outs: 0, refusal: (String::new(), 0) }
    }

    pub(super) fn narrowing(&self) -> Narrowing {
        self.narrowing
    }

    /// A page is done.
    pub(super) fn end_page(&mut self) {
        (self.time_outs, self.narrowing) = (0, self.narrowing.widened());
    }

    /// Everything was read.
    pub(super) fn end_look(&mut self) {
        self.refusal.1 = 0;
    }

    /// A request took too long. Returns how often in a row, if the owner gives up for a while: a
    /// time-out is not permanent, however small the request, as another process may succeed, or
    /// this one later.
    pub(super) fn time_out(&mut self) -> Option<u32> {
        if self.narrowing.is_narrowest() && self.time_outs >= GIVES_UP_AFTER {
            return Some(self.time_outs);
        }
        self.time_outs += 1;
        self.narrowing = self.narrowing.narrowed();
        None
    }

    /// A request was refused in these words. Returns how often in a row, if that is permanent.
    /// Whether the database can be reached says nothing about what it refuses, so other failures in
    /// between do not count.
    pub(super) fn refuse(&mut self, why: &str) -> Option<u32> {
        let times = if why == self.refusal.0 { self.refusal.1 + 1 } else { 1 };
        self.refusal = (why.to_owned(), times);
        (times >= GIVES_UP_AFTER).then_some(times)
    }
}
