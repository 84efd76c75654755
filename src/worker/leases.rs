//! The claims that this process holds: renewed together, on a connection of their own, and given up
//! as lost if they could not be renewed in time.
//!
//! Deadlines are on this process's monotonic clock and count from the moment before the claim or
//! renewal was sent, so they are never later than the database's.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cancellation::{CancelReason, ClaimFate};
use super::subject::Subject;
use crate::event::{Claim, EventId};
use crate::store::{Renewal, Store, StoreError};

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
    /// Cancelled when the worker begins to shut down.
    stop: CancellationToken,
    state: Mutex<LeaseState>,
    /// Notified when a new claim expires before the watcher's next wake-up.
    sooner: Notify,
    /// Notified when a page of renewals was answered or failed.
    answered: Notify,
    /// Notified when a claim is renewed that is as old as most that are ever renewed.
    long_run: Notify,
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
    fate: Arc<ClaimFate>,
    /// Its last write is in progress. If a renewal finds no claim now, that may be the effect of
    /// this write, whose own answer decides; until then only the deadline ends the claim.
    in_last_write: bool,
    /// A renewal that includes it is in progress.
    renewing: bool,
    /// That renewal took effect although the claim had been given up in the meantime.
    revived: bool,
}

/// The claim of a running handler, as far as the handler may see it.
#[derive(Clone)]
pub(super) struct RunningClaim {
    leases: Arc<Leases>,
    claim: Claim,
    fate: Arc<ClaimFate>,
}

/// A claim that is renewed until this is dropped.
#[derive(Debug)]
pub(super) struct HeldClaim {
    leases: Arc<Leases>,
    claim: Claim,
    fate: Arc<ClaimFate>,
}

impl Leases {
    pub(super) fn new(lease: Duration, stop: CancellationToken) -> Self {
        let state = LeaseState { held: HashMap::new(), watched: Instant::now() + lease };
        Self {
            lease,
            stop,
            state: Mutex::new(state),
            sooner: Notify::new(),
            answered: Notify::new(),
            long_run: Notify::new(),
        }
    }

    /// Keeps a claim, whose statement was sent at `sent`, renewed.
    pub(super) fn hold(self: &Arc<Self>, claim: Claim, sent: Instant, subject: Arc<Subject>) -> HeldClaim {
        let fate = Arc::new(ClaimFate::default());
        let deadline = sent + self.lease;
        if deadline <= Instant::now() {
            // The answer took longer than the lease, or the process was suspended in the meantime.
            fate.lose();
        }
        let mut state = self.state();
        let entry = Entry {
            claim,
            subject,
            deadline,
            fate: Arc::clone(&fate),
            in_last_write: false,
            renewing: false,
            revived: false,
        };
        if let Some(earlier) = state.held.insert(claim.id, entry) {
            earlier.fate.lose();
        }
        if deadline < state.watched {
            self.sooner.notify_one();
        }
        HeldClaim { leases: Arc::clone(self), claim, fate }
    }

    /// Tells the handlers to stop that run under these claims here.
    pub(super) fn cancel(&self, claims: &[Claim]) {
        let mut state = self.state();
        for claim in claims {
            if let Some(entry) = state.entry(*claim) {
                entry.fate.cancel();
            }
        }
    }

    /// Whether no claim is held here.
    pub(super) fn are_none(&self) -> bool {
        self.state().held.is_empty()
    }

    /// Completes when a handler has run for some time: for most of the time between two renewals,
    /// which a quick handler does not see.
    pub(super) async fn a_long_run(&self) {
        self.long_run.notified().await;
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
            let entry = state.entry(*claim).filter(|entry| !entry.fate.is_lost());
            entry.map(|entry| entry.renewing = true).is_some()
        };
        claims.iter().copied().filter(|claim| stands(claim)).collect()
    }

    pub(super) fn renewed(&self, claim: Claim, sent: Instant, is_cancelled: bool) {
        if let Some(entry) = self.state().entry(claim) {
            let earlier = std::mem::replace(&mut entry.deadline, sent + self.lease);
            entry.revived = entry.fate.is_lost();
            if is_cancelled {
                entry.fate.cancel();
            }
            if entry.deadline > earlier + self.lease / 4 {
                self.long_run.notify_one();
            }
        }
    }

    fn lost(&self, claim: Claim) {
        if let Some(entry) = self.state().entry(claim).filter(|entry| !entry.in_last_write) {
            // Nobody else can have claimed it before.
            if entry.deadline > Instant::now() { entry.fate.end() } else { entry.fate.lose() }
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
        expired.iter().for_each(|entry| entry.fate.lose());
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

    /// What its handler gets of it.
    pub(super) fn running(&self) -> RunningClaim {
        let Self { leases, claim, fate } = self;
        RunningClaim { leases: Arc::clone(leases), claim: *claim, fate: Arc::clone(fate) }
    }

    /// Whether its handler has begun to complete the event in a transaction of its own.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.fate.is_in_transaction()
    }

    /// Whether the handler was told in its transaction that the claim did not stand.
    pub(super) fn is_refused(&self) -> bool {
        self.fate.is_refused()
    }

    /// Whether the event has a checkpoint, as far as is known here.
    pub(super) fn has_checkpoint(&self) -> bool {
        self.fate.has_checkpoint()
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
        self.fate.lost().await;
    }

    /// Whether a renewal found no such claim although its lease stood.
    pub(super) fn has_ended(&self) -> bool {
        self.fate.has_ended()
    }

    /// Whether somebody has cancelled the event, as far as is known here.
    pub(super) fn is_cancelled(&self) -> bool {
        self.fate.is_cancelled()
    }

    /// Whether a rule held the handler before it was called.
    pub(super) fn is_held_back(&self) -> bool {
        self.fate.is_held_back()
    }

    /// Completes when the claim is lost, or somebody has cancelled the event.
    #[cfg(test)]
    pub(super) async fn lost_or_cancelled(&self) {
        self.fate.lost_or_cancelled().await;
    }

    /// Completes when the claim is lost, when somebody has cancelled the event, or when a rule
    /// holds it back.
    pub(super) async fn stopped(&self) {
        self.fate.stopped().await;
    }
}

impl RunningClaim {
    pub(super) fn claim(&self) -> Claim {
        self.claim
    }

    /// Marks that the handler is about to complete the event in a transaction of its own.
    pub(super) fn begin_transaction(&self) {
        self.fate.begin_transaction();
        if let Some(entry) = self.leases.state().entry(self.claim) {
            entry.in_last_write = true;
        }
    }

    /// Marks that the event has a checkpoint, or may have one.
    pub(super) fn leave_checkpoint(&self) {
        self.fate.leave_checkpoint();
    }

    /// Whether the event has a checkpoint, as far as is known here.
    pub(super) fn has_checkpoint(&self) -> bool {
        self.fate.has_checkpoint()
    }

    /// Marks that the claim did not stand in that transaction.
    pub(super) fn refuse(&self) {
        self.fate.refuse();
    }

    /// Ends the run before its handler is called, since a rule holds it.
    pub(super) fn hold_back(&self) {
        self.fate.hold_back();
    }

    /// Why the handler should stop, if it should.
    pub(super) fn cancel_reason(&self) -> Option<CancelReason> {
        let shutdown = || self.leases.stop.is_cancelled().then_some(CancelReason::Shutdown);
        match (self.fate.is_lost(), self.fate.is_cancelled()) {
            (true, _) => Some(CancelReason::LeaseLost),
            (false, true) => Some(CancelReason::Cancelled),
            (false, false) => shutdown(),
        }
    }

    /// Completes when the handler should stop.
    pub(super) async fn cancelled(&self) -> CancelReason {
        tokio::select! {
            () = self.fate.lost_or_cancelled() => {}
            () = self.leases.stop.cancelled() => {}
        }
        self.cancel_reason().unwrap_or(CancelReason::Shutdown)
    }
}

impl std::fmt::Debug for RunningClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.claim.fmt(f)
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
            Some(Renewal::Renewed) => leases.renewed(*claim, sent, false),
            Some(Renewal::Cancelled) => leases.renewed(*claim, sent, true),
            Some(Renewal::Lost) => leases.lost(*claim),
            None => {}
        }
    }
    let held = renewed.iter().filter(|renewed| renewed.is_none()).count();
    if held > 0 {
        tracing::warn!(claims = held, "rows are held by others; retrying the leases until they expire");
    }
    Ok(held == 0)
}

fn known(renewed: Vec<Renewal>) -> Vec<Option<Renewal>> {
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
