//! Wakes events that wait for places of limits which are free: a holder lost its claim, the process
//! that freed the place died, or a limit was raised or removed.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{PAGE_PERIOD, Trouble, WakeError, Waker};
use crate::event::{CanvasId, HeldLimit, LimitName, Notification};
use crate::store::LimitsWithRoom;

/// Maximum number of pages of limits that one pass looks at, each of up to 10,000, or 100 with
/// room; the next continues.
const PAGES: usize = 100;
/// How long a pass goes on looking at them: meanwhile this process wakes nothing else.
const LOOK_TIME: Duration = Duration::from_secs(10);
/// Maximum number of pages of events that one look wakes at the limits of a page; a limit that was
/// removed has many.
const WAKES: usize = 20;
/// From this many events on, there may be more to wake.
const FULL_PAGE: usize = 500;

/// What a look at limits has done.
#[derive(Default)]
struct Looked {
    woken: usize,
    /// Whether there may be more to wake at those that were looked at.
    more: bool,
    /// The last one that was looked at, if there may be more of them.
    next: Option<HeldLimit>,
}

impl Waker {
    /// What can't be woken is left to the next pass, and stops nothing else.
    pub(super) async fn wake_limits(&self, trouble: &mut Trouble) {
        let after = self.next_limit.replace(None);
        let looked = self.wake_at_limits_of(None, after).await;
        if let Some(Looked { next, .. }) = trouble.look("events that wait at limits", looked) {
            self.next_limit.replace(next);
        }
    }

    /// Wakes what has room now that a definition was set, replaced or removed, page after page, and
    /// whatever else has room at the limits of its canvas. Returns whether passes carry on with the
    /// rest. If the process dies meanwhile, they do as well.
    ///
    /// One name may be counted under many, as a family has its keys. A default of the operator is
    /// counted on every canvas, so then the looks are those of a pass.
    pub(crate) async fn room_in_limit(&self, canvas: CanvasId, name: LimitName) -> Result<bool, WakeError> {
        tracing::debug!(%canvas, %name, "a limit was changed: waking what has room");
        let is_default = canvas == CanvasId::OF_ALL && !name.is_handler();
        let only = Some(canvas).filter(|_| !is_default);
        let mut all = Looked::default();
        loop {
            let Looked { woken, more, next } = self.wake_at_limits_of(only, all.next.take()).await?;
            all = Looked { woken: all.woken + woken, more: all.more | more, next };
            if self.is_over() || all.next.is_none() && (!all.more || all.woken == 0) {
                return Ok(all.more || all.next.is_some());
            } else if all.next.is_none() {
                // From the first one on again, where there is more to wake.
                all = Looked::default();
            }
        }
    }

    /// Wakes what has room at limits that kept places for events which are gone. What can't be
    /// woken is left to the minute's pass.
    pub(super) async fn wake_where_places_were_kept(&self, limits: &[HeldLimit]) {
        if limits.is_empty() {
            return;
        }
        let woken = match self.store.wake_waiting(limits).await {
            Ok(woken) => self.publish(&woken).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = woken {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the next events at limits wait for the minute's pass");
        }
    }

    /// At those of one canvas, or at all, that come after one of them.
    async fn wake_at_limits_of(
        &self,
        only: Option<CanvasId>,
        after: Option<HeldLimit>,
    ) -> Result<Looked, WakeError> {
        let mut looked = Looked { next: after, ..Looked::default() };
        let until = Instant::now() + LOOK_TIME;
        for _ in 0..PAGES {
            let started = Instant::now();
            let found = self.store.limits_with_room(only, looked.next.as_ref()).await?;
            let LimitsWithRoom { limits, next } = found;
            if !limits.is_empty() {
                looked.more |= self.wake_at_limits(&limits, &mut looked.woken).await?;
            }
            looked.next = next;
            if looked.next.is_none() || until <= Instant::now() || self.is_over() {
                break;
            }
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
        Ok(looked)
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::event::{Actor, EventId, NewLimit, OnFull};
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};
    use crate::wake::backlog::tests::waker;

    const ONE: NewLimit =
        NewLimit { concurrency: Some(1), rate: None, on_full: OnFull::Wait, waiting_max: None };

    /// A table with two canvases, of each of which one event runs and the others wait.
    async fn full(count: usize) -> (Table, Vec<Notification>, Vec<Notification>) {
        let table = Table::new().await;
        let mut told = Vec::new();
        for (canvas, count) in [(MANY, count), (FEW, 2)] {
            table.limit(canvas, "customer", ONE).await;
            let events = table.add_keyed(canvas, &["customer:7"], count).await;
            let mut running = 0;
            for page in events.chunks(250) {
                running += table.claim_some(page).await.len();
            }
            assert_eq!(running, 1);
            told.push(events);
        }
        let [many, few] = <[_; 2]>::try_from(told).unwrap();
        (table, many, few)
    }

    fn ids(told: &[Notification]) -> HashSet<EventId> {
        told.iter().map(|notification| notification.id).collect()
    }

    /// The event that lost its claim is woken by its promise, and the one that waits by the pass.
    #[tokio::test]
    async fn a_pass_gives_the_place_of_a_dead_worker_to_the_next() {
        let (table, told, _) = full(3).await;
        table.end_leases_of_many().await;
        let (waker, broker) = waker(&table, 1_000);
        waker.pass(None).await.unwrap();
        assert_eq!(broker.events(), ids(&told[..2]));
    }

    /// However many limits are full: a look at some of them finds no room, and the next one goes on
    /// behind them.
    #[tokio::test]
    async fn a_pass_wakes_what_has_room_behind_many_full_limits() {
        let table = Table::new().await;
        for canvas in [MANY, FEW] {
            table.limit(canvas, "customer", ONE).await;
        }
        let running = table.add_keyed(MANY, &["customer:0"], 1).await;
        assert_eq!(table.claim_some(&running).await.len(), 1);
        table.many_full_limits().await;
        let told = table.add_keyed(FEW, &["customer:7"], 2).await;
        let claimed = table.claim_some(&told).await;
        assert_eq!(table.store.complete(&[claimed[0].claim]).await.unwrap(), [true]);
        let (waker, broker) = waker(&table, 1_000);
        loop {
            waker.wake_limits(&mut Trouble::default()).await;
            let next = waker.next_limit.replace(None);
            if next.is_none() {
                break;
            }
            waker.next_limit.replace(next);
        }
        assert_eq!(broker.events(), ids(&told[1..]));
    }

    /// A pass that does not come to the end is continued by the next one.
    #[tokio::test]
    async fn a_pass_begins_where_the_last_one_ended() {
        let (table, told, others) = full(2).await;
        let (waker, broker) = waker(&table, 1_000);
        table.end_all_leases().await;
        let last = HeldLimit { canvas: MANY, name: "customer:7".to_owned() };
        waker.next_limit.replace(Some(last));
        waker.wake_limits(&mut Trouble::default()).await;
        assert_eq!(broker.events(), ids(&others[1..]));
        assert_eq!(waker.next_limit.replace(None), None);
        waker.wake_limits(&mut Trouble::default()).await;
        assert_eq!(broker.events(), ids(&[&told[1..], &others[1..]].concat()));
    }

    /// Where limits can't be looked at, everything else is done.
    #[tokio::test]
    async fn a_pass_without_limits_wakes_the_others() {
        let (table, told, _) = full(3).await;
        table.end_leases_of_many().await;
        table.run("alter function wakeq.wake_waiting(uuid[], text[], interval, interval, uuid[]) rename to gone").await;
        let (waker, broker) = waker(&table, 1_000);
        waker.pass(None).await.unwrap_err();
        assert_eq!(broker.events(), ids(&told[..1]));
    }

    /// Page by page, however many wait; what waits for the limit of another canvas stays.
    #[tokio::test]
    async fn all_that_waits_is_woken_when_its_limit_is_removed() {
        let (table, told, _) = full(1_200).await;
        let customer: LimitName = "customer".parse().unwrap();
        let (waker, broker) = waker(&table, 1_000_000);
        assert!(!waker.room_in_limit(MANY, customer.clone()).await.unwrap());
        assert_eq!(broker.events().len(), 0);
        assert!(table.store.remove_limit(MANY, &customer, &Actor::user("ada")).await.unwrap());
        assert!(!waker.room_in_limit(MANY, customer).await.unwrap());
        assert_eq!(broker.events(), ids(&told[1..]));
    }
}
