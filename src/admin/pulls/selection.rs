//! Which of the copies that were just leased are handed out. Nothing fails here: by now they are
//! leased, and one that is not handed out would wait for the end of its lease.

use std::collections::HashMap;

use super::{Admin, HeldCopy, LeaseBatch, LeasedCopy};
use crate::event::{Cause, Checkpoint, Claim, EventId, Name, Notification};
use crate::store::{LeasedRow, StoreError};

/// Number of expired leases from which on a copy is leased alone, and at which it dies.
const SUSPECT_LOSSES: i32 = 2;
const LOSSES_MAX: i32 = 5;

impl Admin {
    /// Decides which of the leased copies are handed out. Copies that were lost too often die. One
    /// that was lost before is handed out alone, so that it takes no others with it; the others are
    /// released and keep their places.
    pub(super) async fn select_leased(
        &self,
        queue: &Name,
        rows: Vec<LeasedRow>,
        halts: bool,
        now: &mut LeaseBatch,
    ) {
        let (poison, mut rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.event.losses >= LOSSES_MAX);
        for row in poison {
            let words = "its leases ran out too often";
            match self.move_to_dead(row.event.claim, Cause::Poison, words, halts).await {
                Ok(true) => {
                    let held = HeldCopy::of(row);
                    self.wake_leasable(queue, &held, true).await;
                    now.died.push(held.scope);
                }
                // It was ended by someone else in the meantime.
                Ok(false) => {}
                // The others are leased by now, and must get to the caller.
                Err(error) => self.release_undead(queue, row.event.claim, &error).await,
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
                    self.publish(&notifications.collect::<Vec<_>>()).await;
                    rows = vec![suspect];
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, %queue, "a copy whose leases ran out before is leased beside others");
                    rows.push(suspect);
                }
            }
        }
        now.copies = self.handed_out(queue, rows).await;
    }

    /// The copies, each with what the attempts before have left. Where that can't be read, copies
    /// that were leased before are given back, since they would begin anew.
    async fn handed_out(&self, queue: &Name, mut rows: Vec<LeasedRow>) -> Vec<LeasedCopy> {
        let again = rows.iter().filter(|row| was_leased_before(row));
        let asked: Vec<_> = again.map(|row| (row.event.address.scope.canvas, row.event.claim.id)).collect();
        let found = if asked.is_empty() { Ok(Vec::new()) } else { self.store.checkpoints(&asked).await };
        let mut left: HashMap<EventId, Checkpoint> = match found {
            Ok(found) => found.into_iter().collect(),
            Err(error) => {
                let again = rows.iter().filter(|row| was_leased_before(row));
                let claims: Vec<Claim> = again.map(|row| row.event.claim).collect();
                self.release_unread(queue, &claims, &error).await;
                rows.retain(|row| !was_leased_before(row));
                HashMap::new()
            }
        };
        let handed_out = rows.into_iter().filter_map(|row| {
            let checkpoint = left.remove(&row.event.claim.id);
            LeasedCopy::of(row, checkpoint)
        });
        handed_out.collect()
    }

    /// Gives leased copies back whose checkpoints could not be read; the next lease tries again.
    async fn release_unread(&self, queue: &Name, claims: &[Claim], cause: &StoreError) {
        tracing::warn!(
            error = cause as &dyn std::error::Error,
            %queue,
            copies = claims.len(),
            "copies were given back: their checkpoints can't be read"
        );
        if let Err(error) = self.store.release(claims).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, %queue, "they were not given back: they wait for the end of their leases");
        }
    }

    /// Gives a leased copy back that could not be moved to the dead ones; the next lease tries it
    /// again.
    async fn release_undead(&self, queue: &Name, claim: Claim, cause: &StoreError) {
        tracing::warn!(error = cause as &dyn std::error::Error, %queue, id = %claim.id, "a copy that should have died was given back");
        if let Err(error) = self.store.release(&[claim]).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, %queue, "it was not given back: it waits for the end of its lease");
        }
    }
}

/// Whether an attempt before can have left a checkpoint.
fn was_leased_before(row: &LeasedRow) -> bool {
    row.event.claim.claims > 1
}
