//! The ticks of crons: emits the events of the schedules, and publishes them after the commit.
//!
//! Which ticks a schedule has is decided in `cron`; that none is emitted twice, in the store.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{PAGE_PERIOD, Trouble, WakeError, Waker};
use crate::cron::{CronSchedule, InvalidSchedule, MAKE_UP_MAX, MissedTicks, Moment, plan};
use crate::event::{Broadcast, CanvasId, Name, NewEvent, Timestamp};
use crate::store::{CronDue, CronStep, TickOutcome};

/// A tick found within this time is late rather than missed, however short the passes' period.
const LATE_LEAST: Duration = Duration::from_secs(60);
/// After this many pages in a row that could not be published, the rest is left to the promises: a
/// broker that is down may take seconds to say so, and ticks that come too late are missed.
const FAILED_MAX: usize = 2;

impl Waker {
    /// Emits the due ticks of all crons, or of one, and those that will be due before the next
    /// pass. Returns the number of events; an error of the notifier only once all are emitted,
    /// since a tick that is not may be missed for good, and the promises wake the others.
    pub(crate) async fn tick(&self, only: Option<(CanvasId, &Name)>) -> Result<usize, WakeError> {
        let (mut events, mut left, mut reason) = (0, Vec::new(), None);
        let (mut trouble, mut failed) = (Trouble::default(), 0);
        let timing = self.store.timing();
        let (ahead, late) = (self.store.cron_ahead(), LATE_LEAST.max(2 * timing.probe_period));
        loop {
            let started = Instant::now();
            let step = |due: &CronDue, now, room| {
                step(due, Moment { now, ahead, late }, room).unwrap_or_else(|error| {
                    reason.get_or_insert(error);
                    CronStep::Leave
                })
            };
            let ticked = match self.store.tick(only, &left, step).await {
                Ok(ticked) => ticked,
                // A cron is being changed at this moment: the next pass finds it.
                Err(error) if error.is_contention() => break,
                Err(error) => {
                    trouble.note("ticks", error);
                    break;
                }
            };
            crate::fault::point("cron.ticked");
            events += ticked.events.len();
            self.announce_ticks(&ticked).await;
            left.extend(ticked.left);
            if failed < FAILED_MAX {
                let published = self.publish(&ticked.notifications).await;
                failed = if published.is_ok() { 0 } else { failed + 1 };
                trouble.look("notifications of ticks", published);
            }
            if !ticked.more || self.is_over() {
                break;
            }
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
        if let (Some((canvas, cron)), Some(error)) = (left.first(), &reason) {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, %canvas, %cron, crons = left.len(), "this release can't read the schedule: its ticks wait");
        }
        trouble.ended().map(|()| events)
    }

    /// Ticks once a period until `over` is cancelled; returns the number of events.
    pub(super) async fn tick_until(&self, over: &CancellationToken) -> usize {
        let mut events = 0;
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => return events,
                () = tokio::time::sleep(self.store.timing().probe_period) => {}
            }
            match self.tick(None).await {
                Ok(ticks) => events += ticks,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "ticks of crons wait for the next check, one period later, or for their promises"
                    );
                }
            }
        }
    }

    /// Counts committed events of crons, broadcasts them, and announces their copies.
    pub(crate) async fn announce_ticks(&self, ticked: &TickOutcome) {
        ticked.events.iter().for_each(|event| self.store.count_emitted(&event.address.scope));
        self.broadcast(&ticked.events);
        if let Err(error) = self.store.announce(&ticked.copies).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "could not announce queue copies; they start when their notifications arrive"
            );
        }
    }

    /// Broadcasts committed ticks to listeners.
    fn broadcast(&self, events: &[NewEvent]) {
        let Some(broadcasts) = self.notifier.broadcasts() else { return };
        events.iter().for_each(|event| broadcasts.send(Broadcast::of(event, None)));
    }

    /// Like [`Self::tick`], for a cron that was just put or resumed. The change itself is
    /// committed, so errors are only logged: the next pass makes up for them.
    pub(crate) async fn tick_one(&self, canvas: CanvasId, name: &Name) {
        if let Err(error) = self.tick(Some((canvas, name))).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, %canvas, cron = %name, "the first ticks of a cron wait for the next pass, or for their promises");
        }
    }
}

/// The decision on a due cron; an error if this release can't read its schedule.
fn step(due: &CronDue, at: Moment, room: usize) -> Result<CronStep, InvalidSchedule> {
    crate::fault::point("cron.planned");
    let schedule = CronSchedule::new(&due.expression, &due.zone)?;
    let missed = due.missed.parse::<MissedTicks>().unwrap_or_default();
    let planned = plan(&schedule, missed, due.next_at, &at, room);
    if let Some(from) = planned.left_out {
        log_left_out(due, missed, from, planned.ticks.first().copied().or(planned.next));
    }
    Ok(CronStep::Emit(planned.ticks, planned.next))
}

fn log_left_out(due: &CronDue, missed: MissedTicks, from: Timestamp, until: Option<Timestamp>) {
    let until = until.map(|until| until.to_rfc3339());
    tracing::warn!(
        canvas = %due.canvas, cron = %due.name, %missed, %from, until, make_up_max = MAKE_UP_MAX,
        "ticks of a cron were missed and are skipped: from the first of them up to the next one that is emitted"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::event::Notification;
    use crate::notify::{Notifier, NotifyError, Subscription};
    use crate::store::tests::Table;
    use crate::store::tests::crowds::{FEW, MANY};

    /// A broker that is down; counts how often it is asked.
    #[derive(Default)]
    struct Down(AtomicUsize);

    #[async_trait::async_trait]
    impl Notifier for Down {
        async fn publish(&self, _: &[Notification]) -> Result<(), NotifyError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(NotifyError::new("down"))
        }

        async fn subscribe(&self, _: usize) -> Result<Box<dyn Subscription>, NotifyError> {
            unreachable!("nothing is received here")
        }
    }

    /// Several pages of crons, of two canvases: a broker that is down ends none of their ticks, and
    /// is not waited for at each page. The error is returned, and the promises wake the events.
    #[tokio::test]
    async fn a_broker_that_is_down_ends_no_tick() {
        let table = Table::new().await;
        table.due_crons(MANY, 150).await;
        table.due_crons(FEW, 100).await;
        let down = Arc::<Down>::default();
        let waker = Waker::new(table.store.clone(), Arc::clone(&down) as Arc<dyn Notifier>);
        let error = waker.tick(None).await.unwrap_err();
        assert!(matches!(error, WakeError::Notify(_)), "{error}");
        assert_eq!((table.ticks_of(MANY).await, table.ticks_of(FEW).await), (150, 100));
        assert_eq!(down.0.load(Ordering::Relaxed), FAILED_MAX);
        assert_eq!(waker.tick(None).await.unwrap(), 0, "none is emitted twice");
    }
}
