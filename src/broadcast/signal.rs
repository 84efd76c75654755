//! Signals say that something may have changed that others wait for. They always reach this
//! process, and other processes where events are broadcast or Postgres is the notifier.
//!
//! A signal carries no data to rely on, and is never waited for: it may be lost, doubled or late,
//! so every watcher also polls.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::selection::Selection;
use super::{Broadcasts, ListenError, ListenItem};
use crate::event::{
    Broadcast, CanvasId, Category, Due, EventId, HandlerAddress, HandlerScope, Metadata, Name, spread,
};

/// How long a repeated signal waits before it is sent to other processes again.
const QUIET: Duration = Duration::from_millis(20);
/// Maximum number of signals that wait to be published.
const WAITING_MAX: usize = 10_000;
/// The first pause before another attempt to receive the signals of other processes; it doubles
/// each time.
const RETRY: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The name of the signal that events were cancelled.
const CANCELLATIONS: &str = "cancellations";

/// Something that may have changed.
///
/// ```
/// use wakeq::listeners::{Signal, Signals};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let signals = Signals::alone();
/// let grown = signals.watch(Signal::Log("companies".parse().unwrap()));
/// signals.send(Signal::Log("companies".parse().unwrap()));
/// assert!(grown.has_changed().unwrap());
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// The log, in this category.
    Log(Category),
    /// The log, in any category. Only to be watched; senders name the category.
    AnyLog,
    /// The sources that subscribers are given.
    Allocations,
    /// The events that were cancelled while they ran.
    Cancellations,
}

/// Signals from the code that changes something to the code that waits for it. Cheap to clone. Each
/// process has one, from [`Notifier::signals`](crate::notify::Notifier::signals).
#[derive(Clone)]
pub struct Signals {
    shared: Arc<SharedSignals>,
}

struct SharedSignals {
    /// Identifies this process's own signals, which are skipped when they come back.
    sender: Uuid,
    broadcasts: Option<Broadcasts>,
    state: Mutex<SignalsState>,
    /// Ends the task that receives the signals of other processes.
    closing: CancellationToken,
    _ends: DropGuard,
}

#[derive(Default)]
struct SignalsState {
    watched: HashMap<Signal, watch::Sender<u64>>,
    /// The signals that other processes have yet to receive, and whether a task is sending them.
    waiting: HashSet<Signal>,
    sending: bool,
    receiving: bool,
}

/// The JSON of a signal to other processes.
#[derive(Serialize, Deserialize)]
struct SignalJson {
    sender: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

impl Signals {
    /// Signals within this process only.
    pub fn alone() -> Self {
        Self::over(None)
    }

    /// Signals also to and from the other processes that share these broadcasts.
    pub fn over(broadcasts: Option<Broadcasts>) -> Self {
        let closing = CancellationToken::new();
        let ends = closing.clone().drop_guard();
        let state = Mutex::default();
        let shared = SharedSignals { sender: Uuid::new_v4(), broadcasts, state, closing, _ends: ends };
        Self { shared: Arc::new(shared) }
    }

    /// Signals that this may have changed. Call it after the commit. It never blocks and never
    /// fails. Must be called inside a tokio runtime.
    pub fn send(&self, signal: Signal) {
        let mut state = self.shared.state();
        state.raise(&signal);
        if self.shared.broadcasts.is_none() || state.waiting.len() >= WAITING_MAX {
            return;
        }
        state.waiting.insert(signal);
        if !std::mem::replace(&mut state.sending, true) {
            tokio::spawn(SignalSender(Arc::clone(&self.shared)).run());
        }
    }

    /// As [`Signals::send`], for a rare signal whose sender may end soon: also waits until it is
    /// published or lost, for at most this long.
    pub(crate) async fn send_within(&self, signal: Signal, limit: Duration) {
        self.shared.state().raise(&signal);
        if let Some(broadcasts) = &self.shared.broadcasts
            && let Some(broadcast) = broadcast(self.shared.sender, &signal)
            && tokio::time::timeout(limit, broadcasts.publish(&broadcast)).await != Ok(true)
        {
            tracing::info!(?signal, "other processes may not have received a signal: they find out later");
        }
    }

    /// The receiver changes whenever this may have changed, from now on, as long as these signals
    /// exist. Must be called inside a tokio runtime.
    pub fn watch(&self, signal: Signal) -> watch::Receiver<u64> {
        let receiver = self.watch_here(signal);
        self.receive();
        receiver
    }

    /// As [`Signals::watch`], without making this process receive the signals of others.
    pub(crate) fn watch_here(&self, signal: Signal) -> watch::Receiver<u64> {
        let mut state = self.shared.state();
        if !state.watched.contains_key(&signal) {
            state.watched.retain(|_, sender| sender.receiver_count() > 0);
        }
        state.watched.entry(signal).or_default().subscribe()
    }

    /// Makes this process receive the signals of others from now on. Must be called inside a tokio
    /// runtime.
    pub(crate) fn receive(&self) {
        let mut state = self.shared.state();
        if let Some(broadcasts) = &self.shared.broadcasts
            && !std::mem::replace(&mut state.receiving, true)
        {
            let receiving = receive_signals(Arc::downgrade(&self.shared), broadcasts.clone());
            let closing = self.shared.closing.clone();
            tokio::spawn(async move { closing.run_until_cancelled(receiving).await });
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl SharedSignals {
    fn state(&self) -> MutexGuard<'_, SignalsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises a signal of another process.
    fn receive(&self, item: &ListenItem) {
        match item {
            ListenItem::Event(broadcast) => {
                let wire: Option<SignalJson> =
                    broadcast.value.as_deref().and_then(|value| serde_json::from_str(value).ok());
                let Some(wire) = wire.filter(|wire| wire.sender != self.sender) else { return };
                let name = broadcast.address.scope.name.as_str();
                let signal = match wire.log.map(|category| category.parse()) {
                    Some(Ok(category)) => Signal::Log(category),
                    // From a release that names categories differently.
                    Some(Err(_)) => Signal::AnyLog,
                    None if name == CANCELLATIONS => Signal::Cancellations,
                    None => Signal::Allocations,
                };
                self.state().raise(&signal);
            }
            ListenItem::Missed(_) => self.state().raise_all(),
        }
    }
}

impl SignalsState {
    fn raise(&self, signal: &Signal) {
        let raise = |signal: &Signal| {
            if let Some(sender) = self.watched.get(signal) {
                sender.send_modify(|count| *count += 1);
            }
        };
        raise(signal);
        match signal {
            Signal::Log(_) => raise(&Signal::AnyLog),
            Signal::AnyLog | Signal::Allocations | Signal::Cancellations => {}
        }
    }

    fn raise_all(&self) {
        self.watched.values().for_each(|sender| sender.send_modify(|count| *count += 1));
    }
}

/// The task that sends signals to other processes. However it ends, another one can be started.
struct SignalSender(Arc<SharedSignals>);

impl SignalSender {
    async fn run(self) {
        loop {
            let waiting: Vec<Signal> = {
                let mut state = self.0.state();
                if state.waiting.is_empty() {
                    state.sending = false;
                    return;
                }
                state.waiting.drain().collect()
            };
            if let Some(broadcasts) = &self.0.broadcasts {
                let outgoing = waiting.iter().filter_map(|signal| broadcast(self.0.sender, signal));
                outgoing.for_each(|broadcast| broadcasts.send(broadcast));
            }
            tokio::time::sleep(QUIET).await;
        }
    }
}

impl Drop for SignalSender {
    fn drop(&mut self) {
        self.0.state().sending = false;
    }
}

/// The signal as a broadcast on a canvas that no tenant has.
fn broadcast(sender: Uuid, signal: &Signal) -> Option<Broadcast> {
    let (name, log) = match signal {
        Signal::Log(category) => ("log", Some(category.to_string())),
        Signal::AnyLog => return None,
        Signal::Allocations => ("allocations", None),
        Signal::Cancellations => (CANCELLATIONS, None),
    };
    let scope = HandlerScope {
        canvas: CanvasId::OF_SIGNALS,
        module: "SIGNAL".parse().ok()?,
        name: name.parse().ok()?,
    };
    Some(Broadcast {
        id: EventId::new(),
        address: HandlerAddress { scope, modifier: Name::no_modifier() },
        value: serde_json::to_string(&SignalJson { sender, log }).ok(),
        metadata: Metadata::root(),
        place: None,
        due: Due::Now,
    })
}

/// Receives the signals of other processes, as long as these signals exist. Says once that it
/// can't: an account may have no right to listen, and much works without.
async fn receive_signals(shared: Weak<SharedSignals>, broadcasts: Broadcasts) {
    let (mut wait, mut is_told) = (RETRY, false);
    loop {
        let Ok(pattern) = "*:SIGNAL:*".parse() else { return };
        match broadcasts.listen(Selection::new(pattern, Some(vec![CanvasId::OF_SIGNALS]))).await {
            Ok(mut listener) => {
                // Signals that were sent before it listened were missed.
                let Some(watching) = shared.upgrade() else { return };
                watching.state().raise_all();
                drop(watching);
                while let Some(item) = listener.next().await {
                    let Some(shared) = shared.upgrade() else { return };
                    shared.receive(&item);
                }
                return;
            }
            Err(ListenError::Ending) => return,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                if std::mem::replace(&mut is_told, true) {
                    tracing::debug!(error, retry = ?wait, "still without the signals of other processes");
                } else {
                    tracing::warn!(
                        error,
                        "the signals of other processes are not received, which is tried again: their changes \
                         are found later, by polling"
                    );
                }
            }
        }
        tokio::time::sleep(spread(wait)).await;
        wait = (wait * 2).min(RETRY_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn log(category: &str) -> Signal {
        Signal::Log(category.parse().unwrap())
    }

    async fn changes(receiver: &mut watch::Receiver<u64>) {
        tokio::time::timeout(PATIENCE, receiver.changed()).await.expect("no signal came").unwrap();
    }

    #[tokio::test]
    async fn a_watcher_of_a_category_gets_only_its_signals() {
        let signals = Signals::alone();
        let (companies, contacts) = (signals.watch(log("companies")), signals.watch(log("contacts")));
        let (any, allocations) = (signals.watch(Signal::AnyLog), signals.watch(Signal::Allocations));
        signals.send(log("companies"));
        let changed = [&companies, &contacts, &any, &allocations].map(|one| one.has_changed().unwrap());
        assert_eq!(changed, [true, false, true, false]);
        signals.send(Signal::Allocations);
        assert!(allocations.has_changed().unwrap() && !contacts.has_changed().unwrap());
    }

    /// As if there were two processes: one receives what the other sends, and its own signals only
    /// once.
    #[tokio::test]
    async fn signals_reach_other_processes_over_broadcasts() {
        let broadcasts = Broadcasts::local();
        let (here, there) =
            (Signals::over(Some(broadcasts.clone())), Signals::over(Some(broadcasts.clone())));
        let mut watcher = there.watch(log("companies"));
        // When it starts to listen, it signals that something may have been missed.
        changes(&mut watcher).await;
        let mut own = here.watch(log("companies"));
        changes(&mut own).await;
        here.send(log("companies"));
        changes(&mut watcher).await;
        there.send(log("contacts"));
        there.send(log("companies"));
        changes(&mut own).await;
        changes(&mut own).await;
        assert_eq!(*own.borrow(), 3, "the beginning, its own, the other's");
    }

    /// A process that does not watch for more than its own signals has no subscription.
    #[tokio::test]
    async fn signals_of_other_processes_arrive_only_after_receiving_has_begun() {
        let broadcasts = Broadcasts::local();
        let (here, there) =
            (Signals::over(Some(broadcasts.clone())), Signals::over(Some(broadcasts.clone())));
        let mut watcher = here.watch_here(Signal::Cancellations);
        there.send_within(Signal::Cancellations, PATIENCE).await;
        assert!(!watcher.has_changed().unwrap());
        here.send_within(Signal::Cancellations, PATIENCE).await;
        changes(&mut watcher).await;
        here.receive();
        changes(&mut watcher).await;
        there.send_within(Signal::Cancellations, PATIENCE).await;
        changes(&mut watcher).await;
        assert_eq!(*watcher.borrow(), 3, "its own, the beginning, the other's");
    }

    #[tokio::test]
    async fn tenants_and_listeners_to_everything_receive_no_signals() {
        let broadcasts = Broadcasts::local();
        let mut everything = broadcasts.subscribe("*").await.unwrap();
        let signals = Signals::over(Some(broadcasts.clone()));
        signals.send(Signal::Allocations);
        let plain = crate::broadcast::tests::broadcast("view", "1");
        broadcasts.flush(PATIENCE).await;
        broadcasts.send(plain.clone());
        assert_eq!(everything.next().await, Some(ListenItem::Event(Box::new(plain))));
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_signals_are_coalesced() {
        let broadcasts = Broadcasts::local();
        let (here, there) =
            (Signals::over(Some(broadcasts.clone())), Signals::over(Some(broadcasts.clone())));
        let mut watcher = there.watch(log("companies"));
        changes(&mut watcher).await;
        for _ in 0..1_000 {
            here.send(log("companies"));
        }
        changes(&mut watcher).await;
        broadcasts.close(PATIENCE).await;
        assert!(*watcher.borrow() <= 3, "{}", *watcher.borrow());
    }

    #[tokio::test]
    async fn signals_stop_when_the_last_handle_is_dropped() {
        let broadcasts = Broadcasts::local();
        let signals = Signals::over(Some(broadcasts.clone()));
        let mut watcher = signals.watch(Signal::AnyLog);
        changes(&mut watcher).await;
        drop(signals);
        assert!(watcher.changed().await.is_err(), "the watch ends with the signals");
        tokio::time::timeout(PATIENCE, async {
            broadcasts.listeners.close();
            broadcasts.listeners.wait().await;
        })
        .await
        .expect("the listener is left");
    }
}
