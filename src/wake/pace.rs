//! Limits how many events of a canvas are published when many wait: as many as workers take, and a
//! few more than that. Pub/Sub does not distinguish canvases, so one canvas's notifications there
//! delay those of others.
//!
//! It publishes nothing and asks nothing: its callers tell it what was taken.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedMutexGuard};
use tokio::time::Instant;

use crate::event::{CanvasId, EventId, Notification};

/// Maximum number of notifications published together.
pub(super) const PAGE: usize = 1_000;
/// Least time between two pages, so that workers and broker are not flooded.
pub(super) const PAGE_PERIOD: Duration = Duration::from_millis(50);
/// The part of it that each event of a page takes. The rest, 5 ms, is that of its statement.
const EVENT_PERIOD: Duration = Duration::from_micros(45);
/// How many events of a canvas may be published that no worker has taken, as seconds at its rate.
const AHEAD_S: u32 = 2;
/// The part of its rate that a canvas has even if no worker takes anything.
const LEAST_PART: u32 = 10;
/// Maximum number of published events of a canvas that are remembered; earlier ones count as
/// waiting until their part of the rate is over.
const REMEMBERED_MAX: usize = 4 * PAGE;
/// Maximum number of them that one statement asks about. Each stands for all that were published
/// with it.
const ASKED_MAX: usize = 200;
/// Events per second of [`CanvasId::DEFAULT`], the canvas of deployments with one tenant, where
/// there is no other canvas to delay: nothing is held back. A process that has no room for all that
/// is published looks for the rest when it has some, which costs less than putting it off.
const RATE_ALONE: u32 = 1_000_000;
/// Number of canvases from which on accounts without published events are removed.
const SWEEP_LEAST: usize = 64;
const NANOS: u128 = 1_000_000_000;

/// An account for each canvas, and turns: pages of one canvas are published one after the other,
/// those of different canvases concurrently.
pub(super) struct Pace {
    /// Events per second.
    rate: u32,
    accounts: Mutex<Accounts>,
    /// Held by the one that waits for the next page, of any canvas. Others follow in their order.
    pages: tokio::sync::Mutex<()>,
    /// When that page may be published.
    next_page: Mutex<Option<Instant>>,
    /// Notified when that has become earlier.
    sooner: Notify,
    /// Held by the canvas that asks what workers have taken.
    pub(super) looking: tokio::sync::Mutex<()>,
    /// When the next page may be done that publishes nothing, of any canvas. Held by the one that
    /// waits for it.
    next_quiet: tokio::sync::Mutex<Option<Instant>>,
    /// Canvases that have such pages to do: one page of each waits at a time.
    quiet: Mutex<HashMap<CanvasId, Arc<tokio::sync::Mutex<()>>>>,
}

/// Its lock is the canvas's turn.
type SharedAccount = Arc<tokio::sync::Mutex<Account>>;

struct Accounts {
    of: HashMap<CanvasId, SharedAccount>,
    sweep_at: usize,
}

/// The events of a canvas that were published and not taken, as a token bucket, stored as the
/// moment when it will be full even if no worker takes anything.
struct Account {
    full_at: Instant,
    published: VecDeque<EventId>,
}

/// The turn of a canvas: no other page of it is published until it ends.
pub(super) struct CanvasTurn {
    /// How long an event counts that no worker takes.
    each: Duration,
    account: OwnedMutexGuard<Account>,
}

impl Pace {
    pub(super) fn new(rate: u32) -> Self {
        let accounts = Accounts { of: HashMap::new(), sweep_at: SWEEP_LEAST };
        let (pages, next_page, sooner, looking) = Default::default();
        let (next_quiet, quiet) = Default::default();
        let (rate, accounts) = (rate.max(1), Mutex::new(accounts));
        Self { rate, accounts, pages, next_page, sooner, looking, next_quiet, quiet }
    }

    /// Waits for the canvas's turn. Waiters for the same canvas are served in order of arrival, so
    /// they alternate: a short job is not stuck behind a long one.
    pub(super) async fn turn(&self, canvas: CanvasId) -> CanvasTurn {
        CanvasTurn { each: self.each(canvas), account: self.account(canvas).lock_owned().await }
    }

    /// Waits until the next page, of any canvas, may be published.
    pub(super) async fn page(&self) {
        let _waits = self.pages.lock().await;
        loop {
            let next = *self.next_page();
            let Some(at) = next.filter(|at| *at > Instant::now()) else { break };
            tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = self.sooner.notified() => {}
            }
        }
        *self.next_page() = Some(Instant::now() + PAGE_PERIOD);
    }

    /// Waits until a page of the canvas may be done that publishes nothing. It takes no time from
    /// those that publish. Canvases take turns, however many pages each of them has to do.
    pub(super) async fn quiet_page(&self, canvas: CanvasId) {
        let own = {
            let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
            quiet.retain(|_, own| Arc::strong_count(own) > 1);
            Arc::clone(quiet.entry(canvas).or_default())
        };
        let _own = own.lock().await;
        let mut next = self.next_quiet.lock().await;
        if let Some(at) = *next {
            tokio::time::sleep_until(at).await;
        }
        *next = Some(Instant::now() + PAGE_PERIOD);
    }

    /// A page that had fewer events than a full one leaves the rest of its time to the next: many
    /// handlers with an event each take no longer than one with as many.
    pub(super) fn page_had(&self, events: usize) {
        let left = u32::try_from(PAGE.saturating_sub(events)).unwrap_or_default();
        let spare = EVENT_PERIOD * left;
        if let Some(at) = self.next_page().as_mut() {
            *at -= spare;
        }
        self.sooner.notify_one();
    }

    fn next_page(&self) -> MutexGuard<'_, Option<Instant>> {
        self.next_page.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Maximum number of events of a canvas in a page.
    pub(super) fn page_of(&self, canvas: CanvasId) -> usize {
        PAGE.min(self.rate_of(canvas) as usize)
    }

    /// How many of these events may be published now; they count as published.
    pub(super) fn take(&self, canvas: CanvasId, events: &[Notification]) -> usize {
        // Another page of the canvas has the turn.
        let Ok(account) = self.account(canvas).try_lock_owned() else { return 0 };
        let turn = CanvasTurn { each: self.each(canvas), account };
        let left = turn.ahead().saturating_sub(turn.used());
        let room = left.as_nanos().checked_div(turn.each.as_nanos());
        let taken = events.len().min(room.and_then(|room| usize::try_from(room).ok()).unwrap_or(usize::MAX));
        turn.took(&events[..taken]);
        taken
    }

    /// How long this many events of a canvas take at its rate.
    pub(super) fn time_of(&self, canvas: CanvasId, events: usize) -> Duration {
        Duration::from_secs(events as u64) / self.rate_of(canvas)
    }

    /// How many events of a canvas its rate allows in this time.
    pub(super) fn events_in(&self, canvas: CanvasId, time: Duration) -> usize {
        let events = time.as_nanos() * u128::from(self.rate_of(canvas)) / NANOS;
        usize::try_from(events).unwrap_or(usize::MAX)
    }

    fn each(&self, canvas: CanvasId) -> Duration {
        let nanos = NANOS * u128::from(LEAST_PART) / u128::from(self.rate_of(canvas));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn rate_of(&self, canvas: CanvasId) -> u32 {
        if canvas == CanvasId::DEFAULT { self.rate.max(RATE_ALONE) } else { self.rate }
    }

    fn account(&self, canvas: CanvasId) -> SharedAccount {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if accounts.of.len() >= accounts.sweep_at {
            let now = Instant::now();
            let is_used = |account: &SharedAccount| {
                Arc::strong_count(account) > 1
                    || account.try_lock().is_ok_and(|account| account.full_at > now)
            };
            accounts.of.retain(|_, account| is_used(account));
            accounts.sweep_at = SWEEP_LEAST.max(2 * accounts.of.len());
        }
        let new = || Account { full_at: Instant::now(), published: VecDeque::new() };
        Arc::clone(accounts.of.entry(canvas).or_insert_with(|| Arc::new(tokio::sync::Mutex::new(new()))))
    }
}

impl CanvasTurn {
    /// How long to wait, if nothing is taken meanwhile, until this many events may be published.
    /// More than there is ever room for may be published if nothing else is.
    pub(super) fn wait(&self, events: usize) -> Option<Duration> {
        let spare = self.ahead() - self.time(events).min(self.ahead());
        self.used().checked_sub(spare).filter(|wait| !wait.is_zero())
    }

    /// Which of the published events to ask about, to know which of them workers have taken.
    pub(super) fn asked(&self) -> Vec<EventId> {
        let published: Vec<EventId> = self.account.published.iter().copied().collect();
        published.chunks(group_of(published.len())).filter_map(<[EventId]>::last).copied().collect()
    }

    /// Those that were asked about are taken, except these, and so are those that each stands for.
    /// Returns how many were taken.
    pub(super) fn still_wait(&mut self, waiting: &HashSet<EventId>) -> usize {
        let published: Vec<EventId> = self.account.published.drain(..).collect();
        let groups = published.chunks(group_of(published.len()));
        let left = groups.filter(|group| group.last().is_some_and(|asked| waiting.contains(asked)));
        self.account.published = left.flatten().copied().collect();
        let taken = published.len() - self.account.published.len();
        let (time, now) = (self.time(taken), Instant::now());
        self.account.full_at = self.account.full_at.checked_sub(time).map_or(now, |at| at.max(now));
        taken
    }

    /// Ends the turn after these events.
    pub(super) fn took(mut self, events: &[Notification]) {
        let from = self.account.full_at.max(Instant::now());
        self.account.full_at = from + self.time(events.len());
        if self.used().is_zero() {
            self.account.published.clear();
        }
        self.account.published.extend(events.iter().map(|event| event.id));
        let beyond = self.account.published.len().saturating_sub(REMEMBERED_MAX);
        self.account.published.drain(..beyond);
    }

    /// The room of an empty account.
    fn ahead(&self) -> Duration {
        Duration::from_secs(u64::from(AHEAD_S * LEAST_PART))
    }

    fn used(&self) -> Duration {
        self.account.full_at.saturating_duration_since(Instant::now())
    }

    fn time(&self, events: usize) -> Duration {
        self.each.saturating_mul(u32::try_from(events).unwrap_or(u32::MAX))
    }
}

/// How many of this many published events each one that is asked about stands for.
fn group_of(published: usize) -> usize {
    published.div_ceil(ASKED_MAX).max(1)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(Uuid::from_u128(number))
    }

    fn events(number: u128, count: usize) -> Vec<Notification> {
        let event = |_| Notification::new(EventId(Uuid::new_v4()), canvas(number));
        (0..count).map(event).collect()
    }

    fn take(pace: &Pace, number: u128, count: usize) -> usize {
        pace.take(canvas(number), &events(number, count))
    }

    /// The turn of a canvas once a page of it may be published.
    async fn turn(pace: &Pace, number: u128) -> CanvasTurn {
        let turn = pace.turn(canvas(number)).await;
        tokio::time::sleep(turn.wait(PAGE).unwrap_or_default()).await;
        pace.page().await;
        turn
    }

    /// Publishes this many pages, of which workers take nothing; returns how long it took.
    async fn publish(pace: &Pace, number: u128, pages: usize) -> Duration {
        let start = Instant::now();
        for _ in 0..pages {
            turn(pace, number).await.took(&events(number, PAGE));
        }
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_no_worker_takes_are_published_at_full_rate_for_two_seconds_then_at_a_tenth() {
        let pace = Pace::new(1_000);
        assert_eq!(publish(&pace, 1, 2).await, PAGE_PERIOD, "as fast as ever");
        assert_eq!(publish(&pace, 1, 10).await.as_secs_f64().round(), 100.0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(publish(&pace, 1, 2).await, PAGE_PERIOD, "full again, and not fuller");
        assert!(publish(&pace, 1, 1).await > Duration::from_secs(9));
    }

    #[tokio::test(start_paused = true)]
    async fn a_canvas_has_the_pace_at_which_workers_take_its_events() {
        let (pace, start) = (Pace::new(1_000), Instant::now());
        for _ in 0..100 {
            let mut turn = pace.turn(canvas(1)).await;
            turn.still_wait(&HashSet::new());
            assert_eq!(turn.wait(PAGE), None, "all of it was taken");
            pace.page().await;
            turn.took(&events(1, PAGE));
        }
        assert_eq!(start.elapsed(), 99 * PAGE_PERIOD, "nothing holds it back");
        let events = events(2, 2 * PAGE);
        turn(&pace, 2).await.took(&events);
        let mut turn = pace.turn(canvas(2)).await;
        let last = |count: usize| -> HashSet<EventId> {
            events[2 * PAGE - count..].iter().map(|event| event.id).collect()
        };
        assert_eq!(turn.still_wait(&last(1_600)), 400);
        assert_eq!(turn.wait(400), None, "as many as were taken");
        let wait = turn.wait(PAGE).unwrap().as_secs_f64();
        assert!((5.0..=6.0).contains(&wait), "{wait}");
        assert_eq!((turn.still_wait(&last(800)), turn.wait(PAGE)), (800, None));
    }

    /// However many were published, a sample is asked about, which stands for all of them.
    #[tokio::test(start_paused = true)]
    async fn how_many_events_workers_took_is_estimated_from_a_sample() {
        let pace = Pace::new(1_000);
        for (number, count) in [(1, 150), (2, 2_000), (3, 10_000)] {
            let events = events(number, count);
            turn(&pace, number).await.took(&events);
            let remembered = &events[count.saturating_sub(REMEMBERED_MAX)..];
            let mut turn = pace.turn(canvas(number)).await;
            let asked = turn.asked();
            assert_eq!(asked.len(), count.min(ASKED_MAX));
            assert_eq!(asked.last(), remembered.last().map(|event| &event.id));
            // Workers took the older half, and a few of the others.
            let half = remembered.len() / 2;
            let taken = |at: usize| at < half || at % 10 == 3;
            let left = remembered.iter().enumerate().filter(|(at, _)| !taken(*at));
            let left: HashSet<EventId> = left.map(|(_, event)| event.id).collect();
            let waiting = asked.into_iter().filter(|id| left.contains(id)).collect();
            let seen = turn.still_wait(&waiting).abs_diff(remembered.len() - left.len());
            assert!(seen <= remembered.len() / 10, "{seen} more or less than were taken of {count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_of_few_events_leaves_its_time_to_the_next() {
        let (pace, start) = (Pace::new(1_000), Instant::now());
        for events in [0, PAGE, 0] {
            pace.page().await;
            pace.page_had(events);
        }
        pace.page().await;
        let least = PAGE_PERIOD - EVENT_PERIOD * 1_000;
        assert_eq!((least.as_millis(), start.elapsed()), (5, PAGE_PERIOD + 2 * least));
        // Also to one that waits already.
        let next = async {
            pace.page().await;
            start.elapsed()
        };
        let gives = async { pace.page_had(0) };
        let (waited, ()) = tokio::join!(next, gives);
        assert_eq!(waited, PAGE_PERIOD + 3 * least);
    }

    /// A canvas has ten operations that publish nothing, and another has one, whose page follows
    /// the one that waits already. What is published waits for none of them.
    #[tokio::test(start_paused = true)]
    async fn canvases_take_turns_at_pages_that_publish_nothing() {
        let (pace, start) = (Pace::new(1_000), Instant::now());
        let done = Mutex::new(Vec::new());
        let page = |number: u128| {
            let (pace, done) = (&pace, &done);
            async move {
                pace.quiet_page(canvas(number)).await;
                done.lock().unwrap().push(number);
            }
        };
        let many = futures_util::future::join_all((0..10).map(|_| page(1)));
        let publishes = async {
            pace.page().await;
            start.elapsed()
        };
        let (_, (), published) = tokio::join!(many, page(2), publishes);
        assert_eq!(published, Duration::ZERO);
        assert_eq!(*done.lock().unwrap(), [1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(start.elapsed(), 10 * PAGE_PERIOD);
        page(3).await;
        assert_eq!(pace.quiet.lock().unwrap().len(), 1, "a canvas that is done is forgotten");
    }

    /// One canvas has a long backlog, and many others a short one each: the short ones are
    /// published first.
    #[tokio::test(start_paused = true)]
    async fn a_long_backlog_of_one_canvas_is_not_in_front_of_others() {
        let pace = Pace::new(1_000);
        let long = async {
            publish(&pace, 1, 100).await;
            Instant::now()
        };
        let short = async {
            let short = (2..22).map(|number| publish(&pace, number, 1));
            let waits = futures_util::future::join_all(short).await;
            assert!(waits.iter().max().unwrap() < &Duration::from_secs(2), "{waits:?}");
            Instant::now()
        };
        let (long, short) = tokio::join!(long, short);
        assert!(long - short > Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_one_canvas_have_its_pace_together_and_alternate() {
        let (pace, start) = (Pace::new(1_000), Instant::now());
        let (long, short) = tokio::join!(publish(&pace, 1, 50), publish(&pace, 1, 3));
        assert!(short < Duration::from_secs(60), "{short:?}");
        assert_eq!((long.as_secs_f64().round(), start.elapsed()), (510.0, long));
    }

    #[tokio::test(start_paused = true)]
    async fn publishing_without_a_turn_counts_and_leaves_open_turns_alone() {
        let pace = Pace::new(1_000);
        assert_eq!((take(&pace, 1, 1_500), take(&pace, 1, 1_500)), (1_500, 500));
        assert_eq!((take(&pace, 1, 1), take(&pace, 2, 1)), (0, 1), "another has an account of its own");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(take(&pace, 1, 1_000), 10);
        let turn = pace.turn(canvas(3)).await;
        assert_eq!(take(&pace, 3, 1), 0);
        turn.took(&[]);
        assert_eq!(take(&pace, 3, 1), 1, "what was not published was not taken");
    }

    #[tokio::test(start_paused = true)]
    async fn the_canvas_of_deployments_with_one_tenant_has_no_rate() {
        let pace = Pace::new(1_000);
        assert_eq!(publish(&pace, 0, 101).await, 100 * PAGE_PERIOD);
        assert_eq!(take(&pace, 0, 100_000), 100_000);
        assert_eq!(take(&pace, 1, 100_000), 2_000);
    }

    /// A page is published whole, however low the rate, and rate 0 counts as 1.
    #[tokio::test(start_paused = true)]
    async fn rates_from_the_lowest_to_the_highest() {
        for (rate, seconds) in [(0, 20_000), (100, 200), (1_000_000_000, 0)] {
            assert_eq!(publish(&Pace::new(rate), 1, 3).await.as_secs(), seconds, "{rate}");
        }
        assert_eq!(take(&Pace::new(u32::MAX), 1, 100_000), 100_000);
        assert_eq!([0, 20, 5_000].map(|rate| Pace::new(rate).page_of(canvas(1))), [1, 20, PAGE]);
    }

    #[tokio::test(start_paused = true)]
    async fn canvases_are_forgotten_once_their_events_count_no_longer() {
        let pace = Pace::new(1_000);
        for number in 1..10_000 {
            assert_eq!(take(&pace, number, 10), 10);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(pace.accounts.lock().unwrap().of.len() < 2 * SWEEP_LEAST);
    }
}
