//! Looks and pages: when the position is opened, how it follows what was read, and what comes next.

use std::time::Duration;

use super::{
    CHOOSE, COMMIT, FULL_PAGE, LIMITS, NOTHING, PAGE, POLL, READ, READ_ISOLATED, TOGETHER, WAIT, WOKEN, WORK,
    answer_at, check, chosen, first, isolated_read, opened, reading,
};
use crate::machine::{FencedPosition, OwnerEffect, OwnerInput, OwnerState, WorkEnd};

/// An owner that has read everything, whose position is at 10.
fn waiting() -> OwnerState {
    let mut state = reading(false, &[]);
    let through = 10;
    check(&mut state, [(OwnerInput::Read { through, more: false, held: false }, CHOOSE), (NOTHING, WAIT)]);
    state
}

#[test]
fn a_look_opens_loads_and_reads() {
    let mut state = OwnerState::new(LIMITS);
    assert_eq!(state.effect(), WAIT);
    check(
        &mut state,
        [
            (OwnerInput::Woken { is_due: true }, OwnerEffect::Open),
            (opened(false), READ_ISOLATED),
            (isolated_read(&[]), OwnerEffect::Load),
            (OwnerInput::Loaded, READ),
            (OwnerInput::Read { through: 10, more: false, held: true }, CHOOSE),
            (NOTHING, OwnerEffect::Wait { held: true }),
        ],
    );
}

/// It is opened again only if it may have been moved, which an owner that was woken by the time
/// alone looks at.
#[test]
fn a_known_position_is_not_opened_again() {
    for (answers, effect) in [
        (vec![WOKEN], OwnerEffect::Load),
        (vec![OwnerInput::Woken { is_due: true }], OwnerEffect::LookAgain),
        (vec![OwnerInput::Woken { is_due: true }, OwnerInput::NotSeen], OwnerEffect::Load),
        (vec![OwnerInput::Woken { is_due: true }, OwnerInput::Seen(Some(10))], OwnerEffect::Load),
        (vec![OwnerInput::Woken { is_due: true }, OwnerInput::Seen(Some(9))], OwnerEffect::Open),
        (vec![OwnerInput::Woken { is_due: true }, OwnerInput::Seen(Some(11))], OwnerEffect::Open),
        (vec![OwnerInput::Woken { is_due: true }, OwnerInput::Seen(None)], OwnerEffect::Open),
    ] {
        let mut state = waiting();
        let shown = format!("{answers:?}");
        for input in answers {
            state.step(input, Duration::ZERO).unwrap();
        }
        assert_eq!(state.effect(), effect, "after {shown}");
        assert_eq!(state.position().last(), 10);
    }
}

/// The position follows what was not for this type once per poll interval, or if it lags far
/// behind. Past the events of isolated entities it goes at once.
#[test]
fn the_position_follows_what_was_read() {
    let just_before = POLL - Duration::from_millis(1);
    for (through, passes, now, moves) in [
        (10, false, POLL, false),
        (10, true, POLL, false),
        (11, false, just_before, false),
        (11, false, POLL, true),
        (11, true, Duration::ZERO, true),
        (10_009, false, just_before, false),
        (10_010, false, Duration::ZERO, true),
    ] {
        let mut state = reading(false, &["ada"]);
        state.step(OwnerInput::Read { through, more: true, held: false }, now).unwrap();
        let effect = answer_at(&mut state, now, OwnerInput::Chosen { passes, first: None });
        let read = OwnerEffect::Read { after: through, events: 500, bytes: 4096 };
        if moves {
            assert_eq!(effect, OwnerEffect::Move { to: through });
            assert_eq!(answer_at(&mut state, now, OwnerInput::Moved), read);
        } else {
            assert_eq!(effect, read, "{through} {passes} {now:?}");
        }
        let at = if moves { through } else { 10 };
        assert_eq!(state.position(), FencedPosition::At(at), "{through} {passes} {now:?}");
    }
}

/// It is not moved again within a poll interval.
#[test]
fn the_position_is_moved_once_per_poll_interval() {
    let mut state = reading(false, &[]);
    for (now_ms, through, moves) in
        [(1_000, 11, true), (1_500, 12, false), (1_999, 13, false), (2_000, 14, true)]
    {
        let now = Duration::from_millis(now_ms);
        state.step(OwnerInput::Read { through, more: true, held: false }, now).unwrap();
        let effect = answer_at(&mut state, now, NOTHING);
        assert_eq!(effect == OwnerEffect::Move { to: through }, moves, "{now_ms} ms");
        if moves {
            state.step(OwnerInput::Moved, now).unwrap();
        }
    }
}

/// Dropped events count for the whole page, in whichever batch they were found.
#[test]
fn dropped_events_move_the_position_at_the_end_of_the_page() {
    let mut state = reading(false, &["ada"]);
    let passes = OwnerInput::Chosen { passes: true, first: None };
    check(
        &mut state,
        [
            (FULL_PAGE, CHOOSE),
            (chosen(true, 12), TOGETHER),
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Committed(12), CHOOSE),
            (NOTHING, OwnerEffect::Move { to: 20 }),
            (OwnerInput::Moved, OwnerEffect::Read { after: 20, events: 500, bytes: 4096 }),
            (OwnerInput::Read { through: 30, more: true, held: false }, CHOOSE),
            (passes, OwnerEffect::Move { to: 30 }),
        ],
    );
}

/// A commit takes the position along, and what was read.
#[test]
fn a_page_ends_where_its_last_batch_does() {
    let mut state = reading(false, &[]);
    check(
        &mut state,
        [
            (PAGE, CHOOSE),
            (first(12), TOGETHER),
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Committed(20), CHOOSE),
            (NOTHING, WAIT),
            (WOKEN, OwnerEffect::Load),
            (OwnerInput::Loaded, OwnerEffect::Read { after: 20, events: 500, bytes: 4096 }),
        ],
    );
    assert_eq!(state.position(), FencedPosition::At(20));
}
