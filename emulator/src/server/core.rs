//! The broker, its lock, and its time. Every access goes through [`Core::with`], which passes the
//! broker the time, and afterwards wakes the tasks that wait for what has changed.
//!
//! The lock is held for one request's work in memory, and never across an await. A panic while it
//! is held is a bug in the broker; later requests use the state that it left, rather than none.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::stderr;
use super::waiting::{Bells, Waiter};
use crate::broker::{Broker, Time};
use crate::clock::Clock;

pub(crate) struct Core {
    state: Mutex<State>,
    clock: Clock,
    bells: Arc<Bells>,
    /// Notified when the broker has something due before [`Core::drive`] would wake up.
    sooner: Notify,
    /// Notified when something happened in any subscription.
    activity: Notify,
    stop: CancellationToken,
}

struct State {
    broker: Broker,
    /// A machine's clock may be set back; the broker's time never runs backwards.
    latest: Time,
    /// When [`Core::drive`] wakes up next; `None` for never.
    alarm: Option<Time>,
}

impl Core {
    pub(crate) fn new(broker: Broker, clock: Clock, stop: CancellationToken) -> Self {
        let latest = clock.now();
        Self {
            state: Mutex::new(State { broker, latest, alarm: None }),
            clock,
            bells: Arc::default(),
            sooner: Notify::new(),
            activity: Notify::new(),
            stop,
        }
    }

    /// Runs `work` with the broker and the current time, after everything that was due before.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Broker, Time) -> T) -> T {
        self.turn(|state, now| work(&mut state.broker, now))
    }

    fn turn<T>(&self, work: impl FnOnce(&mut State, Time) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.latest.max(self.clock.now());
        state.latest = now;
        if state.broker.next_due().is_some_and(|due| due <= now) {
            state.broker.advance(now);
        }
        let answer = work(&mut state, now);
        let woken = state.broker.take_woken();
        let notices = state.broker.take_notices();
        let due = state.broker.next_due();
        let sooner = due.is_some_and(|due| state.alarm.is_none_or(|alarm| due < alarm));
        if sooner {
            state.alarm = due;
        }
        drop(state);
        if sooner {
            self.sooner.notify_one();
        }
        if !woken.is_empty() {
            self.bells.ring(&woken);
            self.activity.notify_one();
        }
        for notice in notices {
            stderr::say(format!("pubsub-emulator: {notice}\n"));
        }
        answer
    }

    /// Advances the broker whenever something is due, until it is stopped.
    pub(super) async fn drive(&self) {
        loop {
            let alarm = self.turn(|state, _| {
                state.alarm = state.broker.next_due();
                state.alarm
            });
            let due = async {
                match alarm {
                    Some(time) => self.clock.sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.sooner.notified() => {}
                () = due => {}
            }
        }
    }

    /// Starts to wait at a subscription's bell.
    pub(super) fn wait_at(&self, subscription: &str) -> Waiter {
        self.bells.at(subscription)
    }

    /// Waits until something has happened in any subscription since the last call; only one task
    /// may wait.
    pub(super) async fn activity(&self) {
        self.activity.notified().await;
    }

    /// Cancelled when the emulator stops.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}
