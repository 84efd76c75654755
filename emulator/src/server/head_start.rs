//! The head start of a publish's answer over its messages, where both go to the same connection.
//!
//! A client that publishes and pulls over one connection, as Node's and Go's do, may ask for the id
//! that its publish was answered with when the message arrives. The service takes so long to
//! deliver that the answer always came before. Here the message is there at once, and the order
//! on the wire is not enough: Node's client hands out a message in the turn of its event loop in
//! which it arrives, and the answer of a call some turns later.
//!
//! So a stream that has nothing to do waits a moment after a publish over its own connection. One
//! that is busy does not, and no other connection waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Enough for a client on a busy machine, and less than the service ever takes.
const HEAD_START: Duration = Duration::from_millis(20);

/// When messages were published last over a connection: an extension of each of its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct LastPublish(Arc<Mutex<Option<Instant>>>);

impl LastPublish {
    /// Notes a publish; called under the core's lock, before its messages can be taken.
    pub(super) fn note(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a stream has to wait before it takes messages.
#[derive(Debug, Default)]
pub(super) struct Hold {
    publishes: LastPublish,
    /// It has taken messages, or had no room for them, and has not found that there are no more.
    busy: bool,
    /// How long it waits. Later publishes do not prolong that, or it might wait for ever.
    until: Option<Instant>,
}

impl Hold {
    pub(super) fn new(publishes: LastPublish) -> Self {
        Self { publishes, ..Self::default() }
    }

    /// How long to wait; `None` if messages may be taken now.
    pub(super) fn until(&mut self, now: Instant) -> Option<Instant> {
        if self.busy {
            return None;
        }
        let head_start = self.publishes.last()? + HEAD_START;
        let until = *self.until.get_or_insert(head_start);
        (now < until).then_some(until)
    }

    /// Notes that the stream has looked for messages, and whether there were any that it took, or
    /// had no room for.
    pub(super) fn looked(&mut self, busy: bool) {
        self.busy = busy;
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_stream_waits_after_a_publish_over_its_connection() {
        let (publishes, start) = (LastPublish::default(), Instant::now());
        let mut hold = Hold::new(publishes.clone());
        let mut of_another_connection = Hold::new(LastPublish::default());
        assert_eq!(hold.until(start), None, "nothing was published");
        hold.looked(false);
        publishes.note(start);
        assert_eq!(hold.until(start), Some(start + HEAD_START));
        assert_eq!(hold.until(start + HEAD_START), None);
        assert_eq!(of_another_connection.until(start), None);
    }

    #[test]
    fn further_publishes_do_not_prolong_the_wait() {
        let (publishes, start) = (LastPublish::default(), Instant::now());
        let mut hold = Hold::new(publishes.clone());
        publishes.note(start);
        assert_eq!(hold.until(start), Some(start + HEAD_START));
        publishes.note(start + HEAD_START / 2);
        assert_eq!(hold.until(start + HEAD_START / 2), Some(start + HEAD_START));
        assert_eq!(hold.until(start + HEAD_START), None);
    }

    #[test]
    fn a_busy_stream_does_not_wait_until_it_finds_nothing() {
        let (publishes, start) = (LastPublish::default(), Instant::now());
        let mut hold = Hold::new(publishes.clone());
        publishes.note(start);
        hold.looked(true);
        assert_eq!(hold.until(start), None);
        hold.looked(false);
        assert_eq!(hold.until(start), Some(start + HEAD_START));
    }
}
