//! The minute's pass, resume jobs, and promises that are moved.

use std::time::Duration;

use super::Backing;
use crate::event::Notification;
use crate::store::kernel::{Store, StoreError};
use crate::store::minute::{MakingDue, MinuteOutcome};
use crate::store::queues::PulledSplit;

impl Store {
    /// A page of the minute's pass: lifts one rule that reached its end, moves the promises of a
    /// page of overdue events, lists open resume jobs. Does none of that unless it is due, or
    /// `again`: the next page of the same pass.
    pub(crate) async fn minute(&self, again: bool) -> Result<MinuteOutcome, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.minute(again).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().minute(again),
        }
    }

    /// Makes the next pass of the minute's statement due now, if it would be due within this time
    /// anyway.
    pub(crate) async fn hasten_minute(&self, within: Duration) -> Result<(), StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.hasten_minute(within).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().hasten_minute(within),
        }
    }

    /// Moves to now the promises of events that are due within the horizon and not claimed, a page
    /// at a time, and the next pass of the minute's statement with them. Returns how many.
    pub(crate) async fn make_due(&self, progress: &mut MakingDue) -> Result<u64, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.make_due(progress).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().make_due(progress),
        }
    }

    /// Records that everything is about to be woken, in the name of the database's user.
    pub(crate) async fn note_wake_all(&self) -> Result<(), StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.note_wake_all().await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().note_wake_all(),
        }
    }

    /// Fails if the deployment's durations have been changed since this process connected, which
    /// [`Store::other_timing`] then reports as well.
    pub(crate) async fn compare_timing(&self) -> Result<(), StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.compare_timing().await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().compare_timing(),
        }
    }

    /// Tells copies of pulled queues from the other events, of which workers have to be notified.
    pub(crate) async fn split_pulled(
        &self,
        notifications: &[Notification],
    ) -> Result<PulledSplit, StoreError> {
        match self.backing() {
            Backing::Postgres(sql) => sql.split_pulled(notifications).await,
            #[cfg(feature = "testing")]
            Backing::Memory(memory) => memory.tables().split_pulled(notifications),
        }
    }
}
