//! The listeners of this process, in all and for each caller and canvas, and the source of their
//! events.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::problem::{Kind, Problem};
use super::shares::{LimitKey, Reservation, Tally};
use wakeq::CanvasId;
use wakeq::internals::Hub;

/// How long deleting the listeners' subscription may take at shutdown.
const CLOSING: Duration = Duration::from_secs(2);

/// Limits on concurrent listeners.
#[derive(Clone, Copy)]
pub(crate) struct ListenerLimits {
    /// In this process.
    pub(crate) most: usize,
    /// With the same credential, or of the same canvas.
    pub(crate) share: usize,
    /// How often a stream is sent a keep-alive and its credential is checked again.
    pub(crate) keep_alive: Duration,
}

/// The listeners of this process. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Listeners {
    pub(super) limits: ListenerLimits,
    permits: Arc<Semaphore>,
    shares: Tally<LimitKey>,
    /// The source of their events; `None` if nothing is broadcast.
    pub(super) hub: Option<Hub>,
    stop: CancellationToken,
}

impl Listeners {
    pub(crate) fn new(limits: ListenerLimits, hub: Option<Hub>, stop: CancellationToken) -> Self {
        let permits = Arc::new(Semaphore::new(limits.most));
        Self { limits, permits, shares: Tally::new(limits.share), hub, stop }
    }

    /// Waits until the listeners' subscription is deleted.
    pub(crate) async fn finish(&self) {
        if let Some(hub) = &self.hub {
            hub.close(CLOSING).await;
        }
    }

    pub(super) fn acquire(
        &self,
        credential: Arc<str>,
        canvases: Option<&[CanvasId]>,
    ) -> Result<ListenerPermits, Problem> {
        let busy = |words: String| Problem::new(Kind::TooManyRequests, words);
        let canvases = canvases.unwrap_or_default().iter().map(|canvas| LimitKey::Canvas(*canvas));
        let limit_keys: Vec<_> = [LimitKey::Credential(credential)].into_iter().chain(canvases).collect();
        let ListenerLimits { most, share, .. } = self.limits;
        let share = self.shares.reserve(&limit_keys, 1).map_err(|key| {
            busy(format!("{key} has {share} listeners already, its share of this process: end one of them"))
        })?;
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit =
            permit.map_err(|_| busy(format!("this process has {most} listeners, which is its limit")))?;
        Ok(ListenerPermits { stop: self.stop.clone(), _share: share, _permit: permit })
    }
}

/// A listener's permits, released when it is dropped.
pub(super) struct ListenerPermits {
    pub(super) stop: CancellationToken,
    _share: Reservation,
    _permit: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Four keys of one canvas exhaust its share, but not the process.
    #[test]
    fn places_are_bounded_for_each_caller_each_canvas_and_all() {
        let limits = ListenerLimits { most: 5, share: 2, keep_alive: Duration::from_secs(15) };
        let listeners = Listeners::new(limits, None, CancellationToken::new());
        let (own, other) = ([CanvasId(Uuid::from_u128(1))], [CanvasId(Uuid::from_u128(2))]);
        let acquire = |name: &str, canvases: Option<&[CanvasId]>| listeners.acquire(name.into(), canvases);
        let mut held: Vec<_> =
            ["a", "b"].iter().map(|name| acquire(name, Some(&own)).ok().unwrap()).collect();
        for name in ["c", "d"] {
            assert_eq!(
                acquire(name, Some(&own)).err().unwrap().kind,
                Kind::TooManyRequests,
                "of the same canvas"
            );
        }
        held.extend([acquire("e", None), acquire("e", None)].map(|permits| permits.ok().unwrap()));
        assert!(acquire("e", None).is_err(), "the same credential");
        held.push(acquire("f", Some(&other)).ok().unwrap());
        assert!(acquire("g", Some(&other)).is_err(), "no room for anybody");
        assert_eq!(listeners.shares.len(), 6, "a refused listener has taken nothing");
        held.remove(0);
        held.push(acquire("c", Some(&own)).ok().unwrap());
        drop(held);
        assert_eq!(listeners.shares.len(), 0, "nobody is remembered");
    }
}
