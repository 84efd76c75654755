//! What this process has counted for the statistics since it last wrote them, and when it writes
//! next. No SQL, and no statement waits for it.
//!
//! A canvas can make up handlers, so their number is bounded. One that was counted lately keeps its
//! place. What has none counts for its canvas alone, and of one canvas only as many have places as
//! are free: so another canvas always finds some.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::{CanvasId, EventCounts, HandlerScope, Name};

/// Maximum number of handlers of a canvas that are counted each by itself, here and in a minute or
/// an hour of the tables.
pub(in crate::store) const HANDLERS_MAX: usize = 1_000;
/// The same of all canvases, in this process.
const ALL_HANDLERS_MAX: usize = 10_000;
/// Maximum number of canvases that are counted at once.
const CANVASES_MAX: usize = 10_000;
/// Maximum number of rows that are kept because they could not be written.
const LEFT_MAX: usize = ALL_HANDLERS_MAX + CANVASES_MAX;

/// How often a process writes.
const PERIOD: Duration = Duration::from_secs(60);
/// The shortest pause before it does.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The counts of this process, by handler.
#[derive(Debug)]
pub(in crate::store) struct Counting {
    counted: Mutex<Counted>,
    /// Whether a task waits for the time to write.
    is_awaited: AtomicBool,
    /// The second of the database's minute in which this process writes. Processes differ in it,
    /// and none is so close to the minute's ends that a minute could have two writes or none.
    second: f64,
    /// The second at the last write, and when that was.
    last: Mutex<Option<(Instant, f64)>>,
}

/// What a row is about: a canvas, and one handler of it or all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store) struct CountKey {
    pub(in crate::store) canvas: CanvasId,
    /// Module and name.
    pub(in crate::store) handler: Option<(Name, Name)>,
}

/// What is to be added to the tables.
pub(in crate::store) type CountRows = BTreeMap<CountKey, EventCounts>;

#[derive(Debug, Default)]
struct Counted {
    handlers: HashMap<HandlerScope, EventCounts>,
    canvases: HashMap<CanvasId, CanvasCounts>,
    /// Rows that could not be written.
    left: CountRows,
    /// How many times nothing could be counted.
    missed: u64,
}

/// A canvas with something counted.
#[derive(Debug, Default)]
struct CanvasCounts {
    /// How many of its handlers have places.
    places: usize,
    /// The counts of the others.
    rest: EventCounts,
}

/// What the counts were, without those of canvases that are sums.
struct TakenCounts {
    left: CountRows,
    missed: u64,
    /// Of handlers without places.
    canvases: Vec<(CanvasId, EventCounts)>,
    handlers: Vec<(HandlerScope, EventCounts)>,
}

/// Until it is dropped, no other task waits for the time to write.
pub(in crate::store) struct WriteTurn(Arc<Counting>);

impl Default for Counting {
    fn default() -> Self {
        let second = 5 + uuid::Uuid::new_v4().as_u128() % 50;
        let (counted, is_awaited, last) = Default::default();
        Self { counted, is_awaited, second: second as f64, last }
    }
}

impl Counting {
    /// Counts something for a handler.
    pub(in crate::store) fn add(&self, handler: &HandlerScope, add: impl FnOnce(&mut EventCounts)) {
        locked(&self.counted).add(handler, add);
    }

    /// What was counted since the last call, and what could not be written; and how many times
    /// nothing could be counted.
    pub(in crate::store) fn take(&self) -> (CountRows, u64) {
        let TakenCounts { left: mut rows, missed, canvases, handlers } = locked(&self.counted).take();
        for (canvas, counts) in canvases {
            rows.entry(CountKey { canvas, handler: None }).or_default().add(&counts);
        }
        for (HandlerScope { canvas, module, name }, counts) in handlers {
            rows.entry(CountKey { canvas, handler: None }).or_default().add(&counts);
            rows.entry(CountKey { canvas, handler: Some((module, name)) }).or_default().add(&counts);
        }
        (rows, missed)
    }

    /// Keeps rows that could not be written, as far as there is room.
    pub(in crate::store) fn put_back(&self, rows: CountRows) {
        let mut counted = locked(&self.counted);
        for (key, counts) in rows {
            if counted.left.len() < LEFT_MAX || counted.left.contains_key(&key) {
                counted.left.entry(key).or_default().add(&counts);
            } else {
                counted.missed += 1;
            }
        }
    }

    /// The turn to wait for the time to write; `None` if another task has it.
    pub(in crate::store) fn write_turn(self: &Arc<Self>) -> Option<WriteTurn> {
        let is_awaited = &self.is_awaited;
        let is_free = !is_awaited.load(Ordering::Relaxed) && !is_awaited.swap(true, Ordering::AcqRel);
        is_free.then(|| WriteTurn(Arc::clone(self)))
    }

    /// Notes that it was this second of the database's minute when something was written.
    pub(in crate::store) fn note_write(&self, at: Instant, second: f64) {
        *locked(&self.last) = Some((at, second));
    }

    /// How long to wait for the time to write.
    pub(in crate::store) fn until_write(&self, now: Instant) -> Duration {
        let Some((at, second)) = *locked(&self.last) else { return PERIOD };
        let period_s = PERIOD.as_secs_f64();
        let reached = second + now.saturating_duration_since(at).as_secs_f64();
        Duration::from_secs_f64((self.second - reached).rem_euclid(period_s)).max(PAUSE_MIN)
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        self.0.is_awaited.store(false, Ordering::Release);
    }
}

impl Counted {
    fn add(&mut self, handler: &HandlerScope, add: impl FnOnce(&mut EventCounts)) {
        if let Some(counts) = self.handlers.get_mut(handler) {
            return add(counts);
        }
        let (canvases, canvas) = (self.canvases.len(), handler.canvas);
        if canvases >= CANVASES_MAX && !self.canvases.contains_key(&canvas) {
            self.missed += 1;
            return;
        }
        let of_canvas = self.canvases.entry(canvas).or_default();
        let free = ALL_HANDLERS_MAX - self.handlers.len();
        if of_canvas.places < free.min(HANDLERS_MAX) {
            of_canvas.places += 1;
            add(self.handlers.entry(handler.clone()).or_default());
        } else {
            add(&mut of_canvas.rest);
        }
    }

    /// Takes all counts. A handler for which nothing was counted loses its place.
    fn take(&mut self) -> TakenCounts {
        let mut handlers = Vec::new();
        self.handlers.retain(|handler, counts| {
            let is_used = !counts.is_nothing();
            if is_used {
                handlers.push((handler.clone(), std::mem::take(counts)));
            } else if let Some(of_canvas) = self.canvases.get_mut(&handler.canvas) {
                of_canvas.places -= 1;
            }
            is_used
        });
        let mut canvases = Vec::new();
        self.canvases.retain(|canvas, of_canvas| {
            let rest = std::mem::take(&mut of_canvas.rest);
            if !rest.is_nothing() {
                canvases.push((*canvas, rest));
            }
            of_canvas.places > 0
        });
        let (left, missed) = (std::mem::take(&mut self.left), std::mem::take(&mut self.missed));
        TakenCounts { left, missed, canvases, handlers }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(uuid::Uuid::from_u128(number))
    }

    fn scope(of: u128, name: &str) -> HandlerScope {
        HandlerScope::worker(canvas(of), name).unwrap()
    }

    fn emit(counting: &Counting, of: u128, name: &str) {
        counting.add(&scope(of, name), |counts| counts.emitted += 1);
    }

    /// How many handlers of a canvas have rows, and how many events were emitted on it.
    fn of_canvas(rows: &CountRows, of: u128) -> (usize, u64) {
        let named = rows.keys().filter(|key| key.canvas == canvas(of) && key.handler.is_some());
        let whole = rows.get(&CountKey { canvas: canvas(of), handler: None });
        (named.count(), whole.map_or(0, |counts| counts.emitted))
    }

    #[test]
    fn a_canvas_has_the_sum_of_its_handlers() {
        let counting = Counting::default();
        for (of, name) in [(1, "a"), (1, "a"), (1, "b"), (2, "a")] {
            emit(&counting, of, name);
        }
        let (rows, missed) = counting.take();
        let named = |of, name: &str| CountKey {
            canvas: canvas(of),
            handler: Some((Name::worker(), name.parse().unwrap())),
        };
        assert_eq!((rows[&named(1, "a")].emitted, rows[&named(1, "b")].emitted), (2, 1));
        assert_eq!((of_canvas(&rows, 1), of_canvas(&rows, 2), missed), ((2, 3), (1, 1), 0));
        assert_eq!(counting.take(), (CountRows::new(), 0), "nothing happened since");
    }

    /// A canvas that makes up handlers has a bounded number of places, and its events still count
    /// for the canvas. Those of others have places of their own.
    #[test]
    fn made_up_handlers_take_nothing_from_others() {
        let counting = Counting::default();
        for round in 0..3 {
            for index in 0..100_000 {
                emit(&counting, 1, &format!("made-up-{round}-{index}"));
            }
            emit(&counting, 2, "payments");
            let (rows, missed) = counting.take();
            assert_eq!(of_canvas(&rows, 1), (HANDLERS_MAX, 100_000), "round {round}");
            assert_eq!((of_canvas(&rows, 2), missed), ((1, 1), 0));
            // Nothing is left of what is not used again.
            assert_eq!(counting.take(), (CountRows::new(), 0));
        }
    }

    /// However many canvases make up handlers, another one finds a place.
    #[test]
    fn many_canvases_together_leave_places_to_others() {
        let counting = Counting::default();
        for index in 0..HANDLERS_MAX {
            (1..=100).for_each(|of| emit(&counting, of, &format!("made-up-{index}")));
        }
        emit(&counting, 200, "payments");
        let (rows, missed) = counting.take();
        let named = (1..=100).map(|of| of_canvas(&rows, of).0);
        assert!(named.clone().sum::<usize>() <= ALL_HANDLERS_MAX && named.clone().all(|named| named > 90));
        assert_eq!((of_canvas(&rows, 200), missed), ((1, 1), 0));
        assert!((1..=100).all(|of| of_canvas(&rows, of).1 == HANDLERS_MAX as u64));
    }

    /// A handler that goes on keeps its place, whoever comes first in the next minute.
    #[test]
    fn handlers_in_use_keep_their_places() {
        let counting = Counting::default();
        emit(&counting, 1, "old");
        for _ in 0..3 {
            drop(counting.take());
            (0..2 * HANDLERS_MAX).for_each(|index| emit(&counting, 1, &format!("new-{index}")));
            emit(&counting, 1, "old");
            let places = &locked(&counting.counted).handlers;
            assert!(places.contains_key(&scope(1, "old")) && places.len() == HANDLERS_MAX);
        }
    }

    #[test]
    fn canvases_beyond_the_limit_are_not_counted() {
        let counting = Counting::default();
        (0..CANVASES_MAX + 7).for_each(|of| emit(&counting, of as u128, "h"));
        let (rows, missed) = counting.take();
        let canvases = rows.keys().filter(|key| key.handler.is_none()).count();
        assert_eq!((canvases, missed), (CANVASES_MAX, 7));
    }

    /// What could not be written is written with what comes next, and does not count twice for its
    /// canvas.
    #[test]
    fn rows_that_were_put_back_come_again() {
        let counting = Counting::default();
        emit(&counting, 1, "a");
        let (rows, _) = counting.take();
        counting.put_back(rows);
        emit(&counting, 1, "a");
        emit(&counting, 1, "b");
        let (rows, missed) = counting.take();
        assert_eq!((of_canvas(&rows, 1), missed), ((2, 3), 0));
        let many = |from: usize| -> CountRows {
            let key = |of: usize| CountKey { canvas: canvas(of as u128), handler: None };
            (from..from + LEFT_MAX).map(|of| (key(of), EventCounts::default())).collect()
        };
        counting.put_back(many(0));
        counting.put_back(many(5));
        let (rows, missed) = counting.take();
        assert_eq!((rows.len(), missed), (LEFT_MAX, 5));
    }

    /// From the second write on, a process writes once in each minute of the database's clock,
    /// however long it was idle; before that, within a minute.
    #[test]
    fn a_process_writes_in_the_same_second_of_each_minute() {
        let now = Instant::now();
        let counting = Counting { second: 20.0, ..Counting::default() };
        assert_eq!(counting.until_write(now), PERIOD);
        for (second, idle_s, pause_s) in [
            (20.5, 0, 59.5),
            (20.5, 30, 29.5),
            (50.0, 0, 30.0),
            (5.0, 0, 15.0),
            (5.0, 600, 15.0),
            (19.9, 0, 1.0),
        ] {
            counting.note_write(now, second);
            let pause = counting.until_write(now + Duration::from_secs(idle_s)).as_secs_f64();
            assert!((pause - pause_s).abs() < 0.001, "{pause} after {second} and {idle_s}");
        }
        let seconds = (0..100).map(|_| Counting::default().second);
        assert!(seconds.clone().all(|second| (5.0..55.0).contains(&second)));
    }

    #[test]
    fn one_task_at_a_time_waits_to_write() {
        let counting = Arc::<Counting>::default();
        let turn = counting.write_turn().unwrap();
        assert!(counting.write_turn().is_none());
        drop(turn);
        assert!(counting.write_turn().is_some());
    }
}
