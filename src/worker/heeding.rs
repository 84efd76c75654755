//! Looks for events that were cancelled while they run here, as soon as somebody has cancelled one.
//!
//! Renewals bring the same within a third of a lease, so nothing depends on a signal. While nobody
//! cancels, nothing is asked.

use std::sync::Arc;
use std::time::Duration;

use super::leases::Leases;
use crate::broadcast::{Signal, Signals};
use crate::store::Store;

/// Shortest time between two looks, however many events are cancelled.
const PAUSE: Duration = Duration::from_millis(100);

/// Tells handlers to stop whose events are cancelled, in this process or, while a handler runs for
/// long, in another: a process whose handlers are quick does not listen to others for this. It
/// misses no signal that is sent after the call, even before it is first polled.
pub(super) fn heed(
    leases: Arc<Leases>,
    store: Store,
    signals: Signals,
) -> impl Future<Output = ()> + Send + 'static {
    let mut cancellations = signals.watch_here(Signal::Cancellations);
    async move {
        let mut is_listening = false;
        loop {
            tokio::select! {
                changed = cancellations.changed() => {
                    if changed.is_err() {
                        // Renewals go on.
                        return std::future::pending::<()>().await;
                    }
                    look(&leases, &store).await;
                    tokio::time::sleep(PAUSE).await;
                }
                () = leases.a_long_run(), if !is_listening => {
                    is_listening = true;
                    signals.receive();
                }
            }
        }
    }
}

async fn look(leases: &Leases, store: &Store) {
    if leases.are_none() {
        return;
    }
    match store.cancelled_claims().await {
        Ok(claims) => leases.cancel(&claims),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "could not look for cancelled events; the next renewal finds those that run here"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::broadcast::Broadcasts;
    use crate::event::{Claim, EventId};
    use crate::store::tests::{Table, limits, told};
    use crate::worker::leases::tests::subject;

    const LEASE: Duration = Duration::from_secs(60);
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A process that holds a claim, and the signals of two.
    struct Scene {
        table: Table,
        leases: Arc<Leases>,
        claim: Claim,
        here: Signals,
        there: Signals,
    }

    impl Scene {
        async fn new() -> Self {
            let table = Table::new().await;
            let ids = table.add(1).await;
            let claimed = table.store.claim(&told(&ids), &limits()).await.unwrap().remove(0).unwrap();
            let leases = Arc::new(Leases::new(LEASE, CancellationToken::new()));
            let broadcasts = Broadcasts::local();
            let (here, there) = (Signals::over(Some(broadcasts.clone())), Signals::over(Some(broadcasts)));
            Self { table, leases, claim: claimed.claim, here, there }
        }

        fn heed(&self) -> AbortOnDropHandle<()> {
            let (leases, store) = (Arc::clone(&self.leases), self.table.store.clone());
            AbortOnDropHandle::new(tokio::spawn(heed(leases, store, self.here.clone())))
        }

        async fn cancel(&self) {
            self.table.mark_cancelled().await;
        }
    }

    #[tokio::test]
    async fn a_signal_of_this_process_is_heeded_at_once() {
        let scene = Scene::new().await;
        let held = scene.leases.hold(scene.claim, Instant::now(), subject(0));
        let other =
            scene.leases.hold(Claim { id: EventId::new(), ..scene.claim }, Instant::now(), subject(0));
        let _heeding = scene.heed();
        scene.cancel().await;
        scene.here.send_within(Signal::Cancellations, PATIENCE).await;
        tokio::time::timeout(PATIENCE, held.lost_or_cancelled()).await.expect("a signal");
        assert!(held.is_cancelled() && !other.is_cancelled());
    }

    /// It listens once a claim is renewed that is not young; and finds what it missed until then.
    #[tokio::test]
    async fn a_process_with_a_long_run_learns_of_others_cancelling() {
        let scene = Scene::new().await;
        let claimed = Instant::now();
        let held = scene.leases.hold(scene.claim, claimed, subject(0));
        let _heeding = scene.heed();
        tokio::task::yield_now().await;
        scene.cancel().await;
        scene.there.send_within(Signal::Cancellations, PATIENCE).await;
        scene.leases.renewed(scene.claim, claimed + LEASE / 3, false);
        tokio::time::timeout(PATIENCE, held.lost_or_cancelled()).await.expect("it listens");
        assert!(held.is_cancelled());
    }
}
