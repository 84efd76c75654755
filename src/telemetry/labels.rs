//! Which handlers a metric names: those of this program, a few hundred that are registered in the
//! database, as many others, and `other` for the rest, so that invented names can't make this
//! process, or what collects its metrics, grow.
//!
//! The places of registered ones, and those of the others, are shared among canvases. A canvas may
//! have all of them while no other one needs any; one that has fewer takes a place of the one that
//! has the most.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use opentelemetry::StringValue;

use crate::event::{CanvasId, HandlerScope, Name};

/// Maximum number of registered handlers that one metric names, and of others, besides those of the
/// program.
pub(super) const HANDLERS_MAX: usize = 200;
/// The name of all others.
const OTHER: &str = "other";
/// A name that was not used for this long makes room for another one.
const IDLE_MS: u64 = 24 * 3600 * 1000;
/// The least time between two searches for such names.
const SEARCH_MS: u64 = 60 * 1000;

/// The handlers of this program, which every metric of the process names.
static OF_PROGRAM: RwLock<Option<HashSet<String>>> = RwLock::new(None);

/// Handlers that have a target or are pulled, each with a canvas on which it is registered.
static REGISTERED: RwLock<Option<HashMap<String, CanvasId>>> = RwLock::new(None);

/// Names the handlers of this program, from now on, whatever names canvases invent.
pub(crate) fn name_handlers<'a>(handlers: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut known = OF_PROGRAM.write().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    known.extend(handlers.map(|(module, name)| label(module, name)));
}

/// Replaces the registered handlers, which invented names don't keep from being named. The caller
/// bounds how many there are, and of one canvas.
pub fn name_registered<'a>(handlers: impl Iterator<Item = &'a HandlerScope>) {
    let labels = handlers.map(|scope| (label(scope.module.as_str(), scope.name.as_str()), scope.canvas));
    *REGISTERED.write().unwrap_or_else(PoisonError::into_inner) = Some(labels.collect());
}

/// The names that are in use.
#[derive(Debug)]
pub(super) struct Labels {
    names: RwLock<Names>,
    since: Instant,
}

#[derive(Debug, Default)]
struct Names {
    labels: HashMap<String, Label>,
    registered: Places,
    others: Places,
    searched_ms: u64,
}

/// How many labels of a kind each canvas has.
#[derive(Debug, Default)]
struct Places(HashMap<CanvasId, usize>);

#[derive(Debug)]
struct Label {
    text: StringValue,
    /// None, for a handler of the program.
    place: Option<Place>,
    used_ms: AtomicU64,
}

/// What a label counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    is_registered: bool,
    /// The first one that used it or, of a registered handler, one on which it is registered.
    canvas: CanvasId,
}

impl Default for Labels {
    fn default() -> Self {
        Self { names: RwLock::default(), since: Instant::now() }
    }
}

impl Labels {
    /// `MODULE/name`, without the canvas.
    pub(super) fn of(&self, scope: &HandlerScope) -> StringValue {
        self.named(label(scope.module.as_str(), scope.name.as_str()), scope.canvas, self.now_ms())
    }

    /// The name of a queue.
    pub(super) fn of_queue(&self, queue: &Name) -> StringValue {
        self.named(queue.to_string(), CanvasId::DEFAULT, self.now_ms())
    }

    /// The name of a limit, without its canvas and the keys of a family.
    pub(super) fn of_limit(&self, canvas: CanvasId, name: &str) -> StringValue {
        self.named(name.to_owned(), canvas, self.now_ms())
    }

    /// Whether the handler has a name of its own.
    pub(super) fn knows(&self, scope: &HandlerScope) -> bool {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.labels.contains_key(&label(scope.module.as_str(), scope.name.as_str()))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn named(&self, name: String, canvas: CanvasId, now_ms: u64) -> StringValue {
        {
            let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = names.labels.get(&name) {
                known.used_ms.store(now_ms, Ordering::Relaxed);
                return known.text.clone();
            }
            if place(&name, canvas).is_some_and(|place| names.has_no(place, now_ms)) {
                return OTHER.into();
            }
        }
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        names.add(name, canvas, now_ms)
    }
}

impl Names {
    fn places(&self, is_registered: bool) -> &Places {
        if is_registered { &self.registered } else { &self.others }
    }

    fn places_mut(&mut self, is_registered: bool) -> &mut Places {
        if is_registered { &mut self.registered } else { &mut self.others }
    }

    /// Whether there is certainly no such place for another label.
    fn has_no(&self, Place { is_registered, canvas }: Place, now_ms: u64) -> bool {
        let places = self.places(is_registered);
        places.are_taken() && now_ms < self.searched_ms + SEARCH_MS && places.largest_beside(canvas).is_none()
    }

    fn add(&mut self, name: String, canvas: CanvasId, now_ms: u64) -> StringValue {
        if let Some(known) = self.labels.get(&name) {
            return known.text.clone();
        }
        let place = place(&name, canvas);
        if let Some(Place { is_registered, canvas }) = place {
            if self.places(is_registered).are_taken() && now_ms >= self.searched_ms + SEARCH_MS {
                self.forget_idle(now_ms);
            }
            if self.places(is_registered).are_taken() {
                let Some(largest) = self.places(is_registered).largest_beside(canvas) else {
                    return OTHER.into();
                };
                self.take(Place { is_registered, canvas: largest });
            }
            *self.places_mut(is_registered).0.entry(canvas).or_default() += 1;
        }
        let text = StringValue::from(name.clone());
        self.labels.insert(name, Label { text: text.clone(), place, used_ms: now_ms.into() });
        text
    }

    fn forget_idle(&mut self, now_ms: u64) {
        self.searched_ms = now_ms;
        let is_idle = |label: &Label| label.used_ms.load(Ordering::Relaxed) + IDLE_MS <= now_ms;
        let idle: Vec<String> =
            self.labels.iter().filter(|(_, label)| is_idle(label)).map(|(name, _)| name.clone()).collect();
        idle.iter().for_each(|name| self.forget(name));
    }

    /// Forgets the label with such a place that was not used for the longest time.
    fn take(&mut self, place: Place) {
        let candidates = self.labels.iter().filter(|(_, label)| label.place == Some(place));
        let oldest = candidates.min_by_key(|(name, label)| (label.used_ms.load(Ordering::Relaxed), *name));
        if let Some(name) = oldest.map(|(name, _)| name.clone()) {
            self.forget(&name);
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(Label { place: Some(place), .. }) = self.labels.remove(name) {
            self.places_mut(place.is_registered).give_back(place.canvas);
        }
    }
}

impl Places {
    fn are_taken(&self) -> bool {
        self.0.values().sum::<usize>() >= HANDLERS_MAX
    }

    /// The canvas with the most labels, if it still has more than this one after giving it one.
    fn largest_beside(&self, canvas: CanvasId) -> Option<CanvasId> {
        let own = self.0.get(&canvas).copied().unwrap_or(0);
        let largest = self.0.iter().max_by_key(|(canvas, places)| (**places, canvas.0));
        largest.filter(|(_, places)| own + 1 < **places).map(|(canvas, _)| *canvas)
    }

    fn give_back(&mut self, canvas: CanvasId) {
        if let Some(places) = self.0.get_mut(&canvas) {
            *places -= 1;
            if *places == 0 {
                self.0.remove(&canvas);
            }
        }
    }
}

/// The place that this canvas's label needs; none if the handler is of the program.
fn place(name: &str, canvas: CanvasId) -> Option<Place> {
    if is_of_program(name) {
        return None;
    }
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let on = registered.as_ref().and_then(|registered| registered.get(handler_of(name)));
    Some(Place { is_registered: on.is_some(), canvas: on.copied().unwrap_or(canvas) })
}

/// Whether it is a handler of this program, or a limit of one.
fn is_of_program(name: &str) -> bool {
    let known = OF_PROGRAM.read().unwrap_or_else(PoisonError::into_inner);
    known.as_ref().is_some_and(|known| known.contains(handler_of(name)))
}

/// The handler that a label names, or of which it names the limit.
fn handler_of(name: &str) -> &str {
    name.strip_prefix("handler:").unwrap_or(name)
}

fn label(module: &str, name: &str) -> String {
    [module, "/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canvas(number: u128) -> CanvasId {
        CanvasId(uuid::Uuid::from_u128(number))
    }

    fn scope(canvas_number: u128, name: &str) -> HandlerScope {
        HandlerScope::worker(canvas(canvas_number), name).unwrap()
    }

    fn label_of(labels: &Labels, canvas_number: u128, name: &str) -> String {
        labels.of(&scope(canvas_number, name)).as_str().to_owned()
    }

    #[test]
    fn the_first_handlers_keep_their_names_and_the_rest_share_one() {
        let labels = Labels::default();
        for index in 0..10 * HANDLERS_MAX {
            let expected =
                if index < HANDLERS_MAX { format!("WORKER/first-{index}") } else { OTHER.to_owned() };
            assert_eq!(label_of(&labels, 0, &format!("first-{index}")), expected);
        }
        assert_eq!(label_of(&labels, 0, "first-0"), "WORKER/first-0");
        assert_eq!(labels.names.read().unwrap().labels.len(), HANDLERS_MAX);
    }

    /// A canvas that invents names can take neither the names of another canvas nor their places,
    /// and places do not go back and forth.
    #[test]
    fn each_canvas_has_a_share_of_the_names() {
        let labels = Labels::default();
        for index in 0..240 {
            label_of(&labels, 1, &format!("noise-{index}"));
        }
        for index in 0..HANDLERS_MAX {
            let expected = if index < 100 { format!("WORKER/own-{index}") } else { OTHER.to_owned() };
            assert_eq!(label_of(&labels, 2, &format!("own-{index}")), expected);
        }
        let held = |labels: &Labels| labels.names.read().unwrap().others.0.clone();
        let halves = HashMap::from([(canvas(1), 100), (canvas(2), 100)]);
        assert_eq!(held(&labels), halves);
        for round in 0..3 {
            for index in 0..240 {
                label_of(&labels, 1, &format!("noise-{round}-{index}"));
            }
        }
        assert_eq!(label_of(&labels, 2, "own-7"), "WORKER/own-7");
        assert_eq!(held(&labels), halves);
        assert_eq!(label_of(&labels, 3, "payments"), "WORKER/payments", "a third one");
    }

    #[test]
    fn the_handlers_of_the_program_are_always_named() {
        let labels = Labels::default();
        (0..HANDLERS_MAX).for_each(|index| drop(label_of(&labels, 1, &format!("noise-{index}"))));
        assert_eq!(label_of(&labels, 1, "of-the-program"), OTHER);
        name_handlers([("WORKER", "of-the-program")].into_iter());
        assert_eq!(label_of(&labels, 1, "of-the-program"), "WORKER/of-the-program");
        let limit = |name: &str| labels.of_limit(canvas(1), name).as_str().to_owned();
        assert_eq!(limit("handler:WORKER/of-the-program"), "handler:WORKER/of-the-program");
        assert_eq!(limit("customer"), OTHER);
        assert_eq!(labels.names.read().unwrap().labels.len(), HANDLERS_MAX + 2);
    }

    /// However many names canvases invent, and whoever else has registered many, each canvas's
    /// registered handlers are named. They have places of their own, of which no canvas keeps
    /// another one from having some.
    #[test]
    fn registered_handlers_are_named_beside_invented_ones() {
        let (labels, limits) = (Labels::default(), Labels::default());
        (0..240).for_each(|index| drop(label_of(&labels, 1, &format!("made-up-{index}"))));
        assert_eq!(label_of(&labels, 1, "a-target"), OTHER);
        (0..240).for_each(|index| drop(limits.of_limit(canvas(1), &format!("made-up-{index}"))));
        let many = |index| scope(1, &format!("registered-{index}"));
        let of_one: Vec<HandlerScope> =
            std::iter::once(scope(1, "a-target")).chain((0..240).map(many)).collect();
        name_registered([of_one.clone(), vec![scope(2, "another")]].concat().iter());
        for _ in 0..2 {
            assert_eq!(label_of(&labels, 1, "a-target"), "WORKER/a-target");
            assert_eq!(label_of(&labels, 1, "made-up-239"), OTHER);
        }
        let named = of_one.iter().filter(|scope| labels.of(scope).as_str() != OTHER);
        assert_eq!(named.count(), HANDLERS_MAX);
        assert_eq!(label_of(&labels, 2, "another"), "WORKER/another");
        let limit = limits.of_limit(canvas(2), "handler:WORKER/another");
        assert_eq!(limit.as_str(), "handler:WORKER/another");
        assert_eq!(labels.names.read().unwrap().labels.len(), 2 * HANDLERS_MAX);
        // The canvas of the caller does not matter: gauges over all canvases have none.
        assert_eq!(labels.names.read().unwrap().registered.0[&canvas(2)], 1);
    }

    #[test]
    fn a_name_that_nobody_uses_makes_room_within_a_day() {
        let labels = Labels::default();
        let named = |name: &str, now_ms| labels.named(name.to_owned(), canvas(1), now_ms);
        (0..HANDLERS_MAX).for_each(|index| drop(named(&format!("h{index}"), 1)));
        named("h0", IDLE_MS);
        assert_eq!(named("new", IDLE_MS).as_str(), OTHER);
        assert_eq!(named("new", IDLE_MS + SEARCH_MS).as_str(), "new");
        assert_eq!(named("h0", IDLE_MS + SEARCH_MS).as_str(), "h0", "it was in use");
        assert_eq!(labels.names.read().unwrap().labels.len(), 2);
    }

    #[test]
    fn a_canvas_is_no_part_of_a_name() {
        let labels = Labels::default();
        let other = HandlerScope::worker(CanvasId(uuid::Uuid::max()), "h").unwrap();
        assert_eq!(labels.of(&other), labels.of(&scope(0, "h")));
    }
}
