//! Attempts at isolated entities: when they begin, and what becomes of their outcomes.

use std::time::Duration;

use super::{
    CHOOSE, COMMIT, FULL_PAGE, NOTHING, READ, STALL, TOGETHER, WAIT, WOKEN, WORK, answer_at, check, chosen,
    first, isolated, isolated_read, reading,
};
use crate::machine::{
    AttemptEnd, FencedPosition, OwnerEffect, OwnerFailure, OwnerInput, OwnerState, WorkEnd,
};

const START: OwnerEffect = OwnerEffect::StartAttempt { most: 500, bytes: 4096 };
/// The last page is empty.
const EMPTY: OwnerInput = OwnerInput::Read { through: 10, more: false, held: false };

/// An owner with these isolated entities that waits while an attempt at the first is under way.
fn trying(names: &[&str]) -> OwnerState {
    let mut state = reading(false, names);
    check(&mut state, [(EMPTY, CHOOSE), (NOTHING, START), (OwnerInput::Started, WAIT)]);
    state
}

/// The same in the next look, after the attempt has ended.
fn ended(names: &[&str], end: AttemptEnd) -> OwnerState {
    let mut state = trying(names);
    state.step(WOKEN, Duration::ZERO).unwrap();
    state.step(OwnerInput::Loaded, Duration::ZERO).unwrap();
    check(&mut state, [(EMPTY, CHOOSE), (NOTHING, OwnerEffect::TakeOutcome)]);
    state.step(OwnerInput::Outcome(Some(end)), Duration::ZERO).unwrap();
    state
}

/// An owner whose attempt is under way, after it has committed the first batch of a page.
fn committed(events: OwnerInput) -> OwnerState {
    let mut state = trying(&["ada"]);
    check(
        &mut state,
        [
            (WOKEN, OwnerEffect::Load),
            (OwnerInput::Loaded, READ),
            (FULL_PAGE, CHOOSE),
            (events, TOGETHER),
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Committed(11), OwnerEffect::TakeOutcome),
        ],
    );
    state
}

/// In a pause, or when the rest of the type has had its time.
#[test]
fn an_attempt_begins_when_it_is_its_turn() {
    let just_before = STALL - Duration::from_millis(1);
    let cases: [(&[&str], bool, Duration, bool); 7] = [
        // (names, whether there are more pages, now, whether it begins)
        (&["ada"], false, Duration::ZERO, true),
        (&["ada", "bob"], false, STALL, true),
        (&[], false, STALL, false),
        (&["ada"], true, Duration::ZERO, false),
        (&["ada"], true, just_before, false),
        (&["ada"], true, STALL, true),
        (&[], true, STALL, false),
    ];
    for (names, more, now, begins) in cases {
        let mut state = reading(false, names);
        state.step(OwnerInput::Read { through: 10, more, held: false }, now).unwrap();
        let goes_on = if more { READ } else { WAIT };
        let effect = if begins { START } else { goes_on };
        assert_eq!(answer_at(&mut state, now, NOTHING), effect, "{names:?} {more} {now:?}");
    }
}

/// After a lost owner it must first be found out what has to be isolated: no attempt begins between
/// two batches before the position has passed the page that it may have been processing.
#[test]
fn after_a_lost_owner_no_attempt_begins_within_its_page() {
    for (was_lost, to, now, effect) in [
        (false, 15, Duration::ZERO, CHOOSE),
        (false, 15, STALL, START),
        (true, 15, STALL, CHOOSE),
        (true, 20, STALL, START),
    ] {
        let mut state = reading(was_lost, &["ada"]);
        state.step(FULL_PAGE, now).unwrap();
        state.step(first(15), now).unwrap();
        if was_lost {
            state.step(OwnerInput::Counted(1), now).unwrap();
        }
        state.step(OwnerInput::Prepared, now).unwrap();
        state.step(OwnerInput::Worked(WorkEnd::Done), now).unwrap();
        assert_eq!(answer_at(&mut state, now, OwnerInput::Committed(to)), effect, "{was_lost} {to} {now:?}");
    }
}

#[test]
fn one_attempt_is_under_way_at_a_time() {
    let mut state = trying(&["ada", "bob"]);
    check(
        &mut state,
        [
            (WOKEN, OwnerEffect::Load),
            (OwnerInput::Loaded, READ),
            (EMPTY, CHOOSE),
            (NOTHING, OwnerEffect::TakeOutcome),
            (OwnerInput::Outcome(None), WAIT),
        ],
    );
}

/// Between two batches, too: the outcome is taken, and the next attempt waits for its turn.
#[test]
fn an_outcome_is_taken_between_batches() {
    let mut state = committed(first(11));
    let processed = OwnerInput::Outcome(Some(AttemptEnd::Processed { through: 10 }));
    let commit = OwnerEffect::CommitIsolated { through: 10 };
    check(&mut state, [(processed, commit), (OwnerInput::Committed(11), CHOOSE)]);
}

/// What has to be done about each outcome, and after that.
#[test]
fn outcomes_are_committed_taken_back_or_tried_again() {
    let half = OwnerEffect::StartAttempt { most: 250, bytes: 4096 };
    for (end, effect) in [
        (AttemptEnd::Nothing, OwnerEffect::TakeBack),
        (AttemptEnd::Processed { through: 12 }, OwnerEffect::CommitIsolated { through: 12 }),
        (AttemptEnd::Erasure { seq: 12 }, OwnerEffect::EraseIsolated),
        (AttemptEnd::TooMuch, half),
        (AttemptEnd::Hung { last: 12 }, START),
    ] {
        assert_eq!(ended(&["ada"], end).effect(), effect, "{end:?}");
    }
}

#[test]
fn a_commit_takes_the_entity_further_and_leaves_the_position() {
    let mut state = ended(&["ada"], AttemptEnd::Processed { through: 12 });
    check(&mut state, [(OwnerInput::Committed(10), START)]);
    assert_eq!((state.isolated()[0].after, state.position()), (12, FencedPosition::At(10)));
    let mut state = ended(&["ada"], AttemptEnd::Erasure { seq: 13 });
    check(
        &mut state,
        [
            (OwnerInput::Erased, OwnerEffect::CommitIsolated { through: 13 }),
            (OwnerInput::Committed(10), START),
        ],
    );
    assert_eq!(state.isolated()[0].after, 13);
    let mut state = ended(&["ada"], AttemptEnd::Processed { through: 9 });
    check(&mut state, [(OwnerInput::Committed(10), START)]);
    assert_eq!(state.isolated()[0].after, 10, "it never goes back");
}

#[test]
fn an_entity_with_nothing_left_is_taken_back() {
    let mut state = ended(&["ada", "bob"], AttemptEnd::Nothing);
    check(&mut state, [(OwnerInput::TakenBack(true), START)]);
    assert_eq!(isolated(&state), ["bob"]);
    let mut state = ended(&["ada"], AttemptEnd::Nothing);
    check(&mut state, [(OwnerInput::TakenBack(true), WAIT)]);
    assert_eq!(isolated(&state), [""; 0]);
}

/// Events of the entity that the position has not passed yet may have been dropped from the page:
/// they are read again.
#[test]
fn a_page_is_read_again_after_an_entity_was_taken_back_within_it() {
    let rest = OwnerEffect::Read { after: 11, events: 500, bytes: 4096 };
    for (passes, effect) in [(false, CHOOSE), (true, rest)] {
        let mut state = committed(chosen(passes, 11));
        let nothing = OwnerInput::Outcome(Some(AttemptEnd::Nothing));
        check(&mut state, [(nothing, OwnerEffect::TakeBack), (OwnerInput::TakenBack(true), effect)]);
    }
}

/// The position did not pass the events that were dropped from a page. An entity that is taken back
/// meanwhile needs them, so the page is read again.
#[test]
fn a_page_is_read_again_after_its_dropped_events_were_not_passed() {
    let mut state = trying(&["ada"]);
    let passes = OwnerInput::Chosen { passes: true, first: None };
    check(
        &mut state,
        [
            (WOKEN, OwnerEffect::Load),
            (OwnerInput::Loaded, READ),
            (FULL_PAGE, CHOOSE),
            (passes, OwnerEffect::Move { to: 20 }),
            (OwnerInput::Failed(OwnerFailure::Unavailable), OwnerEffect::Retry),
            (WOKEN, OwnerEffect::Load),
            (OwnerInput::Loaded, READ),
        ],
    );
}

/// More was sent to it, or the position was moved: the position is opened in the next look, and
/// nothing is tried until then.
#[test]
fn an_entity_that_is_not_taken_back_leaves_the_position_in_doubt() {
    let mut state = ended(&["ada"], AttemptEnd::Nothing);
    check(&mut state, [(OwnerInput::TakenBack(false), WAIT), (WOKEN, OwnerEffect::Open)]);
    assert_eq!((isolated(&state), state.position()), (vec!["ada"], FencedPosition::Unknown { last: 10 }));
}

/// Between two batches it is opened at once: the next batch would be committed from a position that
/// is not known.
#[test]
fn a_position_in_doubt_is_opened_before_the_next_batch() {
    let mut state = committed(first(11));
    let nothing = OwnerInput::Outcome(Some(AttemptEnd::Nothing));
    check(&mut state, [(nothing, OwnerEffect::TakeBack), (OwnerInput::TakenBack(false), OwnerEffect::Open)]);
}

/// The others need not wait for it, the rest of the type comes first, and its events are processed
/// one at a time from then on.
#[test]
fn an_entity_that_hangs_goes_to_the_end() {
    let state = ended(&["ada", "bob"], AttemptEnd::Hung { last: 12 });
    assert_eq!(isolated(&state), ["bob", "ada"]);
    assert_eq!(state.isolated()[1].single_through, 12);
    assert_eq!(state.effect(), START, "there is nothing else to do");
    let mut state = trying(&["ada"]);
    let now = STALL * 2;
    for input in [WOKEN, OwnerInput::Loaded, FULL_PAGE, NOTHING] {
        state.step(input, now).unwrap();
    }
    assert_eq!(state.effect(), OwnerEffect::Move { to: 20 });
    assert_eq!(answer_at(&mut state, now, OwnerInput::Moved), OwnerEffect::TakeOutcome);
    let hung = OwnerInput::Outcome(Some(AttemptEnd::Hung { last: 12 }));
    assert!(matches!(answer_at(&mut state, now, hung), OwnerEffect::Read { .. }));
}

/// Batches of an isolated entity shrink and grow like those of its type, and are its own.
#[test]
fn the_batches_of_an_isolated_entity_are_halved_and_doubled() {
    let mut state = ended(&["ada", "bob"], AttemptEnd::TooMuch);
    let start = |most| OwnerEffect::StartAttempt { most, bytes: 4096 };
    assert_eq!(state.effect(), start(250));
    for (end, answers, most) in [
        (AttemptEnd::TooMuch, vec![], 125),
        (AttemptEnd::Processed { through: 12 }, vec![OwnerInput::Committed(10)], 250),
        (AttemptEnd::Processed { through: 13 }, vec![OwnerInput::Committed(10)], 500),
        (AttemptEnd::Processed { through: 14 }, vec![OwnerInput::Committed(10)], 500),
        (AttemptEnd::TooMuch, vec![], 250),
        (AttemptEnd::Hung { last: 15 }, vec![], 500),
    ] {
        for input in [OwnerInput::Started, WOKEN, OwnerInput::Loaded, EMPTY, NOTHING] {
            state.step(input, Duration::ZERO).unwrap();
        }
        state.step(OwnerInput::Outcome(Some(end)), Duration::ZERO).unwrap();
        for input in answers {
            state.step(input, Duration::ZERO).unwrap();
        }
        assert_eq!(state.effect(), start(most), "after {end:?}");
    }
}

/// It dies on its own, in the next attempt: this one does not count.
#[test]
fn an_event_of_an_isolated_entity_that_must_not_be_stored_is_tried_again_on_its_own() {
    let mut state = ended(&["ada"], AttemptEnd::Processed { through: 12 });
    let failure = (11, "its result is too large".to_owned());
    let unstorable = OwnerInput::IsolatedUnstorable(Some(failure.clone()));
    let single = OwnerEffect::StartAttempt { most: 1, bytes: 4096 };
    check(&mut state, [(unstorable, OwnerEffect::UncountIsolated), (OwnerInput::Uncounted, single)]);
    assert_eq!(state.isolated_failure(), Some(&failure));
    for input in [OwnerInput::Started, WOKEN, OwnerInput::Loaded, EMPTY, NOTHING] {
        state.step(input, Duration::ZERO).unwrap();
    }
    check(
        &mut state,
        [
            (OwnerInput::Outcome(Some(AttemptEnd::Nothing)), OwnerEffect::TakeBack),
            (OwnerInput::TakenBack(true), WAIT),
        ],
    );
    assert_eq!(state.isolated_failure(), None);
}

/// Whatever failed, it was not the event.
#[test]
fn a_failure_uncounts_the_attempt() {
    let timed_out = || OwnerInput::Failed(OwnerFailure::TimedOut);
    for end in [AttemptEnd::Nothing, AttemptEnd::Processed { through: 12 }, AttemptEnd::Erasure { seq: 12 }] {
        let mut state = ended(&["ada"], end);
        check(
            &mut state,
            [(timed_out(), OwnerEffect::UncountIsolated), (OwnerInput::Uncounted, OwnerEffect::Retry)],
        );
    }
    // The attempt itself: another can begin.
    let mut state = trying(&["ada"]);
    for input in [WOKEN, OwnerInput::Loaded, EMPTY, NOTHING, timed_out(), OwnerInput::Uncounted, WOKEN] {
        state.step(input, Duration::ZERO).unwrap();
    }
    let half = OwnerEffect::Choose { most: 250 };
    state.step(OwnerInput::Loaded, Duration::ZERO).unwrap();
    check(&mut state, [(EMPTY, half), (NOTHING, START)]);
}

/// The attempt was aborted when the position was opened again.
#[test]
fn an_open_forgets_the_attempt() {
    let mut state = trying(&["ada"]);
    let moved = OwnerInput::Opened { at: 30, was_lost: false };
    check(
        &mut state,
        [
            (OwnerInput::Woken { is_due: true }, OwnerEffect::LookAgain),
            (OwnerInput::Seen(Some(30)), OwnerEffect::Open),
            (moved, OwnerEffect::ReadIsolated { at: 30 }),
            (isolated_read(&["bob"]), OwnerEffect::Load),
            (OwnerInput::Loaded, OwnerEffect::Read { after: 30, events: 500, bytes: 4096 }),
            (OwnerInput::Read { through: 30, more: false, held: false }, CHOOSE),
            (NOTHING, START),
        ],
    );
    assert_eq!(isolated(&state), ["bob"]);
}
