//! What one process may ask of another: how much of its mailbox it fills, and how often it is told
//! what waits.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::WAITING_MAX;
use crate::event::Notification;

/// Up to here the mailbox takes whatever comes.
const FREE: usize = WAITING_MAX / 2;
/// Most notifications of one process beyond that.
const SHARE: usize = WAITING_MAX / 4;
/// From one answer to a process that has begun to listen to the next at least.
const ANSWERS: Duration = Duration::from_secs(1);

/// What each process has put into the upper half of the mailbox, since it was last half empty: one
/// process alone does not fill it. The promises wake the rest.
#[derive(Debug, Default)]
pub(super) struct Shares(HashMap<Uuid, usize>);

impl Shares {
    /// Whether the mailbox takes one more of this process, as so many wait in it.
    pub(super) fn admit(&mut self, sender: Uuid, waiting: usize) -> bool {
        if waiting < FREE {
            self.0.clear();
            return true;
        }
        let taken = self.0.entry(sender).or_default();
        *taken += 1;
        *taken <= SHARE
    }
}

/// What processes that have begun to listen are to be told. All hear an answer, so that one answer
/// a second is enough, however many ask.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: HashSet<Notification>,
    is_scheduled: bool,
    last: Option<Instant>,
}

impl Answers {
    /// They are to be told this. Returns when to take the answer; `None` if that is arranged.
    pub(super) fn add(&mut self, waiting: impl IntoIterator<Item = Notification>) -> Option<Instant> {
        self.waiting.extend(waiting);
        if self.waiting.is_empty() || std::mem::replace(&mut self.is_scheduled, true) {
            return None;
        }
        let now = Instant::now();
        Some(self.last.map_or(now, |last| now.max(last + ANSWERS)))
    }

    /// What to tell them now.
    pub(super) fn take(&mut self) -> Vec<Notification> {
        self.is_scheduled = false;
        self.last = Some(Instant::now());
        std::mem::take(&mut self.waiting).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CanvasId, EventId};

    #[test]
    fn no_process_fills_the_mailbox_alone() {
        let (mut shares, [wild, other]) = (Shares::default(), [1, 2].map(Uuid::from_u128));
        let fill = |shares: &mut Shares, waiting: &mut usize| {
            let before = *waiting;
            while shares.admit(wild, *waiting) {
                *waiting += 1;
            }
            *waiting - before
        };
        let mut waiting = 0;
        assert_eq!(fill(&mut shares, &mut waiting), FREE + SHARE);
        assert!(waiting < WAITING_MAX && shares.admit(other, waiting), "there is room for others");
        assert!(!shares.admit(wild, waiting));
        waiting = FREE - 1;
        assert_eq!(fill(&mut shares, &mut waiting), 1 + SHARE, "it has become half empty");
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_ask_are_answered_once_a_second() {
        let canvas = CanvasId(Uuid::from_u128(7));
        let [one, two] = [(); 2].map(|()| Notification { id: EventId::new(), canvas });
        let (mut answers, begun) = (Answers::default(), Instant::now());
        assert_eq!(answers.add([]), None, "there is nothing to tell");
        assert_eq!(answers.add([one]), Some(begun));
        assert_eq!(answers.add([one]), None);
        assert_eq!(answers.take(), [one]);
        for _ in 0..200 {
            let next = answers.add([one, two]);
            assert!(next.is_none_or(|next| next == begun + ANSWERS), "{next:?}");
        }
        assert_eq!(answers.take().len(), 2);
        tokio::time::advance(3 * ANSWERS).await;
        assert_eq!(answers.add([two]), Some(Instant::now()));
    }
}
