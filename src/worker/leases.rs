//! The claims that this process holds: renewed together, on a connection of their own, and given up
//! as lost if they could not be renewed in time.
//!
//! Deadlines are on this process's monotonic clock and count from the moment before the claim or
//! renewal was sent, so they are never later than the database's.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::subject::Subject;
use crate::event::{Claim, EventId};
use crate::store::{Store, StoreError};

/// Maximum number of claims renewed by one statement.
const PAGE: usize = 1000;
/// How often a page is halved because the server cancelled its statement: each time may take
/// seconds, and all has to be done in two thirds of a lease.
const TOO_LONG_MAX: u32 = 4;
/// Longest wait before a failed renewal is repeated.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Leases {
    lease: Duration,
    state: Mutex<LeaseState>,
    /// Notified when a new claim expires before the watcher's next wake-up.
    sooner: Notify,
    /// Notified when a page of renewals was answered or failed.
    answered: Notify,
}

#[derive(Debug)]
struct LeaseState {
    held: HashMap<EventId, Entry>,
    /// The watcher's next wake-up.
    watched: Instant,
}

#[derive(Debug)]
struct Entry {
    claim: Claim,
    subject: Arc<Subject>,
    deadline: Instant,
    lost: CancellationToken,
    /// Its last write is in progress. If a renewal finds no claim now, that may be the effect of
    /// this write, whose own answer decides; until then only the deadline ends the claim.
    in_last_write: bool,
    /// A renewal that includes it is in progress.
    renewing: bool,
    /// That renewal took effect although the claim had been given up in the meantime.
    revived: bool,
}

/// A claim that is renewed until this is dropped.
#[derive(Debug)]
pub(super) struct HeldClaim {
    leases: Arc<Leases>,
    claim: Claim,
    lost: CancellationToken,
}

impl Leases {
    pub(super) fn new(lease: Duration) -> Self {
        let state = LeaseState { held: HashMap::new(), watched: Instant::now() + lease };
        Self { lease, state: Mutex::new(state), sooner: Notify::new(), answered: Notify::new() }
    }

    /// Keeps a claim, whose statement was sent at `sent`, renewed.
    pub(super) fn hold(self: &Arc<Self>, claim: Claim, sent: Instant, subject: Arc<Subject>) -> HeldClaim {
        let lost = CancellationToken::new();
        let deadline = sent + self.lease;
        if deadline <= Instant::now() {
            // The answer took longer than the lease, or the process was suspended in the meantime.
            lost.cancel();
        }
        let mut state = self.state();
        let entry = Entry {
            claim,
            subject,
            deadline,
            lost: lost.clone(),
            in_last_write: false,
            renewing: false,
            revived: false,
        };
        if let Some(earlier) = state.held.insert(claim.id, entry) {
            earlier.lost.cancel();
        }
        if deadline < state.watched {
            self.sooner.notify_one();
        }
        HeldClaim { leases: Arc::clone(self), claim, lost }
    }

    /// How many events are claimed, and the first of them that were, at most `most`.
    pub(super) fn longest(&self, most: usize) -> (usize, Vec<(EventId, Arc<Subject>)>) {
        let state = self.state();
        let mut longest = BinaryHeap::with_capacity(most + 1);
        for (id, entry) in &state.held {
            longest.push((entry.subject.claimed_at, *id));
            if longest.len() > most {
                longest.pop();
            }
        }
        let ids = longest.into_sorted_vec().into_iter().map(|(_, id)| id);
        let subject = |id| state.held.get(&id).map(|entry| (id, Arc::clone(&entry.subject)));
        (state.held.len(), ids.filter_map(subject).collect())
    }

    fn claims(&self) -> Vec<Claim> {
        self.state().held.values().map(|entry| entry.claim).collect()
    }

    /// Marks those of the claims that still stand here, and returns them: a renewal is about to be
    /// sent, and would revive a claim that was given up.
    fn begin_renewal(&self, claims: &[Claim]) -> Vec<Claim> {
        let mut state = self.state();
        let mut stands = |claim: &Claim| {
            let entry = state.entry(*claim).filter(|entry| !entry.lost.is_cancelled());
            entry.map(|entry| entry.renewing = true).is_some()
        };
        claims.iter().copied().filter(|claim| stands(claim)).collect()
    }

    fn renewed(&self, claim: Claim, sent: Instant) {
        if let Some(entry) = self.state().entry(claim) {
            entry.deadline = sent + self.lease;
            entry.revived = entry.lost.is_cancelled();
        }
    }

    fn lost(&self, claim: Claim) {
        if let Some(entry) = self.state().entry(claim).filter(|entry| !entry.in_last_write) {
            entry.lost.cancel();
        }
    }

    /// The renewal of these claims has ended, whatever its result.
    fn end_renewal(&self, claims: &[Claim]) {
        let mut state = self.state();
        for claim in claims {
            if let Some(entry) = state.entry(*claim) {
                entry.renewing = false;
            }
        }
        self.answered.notify_waiters();
    }

    /// Gives up the claims that are past their deadline; returns the next deadline of the others.
    fn expire(&self, now: Instant) -> Instant {
        let mut state = self.state();
        let (expired, alive): (Vec<&Entry>, Vec<&Entry>) =
            state.held.values().partition(|entry| entry.deadline <= now);
        expired.iter().for_each(|entry| entry.lost.cancel());
        state.watched = alive.iter().map(|entry| entry.deadline).min().unwrap_or(now + self.lease);
        state.watched
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl LeaseState {
    fn entry(&mut self, claim: Claim) -> Option<&mut Entry> {
        self.held.get_mut(&claim.id).filter(|entry| entry.claim == claim)
    }
}

impl HeldClaim {
    pub(super) fn claim(&self) -> Claim {
        self.claim
    }

    /// Marks that its last write is about to be sent.
    pub(super) fn begin_last_write(&self) {
        if let Some(entry) = self.leases.state().entry(self.claim) {
            entry.in_last_write = true;
        }
    }

    /// For a lost claim: waits for the renewal in progress, if any, and returns whether it took
    /// effect after the claim was given up. The claim then stands for another lease in which no
    /// process runs the event.
    pub(super) async fn was_revived(&self) -> bool {
        loop {
            let answered = self.leases.answered.notified();
            match self.leases.state().entry(self.claim) {
                Some(entry) if entry.renewing => {}
                Some(entry) => return entry.revived,
                None => return false,
            }
            answered.await;
        }
    }

    /// Completes when the claim is lost: another worker may have the event.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        let mut state = self.leases.state();
        if state.entry(self.claim).is_some() {
            state.held.remove(&self.claim.id);
        }
    }
}

/// Renews all held claims every third of a lease, or sooner after a failure.
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

/// Renews one page; returns whether every claim of it was renewed or is lost. A row lock held by
/// another session costs the other claims one wait, however many such rows there are: the second
/// try skips them.
async fn renew_page(leases: &Leases, store: &Store, page: &[Claim]) -> bool {
    let page = leases.begin_renewal(page);
    if page.is_empty() {
        return true;
    }
    let renewed = renew_claims(leases, store, &page).await;
    leases.end_renewal(&page);
    renewed
}

/// A page whose statement takes too long is halved, so that the leases of the others stand.
async fn renew_claims(leases: &Leases, store: &Store, page: &[Claim]) -> bool {
    let (mut todo, mut too_long, mut all) = (VecDeque::from([page]), 0, true);
    while let Some(part) = todo.pop_front() {
        match renew_part(leases, store, part).await {
            Ok(renewed) => all &= renewed,
            Err(error) if part.len() > 1 && error.is_too_long() && too_long < TOO_LONG_MAX => {
                too_long += 1;
                let (first, second) = part.split_at(part.len() / 2);
                todo.extend([first, second]);
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(claims = part.len(), error, "leases not renewed; retrying until they expire");
                all = false;
            }
        }
    }
    all
}

async fn renew_part(leases: &Leases, store: &Store, page: &[Claim]) -> Result<bool, StoreError> {
    let (mut sent, mut renewed) = (Instant::now(), store.renew(page).await.map(known));
    if renewed.as_ref().is_err_and(StoreError::is_contention) {
        (sent, renewed) = (Instant::now(), store.renew_free(page).await);
    }
    let renewed = renewed?;
    for (claim, renewed) in page.iter().zip(&renewed) {
        match renewed {
            Some(true) => leases.renewed(*claim, sent),
            Some(false) => leases.lost(*claim),
            None => {}
        }
    }
    let held = renewed.iter().filter(|renewed| renewed.is_none()).count();
    if held > 0 {
        tracing::warn!(claims = held, "rows are held by others; retrying the leases until they expire");
    }
    Ok(held == 0)
}

fn known(renewed: Vec<bool>) -> Vec<Option<bool>> {
    renewed.into_iter().map(Some).collect()
}

/// Cancels claims that are past their deadline, even while a renewal hangs.
pub(super) async fn watch(leases: Arc<Leases>) {
    loop {
        let next = leases.expire(Instant::now());
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = leases.sooner.notified() => {}
        }
    }
}

/// Returns once the deployment's durations are no longer this process's. If the lease has become
/// shorter, handlers are cut off: other workers no longer wait for the claims that stand here.
pub(super) async fn until_retimed(store: Store, kill: CancellationToken) {
    if let StoreError::OtherTiming { name: "lease", ours, deployment } = store.other_timing().await
        && deployment < ours
    {
        kill.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{CanvasId, HandlerAddress, HandlerScope, Name, Timestamp};

    /// An event that was claimed this many seconds after the epoch.
    fn subject(claimed_at_s: i64) -> Arc<Subject> {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "known").unwrap();
        let address = HandlerAddress { scope, modifier: Name::no_modifier() };
        let claimed_at = Timestamp::from_timestamp(claimed_at_s, 0).unwrap();
        Arc::new(Subject { address, place: None, copy: None, claimed_at })
    }

    /// What a worker's row shows of its claims.
    #[tokio::test]
    async fn the_claims_that_are_held_for_longest_are_known() {
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        let hold =
            |at| leases.hold(Claim { id: EventId::new(), claims: 1, nonce: 5 }, Instant::now(), subject(at));
        let held: Vec<HeldClaim> = [40, 10, 30, 20].map(hold).into();
        let (count, longest) = leases.longest(3);
        assert_eq!(count, 4);
        let ids: Vec<_> = longest.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [1, 3, 2].map(|at: usize| held[at].claim.id));
        assert!(leases.longest(0).1.is_empty());
        drop(held);
        assert_eq!(leases.longest(3).0, 0);
    }

    /// After a failover the database's clock may jump, and this process get an event a second time.
    #[tokio::test(start_paused = true)]
    async fn a_second_claim_of_an_event_ends_the_first() {
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        let id = EventId::new();
        let first = leases.hold(Claim { id, claims: 1, nonce: 5 }, Instant::now(), subject(0));
        let second = leases.hold(Claim { id, claims: 2, nonce: 4 }, Instant::now(), subject(0));
        first.lost().await;
        drop(first);
        assert_eq!(leases.claims(), [second.claim]);
    }

    /// However many rows are locked by others, the claims on the rest are renewed without delay,
    /// and lost claims are recognized as lost.
    #[tokio::test]
    async fn rows_that_others_hold_cost_the_other_claims_one_wait() {
        use crate::store::StoreConfig;
        use crate::store::tests::{Table, limits, told};

        let table = Table::with(StoreConfig::default()).await;
        let ids = table.add(PAGE as i32).await;
        let claimed = table.store.claim(&told(&ids), &limits()).await.unwrap();
        let claims: Vec<Claim> = claimed.into_iter().map(|event| event.unwrap().claim).collect();
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        let taken = Instant::now();
        let _held: Vec<HeldClaim> =
            claims.iter().map(|claim| leases.hold(*claim, taken, subject(0))).collect();
        let (held_by_others, gone): (Vec<_>, _) = (ids.iter().step_by(10).copied().collect(), claims[1]);
        table.store.complete(&[gone]).await.unwrap();
        let stranger = table.hold_rows(&held_by_others).await;
        let renewing = renew_page(&leases, &table.store, &claims);
        let all = tokio::time::timeout(Duration::from_secs(10), renewing).await.expect("a wait for each");
        assert!(!all, "they are tried again soon");
        let renewed = |leases: &Leases| {
            let state = leases.state();
            let later = state.held.values().filter(|entry| entry.deadline > taken + leases.lease).count();
            let lost: Vec<EventId> =
                state.held.iter().filter(|(_, entry)| entry.lost.is_cancelled()).map(|(id, _)| *id).collect();
            (later, lost)
        };
        assert_eq!(renewed(&leases), (PAGE - held_by_others.len() - 1, vec![gone.id]));
        stranger.rollback().await.unwrap();
        assert!(renew_page(&leases, &table.store, &claims).await);
        assert_eq!(renewed(&leases), (PAGE - 1, vec![gone.id]));
    }

    /// A page of which the server can't renew all in time is renewed in halves, so one row that
    /// takes long does not end the leases of all others.
    #[tokio::test]
    async fn a_page_that_takes_too_long_is_renewed_in_halves() {
        use crate::store::tests::{Table, limits, told};

        let table = Table::new().await;
        let ids = table.add(PAGE as i32).await;
        let claimed = table.store.claim(&told(&ids), &limits()).await.unwrap();
        let claims: Vec<Claim> = claimed.into_iter().map(|event| event.unwrap().claim).collect();
        let leases = Arc::new(Leases::new(Duration::from_secs(60)));
        let taken = Instant::now();
        let _held: Vec<HeldClaim> =
            claims.iter().map(|claim| leases.hold(*claim, taken, subject(0))).collect();
        let renewed = || {
            let state = leases.state();
            state.held.values().filter(|entry| entry.deadline > taken + leases.lease).count()
        };
        table.limit_updates().await;
        assert!(renew_page(&leases, &table.store, &claims).await);
        assert_eq!(renewed(), PAGE);
        table.slow_one().await;
        let later = Instant::now();
        assert!(!renew_page(&leases, &table.store, &claims).await, "the slow one is tried again soon");
        let stand =
            leases.state().held.values().filter(|entry| entry.deadline >= later + leases.lease).count();
        assert!(stand >= PAGE / 2, "{stand}");
    }

    /// The deletion was committed, and a renewal that came after it is answered first.
    #[tokio::test(start_paused = true)]
    async fn a_renewal_does_not_end_a_claim_whose_last_write_is_under_way() {
        let lease = Duration::from_secs(60);
        let leases = Arc::new(Leases::new(lease));
        let held = leases.hold(Claim { id: EventId::new(), claims: 1, nonce: 5 }, Instant::now(), subject(0));
        held.begin_last_write();
        leases.lost(held.claim);
        assert!(
            tokio::time::timeout(lease / 2, held.lost()).await.is_err(),
            "its own write may have done it"
        );
        tokio::time::advance(lease).await;
        leases.expire(Instant::now());
        held.lost().await;
    }

    /// A renewal that waits for another session's lock outlasts the claims that it is for.
    #[tokio::test(start_paused = true)]
    async fn reports_what_a_late_renewal_did_to_a_released_claim() {
        let lease = Duration::from_secs(60);
        for is_carried_out in [true, false] {
            let leases = Arc::new(Leases::new(lease));
            let held =
                leases.hold(Claim { id: EventId::new(), claims: 1, nonce: 5 }, Instant::now(), subject(0));
            let (asked, sent) = (leases.begin_renewal(&[held.claim]), Instant::now());
            assert_eq!(asked, [held.claim]);
            tokio::time::advance(lease).await;
            leases.expire(Instant::now());
            held.lost().await;
            assert_eq!(leases.begin_renewal(&[held.claim]), [], "what is given up is not renewed again");
            let revived = held.was_revived();
            tokio::pin!(revived);
            if is_carried_out {
                leases.renewed(held.claim, sent);
            }
            assert!(tokio::time::timeout(lease, &mut revived).await.is_err(), "there is no answer yet");
            leases.end_renewal(&asked);
            assert_eq!(revived.await, is_carried_out);
        }
    }
}
