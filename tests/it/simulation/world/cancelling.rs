//! The statements that cancel a running event: the mark on its row, and the minute's pass.

use wakeq::EventId;
use wakeq::machine::Removal;

use super::{Defect, Row, World};

impl World {
    pub(super) fn is_free(&self, row: &Row) -> bool {
        row.locked_at.is_none_or(|locked_at| locked_at < self.now - self.timing.lease)
    }

    /// Marks an event on which a claim stands; returns whether it did.
    pub(crate) fn cancel_running(&mut self, id: EventId) -> bool {
        if self.rows.get(&id).is_none_or(|row| self.is_free(row)) {
            return false;
        }
        if let Some(row) = self.rows.get_mut(&id) {
            row.is_cancelled = true;
        }
        self.record(id).is_cancelled = true;
        self.log(|world| format!("{} is cancelled", world.records[&id].label));
        true
    }

    /// The minute's pass: removes the cancelled events on which no claim stands, and wakes the next
    /// ones.
    pub(crate) fn remove_cancelled(&mut self) {
        if self.defect == Some(Defect::CancelledStay) {
            return;
        }
        let rows = self.rows.iter().filter(|(_, row)| row.is_cancelled && self.is_free(row));
        let free: Vec<EventId> = rows.map(|(id, _)| *id).collect();
        for id in free {
            self.log(|world| format!("{} is removed, as it was cancelled", world.records[&id].label));
            self.rows.remove(&id);
            self.record(id).removed = Some(Removal::Cancelled);
            self.arm_next(id);
            self.hand_over(id);
        }
    }
}
