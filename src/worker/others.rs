//! Whether canvases share this worker: only then does it look for events of others behind those of
//! one.

use std::time::Duration;

use tokio::time::Instant;

use crate::event::CanvasId;

/// How long a canvas counts after it was last seen.
const RECENT: Duration = Duration::from_secs(600);
/// Least time between two questions whether another canvas has events.
const ASK_AFTER: Duration = Duration::from_millis(300);
/// How many times longer than a question took nothing is asked.
const REST: u32 = 20;

/// The two canvases that were seen last, the latest first, and when to ask for another.
#[derive(Debug)]
pub(super) struct OtherCanvases {
    latest: [Option<(CanvasId, Instant)>; 2],
    ask_at: Instant,
}

impl OtherCanvases {
    pub(super) fn new(now: Instant) -> Self {
        Self { latest: [None; 2], ask_at: now }
    }

    pub(super) fn saw(&mut self, canvas: CanvasId, now: Instant) {
        let [first, second] = self.latest;
        let other = if first.is_some_and(|(id, _)| id != canvas) { first } else { second };
        self.latest = [Some((canvas, now)), other];
    }

    /// Whether two canvases were seen within ten minutes.
    pub(super) fn are_known(&self, now: Instant) -> bool {
        self.latest.iter().all(|seen| seen.is_some_and(|(_, at)| now.duration_since(at) < RECENT))
    }

    /// Whether to ask now if there are others; the next question has to wait for the answer.
    pub(super) fn may_ask(&mut self, now: Instant) -> bool {
        let may = !self.are_known(now) && self.ask_at <= now;
        if may {
            self.ask_at = now + RECENT;
        }
        may
    }

    /// Records the answer to a question that was asked this long ago.
    pub(super) fn answered(&mut self, other: Option<CanvasId>, took: Duration, now: Instant) {
        self.ask_at = now + ASK_AFTER.max(took * REST);
        if let Some(other) = other {
            let [first, _] = self.latest;
            self.latest = [first.map(|(asked, _)| (asked, now)), Some((other, now))];
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(Uuid::from_u128(number))
    }

    #[test]
    fn a_lone_canvas_is_alone_until_another_is_seen_or_found() {
        let start = Instant::now();
        let mut others = OtherCanvases::new(start);
        others.saw(canvas(1), start);
        assert!(others.may_ask(start) && !others.may_ask(start + ASK_AFTER), "one question at a time");
        others.answered(None, Duration::ZERO, start);
        others.saw(canvas(1), start);
        assert!(!others.are_known(start) && !others.may_ask(start) && others.may_ask(start + ASK_AFTER));
        others.answered(None, Duration::from_secs(1), start);
        assert!(!others.may_ask(start + Duration::from_secs(19)), "a dear question is asked seldom");
        assert!(others.may_ask(start + Duration::from_secs(20)));
        others.answered(Some(canvas(2)), Duration::ZERO, start);
        assert!(others.are_known(start) && !others.may_ask(start + ASK_AFTER));
        others.saw(canvas(1), start + RECENT);
        assert!(!others.are_known(start + RECENT), "the other left long ago");
        others.saw(canvas(2), start + RECENT);
        assert!(others.are_known(start + RECENT));
        let later = start + 3 * RECENT;
        others.answered(Some(canvas(1)), Duration::ZERO, later);
        assert!(others.are_known(later), "the one that asked has events as well, though it saw none come");
    }
}
