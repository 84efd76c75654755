//! The isolated entities of a type: an event of each hung, or ended its process, so what is sent to
//! them is processed apart from the others, one entity at a time.

use std::time::Duration;

use crate::event::{ISOLATED_MAX, IsolatedEntity};

/// The isolated entities, and what is known of the attempts at the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Isolation {
    /// The first one is tried next.
    entities: Vec<IsolatedEntity>,
    /// An attempt is under way.
    is_trying: bool,
    /// Since when the rest of the type has had precedence: since the owner began, an entity was
    /// isolated, or an attempt hung, whichever was last.
    since: Duration,
    /// Most events of a batch of the first one.
    most: usize,
    /// The event of the first one that must not be stored, and why.
    failure: Option<(i64, String)>,
}

impl Isolation {
    pub(super) fn new() -> Self {
        let (entities, failure) = (Vec::new(), None);
        Self { entities, is_trying: false, since: Duration::ZERO, most: usize::MAX, failure }
    }

    pub(super) fn entities(&self) -> &[IsolatedEntity] {
        &self.entities
    }

    pub(super) fn failure(&self) -> Option<&(i64, String)> {
        self.failure.as_ref()
    }

    /// Most events of the next attempt, where a batch may have this many.
    pub(super) fn most(&self, batch: usize) -> usize {
        self.most.min(batch)
    }

    pub(super) fn has_room(&self) -> bool {
        self.entities.len() < ISOLATED_MAX
    }

    pub(super) fn is_trying(&self) -> bool {
        self.is_trying
    }

    /// Whether there is something to try, and no attempt is under way.
    pub(super) fn can_try(&self) -> bool {
        !self.is_trying && !self.entities.is_empty()
    }

    /// Whether the rest of the type has had its time.
    pub(super) fn is_due(&self, now: Duration, stall: Duration) -> bool {
        now.saturating_sub(self.since) >= stall
    }

    /// The owner has read which entities are isolated, and aborted the attempt.
    pub(super) fn open(&mut self, isolated: Vec<IsolatedEntity>) {
        (self.entities, self.is_trying) = (isolated, false);
    }

    /// An entity was isolated. The rest of the type comes first.
    pub(super) fn add(&mut self, entity: IsolatedEntity, now: Duration) {
        self.entities.push(entity);
        self.since = now;
    }

    pub(super) fn start_attempt(&mut self) {
        self.is_trying = true;
    }

    pub(super) fn end_attempt(&mut self) {
        self.is_trying = false;
    }

    /// The first one is done up to this `seq`.
    pub(super) fn mark_done_through(&mut self, seq: i64) {
        if let Some(first) = self.entities.first_mut() {
            first.after = first.after.max(seq);
        }
        self.most = self.most.saturating_mul(2);
    }

    /// The events of the first one would write too much.
    pub(super) fn halve(&mut self, batch: usize) {
        self.most = (self.most(batch) / 2).max(1);
    }

    /// An event of the first one must not be stored: it is tried again, and dies on its
    /// own.
    pub(super) fn fail(&mut self, failure: Option<(i64, String)>) {
        (self.failure, self.most) = (failure, 1);
    }

    /// The events of the first one hang, the last of which is this one. The others need not wait
    /// for it.
    pub(super) fn hang(&mut self, last: i64, now: Duration) {
        self.since = now;
        if let Some(first) = self.entities.first_mut() {
            first.single_through = first.single_through.max(last);
        }
        if !self.entities.is_empty() {
            self.entities.rotate_left(1);
        }
        self.begin_anew();
    }

    /// The isolation of the first one has ended.
    pub(super) fn take_back(&mut self) {
        if !self.entities.is_empty() {
            self.entities.remove(0);
        }
        self.begin_anew();
    }

    /// Nothing is known of the attempts at the first one.
    pub(super) fn begin_anew(&mut self) {
        (self.most, self.failure) = (usize::MAX, None);
    }
}
