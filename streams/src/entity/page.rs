//! What is left of a page of the inbox, and the batch at its beginning: which events it has, and
//! what is known of them. No I/O. What becomes of a batch is decided elsewhere.

use std::collections::HashSet;
use std::time::Instant;

use super::batch::Unstorable;
use super::envelope::InboxEvent;
use super::shard::WorkOutput;
use crate::event::IsolatedEntity;
use crate::machine::{FirstEvent, OwnerInput};
use crate::store::RecordedOutcome;
use wakeq::log::LogEvent;

/// The rest of a page.
#[derive(Default)]
pub(super) struct Page {
    /// The batch is the first of them.
    rest: Vec<InboxEvent>,
    /// The page goes up to this `seq`.
    through: i64,
    /// How many events the batch has.
    count: usize,
    /// When the work on it began; not for an erasure.
    begun: Option<Instant>,
    /// What is recorded of its only event, if that was sent before.
    recorded: Option<RecordedOutcome>,
    /// What the actors made of it.
    worked: WorkOutput,
}

impl Page {
    pub(super) fn new(events: Vec<LogEvent>, through: i64) -> Self {
        Self { rest: events.into_iter().map(InboxEvent::of).collect(), through, ..Self::default() }
    }

    /// Drops the events of isolated entities, and makes the first events the batch.
    pub(super) fn choose(&mut self, isolated: &[IsolatedEntity], most: usize) -> OwnerInput {
        let all = self.rest.len();
        if !isolated.is_empty() {
            let is_isolated =
                |event: &InboxEvent| isolated.iter().any(|one| one.has_id(event.canvas, &event.entity));
            self.rest.retain(|event| !is_isolated(event));
        }
        let passes = self.rest.len() < all;
        (self.begun, self.recorded, self.worked) = (None, None, WorkOutput::default());
        self.count = first_part(&self.rest, most);
        // Of a batch that was given up, nothing is known any longer.
        for event in self.rest.iter_mut().take(self.count) {
            event.failure = None;
        }
        let first = self.batch().first();
        let first = first.map(|first| FirstEvent { seq: first.seq, is_erasure: first.erases() });
        OwnerInput::Chosen { passes, first }
    }

    /// The events of the batch.
    pub(super) fn batch(&self) -> &[InboxEvent] {
        &self.rest[..self.count]
    }

    /// Cuts the batch to this many events.
    pub(super) fn cut(&mut self, most: usize) {
        self.count = self.count.min(most);
    }

    /// The work on the batch begins. `failure` is why its first event must not be processed.
    pub(super) fn begin(
        &mut self,
        begun: Instant,
        recorded: Option<RecordedOutcome>,
        failure: Option<(String, u32)>,
    ) {
        if let Some(first) = self.rest.first_mut() {
            first.failure = unless_erased(first, recorded.as_ref()).map(|why| (why, 1)).or(failure);
        }
        (self.begun, self.recorded) = (Some(begun), recorded);
    }

    pub(super) fn begun(&self) -> Option<Instant> {
        self.begun
    }

    pub(super) fn recorded(&self) -> Option<&RecordedOutcome> {
        self.recorded.as_ref()
    }

    /// Keeps what was made of the batch.
    pub(super) fn put(&mut self, worked: WorkOutput) {
        self.worked = worked;
    }

    /// The same for an erasure, with what is recorded of it.
    pub(super) fn put_erasure(&mut self, worked: WorkOutput, recorded: Option<RecordedOutcome>) {
        (self.worked, self.recorded) = (worked, recorded);
    }

    pub(super) fn take_worked(&mut self) -> WorkOutput {
        std::mem::take(&mut self.worked)
    }

    /// Where the position is after the batch: at the end of the page, if nothing is left of it.
    pub(super) fn position_after(&self) -> i64 {
        match self.batch().last() {
            Some(last) if self.count < self.rest.len() => last.seq,
            Some(_) | None => self.through,
        }
    }

    /// The event of the batch with this `seq`.
    pub(super) fn event(&self, seq: i64) -> Option<&InboxEvent> {
        self.batch().iter().find(|event| event.seq == seq)
    }

    /// The events at these places of the batch, one of each entity.
    pub(super) fn one_of_each_entity(&self, places: &[usize]) -> Vec<i64> {
        let mut known = HashSet::new();
        let events = places.iter().filter_map(|place| self.batch().get(*place));
        events.filter(|event| known.insert((event.canvas, &event.entity))).map(|event| event.seq).collect()
    }

    /// Marks events of the batch that must not be stored.
    pub(super) fn fail(&mut self, unstorable: Vec<Unstorable>) {
        fail_events(&mut self.rest[..self.count], unstorable);
    }

    /// Removes the batch, which is committed.
    pub(super) fn finish(&mut self) {
        self.rest.drain(..self.count);
        self.count = 0;
    }
}

/// Why an event from before an erasure of its entity must not be processed.
pub(super) fn unless_erased(event: &InboxEvent, recorded: Option<&RecordedOutcome>) -> Option<String> {
    let is_before = recorded.is_some_and(|recorded| event.link.id < recorded.first);
    is_before.then(|| "it is from before the entity was erased: send it as a new event".to_owned())
}

/// Marks events that must not be processed.
pub(super) fn fail_events(events: &mut [InboxEvent], unstorable: Vec<Unstorable>) {
    for Unstorable { place, why } in unstorable {
        if let Some(event) = events.get_mut(place) {
            event.failure = Some((why, 1));
        }
    }
}

/// How many of these events a batch has: those that were not sent before, or a single one that was,
/// or an erasure.
pub(super) fn first_part(events: &[InboxEvent], most: usize) -> usize {
    let is_fresh = |event: &&InboxEvent| !event.is_repost() && !event.erases();
    let fresh = events.iter().take(most).take_while(is_fresh).count();
    fresh.max(1).min(events.len())
}
