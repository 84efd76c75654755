//! The broker, its lock, and its time. Every access goes through [`Core::with`], which passes the
//! broker the time, and afterwards wakes the tasks that wait for what has changed.
//!
//! The lock is held for one request's work in memory, and never across an await. A panic while it
//! is held is a bug in the broker; later requests use the state that it left, rather than none.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::data::{Journal, Position};
use super::stderr;
use super::waiting::{Bells, Waiter};
use crate::broker::{Answer, Broker, Refusal, Time};
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
    /// Where changes are written, if they are.
    journal: Option<Journal>,
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
            journal: None,
        }
    }

    /// The same, which has all changes written.
    pub(crate) fn with_journal(self, journal: Option<Journal>) -> Self {
        Self { journal, ..self }
    }

    /// Runs `work` with the broker and the current time, after everything that was due before.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Broker, Time) -> T) -> T {
        self.turn(|state, now| work(&mut state.broker, now)).0
    }

    /// The same, and waits until what it changed is written. Before that, it waits while too much
    /// waits to be written already. Without a journal, it does not wait.
    ///
    /// If nothing can be written any more, or the emulator stops, it is refused before it changes
    /// anything.
    pub(super) async fn change<T>(&self, work: impl FnOnce(&mut Broker, Time) -> T) -> Answer<T> {
        let mut work = Some(work);
        loop {
            self.room().await?;
            let (answer, position) = self.turn(|state, now| {
                // Others may have taken the room.
                let work = if self.is_full() { None } else { work.take() };
                work.map(|work| work(&mut state.broker, now))
            });
            if let Some(answer) = answer {
                self.written(position).await?;
                return Ok(answer);
            }
        }
    }

    /// Whether so much waits to be written that nothing more should be changed, and no message be
    /// delivered.
    pub(super) fn is_full(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_full)
    }

    /// Waits while too much waits to be written.
    pub(super) async fn room(&self) -> Answer<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        tokio::select! {
            biased;
            room = journal.room() => room.map_err(|reason| unwritten(&reason)),
            () = self.stop.cancelled() => Err(stopping()),
        }
    }

    /// Waits until everything that was changed so far is written.
    pub(crate) async fn saved(&self) -> Answer<()> {
        match &self.journal {
            Some(journal) => self.written(journal.latest()).await,
            None => Ok(()),
        }
    }

    /// Has everything written that was changed so far, and nothing after that.
    pub(crate) async fn close(&self) {
        if let Some(journal) = &self.journal {
            journal.close().await;
        }
    }

    async fn written(&self, position: Position) -> Answer<()> {
        let Some(journal) = self.journal.as_ref().filter(|_| position != Position::default()) else {
            return Ok(());
        };
        journal.written(position).await.map_err(|reason| unwritten(&reason))
    }

    fn turn<T>(&self, work: impl FnOnce(&mut State, Time) -> T) -> (T, Position) {
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
        let position = self.journal.as_ref().map(|journal| journal.add(&state.broker)).unwrap_or_default();
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
        (answer, position)
    }

    /// Advances the broker whenever something is due, until it is stopped.
    pub(super) async fn drive(&self) {
        loop {
            let (alarm, _) = self.turn(|state, _| {
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

/// The refusal that open calls receive when the emulator stops.
pub(super) fn stopping() -> Refusal {
    Refusal::new(Code::Unavailable, "The emulator is shutting down.")
}

fn unwritten(reason: &str) -> Refusal {
    Refusal::new(Code::Internal, format!("The change was not written to the data folder: {reason}."))
}
