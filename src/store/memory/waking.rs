//! The minute's statement, resume jobs, and renewed promises.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use super::batch_row::MemberEnd;
use super::lanes::lane_of;
use super::{LiveRow, Tables};
use crate::event::{
    CanvasId, EndedOutcome, EventId, HandlerAddress, HandlerScope, Lane, Notification, RuleKind, RuleReach,
    Timestamp,
};
use crate::store::events::{AttemptEnd, CANCELLED_PAGE, ResumePage};
use crate::store::kernel::StoreError;
use crate::store::minute::{MakingDue, MinuteOutcome};
use crate::store::queues::PulledSplit;

impl Tables {
    /// There are no queues in memory.
    pub(in crate::store) fn split_pulled(
        &self,
        notifications: &[Notification],
    ) -> Result<PulledSplit, StoreError> {
        let as_its_row = |told: &Notification| {
            let row = self.events.get(&told.id);
            told.urgent_if(row.is_some_and(|row| row.notification().urgent))
        };
        let workers = notifications.iter().map(as_its_row).collect();
        Ok(PulledSplit { workers, ..PulledSplit::default() })
    }

    /// Lifts one rule that reached its end, moves what is overdue, lists open jobs; does nothing
    /// unless it is due.
    pub(in crate::store) fn minute(&mut self, again: bool) -> Result<MinuteOutcome, StoreError> {
        let period = self.timing.probe_period;
        let open = again || self.next_pass_at <= self.now || self.next_pass_at > self.now + 2 * period;
        if !open {
            return Ok(MinuteOutcome { open, seen: true, ..MinuteOutcome::default() });
        }
        self.next_pass_at = self.now + period;
        let expired = self.rules.iter().find(|(_, rule)| rule.until.is_some_and(|until| until <= self.now));
        let expired: Option<(_, RuleKind)> = expired.map(|(key, _)| key.clone());
        if let Some(key) = &expired {
            self.rules.remove(key);
            self.make_job(key.0.clone(), true);
        }
        let overdue = self.events.iter().filter(|(_, row)| row.notify_at.is_some_and(|at| at <= self.now));
        let overdue: Vec<EventId> =
            overdue.map(|(id, _)| *id).take(ResumePage::EVENTS_MAX as usize).collect();
        let more = overdue.len() as i64 >= ResumePage::EVENTS_MAX || expired.is_some();
        let mut notifications = Vec::new();
        let mut recovered = 0;
        for id in overdue {
            let Some(row) = self.events.get(&id) else { continue };
            let moved = self.moved(row);
            recovered += usize::from(moved.counts);
            if moved.publish {
                notifications.push(row.notification());
            }
            if let Some(row) = self.events.get_mut(&id) {
                row.notify_at = Some(moved.notify_at);
                row.probes += i32::from(moved.counts);
            }
        }
        let operations = self.operation_jobs.iter();
        let operations = operations.filter_map(|(id, of)| Some((self.operations.get(&of.id)?.canvas, *id)));
        let jobs = self.jobs.iter().map(|(id, job)| (job.scope.canvas, *id)).chain(operations).collect();
        Ok(MinuteOutcome {
            notifications,
            recovered,
            jobs,
            crons: false,
            queues: false,
            cancelled: self.events.values().any(|row| row.cancelled_by.is_some()),
            batches: self.has_open_batches(),
            limits: !again && !self.limits.waits.is_empty(),
            log: false,
            more,
            open,
            seen: true,
            failed: Vec::new(),
        })
    }

    pub(in crate::store) fn remove_unclaimed_cancelled(&mut self) -> Result<(usize, Vec<Lane>), StoreError> {
        let free = |row: &LiveRow| row.cancelled_by.is_some() && self.is_free(row);
        let page = self.events.iter().filter(|(_, row)| free(row)).map(|(id, _)| *id);
        let page: Vec<EventId> = page.take(CANCELLED_PAGE).collect();
        let gone: Vec<LiveRow> = page.iter().filter_map(|id| self.events.remove(id)).collect();
        gone.iter().for_each(|row| self.leave_batch(row, MemberEnd::Cancelled));
        for row in &gone {
            self.add_tombstone(row, "cancelled");
            let by = row.cancelled_by.as_deref();
            self.keep_ended(row, EndedOutcome::Cancelled, &AttemptEnd::default(), by);
        }
        gone.iter().for_each(|row| self.arm_first_of(row));
        let lanes: BTreeSet<Lane> = gone.iter().filter_map(lane_of).collect();
        Ok((gone.len(), lanes.into_iter().collect()))
    }

    fn moved(&self, row: &LiveRow) -> PromiseMove {
        let timing = &self.timing;
        let runs = row.locked_at.filter(|locked_at| *locked_at > self.now - timing.lease);
        let delayed = row.delay_until > self.now;
        let notify_at = match runs {
            Some(locked_at) => locked_at + timing.lease + timing.grace,
            None if delayed => self.wake_at(row.delay_until, timing.grace),
            None => {
                let doubled = timing.probe_backoff.saturating_mul(1 << row.probes.clamp(0, 20));
                self.now + doubled.min(timing.probe_backoff_max)
            }
        };
        PromiseMove {
            notify_at,
            publish: runs.is_none() && self.is_due_soon(row),
            counts: runs.is_none() && !delayed,
        }
    }

    /// The durations of tables in memory do not change.
    pub(in crate::store) fn compare_timing(&self) -> Result<(), StoreError> {
        Ok(())
    }

    pub(in crate::store) fn hasten_minute(&mut self, within: Duration) -> Result<(), StoreError> {
        if self.next_pass_at <= self.now + within {
            self.next_pass_at = self.next_pass_at.min(self.now);
        }
        Ok(())
    }

    /// Tables in memory have no audit log.
    pub(in crate::store) fn note_wake_all(&self) -> Result<(), StoreError> {
        Ok(())
    }

    pub(in crate::store) fn make_due(&mut self, progress: &mut MakingDue) -> Result<u64, StoreError> {
        progress.is_over = true;
        let (now, within) = (self.now, self.now + self.timing.horizon);
        let mut moved = 0;
        for row in self.events.values_mut() {
            let promised_later = row.notify_at.is_some_and(|at| at > now);
            if promised_later && row.delay_until <= within && row.locked_at.is_none() {
                row.notify_at = Some(now);
                row.probes = 0;
                moved += 1;
            }
        }
        self.next_pass_at = now;
        Ok(moved)
    }

    pub(in crate::store) fn promise_again(&mut self, ids: &[EventId]) -> Result<(), StoreError> {
        let again = self.now + self.timing.grace;
        for id in ids {
            if !self.events.get(id).is_some_and(|row| self.is_free(row)) {
                continue;
            }
            if let Some(row) = self.events.get_mut(id) {
                row.notify_at = row.notify_at.map(|_| again);
                row.probes = (row.probes - 1).max(0);
            }
        }
        Ok(())
    }

    pub(in crate::store) fn still_waiting(
        &mut self,
        ids: &[EventId],
    ) -> Result<HashSet<EventId>, StoreError> {
        let waits =
            |row: &LiveRow| row.notify_at.is_some() && row.locked_at.is_none() && row.delay_until <= self.now;
        Ok(ids.iter().copied().filter(|id| self.events.get(id).is_some_and(waits)).collect())
    }

    pub(in crate::store) fn of_handlers(
        &self,
        asked: &[Notification],
        any_canvas: &[String],
        one_canvas: &[String],
    ) -> Result<HashSet<EventId>, StoreError> {
        let is_of_them = |told: &&Notification| {
            let row = self.events.get(&told.id).filter(|row| row.address().scope.canvas == told.canvas);
            row.is_some_and(|row| {
                let HandlerAddress { scope, modifier } = row.address();
                let key = format!("{}/{}/{modifier}", scope.module, scope.name);
                any_canvas.contains(&key) || one_canvas.contains(&format!("{}/{key}", scope.canvas))
            })
        };
        Ok(asked.iter().filter(is_of_them).map(|told| told.id).collect())
    }

    pub(in crate::store) fn other_canvas(
        &mut self,
        canvas: CanvasId,
    ) -> Result<Option<CanvasId>, StoreError> {
        let soon = self.now + self.timing.horizon;
        let due = self.events.values().filter(|row| row.delay_until <= soon);
        Ok(due.map(|row| row.notification().canvas).filter(|other| *other != canvas).min())
    }

    pub(in crate::store) fn postpone(&mut self, later: &[(EventId, Duration)]) -> Result<(), StoreError> {
        for (id, wait) in later {
            let Some(row) = self.events.get(id).filter(|row| self.is_free(row)) else { continue };
            let again = (row.delay_until + self.timing.grace).max(self.now + *wait);
            let counted = i32::from(row.delay_until <= self.now);
            if let Some(row) = self.events.get_mut(id) {
                row.notify_at = row.notify_at.map(|_| again);
                row.probes = (row.probes - counted).max(0);
            }
        }
        Ok(())
    }

    pub(in crate::store) fn bring_forward(
        &mut self,
        asked: &[(EventId, Duration)],
    ) -> Result<(), StoreError> {
        for (id, wait) in asked {
            let latest = self.now + *wait;
            if let Some(row) = self.events.get_mut(id) {
                row.notify_at = row.notify_at.map(|at| at.min(latest));
            }
        }
        Ok(())
    }

    /// Runs the whole job, since nothing can come between its pages here. That of a lifted rule
    /// wakes what no other rule holds.
    pub(in crate::store) fn resume_page(&mut self, job: i64) -> Result<ResumePage, StoreError> {
        if let Some(page) = self.operation_page(job)? {
            return Ok(page);
        }
        let mut notifications = Vec::new();
        if let Some(job) = self.jobs.remove(&job) {
            let deferred = |row: &LiveRow| {
                let later = row.notify_at.is_some_and(|at| {
                    at > self.now + self.timing.grace
                        && at <= job.created_at + self.timing.defer_for(row.probes.unsigned_abs())
                });
                later && row.delay_until <= self.now && self.is_free(row)
            };
            let parked =
                |row: &LiveRow| row.notify_at.is_none() && self.rule_on(&row.address().scope).is_none();
            let waits = |row: &LiveRow| if job.lifted { parked(row) } else { deferred(row) };
            let concerns = |scope: &HandlerScope| match job.scope.reach() {
                RuleReach::Handler => *scope == job.scope,
                RuleReach::Canvas => scope.canvas == job.scope.canvas,
                RuleReach::Everything => true,
            };
            let woken = self.events.iter().filter(|(_, row)| concerns(&row.address().scope) && waits(row));
            let woken: Vec<(EventId, Timestamp)> =
                woken.map(|(id, row)| (*id, self.wake_at(row.delay_until, self.timing.grace))).collect();
            for (id, notify_at) in woken {
                let Some(row) = self.events.get_mut(&id) else { continue };
                (row.notify_at, row.probes) = (Some(notify_at), 0);
                let row = row.clone();
                if self.is_due_soon(&row) {
                    notifications.push(row.notification());
                }
            }
        }
        Ok(ResumePage { notifications, ..ResumePage::default() })
    }
}

/// Where an overdue promise is moved.
struct PromiseMove {
    notify_at: Timestamp,
    publish: bool,
    counts: bool,
}
