//! The pace of one subscription's pushes: how many requests may be in flight, and when it pauses.
//!
//! Like the service, it starts slowly (a window of a few requests that grows with every success and
//! shrinks with every failure), and pauses for 100 ms to 60 s after failures. A pause applies to
//! the whole subscription; a retry policy additionally delays single messages. It sends nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::PushResult;
use crate::broker::Time;

/// The initial window.
const WINDOW_AT_START: usize = 4;
/// The service lets windows grow beyond 3,000; one machine has fewer sockets.
const WINDOW_MAX: usize = 256;
/// The limit for the messages of all requests in flight. A single message is sent whatever its
/// size.
const BYTES_MAX: usize = 64 * 1024 * 1024;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The pace of one subscription's pushes.
#[derive(Debug)]
pub(super) struct Pace {
    window: usize,
    /// The requests in flight, by ack id: the size of the message, and when it was sent.
    under_way: BTreeMap<String, (usize, Time)>,
    bytes: usize,
    /// The length of the last pause; halved by each success, down to zero.
    pause: Duration,
    paused_until: Time,
    /// The reason of the last failure.
    last_failure: Option<String>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            window: WINDOW_AT_START,
            under_way: BTreeMap::new(),
            bytes: 0,
            pause: Duration::ZERO,
            paused_until: Time::default(),
            last_failure: None,
        }
    }
}

/// How much may be sent now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Capacity {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Pace {
    /// How much may be sent now; `None` if nothing.
    pub(super) fn capacity(&self, now: Time) -> Option<Capacity> {
        let messages = self.window.saturating_sub(self.under_way.len());
        let bytes = BYTES_MAX.saturating_sub(self.bytes);
        (now >= self.paused_until && messages > 0 && bytes > 0).then_some(Capacity { messages, bytes })
    }

    /// Records a request.
    pub(super) fn sent(&mut self, now: Time, ack_id: &str, size: usize) {
        self.bytes += size;
        if let Some((size, _)) = self.under_way.insert(ack_id.to_owned(), (size, now)) {
            self.bytes -= size;
        }
    }

    /// Records the outcome of a request. `false` if no such request is in flight: it was answered
    /// before, or belongs to an earlier subscription of that name.
    pub(super) fn answered(&mut self, now: Time, ack_id: &str, result: &PushResult) -> bool {
        let Some((size, sent)) = self.under_way.remove(ack_id) else { return false };
        self.bytes -= size;
        match result {
            PushResult::Acknowledged => self.succeeded(),
            PushResult::Failed(reason) => {
                self.last_failure = Some(reason.clone());
                self.failed(now, sent);
            }
        }
        true
    }

    /// The end of the current pause, if there is one.
    pub(super) fn pauses_until(&self, now: Time) -> Option<Time> {
        (self.paused_until > now).then_some(self.paused_until)
    }

    /// How many requests are in flight.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The most requests that may be in flight.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// The reason of the last failure.
    pub(super) fn last_failure(&self) -> Option<&str> {
        self.last_failure.as_deref()
    }

    fn succeeded(&mut self) {
        self.window = (self.window + 1).min(WINDOW_MAX);
        self.pause /= 2;
        if self.pause < PAUSE_MIN {
            self.pause = Duration::ZERO;
        }
    }

    /// Halves the window for every failure. But requests that fail together are one reason to pause
    /// longer, not many: the failure of a request that was sent before the last pause does not
    /// lengthen it.
    fn failed(&mut self, now: Time, sent: Time) {
        self.window = (self.window / 2).max(1);
        let counted = self.pause > Duration::ZERO && sent < self.paused_until;
        if !counted {
            self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            self.paused_until = now + self.pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time::from_secs(1_000);

    fn failed() -> PushResult {
        PushResult::Failed("HTTP status 500".into())
    }

    fn send(pace: &mut Pace, now: Time, first: usize) -> usize {
        let capacity = pace.capacity(now).map_or(0, |capacity| capacity.messages);
        for number in first..first + capacity {
            pace.sent(now, &number.to_string(), 10);
        }
        capacity
    }

    #[test]
    fn the_window_doubles_with_each_round_of_successes_up_to_its_limit() {
        let mut pace = Pace::default();
        let mut windows = Vec::new();
        for round in 0..8 {
            let sent = send(&mut pace, START, round * 1000);
            assert_eq!(pace.capacity(START), None, "the window is full");
            windows.push(sent);
            for number in 0..sent {
                assert!(pace.answered(
                    START,
                    &(round * 1000 + number).to_string(),
                    &PushResult::Acknowledged
                ));
            }
        }
        assert_eq!(windows, [4, 8, 16, 32, 64, 128, 256, 256]);
        assert_eq!(pace.bytes, 0);
    }

    #[test]
    fn failures_halve_the_window_and_double_the_pause() {
        let mut pace = Pace::default();
        let mut now = START;
        let mut pauses = Vec::new();
        for round in 0..12 {
            pace.sent(now, &round.to_string(), 10);
            assert!(pace.answered(now, &round.to_string(), &failed()));
            assert_eq!(pace.capacity(now), None, "it pauses");
            let until = pace.pauses_until(now).unwrap();
            pauses.push(until.since(now).as_millis());
            now = until;
            assert_eq!(pace.pauses_until(now), None);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000]);
        assert_eq!(pace.capacity(now).unwrap().messages, 1);
    }

    #[test]
    fn requests_that_fail_together_pause_once() {
        let mut pace = Pace::default();
        assert_eq!(send(&mut pace, START, 0), 4);
        for number in 0..4 {
            pace.answered(START, &number.to_string(), &failed());
        }
        assert_eq!(pace.pauses_until(START).unwrap().since(START), PAUSE_MIN);
    }

    #[test]
    fn successes_shorten_the_next_pause() {
        let mut pace = Pace::default();
        let mut now = START;
        for result in [failed(), failed(), failed(), PushResult::Acknowledged] {
            pace.sent(now, "request", 10);
            pace.answered(now, "request", &result);
            now = pace.pauses_until(now).unwrap_or(now);
        }
        pace.sent(now, "request", 10);
        pace.answered(now, "request", &failed());
        assert_eq!(pace.pauses_until(now).unwrap().since(now), Duration::from_millis(400));
    }

    #[test]
    fn an_answer_counts_once_and_only_for_a_pending_request() {
        let mut pace = Pace::default();
        pace.sent(START, "a", 10);
        assert!(!pace.answered(START, "b", &failed()));
        assert!(pace.answered(START, "a", &PushResult::Acknowledged));
        assert!(!pace.answered(START, "a", &PushResult::Acknowledged));
        assert_eq!((pace.under_way(), pace.window()), (0, 5));
    }

    #[test]
    fn large_messages_fill_the_room_before_the_window_does() {
        let mut pace = Pace::default();
        pace.sent(START, "large", BYTES_MAX - 5);
        assert_eq!(pace.capacity(START), Some(Capacity { messages: 3, bytes: 5 }));
        pace.sent(START, "small", 5);
        assert_eq!(pace.capacity(START), None);
    }
}
