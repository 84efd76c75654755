//! A notifier for tests: reliable by default, hostile on request, by a seed. It counts, pauses,
//! forgets, and breaks down.
//!
//! It runs on tokio's clock, so that a test can pause time. It remembers what was published, so it
//! is not for production, which has [`LocalNotifier`](crate::notify::LocalNotifier).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use uuid::Uuid;

use crate::broadcast::{Broadcasts, Signals};
use crate::event::{CanvasId, EventId, Notification};
use crate::notify::{Content, Mailbox, Messages, Notifier, NotifyError, Subscription};

/// The default delay before a message that was put back is delivered again.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// How many of the last published notifications are remembered.
const REMEMBERED_MAX: usize = 100_000;

/// A notifier within the process, for tests. Clones share their messages.
///
/// ```
/// use wakeq::notify::{Notification, Notifier};
/// use wakeq::testing::MemoryNotifier;
/// use wakeq::{CanvasId, EventId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let notifier = MemoryNotifier::new();
/// let notification = Notification::new(EventId::new(), CanvasId(Default::default()));
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
    mailbox: Mailbox,
    injector: Arc<Mutex<FaultInjector>>,
    broadcasts: Option<Broadcasts>,
    signals: Signals,
}

/// The probability of each fault for a published message, from 0 to 1. Default 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// The message is never delivered.
    pub lose: f64,
    /// The message is delivered twice.
    pub double: f64,
    /// The message is late, by up to `longest_delay`.
    pub delay: f64,
    /// The message overtakes messages that were published before it.
    pub reorder: f64,
    /// A forged message comes with it: a notification of an event that does not exist, or something
    /// that is not a notification.
    pub forge: f64,
    /// The longest delay. Default 1 s.
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
    /// A reliable notifier.
    pub fn new() -> Self {
        Self::hostile(0, Faults::default())
    }

    /// A notifier with faults, which depend only on the seed and the order of publishing.
    pub fn hostile(seed: u64, faults: Faults) -> Self {
        let injector = FaultInjector { published: VecDeque::new(), faults, random: SplitMix(seed) };
        let (mailbox, injector) = (Mailbox::new(RETRY_DELAY), Arc::new(Mutex::new(injector)));
        Self { mailbox, injector, broadcasts: None, signals: Signals::alone() }
    }

    /// Also broadcasts what is emitted, to the listeners of this process.
    pub fn broadcasting(self) -> Self {
        Self { broadcasts: Some(Broadcasts::local()), ..self }
    }

    /// Sets the delay before a message that was put back is delivered again. Default 10 ms.
    pub fn with_retry_delay(self, retry_delay: Duration) -> Self {
        self.mailbox.change(|messages| messages.retry_delay = retry_delay);
        self
    }

    /// The last 100,000 notifications that were published, in order, whatever became of them.
    pub fn published(&self) -> Vec<Notification> {
        self.injector().published.iter().copied().collect()
    }

    /// How many messages wait to be delivered, now or later.
    pub fn pending(&self) -> usize {
        self.mailbox.read(|messages| messages.waiting())
    }

    /// How many deliveries are unanswered.
    pub fn unanswered(&self) -> usize {
        self.mailbox.read(|messages| messages.unanswered())
    }

    /// Returns once no message waits and no delivery is unanswered.
    pub async fn drained(&self) {
        self.mailbox.drained().await;
    }

    /// Delivers a body that does not come from a notification.
    pub fn inject(&self, body: &[u8]) {
        self.mailbox.change(|messages| messages.push(Content::Body(body.to_vec())));
    }

    /// Drops every message, delivered or not, like a broker that is killed.
    pub fn forget_everything(&self) {
        self.mailbox.change(|messages| messages.clear());
    }

    /// Hands out nothing more until [`MemoryNotifier::step`] or [`MemoryNotifier::resume`].
    pub fn pause(&self) {
        self.mailbox.change(|messages| messages.deliveries_left = Some(0));
    }

    /// Hands out this many more deliveries while paused.
    pub fn step(&self, deliveries: usize) {
        self.mailbox.change(|messages| {
            messages.deliveries_left = Some(messages.deliveries_left.unwrap_or(0) + deliveries);
        });
    }

    /// Hands out everything again.
    pub fn resume(&self) {
        self.mailbox.change(|messages| messages.deliveries_left = None);
    }

    /// Until [`MemoryNotifier::mend`], publishing fails with this text, nothing is delivered, and
    /// subscriptions report trouble.
    pub fn break_down(&self, words: &str) {
        self.mailbox.change(|messages| messages.broken = Some(words.to_owned()));
    }

    /// Ends [`MemoryNotifier::break_down`].
    pub fn mend(&self) {
        self.mailbox.change(|messages| messages.broken = None);
    }

    /// What to call if nothing is handed out.
    pub(super) fn remedy(&self) -> Option<&'static str> {
        self.mailbox.read(|messages| match (&messages.broken, messages.deliveries_left) {
            (Some(_), _) => Some("it was broken, call `kit.notifier().mend()`"),
            (None, Some(0)) => Some("it was paused, call `kit.notifier().resume()`"),
            (None, Some(_) | None) => None,
        })
    }

    fn injector(&self) -> MutexGuard<'_, FaultInjector> {
        self.injector.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Notifier for MemoryNotifier {
    async fn publish(&self, notifications: &[Notification]) -> Result<(), NotifyError> {
        let mut injector = self.injector();
        self.mailbox.change(|messages| {
            if let Some(words) = &messages.broken {
                return Err(NotifyError::new(words.clone()));
            }
            for notification in notifications {
                injector.remember(*notification);
                injector.push_with_faults(messages, *notification);
            }
            Ok(())
        })
    }

    fn broadcasts(&self) -> Option<Broadcasts> {
        self.broadcasts.clone()
    }

    fn signals(&self) -> Signals {
        self.signals.clone()
    }

    async fn subscribe(&self, max_outstanding: usize) -> Result<Box<dyn Subscription>, NotifyError> {
        self.mailbox.subscribe(max_outstanding)
    }

    async fn subscribe_urgent(
        &self,
        max_outstanding: usize,
    ) -> Result<Option<Box<dyn Subscription>>, NotifyError> {
        self.mailbox.subscribe_urgent(max_outstanding).map(Some)
    }
}

/// The faults of a notifier, and their random numbers.
#[derive(Debug)]
struct FaultInjector {
    published: VecDeque<Notification>,
    faults: Faults,
    random: SplitMix,
}

impl FaultInjector {
    fn remember(&mut self, notification: Notification) {
        if self.published.len() == REMEMBERED_MAX {
            self.published.pop_front();
        }
        self.published.push_back(notification);
    }

    /// Adds a published message, with the faults that it meets. Every random number is always
    /// drawn, so that a change of one probability does not affect the other faults.
    fn push_with_faults(&mut self, messages: &mut Messages, notification: Notification) {
        let faults = self.faults;
        let [lose, double, delay, reorder, forge] =
            [faults.lose, faults.double, faults.delay, faults.reorder, faults.forge]
                .map(|p| self.random.happens(p));
        let [how_late, how_far, forged] = [(); 3].map(|()| self.random.next());
        let content = Content::Notification(notification);
        if forge {
            messages.push(forged_content(forged));
        }
        if lose {
            return;
        }
        if double {
            messages.push(content.clone());
        }
        if delay {
            let late = faults.longest_delay.mul_f64(unit_interval(how_late));
            messages.push_late(Instant::now() + late, content);
        } else if reorder {
            let place = (how_far % (messages.ready() as u64 + 1)) as usize;
            messages.push_at(place, content);
        } else {
            messages.push(content);
        }
    }
}

fn forged_content(random: u64) -> Content {
    let forged = |salt: u64| Uuid::from_u64_pair(random, random.rotate_left(32) ^ salt);
    if random.is_multiple_of(2) {
        return Content::Notification(Notification::new(EventId(forged(1)), CanvasId(forged(2))));
    }
    Content::Body(format!("forged {random}").into_bytes())
}

/// The splitmix64 generator: small, seeded, and random enough for this.
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
