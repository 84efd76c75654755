//! Which of the copies or events that were just leased are handed out. Nothing fails here: by now
//! they are leased, and one that is not handed out would wait for the end of its lease.

use std::collections::HashMap;
use std::time::Duration;

use super::{Admin, HeldEvent, Source};
use crate::event::{Cause, Checkpoint, Claim, CountedRun, EventId, HeldLimit, Notification};
use crate::store::{LeasedRow, StoreError};

/// Number of expired leases from which on something is leased alone, and at which it dies.
const SUSPECT_LOSSES: i32 = 2;
const LOSSES_MAX: i32 = 5;

impl Admin {
    /// Decides which of what was leased is handed out. What was lost too often dies. One that was
    /// lost before is handed out alone, so that it takes no others with it; the others are released
    /// and keep their places. Returns what is handed out, and how many died.
    pub(in crate::admin) async fn select_leased(
        &self,
        source: Source<'_>,
        rows: Vec<LeasedRow>,
        halts: bool,
    ) -> (Vec<LeasedRow>, usize) {
        let (poison, mut rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.event.losses >= LOSSES_MAX);
        let mut died = 0;
        for row in poison {
            let words = Some("its leases ran out too often");
            died += usize::from(self.end_lost(source, row, Cause::Poison, words, halts).await);
        }
        if let Some(at) = rows.iter().position(|row| row.event.losses >= SUSPECT_LOSSES)
            && rows.len() > 1
        {
            let suspect = rows.remove(at);
            let claims: Vec<Claim> = rows.iter().map(|row| row.event.claim).collect();
            match self.store.release(&claims).await {
                Ok(_) => {
                    let notifications = rows.iter().map(|row| {
                        let canvas = row.event.address.scope.canvas;
                        Notification::new(row.event.claim.id, canvas)
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
        (rows, died)
    }

    /// Lets events die for which it is too late to start. Returns the others.
    pub(in crate::admin) async fn without_late(
        &self,
        source: Source<'_>,
        rows: Vec<LeasedRow>,
        halts: bool,
    ) -> Vec<LeasedRow> {
        let (late, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_late);
        for row in late {
            // The error of its last attempt stays.
            self.end_lost(source, row, Cause::Expired, None, halts).await;
        }
        rows
    }

    /// What was leased, each with what the attempts before have left. Where that can't be read,
    /// what was leased before is given back, since it would begin anew.
    pub(in crate::admin) async fn with_checkpoints(
        &self,
        source: Source<'_>,
        mut rows: Vec<LeasedRow>,
    ) -> Vec<(LeasedRow, Option<Checkpoint>)> {
        let again = rows.iter().filter(|row| was_leased_before(row));
        let asked: Vec<_> = again.map(|row| (row.event.address.scope.canvas, row.event.claim.id)).collect();
        let found = if asked.is_empty() { Ok(Vec::new()) } else { self.store.checkpoints(&asked).await };
        let mut left: HashMap<EventId, Checkpoint> = match found {
            Ok(found) => found.into_iter().collect(),
            Err(error) => {
                let again = rows.iter().filter(|row| was_leased_before(row));
                let claims: Vec<Claim> = again.map(|row| row.event.claim).collect();
                self.release_unread(source, &claims, &error).await;
                rows.retain(|row| !was_leased_before(row));
                HashMap::new()
            }
        };
        let with_left = rows.into_iter().map(|row| {
            let checkpoint = left.remove(&row.event.claim.id);
            (row, checkpoint)
        });
        with_left.collect()
    }

    /// Moves to the dead events what is not handed out; returns whether it has died.
    async fn end_lost(
        &self,
        source: Source<'_>,
        row: LeasedRow,
        cause: Cause,
        error: Option<&str>,
        halts: bool,
    ) -> bool {
        let claim = row.event.claim;
        let limits = self.limits_of_lease(source, &row).await;
        let held = HeldEvent { held: limits, ..HeldEvent::of(row) };
        match self.move_to_dead(&held, cause, error, halts).await {
            Ok(true) => {
                self.note_death(source, &held, cause);
                self.count_end(source, &CountedRun { dead: true, ..CountedRun::default() });
                self.after_end(source, &held, true).await;
                true
            }
            // It was ended by someone else in the meantime.
            Ok(false) => false,
            // The others are leased by now, and must get to the caller.
            Err(error) => {
                self.release_undead(source, claim, &error).await;
                false
            }
        }
    }

    /// The limits whose places a lease has. Copies have none. What is not known is found by the
    /// minute's pass.
    async fn limits_of_lease(&self, source: Source<'_>, row: &LeasedRow) -> Vec<HeldLimit> {
        let Source::Handler(scope) = source else { return Vec::new() };
        self.store.limits_of(scope.canvas, row.event.claim.id).await.unwrap_or_default()
    }

    /// Gives back what was leased and whose checkpoints could not be read; the next lease tries
    /// again.
    async fn release_unread(&self, source: Source<'_>, claims: &[Claim], cause: &StoreError) {
        tracing::warn!(
            error = cause as &dyn std::error::Error,
            from = %source,
            events = claims.len(),
            "what was leased is given back: its checkpoints can't be read"
        );
        if let Err(error) = self.store.release(claims).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, from = %source, "it was not given back: it waits for the end of its lease");
        }
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

/// Whether an attempt before can have left a checkpoint.
fn was_leased_before(row: &LeasedRow) -> bool {
    row.event.claim.claims > 1
}

/// Whether its emit wanted no attempt to start any more when this one was leased.
fn is_late(row: &LeasedRow) -> bool {
    let options = row.event.options.as_deref();
    options.and_then(|options| options.time_left(row.since)) == Some(Duration::ZERO)
}
