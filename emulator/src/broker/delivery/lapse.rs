//! The effects of time: leases expire, failed deliveries back off, are redelivered or are dead,
//! back-offs end.

use std::sync::Arc;
use std::time::Duration;

use super::list::NONE;
use super::slot::{Lane, State};
use super::{DeadLetter, Delivery, Holder, Time, Timer};

impl Delivery {
    /// Handles everything that is due, each at its time, so that one leap has the same effect as
    /// many steps.
    pub(super) fn catch_up(&mut self, now: Time) {
        while let Some(event) = self.next_event().filter(|event| *event <= now) {
            self.latest = self.latest.max(event);
            self.end_leases();
            self.ring_timers();
            self.drop_expired();
        }
        self.latest = self.latest.max(now);
    }

    /// When the next event may happen; never later than it does.
    fn next_event(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(time, _)| *time);
        [self.first_lapse, timer, self.oldest_ends()].into_iter().flatten().min()
    }

    /// Leases expire in the order of their ends, regardless of when they were granted.
    fn end_leases(&mut self) {
        while self.first_lapse.is_some_and(|first| first <= self.latest) {
            let next = self.next_lapse();
            self.first_lapse = next.map(|(until, ..)| until);
            if let Some((until, _, at)) = next.filter(|(until, ..)| *until <= self.latest) {
                self.fail(at, until);
            }
        }
    }

    /// The lease that expires next: when, its grant, and its slot. Examines one lease per duration.
    pub(super) fn next_lapse(&self) -> Option<(Time, u64, u32)> {
        let heads = self.leases.values().filter(|list| !list.is_empty()).map(|list| list.head);
        let ends = heads.filter_map(|at| match self.slots[at].state {
            State::Leased { until, .. } => Some((until, self.slots[at].grant, at)),
            State::Free
            | State::Ready { .. }
            | State::Waiting { .. }
            | State::Queued { .. }
            | State::Done
            | State::Kept => None,
        });
        ends.min()
    }

    fn ring_timers(&mut self) {
        while let Some((time, timer)) = self.timers.first().copied().filter(|(time, _)| *time <= self.latest)
        {
            self.forget_timer(time, timer);
            match timer {
                Timer::Message(at) => self.make_ready(at, self.slots[at].failures > 0),
                Timer::Key(key) => self.time_is_up(key),
            }
        }
    }

    /// Records a failed delivery: the client said so, or its lease expired at that time.
    pub(super) fn fail(&mut self, at: u32, since: Time) {
        self.end_lease(at);
        let slot = &mut self.slots[at];
        slot.failures += 1;
        let failures = slot.failures;
        if self.settings.dead_letter_after.is_some_and(|most| failures >= most) {
            self.dead_letter(at, failures);
            return;
        }
        self.note_pending(at);
        self.come_again(at, since + self.back_off(failures));
    }

    /// Makes a message whose lease has ended available again from that time on.
    pub(super) fn come_again(&mut self, at: u32, not_before: Time) {
        let key = self.slots[at].key;
        if key != NONE {
            self.slots[at].state = State::Queued { not_before };
            self.point_at(key, at);
            self.requeue_after(key, at);
            self.refresh_key(key);
        } else if not_before > self.latest {
            self.make_waiting(at, not_before);
        } else {
            self.make_ready(at, true);
        }
    }

    /// The minimum, doubled with each further failure, up to the maximum.
    fn back_off(&self, failures: u32) -> Duration {
        let Some(retry) = self.settings.retry else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        retry.minimum.saturating_mul(factor).min(retry.maximum.max(retry.minimum))
    }

    /// Hands a message over as dead; here it counts as acknowledged from now on.
    fn dead_letter(&mut self, at: u32, attempts: u32) {
        self.dead.push(DeadLetter { message: Arc::clone(&self.slots[at].message), attempts });
        self.discount(at);
        self.slots[at].state = State::Free;
        if self.slots[at].key != NONE {
            self.leave_line(at);
        }
        self.retire(at);
    }

    /// Ends a lease. The caller has to set the message's state.
    pub(super) fn end_lease(&mut self, at: u32) {
        let State::Leased { holder, span, .. } = self.slots[at].state else {
            return;
        };
        self.unlist_lease(at, span);
        self.tally.leased -= 1;
        let (size, key) = (self.slots[at].size as usize, self.slots[at].key);
        if key != NONE {
            let key = &mut self.keys[key];
            key.leased -= 1;
            if key.leased == 0 {
                (key.holder, key.mixed) = (None, false);
            }
        }
        if let Holder::Stream(stream) = holder {
            if let Some(load) = self.streams.get_mut(&stream) {
                load.messages -= 1;
                load.bytes -= size;
                // The stream has room for others, whenever this message becomes available again.
                self.awakened |= !load.closed;
            }
            self.forget_idle_stream(stream);
        }
    }

    pub(super) fn unlist_lease(&mut self, at: u32, span: Duration) {
        if let Some(list) = self.leases.get_mut(&span) {
            list.remove(&mut self.slots.items, Lane::Lease, at);
        }
    }
}
