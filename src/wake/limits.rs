//! Wakes events that wait for places of limits which are free: a holder lost its claim, the process
//! that freed the place died, or a limit was raised or removed.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{PAGE_PERIOD, Trouble, WakeError, Waker};
use crate::event::{CanvasId, HeldLimit, LimitName, Notification};

/// Maximum number of pages of limits that one pass looks at; the next continues.
const PAGES: usize = 20;
/// Maximum number of pages of events that one look wakes at the limits of a page; a limit that was
/// removed has many.
const WAKES: usize = 20;
/// From this many events on, there may be more to wake.
const FULL_PAGE: usize = 500;

/// What a look at all limits has done.
#[derive(Default)]
struct Looked {
    woken: usize,
    /// Whether there is more to look at.
    more: bool,
}

impl Waker {
    /// What can't be woken is left to the next pass, and stops nothing else.
    pub(super) async fn wake_limits(&self, trouble: &mut Trouble) {
        trouble.look("events that wait at limits", self.wake_at_all_limits().await);
    }

    /// Wakes what has room now that a definition was set, replaced or removed, page after page, and
    /// whatever else has room at limits. Returns whether passes carry on with the rest. If the
    /// process dies meanwhile, they do as well.
    ///
    /// One name may be counted under many: a family has its keys, and a default of the operator has
    /// canvases. So the looks are those of a pass.
    pub(crate) async fn room_in_limit(&self, canvas: CanvasId, name: LimitName) -> Result<bool, WakeError> {
        tracing::debug!(%canvas, %name, "a limit was changed: waking what has room");
        loop {
            let looked = self.wake_at_all_limits().await?;
            if !looked.more || looked.woken == 0 || self.is_over() {
                return Ok(looked.more);
            }
        }
    }

    async fn wake_at_all_limits(&self) -> Result<Looked, WakeError> {
        let (mut looked, mut after) = (Looked::default(), None);
        for _ in 0..PAGES {
            let started = Instant::now();
            let limits = self.store.limits_with_room(after.as_ref()).await?;
            let Some(last) = limits.last().cloned() else { return Ok(looked) };
            looked.more |= self.wake_at_limits(&limits, &mut looked.woken).await?;
            if self.is_over() {
                break;
            }
            after = Some(last);
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
        Ok(Looked { more: true, ..looked })
    }

    /// Wakes what has room at these limits; returns whether there may be more.
    async fn wake_at_limits(&self, limits: &[HeldLimit], count: &mut usize) -> Result<bool, WakeError> {
        for _ in 0..WAKES {
            let started = Instant::now();
            let woken = self.store.wake_waiting(limits).await?;
            *count += woken.len();
            if woken.len() < FULL_PAGE {
                return self.publish(&woken).await.map(|()| false);
            }
            self.publish_shares(&woken).await?;
            if self.is_over() {
                break;
            }
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
        Ok(true)
    }

    /// Publishes of each canvas's events as many as it may publish at once. Their promises are a
    /// grace ahead.
    async fn publish_shares(&self, woken: &[Notification]) -> Result<(), WakeError> {
        let mut canvases = BTreeMap::<CanvasId, Vec<Notification>>::new();
        for notification in woken {
            canvases.entry(notification.canvas).or_default().push(*notification);
        }
        for (canvas, notifications) in canvases {
            self.publish_share(canvas, &notifications).await?;
        }
        Ok(())
    }
}
