//! A receiver with a limit, and targets that never accept, on a clock of the test's own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::event::{HandlerScope, Name};

const SECOND: Duration = Duration::from_secs(1);

fn target(canvas: u128, name: &str) -> TargetKey {
    let scope = HandlerScope::worker(CanvasId(Uuid::from_u128(canvas)), name).unwrap();
    (HandlerAddress { scope, modifier: Name::no_modifier() }, Uuid::nil())
}

fn event(number: usize) -> EventId {
    EventId(Uuid::from_u128(number as u128))
}

fn ended(target: &TargetKey, id: EventId, end: HandlerEnd, busy: bool) -> EndedRun {
    EndedRun { id, canvas: target.0.scope.canvas, end, busy }
}

fn wait_of(end: HandlerEnd) -> Duration {
    let (HandlerEnd::NotYet(wait) | HandlerEnd::Failed(Some(wait))) = end else { panic!("{end:?}") };
    wait
}

/// The result of a day of events at one target.
#[derive(Debug, Default)]
struct Story {
    refused: usize,
    looks: usize,
    took: Duration,
}

/// Emits so many events at once to a receiver that accepts `limit` of them in each second and
/// answers the others with 429 and `Retry-After: 1`.
fn served(events: usize, limit: usize) -> Story {
    let (busy, target, begun) = (BusyTargets::default(), target(1, "limited"), Instant::now());
    let mut due: BinaryHeap<_> = (0..events).map(|number| Reverse((Duration::ZERO, number))).collect();
    let (mut story, mut window) = (Story::default(), (0, 0));
    while let Some(Reverse((at, number))) = due.pop() {
        let (id, now) = (event(number), begun + at);
        story.looks += 1;
        if let Some(wait) = busy.wait(&target, id, now) {
            due.push(Reverse((at + wait, number)));
            continue;
        }
        if window.0 != at.as_secs() {
            window = (at.as_secs(), 0);
        }
        window.1 += 1;
        let accepts = window.1 <= limit;
        let end = if accepts { HandlerEnd::Completed } else { HandlerEnd::NotYet(SECOND) };
        let end = busy.after(&target, ended(&target, id, end, !accepts), now);
        story.took = at;
        if !accepts {
            story.refused += 1;
            due.push(Reverse((at + wait_of(end), number)));
        }
    }
    story
}

/// A receiver of 20 per second is sent about that much, however many events wait, and it gets all.
// Shows: TARGET-16
#[test]
fn a_receiver_with_a_limit_is_not_flooded() {
    for limit in [5, 20, 100] {
        let story = served(600, limit);
        let best = 600 / limit as u64;
        assert!(story.refused < 600 / 2, "{limit}/s: {story:?}");
        assert!(story.looks < 600 * 5, "{limit}/s: {story:?}");
        assert!(story.took.as_secs() < 60 + 4 * best, "{limit}/s: {story:?}");
    }
}

/// Other targets, of the same canvas and of another, are never held.
// Shows: TARGET-16
#[test]
fn only_the_target_that_refused_is_held() {
    let (busy, limited, now) = (BusyTargets::default(), target(1, "limited"), Instant::now());
    assert_eq!(busy.wait(&limited, event(1), now), None);
    let refused = ended(&limited, event(1), HandlerEnd::NotYet(9 * SECOND), true);
    assert_eq!(busy.after(&limited, refused, now), HandlerEnd::NotYet(9 * SECOND));
    assert!(busy.wait(&limited, event(2), now).unwrap() > 9 * SECOND, "behind the one that was refused");
    let registered_again = (limited.0.clone(), Uuid::from_u128(1));
    for other in [target(1, "healthy"), target(2, "limited"), registered_again] {
        assert_eq!(busy.wait(&other, event(2), now), None);
        busy.after(&other, ended(&other, event(3), HandlerEnd::Completed, false), now);
    }
    assert_eq!(busy.wait(&limited, event(1), now + 9 * SECOND), None, "its turn");
}

/// A target that accepts again is soon forgotten, and one that never does gets a request every ten
/// seconds in the end.
#[test]
fn the_rate_falls_and_recovers() {
    let (busy, target, mut now) = (BusyTargets::default(), target(1, "t"), Instant::now());
    for number in 0..100 {
        while let Some(wait) = busy.wait(&target, event(number), now) {
            now += wait;
        }
        busy.after(&target, ended(&target, event(number), HandlerEnd::NotYet(Duration::ZERO), true), now);
    }
    assert!(busy.wait(&target, event(100), now).unwrap() >= 10 * SECOND);
    let rates = busy.rates(2, now);
    let [slowest] = &rates[..] else { panic!("one target") };
    assert_eq!((&slowest.target, slowest.per_second), (&target, RATE_MIN));
    assert!(slowest.held >= SECOND, "{slowest:?}");
    let begun = now;
    for number in 200.. {
        while let Some(wait) = busy.wait(&target, event(number), now) {
            now += wait;
        }
        busy.after(&target, ended(&target, event(number), HandlerEnd::Completed, false), now);
        if !busy.is_any() {
            break;
        }
    }
    assert!(now - begun < 300 * SECOND, "{:?}", now - begun);
    assert!(busy.rates(1, now).is_empty());
}

/// Of many targets so many are told of, and those of one canvas do not push out another's.
#[test]
fn rates_are_told_of_each_canvas() {
    let (busy, now) = (BusyTargets::default(), Instant::now());
    let refuse = |target: &TargetKey, at: Instant| {
        busy.after(target, ended(target, event(1), HandlerEnd::NotYet(2 * SECOND), true), at);
    };
    let other = target(2, "t");
    refuse(&other, now);
    for number in 0..150 {
        refuse(&target(1, &format!("t{number}")), now + SECOND);
    }
    let rates = busy.rates(100, now + SECOND);
    assert_eq!(rates.len(), 100);
    assert_eq!(rates[1], LearntRate { target: other, per_second: RATE_FIRST, held: SECOND });
    assert!(busy.rates(100, now + 700 * SECOND).is_empty(), "their last refusals are long ago");
}

/// However many targets of a canvas ask to be called at once, its refused and failed events come
/// back at a bounded rate; another canvas's single one waits only as long as it was told.
// Shows: TARGET-16
#[test]
fn the_refusals_of_a_canvas_come_back_at_a_bounded_rate() {
    for end in [HandlerEnd::NotYet(Duration::ZERO), HandlerEnd::Failed(None)] {
        let (busy, now) = (BusyTargets::default(), Instant::now());
        let mut waits: Vec<Duration> = (0..1_000)
            .map(|number| {
                let target = target(1, &format!("t{number}"));
                let end = busy.after(&target, ended(&target, event(number), end, false), now);
                if end == HandlerEnd::Failed(None) { Duration::ZERO } else { wait_of(end) }
            })
            .collect();
        waits.sort();
        for second in 2..20 {
            let within = waits.iter().filter(|wait| wait.as_secs() == second).count();
            assert!(within <= 51, "{within} in second {second}");
        }
        let other = target(2, "t");
        assert_eq!(busy.after(&other, ended(&other, event(1), end, false), now), end);
    }
}
