//! Events that run at another worker than the kit's, for tests of what its own then does.

use std::sync::Arc;

use super::error::KitError;
use super::kit::TestKit;
use super::notifier::MemoryNotifier;
use crate::emit::{Queue, QueueConfig};
use crate::event::{
    Actor, CanvasId, Claim, Event, EventId, HandlerAddress, HeldLimit, NewLimit, Notification,
};
use crate::notify::{NoNotifier, Notifier};
use crate::store::{AttemptEnd, ClaimLimits, ClaimedEvent, HandlerKeys, LimitedClaim, LimitedClaims, Store};

/// Who sets limits in a test.
const TEST: &str = "test";

/// An event that another worker than the kit's runs, from [`TestKit::start_elsewhere`]. Without
/// [`RunningElsewhere::complete`] that worker has died: its lease ends after 60 s on the kit's
/// clock.
#[derive(Debug)]
pub struct RunningElsewhere {
    store: Store,
    notifier: MemoryNotifier,
    claim: Claim,
    held: Box<[HeldLimit]>,
}

impl TestKit {
    /// Sets a limit of the default canvas, or replaces it. [`TestKit::admin`] also sets those of
    /// other canvases and of the operator, and removes them.
    ///
    /// The kit runs one handler at a time, so that a concurrency is only reached with events that
    /// [run elsewhere](TestKit::start_elsewhere).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use wakeq::limits::{NewLimit, Rate};
    /// # use wakeq::testing::TestKit;
    /// # use wakeq::{Event, Handlers};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("sync", |_| async { Ok(()) }))?;
    /// let rate = Rate::new(1, Duration::from_secs(10));
    /// kit.limit("customer", NewLimit { rate: Some(rate), ..NewLimit::default() }).await?;
    /// for _ in 0..3 {
    ///     kit.emit(Event::new("sync", &1)?.limit("customer:7")?).await?;
    /// }
    /// let drained = kit.drain().await?;
    /// assert_eq!((drained.completed, drained.limited, drained.waiting), (1, 2, 2));
    /// assert_eq!(kit.drain_for(Duration::from_secs(20)).await?.completed, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn limit(&self, name: &str, limit: NewLimit) -> Result<(), KitError> {
        let name = name.parse()?;
        self.admin().put_limit(CanvasId::DEFAULT, &name, &limit, &Actor::admin(TEST)).await?;
        Ok(())
    }

    /// Emits an event and starts it as another worker would. Its handler is not called, and the
    /// event runs until [`RunningElsewhere::complete`].
    ///
    /// ```
    /// # use wakeq::limits::NewLimit;
    /// # use wakeq::testing::TestKit;
    /// # use wakeq::{Event, Handlers};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// kit.handlers(Handlers::new().on("sync", |_| async { Ok(()) }))?;
    /// kit.limit("customer", NewLimit { concurrency: Some(1), ..NewLimit::default() }).await?;
    ///
    /// let other = kit.start_elsewhere(Event::new("sync", &1)?.limit("customer:7")?).await?;
    /// kit.emit(Event::new("sync", &2)?.limit("customer:7")?).await?;
    /// let drained = kit.drain().await?;
    /// assert_eq!((drained.completed, drained.limited), (0, 1));
    /// other.complete().await?;
    /// assert_eq!(kit.drain().await?.completed, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`KitError::NotStarted`] if the event may not start now.
    pub async fn start_elsewhere(&self, event: Event) -> Result<RunningElsewhere, KitError> {
        let store = self.store();
        let address = event.address(CanvasId::DEFAULT);
        let silent = Queue::new(store.clone(), Arc::new(NoNotifier), QueueConfig::default());
        let id = silent.emit(event).await?.id;
        let notification = Notification::new(id, address.scope.canvas);
        let LimitedClaims { claims, room, .. } =
            store.claim_limited(&[notification], &only(&address)).await?;
        self.notifier().publish(&store.wake_waiting(&room).await?).await?;
        match claims.into_iter().next() {
            Some(LimitedClaim::Claimed(event)) if !event.is_cancelled => {
                Ok(RunningElsewhere::of(store, self.notifier().clone(), *event))
            }
            Some(LimitedClaim::Claimed(event)) => {
                store.remove_cancelled(event.claim, &AttemptEnd::default()).await?;
                Err(KitError::NotStarted("a limit has cancelled it"))
            }
            Some(LimitedClaim::Full(_)) => Err(KitError::NotStarted("it waits for a place of a limit")),
            Some(LimitedClaim::Later(_)) => {
                Err(KitError::NotStarted("the rate of a limit lets it start later"))
            }
            Some(LimitedClaim::Not) | None => {
                Err(KitError::NotStarted("it is not due, its handler is paused, or it is not its turn"))
            }
        }
    }
}

impl RunningElsewhere {
    fn of(store: Store, notifier: MemoryNotifier, event: ClaimedEvent) -> Self {
        Self { store, notifier, claim: event.claim, held: event.held.unwrap_or_default() }
    }

    /// The event's id.
    pub fn id(&self) -> EventId {
        self.claim.id
    }

    /// The event completes, and what waited for its places is woken.
    pub async fn complete(self) -> Result<(), KitError> {
        self.store.complete(&[self.claim]).await?;
        let woken = self.store.wake_waiting(&self.held).await?;
        Ok(self.notifier.publish(&woken).await?)
    }
}

/// May only claim events of this handler.
fn only(address: &HandlerAddress) -> ClaimLimits {
    let HandlerAddress { scope, modifier } = address;
    ClaimLimits {
        handlers: HandlerKeys::default(),
        canvas_handlers: vec![format!("{}/{}/{}/{modifier}", scope.canvas, scope.module, scope.name)],
        losses_below: i32::MAX,
        value_max: i32::MAX,
    }
}
