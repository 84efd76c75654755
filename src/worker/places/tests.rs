//! Shares are kept, what is free is lent, and what becomes free goes to the one with the fewest.

use std::pin::pin;

use futures_util::poll;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn address(canvas: u128, name: &str) -> HandlerAddress {
    let scope = HandlerScope::worker(CanvasId(Uuid::from_u128(canvas)), name).unwrap();
    HandlerAddress { scope, modifier: Name::no_modifier() }
}

fn target(canvas: u128, name: &str) -> PlaceRequest {
    PlaceRequest { address: address(canvas, name), kind: PlaceKind::Target }
}

fn function(canvas: u128, name: &str) -> PlaceRequest {
    PlaceRequest { address: address(canvas, name), kind: PlaceKind::Function }
}

/// Takes as many places as there are for a request.
fn all(places: &Places, request: &PlaceRequest) -> Vec<TakenPlace> {
    std::iter::from_fn(|| places.try_take(request)).collect()
}

/// A hanging target leaves places to its canvas's others, and all of them to other canvases.
#[test]
fn a_lone_target_borrows_half_of_the_places_and_a_canvas_three_quarters() {
    let places = Places::new(64, None, 0);
    let hanging = all(&places, &target(1, "hangs"));
    assert_eq!(hanging.len(), 32);
    let others = ["a", "b", "c"].map(|name| all(&places, &target(1, name)));
    assert_eq!(others.each_ref().map(Vec::len), [8, 8, 0], "until a quarter is left");
    let of_another = all(&places, &target(2, "hangs"));
    assert_eq!(of_another.len(), 8, "its share of its canvas's");
    assert_eq!(all(&places, &target(2, "b")).len(), 8, "and the rest of that");
    drop((hanging, others));
    assert_eq!(all(&places, &target(2, "hangs")).len(), 24, "what was given back can be borrowed");
}

#[test]
fn an_operator_may_say_what_a_canvas_has() {
    let places = Places::new(64, Some(8), 0);
    let hanging = all(&places, &target(1, "hangs"));
    let limited = PlaceRequest { kind: PlaceKind::LimitedTarget, ..target(1, "a") };
    assert_eq!((hanging.len(), all(&places, &limited).len()), (6, 2), "all of it, but never more");
    assert_eq!(all(&places, &limited).len(), 2);
    assert_eq!(all(&Places::new(1, Some(1), 0), &target(1, "a")).len(), 1);
    let alone = [1, 2, 4].map(|capacity| all(&Places::new(capacity, None, 0), &target(1, "a")).len());
    assert_eq!(alone, [1, 1, 2]);
}

#[tokio::test]
async fn a_free_place_goes_to_the_target_with_the_fewest() {
    let places = Places::new(4, Some(2), 0);
    let mut first = places.try_take(&target(1, "hangs"));
    let second = places.try_take(&target(1, "b"));
    assert!(first.is_some() && second.is_some());
    let (mut again, mut healthy) =
        (pin!(places.wait(target(1, "b"), false)), pin!(places.wait(target(1, "healthy"), false)));
    assert!(poll!(&mut again).is_pending() && poll!(&mut healthy).is_pending());
    first.take();
    assert!(poll!(&mut again).is_pending(), "it has one already");
    let healthy = healthy.await;
    drop((second, healthy));
    assert!(again.await.is_some());
    assert!(places.book().waiting.is_empty() && places.book().targets.is_empty());
}

/// How many places are kept and taken.
fn counts(places: &Places) -> (usize, usize) {
    let book = places.book();
    (book.kept, book.taken)
}

/// A canvas has its share and all that it may borrow, and a slow function has all but those of
/// others: their urgent runs have the places that are kept, and nothing else has them.
#[tokio::test(start_paused = true)]
async fn kept_places_are_for_urgent_runs_beyond_every_share() {
    let places = Places::new(16, None, 2);
    let busy = ["a", "b", "c", "d"].map(|name| all(&places, &target(1, name)));
    assert_eq!(busy.iter().map(Vec::len).sum::<usize>(), 12, "a quarter is left to others");
    let code = target(1, "code");
    assert!(places.try_take(&code).is_none());
    let mut kept = vec![places.try_take_kept(&code), places.try_take_kept(&target(1, "a"))];
    assert!(kept.iter().all(Option::is_some) && places.try_take_kept(&code).is_none(), "two are kept");
    let (mut other, mut first, mut second) = (
        pin!(places.wait(code.clone(), false)),
        pin!(places.wait(code.clone(), true)),
        pin!(places.wait(code.clone(), true)),
    );
    assert!(poll!(&mut other).is_pending() && poll!(&mut first).is_pending());
    assert!(poll!(&mut second).is_pending());
    kept.pop();
    let first = first.await;
    assert!(first.is_some() && poll!(&mut second).is_pending() && poll!(&mut other).is_pending());
    kept.clear();
    let second = second.await;
    assert!(poll!(&mut other).is_pending(), "it is not urgent, and has waited longest");
    drop((first, second, busy));
    assert!(other.await.is_some());
    assert_eq!(counts(&places), (0, 0), "none is lost");
}

#[tokio::test(start_paused = true)]
async fn an_urgent_event_of_a_slow_function_has_a_kept_place() {
    let places = Places::new(64, None, 1);
    drop(places.try_take(&function(2, "other")));
    let slow: Vec<_> = (0..56).map(|_| places.take(function(1, "slow"))).collect();
    tokio::time::advance(SLOW).await;
    assert!(places.try_take(&function(1, "slow")).is_none());
    let kept = places.try_take_kept(&function(1, "slow"));
    assert!(kept.is_some() && places.try_take_kept(&function(1, "slow")).is_none());
    drop((slow, kept));
    assert_eq!(counts(&places), (0, 0));
}

/// What the operator has set for a canvas holds for urgent runs as well; and no batch waits for
/// more events than may run.
#[test]
fn a_kept_place_is_not_beyond_what_an_operator_has_set() {
    let places = Places::new(16, Some(2), 1);
    let limited = PlaceRequest { kind: PlaceKind::LimitedTarget, ..target(1, "a") };
    let taken = all(&places, &limited);
    assert_eq!((taken.len(), places.try_take_kept(&limited).is_some()), (2, false));
    assert!(places.try_take_kept(&target(2, "a")).is_some());
    assert_eq!((places.not_kept(), places.most_of(&address(1, "f"))), (15, 15));
}

#[tokio::test]
async fn a_waiter_that_left_is_passed_over() {
    let places = Places::new(1, Some(1), 0);
    let taken = places.try_take(&target(1, "a"));
    let mut left = Box::pin(places.wait(target(1, "a"), false));
    let mut stays = pin!(places.wait(target(1, "a"), false));
    assert!(poll!(&mut left).is_pending() && poll!(&mut stays).is_pending());
    drop((left, taken));
    assert!(stays.await.is_some());
    assert_eq!(places.book().taken, 0);
}

/// The targets of all queues are on one reserved canvas, but do not share its places.
#[test]
fn queues_have_shares_of_their_own() {
    let of = |queue: &str| crate::event::target_of_queue(&queue.parse().unwrap());
    let places = Places::new(16, Some(1), 0);
    let queue = |name: &str| PlaceRequest { address: of(name), kind: PlaceKind::Target };
    let taken = places.try_take(&queue("billing"));
    assert!(taken.is_some() && places.try_take(&queue("billing")).is_none());
    assert!(places.try_take(&queue("search")).is_some());
}

/// A lone function has all places, however long it takes; a slow one leaves an eighth to others
/// once there are others.
#[tokio::test(start_paused = true)]
async fn a_slow_function_leaves_places_to_others() {
    let places = Places::new(64, None, 0);
    let mut slow = all_of_capacity(&places, &function(1, "slow"));
    tokio::time::advance(4 * SLOW).await;
    assert!(!places.are_short(), "no other function has asked for a place");
    assert!(
        places.book().admits(places.inner.limits, &address(1, "slow"), PlaceKind::Function),
        "no other function has asked for a place"
    );
    drop(places.try_take(&function(2, "quick")));
    assert!(places.are_short() && places.try_take(&function(1, "slow")).is_none());
    let mut waits = pin!(places.wait(function(1, "slow"), false));
    assert!(poll!(&mut waits).is_pending());
    assert!(places.try_take(&function(1, "quick")).is_some(), "of its canvas, too");
    slow.truncate(56);
    assert!(poll!(&mut waits).is_pending(), "an eighth stays free");
    slow.truncate(55);
    assert!(waits.await.is_some());
    drop(slow);
    tokio::time::advance(RECENT).await;
    let again = all_of_capacity(&places, &function(1, "slow"));
    tokio::time::advance(SLOW).await;
    assert!(!places.are_short(), "the others have gone");
    drop(again);
}

fn all_of_capacity(places: &Places, request: &PlaceRequest) -> Vec<TakenPlace> {
    (0..places.inner.limits.capacity).map(|_| places.take(request.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_quick_function_has_all_places() {
    let places = Places::new(64, None, 0);
    drop(places.take(function(2, "other")));
    let mut quick = VecDeque::from(all_of_capacity(&places, &function(1, "quick")));
    for _ in 0..1_000 {
        tokio::time::advance(SLOW / 100).await;
        quick.pop_front();
        assert!(!places.are_short());
        quick.push_back(places.try_take(&function(1, "quick")).expect("it is quick"));
    }
}

proptest! {
    /// Within its share a target is never refused; what is borrowed leaves a quarter of the
    /// places free; and nothing waits for a place that it could have.
    #[test]
    fn shares_are_kept_and_the_rest_is_lent(
        capacity in 1..40_usize,
        steps in prop::collection::vec((0..3_u128, 0..3_u8, 0..4_usize), 0..200),
    ) {
        let places = Places::new(capacity, None, 0);
        let limits = places.inner.limits;
        let mut taken: Vec<(u128, u8, TakenPlace)> = Vec::new();
        for (canvas, name, step) in steps {
            if step == 0 && !taken.is_empty() {
                taken.swap_remove(usize::from(name) % taken.len());
                continue;
            }
            let all = taken.iter().filter(|(of, ..)| *of == canvas).count();
            let own = taken.iter().filter(|(of, one, _)| (*of, *one) == (canvas, name)).count();
            let is_within = all < limits.of_canvas() && own < limits.of_target();
            match places.try_take(&target(canvas, &format!("t{name}"))) {
                Some(place) => {
                    taken.push((canvas, name, place));
                    prop_assert!(is_within || capacity.saturating_sub(taken.len()) >= capacity / 4);
                }
                None => prop_assert!(!is_within),
            }
            prop_assert_eq!(places.book().taken, taken.len());
        }
        drop(taken);
        prop_assert!(places.book().targets.is_empty() && places.book().taken == 0);
    }
}
