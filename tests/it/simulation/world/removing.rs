//! The statement that removes many events at once: a purge, or an operation.

use wakeq::EventId;
use wakeq::machine::Removal;

use super::{Defect, World};

impl World {
    /// An operator removes the events of a handler that do not run, and what follows or waits for
    /// their places is woken after that.
    pub(crate) fn purge(&mut self, handler: &str) {
        let free = self.rows.iter().filter(|(_, row)| self.is_free(row)).map(|(id, _)| *id);
        let gone: Vec<EventId> = free.filter(|id| self.handler_of(*id) == handler).collect();
        let kept = self.leave_waits(&gone);
        for id in &gone {
            self.log(|world| format!("{} is purged", world.records[id].label));
            self.rows.remove(id);
            let record = self.record(*id);
            (record.removed, record.is_cancelled) = (Some(Removal::Cancelled), true);
        }
        for id in gone {
            self.arm_next(id);
            self.hand_over(id);
        }
        if self.defect != Some(Defect::PurgeWithoutWaking) {
            let woken = self.wake_waiting(&kept);
            self.publish(&woken);
        }
    }
}
