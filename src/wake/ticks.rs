//! The ticks of crons: emits the events of the schedules, and publishes them after the commit.
//!
//! Which ticks a schedule has is decided in `cron`; that none is emitted twice, in the store.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{PAGE_PERIOD, WakeError, Waker};
use crate::cron::{CronSchedule, InvalidSchedule, MAKE_UP_MAX, MissedTicks, Moment, plan};
use crate::event::{Broadcast, CanvasId, Name, NewEvent, Timestamp};
use crate::store::{CronDue, CronStep};

/// A tick found within this time is late rather than missed, however short the passes' period.
const LATE_LEAST: Duration = Duration::from_secs(60);

impl Waker {
    /// Emits the due ticks of all crons, or of one, and those that will be due before the next
    /// pass. Returns the number of events.
    pub(crate) async fn tick(&self, only: Option<(CanvasId, &Name)>) -> Result<usize, WakeError> {
        let (mut events, mut left, mut reason) = (0, Vec::new(), None);
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
                // A cron is being changed at this moment: the next pass finds it.
                Err(error) if error.is_contention() => break,
                ticked => ticked?,
            };
            crate::fault::point("cron.ticked");
            events += ticked.events.len();
            self.broadcast(&ticked.events);
            left.extend(ticked.left);
            if let Err(error) = self.store.announce(&ticked.copies).await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "copies were not announced to their queues; their notifications will announce them"
                );
            }
            self.publish(&ticked.notifications).await?;
            if !ticked.more || self.is_over() {
                break;
            }
            tokio::time::sleep_until(started + PAGE_PERIOD).await;
        }
        if let (Some((canvas, cron)), Some(error)) = (left.first(), &reason) {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, %canvas, %cron, crons = left.len(), "this release can't read the schedule: its ticks wait");
        }
        Ok(events)
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
                    tracing::warn!(error, "ticks of crons wait for the next check, one period later");
                }
            }
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
            tracing::warn!(error, %canvas, cron = %name, "the first ticks of a cron wait for the next pass");
        }
    }
}

/// What to do for a due cron; an error if this release can't read its schedule.
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
