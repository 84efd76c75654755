//! Looks for room in limits after changes: of one canvas one at a time, and one for all changes
//! that came while another was under way. So whoever changes limits without a pause makes no more
//! of them than one after the other.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::event::CanvasId;

/// What is looked at: a canvas, and there the limits of handlers, or the others.
pub(super) type Looked = (CanvasId, bool);

/// The looks that are under way.
#[derive(Clone, Default)]
pub(super) struct LimitLooks(Arc<Mutex<HashMap<Looked, Weak<Look>>>>);

#[derive(Default)]
struct Look {
    /// How many have asked for one.
    asked: AtomicU64,
    /// How many had asked when the last one began that has ended.
    done: tokio::sync::Mutex<u64>,
}

impl LimitLooks {
    /// Looks, unless another look begins after this call and ends well. Returns whether there is
    /// more to look at, which that one has told its own caller.
    pub(super) async fn share<E>(
        &self,
        looked: Looked,
        look: impl Future<Output = Result<bool, E>>,
    ) -> Result<bool, E> {
        let shared = self.of(looked);
        let nth = shared.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut done = shared.done.lock().await;
        if *done >= nth {
            return Ok(false);
        }
        let asked = shared.asked.load(Ordering::SeqCst);
        let more = look.await?;
        *done = asked;
        Ok(more)
    }

    fn of(&self, looked: Looked) -> Arc<Look> {
        let mut looks = self.lock();
        looks.retain(|_, look| look.strong_count() > 0);
        let known = looks.get(&looked).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let look = Arc::new(Look::default());
            looks.insert(looked, Arc::downgrade(&look));
            look
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Looked, Weak<Look>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;

    /// A look for every change, if each is asked for alone.
    #[tokio::test]
    async fn changes_that_come_meanwhile_share_a_look() {
        let (looks, door, begun) = (LimitLooks::default(), Semaphore::new(0), AtomicU64::new(0));
        let (looks, door, begun) = (&looks, &door, &begun);
        let look = |canvas: u128| {
            looks.share((CanvasId(Uuid::from_u128(canvas)), false), async move {
                begun.fetch_add(1, Ordering::SeqCst);
                door.acquire().await.unwrap().forget();
                Ok::<bool, ()>(true)
            })
        };
        let all = join_all([7, 7, 7, 7, 8].map(look));
        let opening = async {
            tokio::task::yield_now().await;
            assert_eq!(begun.load(Ordering::SeqCst), 2, "one of each canvas");
            door.add_permits(3);
        };
        let (ended, ()) = tokio::join!(all, opening);
        assert_eq!(ended, [Ok(true), Ok(true), Ok(false), Ok(false), Ok(true)]);
        assert_eq!((begun.load(Ordering::SeqCst), looks.lock().len()), (3, 2));
        door.add_permits(1);
        assert_eq!(look(7).await, Ok(true));
        assert_eq!(looks.lock().len(), 1, "those that have ended are forgotten");
    }

    #[tokio::test]
    async fn a_look_that_failed_counts_for_nobody_else() {
        let looks = LimitLooks::default();
        let looked = (CanvasId::DEFAULT, true);
        let look = |answer: Result<bool, ()>| looks.share(looked, async move { answer });
        let (failed, looked_at) = tokio::join!(look(Err(())), look(Ok(true)));
        assert_eq!((failed, looked_at), (Err(()), Ok(true)));
    }
}
