//! The claims that this process holds, kept alive: renewed together, on a connection of their own, and given up for
//! lost when they could not be renewed in time.
//!
//! Deadlines are on this process's monotonic clock, counted from the moment before the claim or renewal was sent: they
//! never lie behind the database's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{Claim, EventId};
use crate::store::{Store, StoreError};

/// Most claims renewed by one statement.
const PAGE: usize = 1000;

#[derive(Debug)]
pub(super) struct Leases {
    lease: Duration,
    held: Mutex<HashMap<EventId, Entry>>,
    /// A claim was taken into care whose statement took long: it runs out before those that were watched for.
    sooner: Notify,
}

#[derive(Debug)]
struct Entry {
    claims: i32,
    deadline: Instant,
    lost: CancellationToken,
}

/// A claim in this process's care, until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    leases: Arc<Leases>,
    claim: Claim,
    lost: CancellationToken,
}

impl Leases {
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease, held: Mutex::default(), sooner: Notify::new() }
    }

    /// Takes a claim into care whose statement was sent at `sent`.
    pub(super) fn hold(self: &Arc<Self>, claim: Claim, sent: Instant) -> Held {
        let lost = CancellationToken::new();
        let entry = Entry { claims: claim.claims, deadline: sent + self.lease, lost: lost.clone() };
        let sooner = self.insert(claim.id, entry);
        if sooner {
            self.sooner.notify_one();
        }
        Held { leases: Arc::clone(self), claim, lost }
    }

    /// Whether the new claim is the first to run out.
    fn insert(&self, id: EventId, entry: Entry) -> bool {
        let mut held = self.held();
        let sooner = held.values().all(|other| entry.deadline < other.deadline);
        held.insert(id, entry);
        sooner
    }

    fn claims(&self) -> Vec<Claim> {
        let held = self.held();
        held.iter().map(|(id, entry)| Claim { id: *id, claims: entry.claims }).collect()
    }

    fn renewed(&self, claim: Claim, sent: Instant) {
        if let Some(entry) = self.held().get_mut(&claim.id).filter(|entry| entry.claims == claim.claims) {
            entry.deadline = sent + self.lease;
        }
    }

    fn lost(&self, claim: Claim) {
        if let Some(entry) = self.held().get(&claim.id).filter(|entry| entry.claims == claim.claims) {
            entry.lost.cancel();
        }
    }

    /// Gives up what is past its deadline; the next deadline of the rest.
    fn expire(&self, now: Instant) -> Instant {
        let held = self.held();
        let (expired, alive): (Vec<&Entry>, Vec<&Entry>) =
            held.values().partition(|entry| entry.deadline <= now);
        expired.iter().for_each(|entry| entry.lost.cancel());
        alive.iter().map(|entry| entry.deadline).min().unwrap_or(now + self.lease)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<EventId, Entry>> {
        self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Held {
    /// Ends when the claim is lost: another worker may have the event.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.leases.held();
        if held.get(&self.claim.id).is_some_and(|entry| entry.claims == self.claim.claims) {
            held.remove(&self.claim.id);
        }
    }
}

/// Renews all held claims every third of a lease.
pub(super) async fn renew(leases: Arc<Leases>, store: Store) {
    let mut ticks = tokio::time::interval(leases.lease / 3);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let claims = leases.claims();
        let mut pages: Vec<&[Claim]> = claims.chunks(PAGE).collect();
        while let Some(page) = pages.pop() {
            match renew_page(&leases, &store, page).await {
                Ok(()) => {}
                // One row that somebody has locked must not cost the others their leases.
                Err(error) if error.is_contention() && page.len() > 1 => {
                    pages.extend(<[&[Claim]; 2]>::from(page.split_at(page.len() / 2)));
                }
                Err(error) => tracing::warn!(
                    claims = page.len(),
                    error = &error as &dyn std::error::Error,
                    "leases not renewed; tried again until they run out"
                ),
            }
        }
    }
}

async fn renew_page(leases: &Leases, store: &Store, page: &[Claim]) -> Result<(), StoreError> {
    let sent = Instant::now();
    let renewed = store.renew(page).await?;
    for (claim, renewed) in page.iter().zip(renewed) {
        if renewed { leases.renewed(*claim, sent) } else { leases.lost(*claim) }
    }
    Ok(())
}

/// Cancels what is past its deadline, also while a renewal hangs.
pub(super) async fn watch(leases: Arc<Leases>) {
    loop {
        let next = leases.expire(Instant::now());
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = leases.sooner.notified() => {}
        }
    }
}
