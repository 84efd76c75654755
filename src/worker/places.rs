//! Decides which run may take one of a worker's places. Each canvas's targets have a share, each
//! target has a share of that, and a slow function leaves some places to others. Places that are
//! free beyond a reserve may be borrowed, so no run is held back while no other needs the place.
//! Places that are kept for urgent runs are beyond the shares: a busy canvas has them as well.
//!
//! This is trunk reservation, as telephone networks have it: within its share a party takes any
//! place, beyond it only while more places are free than are reserved for others.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::levels::{Level, LevelTurns};
use crate::event::{CanvasId, HandlerAddress, HandlerScope, Name};

/// A function is slow if its runs take this long, or if none has ended for as long.
const SLOW: Duration = Duration::from_secs(1);
/// How long a function counts as one that may want a place after it last ran.
const RECENT: Duration = Duration::from_secs(600);
/// The weight of a run in the mean duration of its function.
const WEIGHT: u32 = 8;

/// How many places the targets of a canvas may take, and one of them.
#[derive(Clone, Copy, Debug)]
struct PlaceLimits {
    capacity: usize,
    /// The most for all targets of a canvas, if the operator has set it.
    canvas_max: Option<usize>,
    /// How many urgent runs may have a place beyond their share.
    kept: usize,
}

impl PlaceLimits {
    /// The places that the targets of a canvas may take whatever else runs.
    fn of_canvas(self) -> usize {
        self.canvas_max.unwrap_or(self.capacity / 4).max(1)
    }

    /// The places that one target may take as long as its canvas is within its share.
    fn of_target(self) -> usize {
        (self.of_canvas() / 2).max(1)
    }

    /// The places that are not kept for urgent runs.
    fn not_kept(self) -> usize {
        self.capacity.saturating_sub(self.kept).max(1)
    }

    /// The places that a slow function leaves to other handlers.
    fn left_by_functions(self) -> usize {
        self.capacity / 8
    }

    /// Whether a target may take a place while `free` are, if it has `own` and all targets of its
    /// canvas have `all`. `own` is `None` if the target has a limit of its own.
    fn admits(self, free: usize, all: usize, own: Option<usize>) -> bool {
        let is_beyond = own.is_some_and(|own| own >= self.of_target());
        match self.canvas_max {
            Some(max) => {
                let room = max.saturating_sub(all);
                room > if is_beyond { (max / 4).max(1) } else { 0 }
            }
            None if is_beyond => free > self.capacity / 2,
            None => all < self.of_canvas() || free > self.capacity / 4,
        }
    }
}

/// The owner of a share: a canvas or, since the targets of all queues are on one reserved canvas, a
/// queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Sharer {
    Canvas(CanvasId),
    RegisteredQueue(Name),
}

impl Sharer {
    fn of(address: &HandlerAddress) -> Self {
        let HandlerScope { canvas, name, .. } = &address.scope;
        if canvas.is_reserved() { Self::RegisteredQueue(name.clone()) } else { Self::Canvas(*canvas) }
    }
}

/// A run that wants a place.
#[derive(Clone, Debug)]
pub(super) struct PlaceRequest {
    pub(super) address: HandlerAddress,
    pub(super) kind: PlaceKind,
}

/// The kind of handler that wants a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceKind {
    Function,
    Target,
    /// A target whose policy limits how many of its events run at once.
    LimitedTarget,
}

/// The places of a worker. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Places {
    inner: Arc<LimitedBook>,
}

#[derive(Debug)]
struct LimitedBook {
    limits: PlaceLimits,
    book: Mutex<Book>,
    /// Told when a function got no place.
    refused: watch::Sender<()>,
}

/// The runs that have places, and those that wait for one.
#[derive(Debug, Default)]
struct Book {
    taken: usize,
    /// How many of these are beyond a share, as they are kept for urgent runs.
    kept: usize,
    /// By sharer; entries are never empty.
    targets: HashMap<Sharer, HashMap<HandlerAddress, usize>>,
    functions: HashMap<HandlerAddress, Function>,
    swept: Option<Instant>,
    waiting: HashMap<HandlerAddress, HandlerWaiters>,
    last_number: u64,
}

/// The runs of a function for one canvas.
#[derive(Debug)]
struct Function {
    running: usize,
    /// `None` until one has ended.
    mean: Option<Duration>,
    /// When one last ended, or when the first began.
    ended: Instant,
}

/// Those that wait for a place for the same handler, each level in order.
#[derive(Debug)]
struct HandlerWaiters {
    kind: PlaceKind,
    waiters: VecDeque<Waiter>,
    urgent: VecDeque<Waiter>,
    turns: LevelTurns,
}

/// Its number, and where its place is sent.
type Waiter = (u64, oneshot::Sender<TakenPlace>);

impl HandlerWaiters {
    fn new(kind: PlaceKind) -> Self {
        Self { kind, waiters: VecDeque::new(), urgent: VecDeque::new(), turns: LevelTurns::default() }
    }

    fn at(&mut self, level: Level) -> &mut VecDeque<Waiter> {
        match level {
            Level::Normal => &mut self.waiters,
            Level::Urgent => &mut self.urgent,
        }
    }

    fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.urgent.is_empty()
    }

    /// The number of the one that has waited longest.
    fn first(&self) -> u64 {
        let firsts = [self.waiters.front(), self.urgent.front()].into_iter().flatten();
        firsts.map(|(number, _)| *number).min().unwrap_or(u64::MAX)
    }

    /// Forgets those that have left, as far as they are first.
    fn forget(&mut self) {
        for level in Level::ALL {
            let waiters = self.at(level);
            while waiters.front().is_some_and(|(_, sender)| sender.is_closed()) {
                waiters.pop_front();
            }
        }
    }

    fn pop(&mut self) -> Option<Waiter> {
        let others_wait = !self.waiters.is_empty();
        let level = self.turns.next((!self.urgent.is_empty(), others_wait))?;
        self.turns.took(level, others_wait);
        self.at(level).pop_front()
    }
}

/// A place that was taken; free again when this is dropped.
#[derive(Debug)]
pub(super) struct TakenPlace {
    places: Places,
    request: PlaceRequest,
    since: Instant,
    /// Whether it is one of those that are kept.
    is_kept: bool,
}

impl Places {
    /// Of a worker that keeps this many of its places for urgent runs.
    pub(super) fn new(capacity: usize, canvas_max: Option<usize>, kept: usize) -> Self {
        let limits = PlaceLimits { capacity: capacity.max(1), canvas_max, kept };
        let (book, refused) = (Mutex::default(), watch::Sender::new(()));
        Self { inner: Arc::new(LimitedBook { limits, book, refused }) }
    }

    /// Takes a place unless it has to be left to others.
    pub(super) fn try_take(&self, request: &PlaceRequest) -> Option<TakenPlace> {
        let taken = {
            let mut book = self.book();
            let is_first = !book.waiting.contains_key(&request.address);
            let admitted = is_first && book.admits(self.inner.limits, &request.address, request.kind);
            admitted.then(|| self.count(&mut book, request.clone(), false))
        };
        if taken.is_none() && request.kind == PlaceKind::Function {
            self.inner.refused.send_replace(());
        }
        taken
    }

    /// Takes a place that is kept for urgent runs, unless others wait for one.
    pub(super) fn try_take_kept(&self, request: &PlaceRequest) -> Option<TakenPlace> {
        let mut book = self.book();
        let is_first = book.waiting.get(&request.address).is_none_or(|queue| queue.urgent.is_empty());
        let admitted = is_first && book.admits_kept(self.inner.limits, &request.address, request.kind);
        admitted.then(|| self.count(&mut book, request.clone(), true))
    }

    /// Changes each time that a function gets no place.
    pub(super) fn refusals(&self) -> watch::Receiver<()> {
        self.inner.refused.subscribe()
    }

    /// How many runs that are not urgent may go on at once.
    pub(super) fn not_kept(&self) -> usize {
        self.inner.limits.not_kept()
    }

    /// The most places that a function may have now.
    pub(super) fn most_of(&self, function: &HandlerAddress) -> usize {
        self.book().most_of(self.inner.limits, function)
    }

    /// Takes a place for a run that has claimed its event already.
    pub(super) fn take(&self, request: PlaceRequest) -> TakenPlace {
        self.count(&mut self.book(), request, false)
    }

    /// Waits for a place. Cancel safe: only the turn is lost.
    pub(super) async fn wait(&self, request: PlaceRequest, urgent: bool) -> Option<TakenPlace> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut book = self.book();
            book.last_number += 1;
            let number = book.last_number;
            let PlaceRequest { address, kind } = request;
            let queue = book.waiting.entry(address).or_insert_with(|| HandlerWaiters::new(kind));
            queue.at(Level::of(urgent)).push_back((number, sender));
        }
        // It may have become free in between.
        self.grant();
        receiver.await.ok()
    }

    /// Whether some function has to leave places to others, so that no event may be claimed before
    /// its handler is known.
    pub(super) fn are_short(&self) -> bool {
        let most = self.inner.limits.capacity - self.inner.limits.left_by_functions();
        let book = self.book();
        if book.taken < most {
            return false;
        }
        let mut large = book.functions.iter().filter(|(_, function)| function.running >= most);
        large.any(|(address, function)| function.is_slow() && book.has_others(address))
    }

    fn count(&self, book: &mut Book, request: PlaceRequest, is_kept: bool) -> TakenPlace {
        book.add(&request);
        book.kept += usize::from(is_kept);
        TakenPlace { places: self.clone(), request, since: Instant::now(), is_kept }
    }

    /// Gives free places to those that wait.
    fn grant(&self) {
        let mut granted = Vec::new();
        {
            let mut book = self.book();
            while let Some((request, is_kept, sender)) = book.next(self.inner.limits) {
                granted.push((sender, self.count(&mut book, request, is_kept)));
            }
        }
        // Without the lock: a place is free again if its waiter has left.
        for (sender, place) in granted {
            drop(sender.send(place));
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        {
            let mut book = self.places.book();
            book.remove(&self.request, self.since);
            book.kept -= usize::from(self.is_kept);
        }
        self.places.grant();
    }
}

impl Book {
    fn admits(&self, limits: PlaceLimits, address: &HandlerAddress, kind: PlaceKind) -> bool {
        match kind {
            PlaceKind::Function => {
                let most = limits.capacity - limits.left_by_functions();
                let own = self.functions.get(address);
                !own.is_some_and(|own| own.running >= most && own.is_slow()) || !self.has_others(address)
            }
            PlaceKind::Target | PlaceKind::LimitedTarget => {
                let (all, own) = self.of_target(address);
                let own = (kind == PlaceKind::Target).then_some(own);
                limits.admits(limits.capacity.saturating_sub(self.taken), all, own)
            }
        }
    }

    /// Whether an urgent run may have a place that is kept, whatever its canvas or its function
    /// has. What the operator has set for a canvas is never exceeded.
    fn admits_kept(&self, limits: PlaceLimits, address: &HandlerAddress, kind: PlaceKind) -> bool {
        let is_below = |max| kind == PlaceKind::Function || self.of_target(address).0 < max;
        self.kept < limits.kept && limits.canvas_max.is_none_or(is_below)
    }

    /// The most places that a function may have, whether or not its events are urgent.
    fn most_of(&self, limits: PlaceLimits, address: &HandlerAddress) -> usize {
        let is_slow = self.functions.get(address).is_some_and(Function::is_slow);
        let left = if is_slow && self.has_others(address) { limits.left_by_functions() } else { 0 };
        (limits.capacity - left).min(limits.not_kept())
    }

    /// How many places the targets of an address's canvas have, and its own.
    fn of_target(&self, address: &HandlerAddress) -> (usize, usize) {
        let of_canvas = self.targets.get(&Sharer::of(address));
        of_canvas
            .map_or((0, 0), |targets| (targets.values().sum(), targets.get(address).copied().unwrap_or(0)))
    }

    /// Whether another handler ran here within ten minutes, or waits.
    fn has_others(&self, address: &HandlerAddress) -> bool {
        let is_another = |(other, function): (&HandlerAddress, &Function)| {
            other != address && (function.running > 0 || function.ended.elapsed() < RECENT)
        };
        !self.targets.is_empty()
            || self.functions.iter().any(is_another)
            || self.waiting.keys().any(|waiting| waiting != address)
    }

    /// The waiter to be served next, if one may be, and whether its place is one that is kept.
    fn next(&mut self, limits: PlaceLimits) -> Option<(PlaceRequest, bool, oneshot::Sender<TakenPlace>)> {
        self.waiting.retain(|_, queue| {
            queue.forget();
            !queue.is_empty()
        });
        let of_share = self.first_of(|address, queue| self.admits(limits, address, queue.kind));
        let (address, is_kept) = match of_share {
            Some(address) => (address, false),
            None if self.kept < limits.kept => {
                let may = |address: &HandlerAddress, queue: &HandlerWaiters| {
                    !queue.urgent.is_empty() && self.admits_kept(limits, address, queue.kind)
                };
                (self.first_of(may)?, true)
            }
            None => return None,
        };
        let queue = self.waiting.get_mut(&address)?;
        let popped = if is_kept { queue.urgent.pop_front() } else { queue.pop() };
        let (_, sender) = popped?;
        let request = PlaceRequest { kind: queue.kind, address };
        if queue.is_empty() {
            self.waiting.remove(&request.address);
        }
        Some((request, is_kept, sender))
    }

    /// The handler whose waiter is first of those that may have a place: of the canvas with the
    /// fewest places, then of the handler with the fewest, then the one that has waited longest.
    fn first_of(&self, may: impl Fn(&HandlerAddress, &HandlerWaiters) -> bool) -> Option<HandlerAddress> {
        let order =
            |(address, queue): &(&HandlerAddress, &HandlerWaiters)| (self.of_target(address), queue.first());
        let admitted = self.waiting.iter().filter(|(address, queue)| may(address, queue));
        admitted.min_by_key(order).map(|(address, _)| address.clone())
    }

    fn add(&mut self, PlaceRequest { address, kind }: &PlaceRequest) {
        self.taken += 1;
        match kind {
            PlaceKind::Function => {
                let now = Instant::now();
                if let Some(function) = self.functions.get_mut(address) {
                    return function.begin(now);
                }
                self.sweep(now);
                self.functions.insert(address.clone(), Function { running: 1, mean: None, ended: now });
            }
            PlaceKind::Target | PlaceKind::LimitedTarget => {
                *self.targets.entry(Sharer::of(address)).or_default().entry(address.clone()).or_default() +=
                    1;
            }
        }
    }

    fn remove(&mut self, PlaceRequest { address, kind }: &PlaceRequest, since: Instant) {
        self.taken -= 1;
        match kind {
            PlaceKind::Function => {
                if let Some(function) = self.functions.get_mut(address) {
                    function.end(since);
                }
            }
            PlaceKind::Target | PlaceKind::LimitedTarget => {
                let sharer = Sharer::of(address);
                let Some(targets) = self.targets.get_mut(&sharer) else { return };
                if let Some(own) = targets.get_mut(address) {
                    *own -= 1;
                }
                targets.retain(|_, own| *own > 0);
                if targets.is_empty() {
                    self.targets.remove(&sharer);
                }
            }
        }
    }

    /// Forgets functions that have not run for long.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| now.duration_since(swept) > RECENT / 10) {
            self.functions
                .retain(|_, function| function.running > 0 || now.duration_since(function.ended) < RECENT);
            self.swept = Some(now);
        }
    }
}

impl Function {
    fn begin(&mut self, now: Instant) {
        if self.running == 0 {
            self.ended = now;
        }
        self.running += 1;
    }

    fn end(&mut self, since: Instant) {
        let now = Instant::now();
        let took = now.duration_since(since);
        self.mean = Some(self.mean.map_or(took, |mean| (mean * (WEIGHT - 1) + took) / WEIGHT));
        (self.running, self.ended) = (self.running - 1, now);
    }

    fn is_slow(&self) -> bool {
        self.mean.is_some_and(|mean| mean >= SLOW) || self.ended.elapsed() >= SLOW
    }
}
