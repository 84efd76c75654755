//! The batches of a page: which events are processed together, which on their own, and which
//! entities are isolated.

use std::time::Duration;

use super::phase::{BatchPhase, Next, OwnerPhase, PageState, SingleEvent, Suspects};
use super::{FirstEvent, OwnerEffect, OwnerInput, OwnerState, WorkEnd};

impl OwnerState {
    pub(super) fn batch_effect(&self, batch: &BatchPhase) -> OwnerEffect {
        match batch {
            BatchPhase::Choose => {
                OwnerEffect::Choose { most: self.narrowing().part_of(self.caution.batch()) }
            }
            BatchPhase::Erase => OwnerEffect::Erase,
            BatchPhase::Count { seq } | BatchPhase::CountStall { seq } => {
                OwnerEffect::CountAttempt { seq: *seq }
            }
            BatchPhase::Isolate(Suspects { left, single_through, losses, .. }) => OwnerEffect::Isolate {
                seq: left.first().copied().unwrap_or_default(),
                single_through: *single_through,
                losses: *losses,
            },
            BatchPhase::Prepare(single) => OwnerEffect::Prepare { losses: single.map(|one| one.losses) },
            BatchPhase::Work { most, .. } => OwnerEffect::Work { most: *most },
            BatchPhase::Commit { is_erasure, .. } => OwnerEffect::Commit { is_erasure: *is_erasure },
        }
    }

    pub(super) fn step_batch(
        &mut self,
        page: PageState,
        batch: BatchPhase,
        input: OwnerInput,
        now: Duration,
    ) -> Result<OwnerPhase, OwnerInput> {
        let next = match (batch, input) {
            (BatchPhase::Choose, OwnerInput::Chosen { passes, first }) => {
                let page = PageState { passes: page.passes || passes, ..page };
                match first {
                    Some(first) => OwnerPhase::Batch(page, self.chosen(first)),
                    None => self.pass_over(page, now),
                }
            }
            (BatchPhase::Erase, OwnerInput::Erased) => {
                OwnerPhase::Batch(page, BatchPhase::Commit { single: None, is_erasure: true })
            }
            (BatchPhase::Count { seq }, OwnerInput::Counted(losses)) => {
                OwnerPhase::Batch(page, self.counted(SingleEvent { seq, losses }))
            }
            (BatchPhase::CountStall { seq }, OwnerInput::Counted(_)) => {
                self.caution.single_out(seq);
                self.advance_isolated(Next::InPage(page), now)
            }
            (BatchPhase::Isolate(mut suspects), OwnerInput::Isolated(entity)) => {
                self.isolation.add(entity, now);
                suspects.left.remove(0);
                if suspects.left.is_empty() {
                    self.advance_isolated(Next::InPage(page), now)
                } else {
                    self.suspect(page, suspects, now)
                }
            }
            (BatchPhase::Prepare(single), OwnerInput::Prepared) => {
                OwnerPhase::Batch(page, BatchPhase::Work { single, most: usize::MAX })
            }
            (BatchPhase::Work { single, .. }, OwnerInput::Worked(end)) => self.worked(page, single, end, now),
            (BatchPhase::Commit { single, is_erasure: false }, OwnerInput::Unstorable) => {
                OwnerPhase::Batch(page, BatchPhase::Work { single, most: usize::MAX })
            }
            (BatchPhase::Commit { is_erasure, .. }, OwnerInput::Committed(to)) => {
                self.inbox.commit(to);
                if !is_erasure {
                    self.caution.double(self.limits.batch);
                }
                self.advance_isolated(Next::InPage(page), now)
            }
            (_, input) => return Err(input),
        };
        Ok(next)
    }

    /// What the batch with this first event is.
    fn chosen(&self, FirstEvent { seq, is_erasure }: FirstEvent) -> BatchPhase {
        if is_erasure {
            BatchPhase::Erase
        } else if seq <= self.caution.single_through() {
            BatchPhase::Count { seq }
        } else {
            BatchPhase::Prepare(None)
        }
    }

    /// What happens to an event that is processed on its own: if owners were lost with it, its
    /// entity is isolated, as long as there is room.
    fn counted(&self, single: SingleEvent) -> BatchPhase {
        let SingleEvent { seq, losses } = single;
        if losses <= 1 || !self.isolation.has_room() {
            return BatchPhase::Prepare(Some(single));
        }
        BatchPhase::Isolate(Suspects {
            left: vec![seq],
            single_through: self.caution.single_through(),
            losses: losses - 1,
            events: 1,
            single: None,
        })
    }

    fn worked(
        &mut self,
        page: PageState,
        single: Option<SingleEvent>,
        end: WorkEnd,
        now: Duration,
    ) -> OwnerPhase {
        match end {
            WorkEnd::Done => OwnerPhase::Batch(page, BatchPhase::Commit { single, is_erasure: false }),
            WorkEnd::TooMuch { events } => {
                self.caution.halve(events);
                OwnerPhase::Batch(page, BatchPhase::Work { single, most: self.caution.batch() })
            }
            WorkEnd::Stalled { events, last, hanging } => {
                // It may have been the sum of all of them.
                self.caution.halve(events);
                // The only event of a batch is the cause.
                let losses = u32::from(events == 1);
                let suspects = Suspects { left: hanging, single_through: last, losses, events, single };
                self.suspect(page, suspects, now)
            }
        }
    }

    /// Isolates the entities of the events that are left, as long as there is room. If that is not
    /// possible, the events of the batch are processed one at a time.
    fn suspect(&mut self, page: PageState, suspects: Suspects, now: Duration) -> OwnerPhase {
        if !suspects.left.is_empty() && self.isolation.has_room() {
            return OwnerPhase::Batch(page, BatchPhase::Isolate(suspects));
        }
        let last = suspects.single_through;
        if suspects.events == 1 && last > self.caution.single_through() {
            // It was a batch of its own by chance: that counts, too.
            return OwnerPhase::Batch(page, BatchPhase::CountStall { seq: last });
        }
        self.caution.single_out(last);
        self.advance_isolated(Next::InPage(page), now)
    }
}
