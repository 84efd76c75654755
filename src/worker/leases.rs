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
/// Longest wait before a renewal is tried again that failed.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Leases {
    lease: Duration,
    care: Mutex<Care>,
    /// Rung when a claim was taken into care that runs out before the watch would wake.
    sooner: Notify,
    /// Rung when a page of renewals was answered, or came to nothing.
    answered: Notify,
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
    /// A renewal is under way that asks for it.
    asked: bool,
    /// That renewal was carried out though the claim was given up meanwhile.
    revived: bool,
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
        Self { lease, care: Mutex::new(care), sooner: Notify::new(), answered: Notify::new() }
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
        let (claims, lost_too) = (claim.claims, lost.clone());
        let entry = Entry { claims, deadline, lost: lost_too, ends: false, asked: false, revived: false };
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

    /// A renewal is about to be sent for those of the claims that still stand here: it would revive what was given up.
    fn ask(&self, claims: &[Claim]) -> Vec<Claim> {
        let mut care = self.care();
        let mut stands = |claim: &Claim| {
            let entry = care.entry(*claim).filter(|entry| !entry.lost.is_cancelled());
            entry.map(|entry| entry.asked = true).is_some()
        };
        claims.iter().copied().filter(|claim| stands(claim)).collect()
    }

    fn renewed(&self, claim: Claim, sent: Instant) {
        if let Some(entry) = self.care().entry(claim) {
            entry.deadline = sent + self.lease;
            entry.revived = entry.lost.is_cancelled();
        }
    }

    fn lost(&self, claim: Claim) {
        if let Some(entry) = self.care().entry(claim).filter(|entry| !entry.ends) {
            entry.lost.cancel();
        }
    }

    /// The renewal of these claims is over, whatever came of it.
    fn answered(&self, claims: &[Claim]) {
        let mut care = self.care();
        for claim in claims {
            if let Some(entry) = care.entry(*claim) {
                entry.asked = false;
            }
        }
        self.answered.notify_waiters();
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

impl Care {
    fn entry(&mut self, claim: Claim) -> Option<&mut Entry> {
        self.held.get_mut(&claim.id).filter(|entry| entry.claims == claim.claims)
    }
}

impl Held {
    pub(super) fn claim(&self) -> Claim {
        self.claim
    }

    /// Its last write is about to be sent.
    pub(super) fn ends(&self) {
        if let Some(entry) = self.leases.care().entry(self.claim) {
            entry.ends = true;
        }
    }

    /// For a claim that was lost: waits for a renewal that is under way, and says whether that was carried out after the
    /// claim was given up. Then it stands for another lease, in which nobody runs the event.
    pub(super) async fn was_revived(&self) -> bool {
        loop {
            let answered = self.leases.answered.notified();
            match self.leases.care().entry(self.claim) {
                Some(entry) if entry.asked => {}
                Some(entry) => return entry.revived,
                None => return false,
            }
            answered.await;
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
        if care.entry(self.claim).is_some() {
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

/// Renews one page; whether all of it was renewed or is lost. Somebody else's lock on a row costs the other claims one
/// wait, however many such rows there are: the next try is for these.
async fn renew_page(leases: &Leases, store: &Store, page: &[Claim]) -> bool {
    let page = leases.ask(page);
    if page.is_empty() {
        return true;
    }
    let renewed = renew_asked(leases, store, &page).await;
    leases.answered(&page);
    renewed
}

async fn renew_asked(leases: &Leases, store: &Store, page: &[Claim]) -> bool {
    let (mut sent, mut renewed) = (Instant::now(), store.renew(page).await.map(known));
    if renewed.as_ref().is_err_and(StoreError::is_contention) {
        (sent, renewed) = (Instant::now(), store.renew_free(page).await);
    }
    let renewed = match renewed {
        Ok(renewed) => renewed,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(claims = page.len(), error, "leases not renewed; tried again until they run out");
            return false;
        }
    };
    for (claim, renewed) in page.iter().zip(&renewed) {
        match renewed {
            Some(true) => leases.renewed(*claim, sent),
            Some(false) => leases.lost(*claim),
            None => {}
        }
    }
    let held = renewed.iter().filter(|renewed| renewed.is_none()).count();
    if held > 0 {
        tracing::warn!(claims = held, "rows are held by others: leases tried again until they run out");
    }
    held == 0
}

fn known(renewed: Vec<bool>) -> Vec<Option<bool>> {
    renewed.into_iter().map(Some).collect()
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

    /// However many rows somebody holds, the claims on the others are renewed at once; and what is lost is lost.
    #[cfg(feature = "http")]
    #[tokio::test]
    async fn rows_that_others_hold_cost_the_other_claims_one_wait() {
        use crate::store::StoreConfig;
        use crate::store::tests::{Table, is_skipped, limits, told};

        let table = Table::with(StoreConfig::default()).await;
        if is_skipped("another session while a transaction is open") {
            return;
        }
        let ids = table.add(PAGE as i32).await;
        let claimed = table.store.claim(&told(&ids), &limits()).await.unwrap();
        let claims: Vec<Claim> = claimed.into_iter().map(|event| event.unwrap().claim).collect();
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        let taken = Instant::now();
        let _held: Vec<Held> = claims.iter().map(|claim| leases.hold(*claim, taken)).collect();
        let (held_by_others, gone): (Vec<_>, _) = (ids.iter().step_by(10).copied().collect(), claims[1]);
        table.store.complete(&[gone]).await.unwrap();
        let stranger = table.hold_rows(&held_by_others).await;
        let renewing = renew_page(&leases, &table.store, &claims);
        let all = tokio::time::timeout(Duration::from_secs(10), renewing).await.expect("a wait for each");
        assert!(!all, "they are tried again soon");
        let renewed = |leases: &Leases| {
            let care = leases.care();
            let later = care.held.values().filter(|entry| entry.deadline > taken + leases.lease).count();
            let lost: Vec<EventId> =
                care.held.iter().filter(|(_, entry)| entry.lost.is_cancelled()).map(|(id, _)| *id).collect();
            (later, lost)
        };
        assert_eq!(renewed(&leases), (PAGE - held_by_others.len() - 1, vec![gone.id]));
        stranger.rollback().await.unwrap();
        assert!(renew_page(&leases, &table.store, &claims).await);
        assert_eq!(renewed(&leases), (PAGE - 1, vec![gone.id]));
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

    /// A renewal that waits for a stranger's lock outlasts the claims that it asks for.
    #[tokio::test(start_paused = true)]
    async fn what_a_renewal_did_to_a_claim_that_was_given_up_is_told() {
        let lease = Duration::from_secs(60);
        for is_carried_out in [true, false] {
            let leases = Arc::new(Leases::new(lease));
            let held = leases.hold(Claim { id: EventId::new(), claims: 1 }, Instant::now());
            let (asked, sent) = (leases.ask(&[held.claim]), Instant::now());
            assert_eq!(asked, [held.claim]);
            tokio::time::advance(lease).await;
            leases.expire(Instant::now());
            held.lost().await;
            assert_eq!(leases.ask(&[held.claim]), [], "what is given up is not renewed again");
            let told = held.was_revived();
            tokio::pin!(told);
            if is_carried_out {
                leases.renewed(held.claim, sent);
            }
            assert!(tokio::time::timeout(lease, &mut told).await.is_err(), "there is no answer yet");
            leases.answered(&asked);
            assert_eq!(told.await, is_carried_out);
        }
    }
}
