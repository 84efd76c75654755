//! Claims that are lost, revived, or renewed past what others hold.

use super::*;
use crate::event::{CanvasId, HandlerAddress, HandlerScope, Name, Timestamp};

fn leases(lease: Duration) -> Arc<Leases> {
    Arc::new(Leases::new(lease, CancellationToken::new()))
}

/// An event that was claimed this many seconds after the epoch.
pub(in crate::worker) fn subject(claimed_at_s: i64) -> Arc<Subject> {
    let scope = HandlerScope::worker(CanvasId::DEFAULT, "known").unwrap();
    let address = HandlerAddress { scope, modifier: Name::no_modifier() };
    let claimed_at = Timestamp::from_timestamp(claimed_at_s, 0).unwrap();
    Arc::new(Subject { address, place: None, copy: None, batch: None, claimed_at, keep: None, held: None })
}

/// What a worker's row shows of its claims.
#[tokio::test]
async fn the_claims_that_are_held_for_longest_are_known() {
    let leases = leases(Duration::from_secs(60));
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
    let leases = leases(Duration::from_secs(60));
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
    let leases = leases(Duration::from_secs(60));
    let taken = Instant::now();
    let _held: Vec<HeldClaim> = claims.iter().map(|claim| leases.hold(*claim, taken, subject(0))).collect();
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
            state.held.iter().filter(|(_, entry)| entry.fate.is_lost()).map(|(id, _)| *id).collect();
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
    let leases = leases(Duration::from_secs(60));
    let taken = Instant::now();
    let _held: Vec<HeldClaim> = claims.iter().map(|claim| leases.hold(*claim, taken, subject(0))).collect();
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
    let stand = leases.state().held.values().filter(|entry| entry.deadline >= later + leases.lease).count();
    assert!(stand >= PAGE / 2, "{stand}");
}

/// The deletion was committed, and a renewal that came after it is answered first.
#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_end_a_claim_whose_last_write_is_under_way() {
    let lease = Duration::from_secs(60);
    let leases = leases(lease);
    let held = leases.hold(Claim { id: EventId::new(), claims: 1, nonce: 5 }, Instant::now(), subject(0));
    held.begin_last_write();
    leases.lost(held.claim);
    assert!(tokio::time::timeout(lease / 2, held.lost()).await.is_err(), "its own write may have done it");
    tokio::time::advance(lease).await;
    leases.expire(Instant::now());
    held.lost().await;
}

/// A renewal that waits for another session's lock outlasts the claims that it is for.
#[tokio::test(start_paused = true)]
async fn reports_what_a_late_renewal_did_to_a_released_claim() {
    let lease = Duration::from_secs(60);
    for is_carried_out in [true, false] {
        let leases = leases(lease);
        let held = leases.hold(Claim { id: EventId::new(), claims: 1, nonce: 5 }, Instant::now(), subject(0));
        let (asked, sent) = (leases.begin_renewal(&[held.claim]), Instant::now());
        assert_eq!(asked, [held.claim]);
        tokio::time::advance(lease).await;
        leases.expire(Instant::now());
        held.lost().await;
        assert_eq!(leases.begin_renewal(&[held.claim]), [], "what is given up is not renewed again");
        let revived = held.was_revived();
        tokio::pin!(revived);
        if is_carried_out {
            leases.renewed(held.claim, sent, false);
        }
        assert!(tokio::time::timeout(lease, &mut revived).await.is_err(), "there is no answer yet");
        leases.end_renewal(&asked);
        assert_eq!(revived.await, is_carried_out);
    }
}
