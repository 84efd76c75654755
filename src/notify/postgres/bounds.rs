//! Limits what one process may ask of another: how much of its mailbox it fills, and how often it
//! is told what waits.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::event::{CanvasId, Notification};

/// Maximum number of notifications waiting in a process. They take about 30 MB; the process looks
/// for the events beyond them when it has handled most of these.
pub(super) const WAITING_MAX: usize = 250_000;
/// Up to this part of it the mailbox takes whatever comes.
const FREE_PART: usize = 2;
/// Beyond that, the messages that a process may have put in, in multiples of the room that is left.
/// One process leaves an eighth of the upper half, however many canvases it names.
const PROCESS_MULTIPLE: usize = 7;
/// Minimum time between two answers to processes that have begun to listen.
const ANSWERS: Duration = Duration::from_secs(1);

/// Counts the messages that each process has put into the upper half of the mailbox since it was
/// last half empty, in all and for each canvas. The thresholds fall with the room that is left, as
/// those of a switch whose queues share its memory. A canvas gets at most as much from a process as
/// it leaves, so there is room for the first event of another canvas, whichever process sends it.
/// The rest is looked for.
#[derive(Debug)]
pub(super) struct Shares {
    /// How many messages wait at most.
    most: usize,
    processes: HashMap<Uuid, usize>,
    canvases: HashMap<(Uuid, CanvasId), usize>,
}

impl Shares {
    /// Of a mailbox in which this many messages wait at most.
    pub(super) fn of(most: usize) -> Self {
        Self { most, processes: HashMap::new(), canvases: HashMap::new() }
    }

    /// How many messages wait at most.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Whether the mailbox, in which this many wait, takes one more of this canvas from this
    /// process.
    pub(super) fn admit(&mut self, sender: Uuid, canvas: CanvasId, waiting: usize) -> bool {
        if waiting < self.most / FREE_PART {
            self.processes.clear();
            self.canvases.clear();
            return true;
        }
        let room = self.most.saturating_sub(waiting);
        let all = self.processes.get(&sender).copied().unwrap_or(0);
        let own = self.canvases.get(&(sender, canvas)).copied().unwrap_or(0);
        let is_admitted = own < room && all < PROCESS_MULTIPLE * room;
        // Only admitted messages are counted, so that refused ones take no memory.
        if is_admitted {
            self.processes.insert(sender, all + 1);
            self.canvases.insert((sender, canvas), own + 1);
        }
        is_admitted
    }
}

/// The notifications that processes that have begun to listen have to be told. All hear an answer,
/// so one answer a second is enough, however many ask.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: HashSet<Notification>,
    is_scheduled: bool,
    last: Option<Instant>,
}

impl Answers {
    /// Adds to the next answer. Returns when to take it; `None` if that is arranged.
    pub(super) fn add(&mut self, waiting: impl IntoIterator<Item = Notification>) -> Option<Instant> {
        self.waiting.extend(waiting);
        if self.waiting.is_empty() || std::mem::replace(&mut self.is_scheduled, true) {
            return None;
        }
        let now = Instant::now();
        Some(self.last.map_or(now, |last| now.max(last + ANSWERS)))
    }

    /// The answer to send now.
    pub(super) fn take(&mut self) -> Vec<Notification> {
        self.is_scheduled = false;
        self.last = Some(Instant::now());
        std::mem::take(&mut self.waiting).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventId;

    const ONE: CanvasId = CanvasId(Uuid::from_u128(7));
    const OTHER: CanvasId = CanvasId(Uuid::from_u128(8));

    const FREE: usize = WAITING_MAX / FREE_PART;

    /// Shares, and how many messages wait.
    struct Filling(Shares, usize);

    impl Filling {
        fn empty() -> Self {
            Self(Shares::of(WAITING_MAX), 0)
        }

        fn admits(&mut self, sender: Uuid, canvas: CanvasId) -> bool {
            let is_admitted = self.0.admit(sender, canvas, self.1);
            self.1 += usize::from(is_admitted);
            is_admitted
        }

        /// How many of these canvases in turn are admitted until one is refused.
        fn fill(&mut self, sender: Uuid, canvases: impl IntoIterator<Item = CanvasId>) -> usize {
            canvases.into_iter().take_while(|canvas| self.admits(sender, *canvas)).count()
        }
    }

    /// A flood of one canvas leaves room to another, from the same process and from several.
    #[test]
    fn no_canvas_fills_the_mailbox_alone() {
        let (mut filling, [first, second]) = (Filling::empty(), [1, 2].map(Uuid::from_u128));
        assert_eq!(filling.fill(first, std::iter::repeat(ONE)), FREE + WAITING_MAX / 4);
        assert_eq!(filling.fill(first, [OTHER; 1_000]), 1_000, "its first events come from the same process");
        assert!(filling.fill(second, std::iter::repeat(ONE)) > 10_000);
        assert!(!filling.admits(first, ONE) && !filling.admits(second, ONE));
        assert_eq!(filling.fill(second, [OTHER; 1_000]), 1_000);
        filling.1 = FREE - 1;
        let again = filling.fill(first, std::iter::repeat(ONE));
        assert_eq!(again, 1 + WAITING_MAX / 4, "it has become half empty");
    }

    /// A process that names another canvas each time, or those of others, leaves room to others.
    #[test]
    fn no_process_fills_the_mailbox_alone() {
        let (mut filling, [wild, other]) = (Filling::empty(), [1, 2].map(Uuid::from_u128));
        filling.fill(wild, std::iter::repeat(ONE));
        let made_up = (100..).map(|number| CanvasId(Uuid::from_u128(number)));
        filling.fill(wild, made_up);
        let left = WAITING_MAX - filling.1;
        assert!((FREE / 8..=FREE / 8 + 1).contains(&left), "{left}");
        assert!(!filling.admits(wild, OTHER));
        for canvas in [ONE, OTHER] {
            assert_eq!(filling.fill(other, [canvas; 1_000]), 1_000, "there is room for others");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn processes_that_begin_to_listen_are_answered_once_a_second() {
        let [one, two] = [(); 2].map(|()| Notification::new(EventId::new(), ONE));
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
