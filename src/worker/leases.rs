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
use crate::store::Store;

/// Most claims renewed by one statement.
const PAGE: usize = 1000;
/// Longest wait before a renewal is tried again that failed.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Leases {
    lease: Duration,
    care: Mutex<Care>,
    /// Rung when a claim was taken into care that runs out before the watch would wake.
    sooner: Notify,
}

#[derive(Debug)]
struct Care {
    held: HashMap<EventId, Entry>,
    /// When the watch wakes next.
    watched: Instant,
}

#[derive(Debug)]
struct Entry {
    claims: i32,
    deadline: Instant,
    lost: CancellationToken,
    /// Its last write is under way. That a renewal finds no claim may be the doing of that very write, whose answer says
    /// what came of it; only the deadline ends the claim before that.
    ends: bool,
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
        let care = Care { held: HashMap::new(), watched: Instant::now() + lease };
        Self { lease, care: Mutex::new(care), sooner: Notify::new() }
    }

    /// Takes a claim into care whose statement was sent at `sent`.
    pub(super) fn hold(self: &Arc<Self>, claim: Claim, sent: Instant) -> Held {
        let lost = CancellationToken::new();
        let deadline = sent + self.lease;
        if deadline <= Instant::now() {
            // The answer took longer than the claim stands, or the process was stopped meanwhile.
            lost.cancel();
        }
        let mut care = self.care();
        let entry = Entry { claims: claim.claims, deadline, lost: lost.clone(), ends: false };
        if let Some(earlier) = care.held.insert(claim.id, entry) {
            earlier.lost.cancel();
        }
        if deadline < care.watched {
            self.sooner.notify_one();
        }
        Held { leases: Arc::clone(self), claim, lost }
    }

    fn claims(&self) -> Vec<Claim> {
        let care = self.care();
        care.held.iter().map(|(id, entry)| Claim { id: *id, claims: entry.claims }).collect()
    }

    fn renewed(&self, claim: Claim, sent: Instant) {
        if let Some(entry) = self.care().held.get_mut(&claim.id).filter(|entry| entry.claims == claim.claims)
        {
            entry.deadline = sent + self.lease;
        }
    }

    fn lost(&self, claim: Claim) {
        let care = self.care();
        let entry = care.held.get(&claim.id).filter(|entry| entry.claims == claim.claims);
        if let Some(entry) = entry.filter(|entry| !entry.ends) {
            entry.lost.cancel();
        }
    }

    /// Gives up what is past its deadline; the next deadline of the rest.
    fn expire(&self, now: Instant) -> Instant {
        let mut care = self.care();
        let (expired, alive): (Vec<&Entry>, Vec<&Entry>) =
            care.held.values().partition(|entry| entry.deadline <= now);
        expired.iter().for_each(|entry| entry.lost.cancel());
        care.watched = alive.iter().map(|entry| entry.deadline).min().unwrap_or(now + self.lease);
        care.watched
    }

    fn care(&self) -> MutexGuard<'_, Care> {
        self.care.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Held {
    /// Its last write is about to be sent.
    pub(super) fn ends(&self) {
        let mut care = self.leases.care();
        if let Some(entry) =
            care.held.get_mut(&self.claim.id).filter(|entry| entry.claims == self.claim.claims)
        {
            entry.ends = true;
        }
    }

    /// Ends when the claim is lost: another worker may have the event.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut care = self.leases.care();
        if care.held.get(&self.claim.id).is_some_and(|entry| entry.claims == self.claim.claims) {
            care.held.remove(&self.claim.id);
        }
    }
}

/// Renews all held claims every third of a lease; sooner, when that failed.
pub(super) async fn renew(leases: Arc<Leases>, store: Store) {
    let pause = leases.lease / 3;
    loop {
        let started = Instant::now();
        let mut failed = false;
        for page in leases.claims().chunks(PAGE) {
            failed |= !renew_page(&leases, &store, page).await;
        }
        let pause = if failed { (pause / 4).min(RETRY_WAIT_MAX) } else { pause };
        tokio::time::sleep_until(started + pause).await;
    }
}

/// Renews one page; whether all of it was answered. Where somebody else's lock on a row is in the way, the page is
/// halved until that row stands alone: it must not cost the others their leases.
async fn renew_page(leases: &Leases, store: &Store, page: &[Claim]) -> bool {
    let mut complete = true;
    let mut parts = vec![page];
    while let Some(part) = parts.pop() {
        let sent = Instant::now();
        match store.renew(part).await {
            Ok(renewed) => part.iter().zip(renewed).for_each(|(claim, renewed)| {
                if renewed { leases.renewed(*claim, sent) } else { leases.lost(*claim) }
            }),
            Err(error) if error.is_contention() && part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) => {
                complete = false;
                tracing::warn!(
                    claims = part.len(),
                    error = &error as &dyn std::error::Error,
                    "leases not renewed; tried again until they run out"
                );
            }
        }
    }
    complete
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The database's clock may jump at a failover, and give an event to this process a second time.
    #[tokio::test(start_paused = true)]
    async fn a_second_claim_of_an_event_ends_the_first() {
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        let id = EventId::new();
        let first = leases.hold(Claim { id, claims: 1 }, Instant::now());
        let second = leases.hold(Claim { id, claims: 2 }, Instant::now());
        first.lost().await;
        drop(first);
        assert_eq!(leases.claims(), [second.claim]);
    }

    /// The deletion was committed, and a renewal that came after it is answered before it.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_does_not_end_a_claim_whose_last_write_is_under_way() {
        let lease = Duration::from_secs(60);
        let leases = Arc::new(Leases::new(lease));
        let held = leases.hold(Claim { id: EventId::new(), claims: 1 }, Instant::now());
        held.ends();
        leases.lost(held.claim);
        assert!(
            tokio::time::timeout(lease / 2, held.lost()).await.is_err(),
            "its own write may have done it"
        );
        tokio::time::advance(lease).await;
        leases.expire(Instant::now());
        held.lost().await;
    }
}
