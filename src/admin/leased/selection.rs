//! Which of the copies or events that were just leased are handed out. Nothing fails here: by now
//! they are leased, and one that is not handed out would wait for the end of its lease.

use super::{Admin, HeldEvent, Source};
use crate::event::{Cause, Claim, CountedRun, HandlerScope, Notification};
use crate::store::{LeasedRow, StoreError};

/// Number of expired leases from which on something is leased alone, and at which it dies.
const SUSPECT_LOSSES: i32 = 2;
const LOSSES_MAX: i32 = 5;

impl Admin {
    /// Decides which of what was leased is handed out. What was lost too often dies. One that was
    /// lost before is handed out alone, so that it takes no others with it; the others are released
    /// and keep their places.
    pub(in crate::admin) async fn select_leased(
        &self,
        source: Source<'_>,
        rows: Vec<LeasedRow>,
        halts: bool,
        died: &mut Vec<HandlerScope>,
    ) -> Vec<LeasedRow> {
        let (poison, mut rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.event.losses >= LOSSES_MAX);
        for row in poison {
            let words = "its leases ran out too often";
            match self.move_to_dead(row.event.claim, Cause::Poison, words, halts).await {
                Ok(true) => {
                    let held = HeldEvent::of(row);
                    self.count_end(source, &CountedRun { dead: true, ..CountedRun::default() });
                    self.wake_leasable(source, &held, true).await;
                    died.push(held.scope);
                }
                // It was ended by someone else in the meantime.
                Ok(false) => {}
                // The others are leased by now, and must get to the caller.
                Err(error) => self.release_undead(source, row.event.claim, &error).await,
            }
        }
        if let Some(at) = rows.iter().position(|row| row.event.losses >= SUSPECT_LOSSES)
            && rows.len() > 1
        {
            let suspect = rows.remove(at);
            let claims: Vec<Claim> = rows.iter().map(|row| row.event.claim).collect();
            match self.store.release(&claims).await {
                Ok(()) => {
                    let notifications = rows.iter().map(|row| {
                        let canvas = row.event.address.scope.canvas;
                        Notification { id: row.event.claim.id, canvas }
                    });
                    self.publish_leasable(source, &notifications.collect::<Vec<_>>()).await;
                    rows = vec![suspect];
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, from = %source, "what was lost before is leased beside others");
                    rows.push(suspect);
                }
            }
        }
        rows
    }

    /// Gives back what could not be moved to the dead events; the next lease tries it again.
    async fn release_undead(&self, source: Source<'_>, claim: Claim, cause: &StoreError) {
        tracing::warn!(error = cause as &dyn std::error::Error, from = %source, id = %claim.id, "what should have died was given back");
        if let Err(error) = self.store.release(&[claim]).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, from = %source, "it was not given back: it waits for the end of its lease");
        }
    }
}
