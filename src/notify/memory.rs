//! A notifier inside the process, for tests and for trying things out.
//!
//! Honest by default: first in, first out, nothing lost, what is put back comes again. Hostile when told, by a seed.
//! It runs on tokio's clock, so that a test can pause time. Its state dies with the process: never for production.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::{Answer, Delivery, Notifier, NotifyError, Subscription};
use crate::event::{CanvasId, EventId, Notification};

/// How long a message that was put back stays away, unless told otherwise.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// An in-process notifier; clones share their messages.
///
/// ```
/// use wakeq::{CanvasId, EventId, Notification};
/// use wakeq::notify::{MemoryNotifier, Notifier};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let notifier = MemoryNotifier::new();
/// let notification = Notification { id: EventId::new(), canvas: CanvasId(Default::default()) };
/// notifier.publish(&[notification]).await.unwrap();
/// let mut subscription = notifier.subscribe(10).await.unwrap();
/// let delivery = subscription.next().await.unwrap();
/// assert_eq!(delivery.notification.as_ref().unwrap(), &notification);
/// delivery.acknowledge();
/// assert_eq!(notifier.pending(), 0);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryNotifier {
    shared: Arc<Shared>,
}

/// How likely each published message meets a mishap, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// It is never delivered.
    pub lose: f64,
    /// It is delivered twice.
    pub double: f64,
    /// It comes late, by up to `longest_delay`.
    pub delay: f64,
    /// It overtakes messages published before it.
    pub reorder: f64,
    /// A message that nobody published comes with it: of an event that does not exist, or no notification at all.
    pub forge: f64,
    /// The upper bound of a delay. Default 1 s.
    pub longest_delay: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            lose: 0.0,
            double: 0.0,
            delay: 0.0,
            reorder: 0.0,
            forge: 0.0,
            longest_delay: Duration::from_secs(1),
        }
    }
}

impl Default for MemoryNotifier {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryNotifier {
    /// An honest one.
    pub fn new() -> Self {
        Self::hostile(0, Faults::default())
    }

    /// One that mistreats messages, in a way that depends only on the seed and the order of publishing.
    pub fn hostile(seed: u64, faults: Faults) -> Self {
        let state = State { random: SplitMix(seed), faults, retry_delay: RETRY_DELAY, ..State::default() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() }) }
    }

    /// Sets for how long a message that was put back stays away. Default 10 ms.
    pub fn with_retry_delay(self, retry_delay: Duration) -> Self {
        self.shared.lock().retry_delay = retry_delay;
        self
    }

    /// Every notification published so far, in order, whatever became of it.
    pub fn published(&self) -> Vec<Notification> {
        self.shared.lock().published.clone()
    }

    /// How many messages wait to be delivered, now or later.
    pub fn pending(&self) -> usize {
        self.shared.lock().waiting()
    }

    /// How many deliveries nobody has answered yet.
    pub fn unanswered(&self) -> usize {
        self.shared.lock().unanswered_by_all()
    }

    /// Returns once no message waits and no delivery is unanswered.
    pub async fn drained(&self) {
        self.shared.until(|state| (state.waiting() + state.unanswered_by_all() == 0).then_some(())).await;
    }

    /// Delivers a body that no notification was made into.
    pub fn inject(&self, body: &[u8]) {
        self.shared.change(|state| state.enqueue(body.to_vec()));
    }

    /// Loses every message, delivered or not, as a broker does that is killed.
    pub fn forget_everything(&self) {
        self.shared.change(|state| {
            state.ready.clear();
            state.delayed.clear();
            state.unanswered.clear();
        });
    }

    /// Hands out nothing more until [`MemoryNotifier::step`] or [`MemoryNotifier::resume`].
    pub fn pause(&self) {
        self.shared.change(|state| state.steps_left = Some(0));
    }

    /// Lets so many more deliveries out of a paused notifier.
    pub fn step(&self, deliveries: usize) {
        self.shared.change(|state| state.steps_left = Some(state.steps_left.unwrap_or(0) + deliveries));
    }

    /// Hands out everything again.
    pub fn resume(&self) {
        self.shared.change(|state| state.steps_left = None);
    }

    /// Until [`MemoryNotifier::mend`], publishing fails with these words, nothing is delivered, and subscriptions
    /// are in trouble.
    pub fn break_down(&self, words: &str) {
        self.shared.change(|state| state.broken = Some(words.to_owned()));
    }

    /// Ends [`MemoryNotifier::break_down`].
    pub fn mend(&self) {
        self.shared.change(|state| state.broken = None);
    }
}

#[async_trait]
impl Notifier for MemoryNotifier {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        self.shared.change(|state| {
            if let Some(words) = &state.broken {
                return Err(NotifyError::new(words.clone()));
            }
            for notification in notifications {
                state.published.push(*notification);
                state.mistreat(notification.body());
            }
            Ok(())
        })
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        if max_outstanding == 0 {
            return Err(NotifyError::new("max_outstanding is 0; use at least 1"));
        }
        let subscriber = self.shared.change(State::new_number);
        Ok(Box::new(MemorySubscription { shared: Arc::clone(&self.shared), subscriber, max_outstanding }))
    }
}

struct MemorySubscription {
    shared: Arc<Shared>,
    subscriber: u64,
    max_outstanding: usize,
}

#[async_trait]
impl Subscription for MemorySubscription {
    async fn next(&mut self) -> Option<Delivery> {
        let (message, body) =
            self.shared.until(|state| state.hand_out(self.subscriber, self.max_outstanding)).await;
        let answer = MemoryAnswer { shared: Arc::clone(&self.shared), subscriber: self.subscriber, message };
        Some(Delivery::new(&body, Box::new(answer)))
    }

    fn trouble(&self) -> Option<String> {
        self.shared.lock().broken.clone()
    }

    async fn close(self: Box<Self>, grace: Duration) {
        let answered = self.shared.until(|state| (state.unanswered_by(self.subscriber) == 0).then_some(()));
        // What is left unanswered is put back by the drop.
        let _ = timeout(grace, answered).await;
    }
}

impl Drop for MemorySubscription {
    fn drop(&mut self) {
        self.shared.change(|state| state.give_back_all_of(self.subscriber));
    }
}

struct MemoryAnswer {
    shared: Arc<Shared>,
    subscriber: u64,
    message: u64,
}

impl fmt::Debug for MemoryAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MemoryAnswer({})", self.message)
    }
}

impl Answer for MemoryAnswer {
    fn acknowledge(self: Box<Self>) {
        self.shared.change(|state| state.acknowledge(self.subscriber, self.message));
    }

    fn put_back(self: Box<Self>) {
        self.shared.change(|state| state.put_back(self.subscriber, self.message));
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_waiters();
        changed
    }

    /// Asks again after every change, and whenever a delayed message is due, until there is an answer.
    async fn until<T>(&self, mut ask: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let next_due = {
                let mut state = self.lock();
                state.release_due(Instant::now());
                if let Some(answer) = ask(&mut state) {
                    drop(state);
                    self.changed.notify_waiters();
                    return answer;
                }
                state.delayed.first_key_value().map(|((due, _), _)| *due)
            };
            let due = async {
                match next_due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = due => {}
            }
        }
    }
}

#[derive(Debug)]
struct Message {
    number: u64,
    body: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    published: Vec<Notification>,
    ready: VecDeque<Message>,
    /// Due time and number, so that equal times keep their order.
    delayed: BTreeMap<(Instant, u64), Vec<u8>>,
    /// By subscriber and message: the bodies of what it holds.
    unanswered: HashMap<u64, HashMap<u64, Vec<u8>>>,
    last_number: u64,
    steps_left: Option<usize>,
    broken: Option<String>,
    retry_delay: Duration,
    faults: Faults,
    random: SplitMix,
}

impl State {
    fn new_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn waiting(&self) -> usize {
        self.ready.len() + self.delayed.len()
    }

    fn unanswered_by(&self, subscriber: u64) -> usize {
        self.unanswered.get(&subscriber).map_or(0, HashMap::len)
    }

    fn unanswered_by_all(&self) -> usize {
        self.unanswered.values().map(HashMap::len).sum()
    }

    fn enqueue(&mut self, body: Vec<u8>) {
        let number = self.new_number();
        self.ready.push_back(Message { number, body });
    }

    /// Takes in a published message, with whatever befalls it. Every chance is drawn, so that changing one fault's
    /// likelihood does not change the luck of the others.
    fn mistreat(&mut self, body: Vec<u8>) {
        let faults = self.faults;
        let [lose, double, delay, reorder, forge] =
            [faults.lose, faults.double, faults.delay, faults.reorder, faults.forge]
                .map(|p| self.random.happens(p));
        let [how_late, how_far, forged] = [(); 3].map(|()| self.random.next());
        if forge {
            self.enqueue(forged_body(forged));
        }
        if lose {
            return;
        }
        if double {
            self.enqueue(body.clone());
        }
        let number = self.new_number();
        if delay {
            let late = faults.longest_delay.mul_f64(unit_interval(how_late));
            self.delayed.insert((Instant::now() + late, number), body);
        } else if reorder {
            let place = (how_far % (self.ready.len() as u64 + 1)) as usize;
            self.ready.insert(place, Message { number, body });
        } else {
            self.ready.push_back(Message { number, body });
        }
    }

    fn release_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((_, number), body) = entry.remove_entry();
            self.ready.push_back(Message { number, body });
        }
    }

    fn hand_out(&mut self, subscriber: u64, max_outstanding: usize) -> Option<(u64, Vec<u8>)> {
        let full = self.unanswered_by(subscriber) >= max_outstanding;
        if full || self.broken.is_some() || self.steps_left == Some(0) {
            return None;
        }
        let message = self.ready.pop_front()?;
        self.steps_left = self.steps_left.map(|left| left - 1);
        self.unanswered.entry(subscriber).or_default().insert(message.number, message.body.clone());
        Some((message.number, message.body))
    }

    /// An acknowledgement that comes after the message was given back still counts, unless it was handed out again.
    fn acknowledge(&mut self, subscriber: u64, number: u64) {
        if self.take_from(subscriber, number).is_none() {
            self.ready.retain(|message| message.number != number);
            self.delayed.retain(|(_, waiting), _| *waiting != number);
        }
    }

    fn put_back(&mut self, subscriber: u64, number: u64) {
        if let Some(body) = self.take_from(subscriber, number) {
            self.delayed.insert((Instant::now() + self.retry_delay, number), body);
        }
    }

    fn take_from(&mut self, subscriber: u64, number: u64) -> Option<Vec<u8>> {
        self.unanswered.get_mut(&subscriber)?.remove(&number)
    }

    fn give_back_all_of(&mut self, subscriber: u64) {
        let due = Instant::now() + self.retry_delay;
        let held = self.unanswered.remove(&subscriber).unwrap_or_default();
        self.delayed.extend(held.into_iter().map(|(number, body)| ((due, number), body)));
    }
}

fn forged_body(random: u64) -> Vec<u8> {
    let forged = |salt: u64| Uuid::from_u64_pair(random, random.rotate_left(32) ^ salt);
    if random.is_multiple_of(2) {
        return Notification { id: EventId(forged(1)), canvas: CanvasId(forged(2)) }.body();
    }
    format!("forged {random}").into_bytes()
}

/// The splitmix64 generator: small, seeded, and good enough to be nasty.
#[derive(Debug, Default)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn happens(&mut self, probability: f64) -> bool {
        unit_interval(self.next()) < probability
    }
}

fn unit_interval(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
