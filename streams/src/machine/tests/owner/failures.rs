//! Failures: what is tried again with less, what ends an owner, and what an owner knows of its
//! position afterwards.

use std::time::Duration;

use super::{
    CHOOSE, COMMIT, FULL_PAGE, LIMITS, NOTHING, PAGE, READ, READ_ISOLATED, TOGETHER, WAIT, WOKEN, WORK,
    answer_at, check, first, opened, reading,
};
use crate::machine::{FencedPosition, OwnerEffect, OwnerEnd, OwnerFailure, OwnerInput, OwnerState, WorkEnd};

const CHECK_EPOCH: OwnerEffect = OwnerEffect::CheckEpoch;

fn refused(why: &str) -> OwnerFailure {
    OwnerFailure::Refused(why.to_owned())
}

fn end(end: OwnerEnd) -> OwnerEffect {
    OwnerEffect::End(end)
}

/// An owner that commits its first batch.
fn committing() -> OwnerState {
    let mut state = reading(false, &[]);
    check(
        &mut state,
        [
            (FULL_PAGE, CHOOSE),
            (first(11), TOGETHER),
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
        ],
    );
    state
}

/// What each failure leads to, and what is known of the position after it, in a read and in a
/// commit.
#[test]
fn failures_are_retried_checked_or_final() {
    let (at, doubted) = (FencedPosition::At(10), FencedPosition::Unknown { last: 10 });
    let unconfirmed = FencedPosition::Unconfirmed { from: 10 };
    for (failure, effect, in_a_read, in_a_commit) in [
        (OwnerFailure::TimedOut, OwnerEffect::Retry, at, unconfirmed),
        (refused("no"), OwnerEffect::Retry, at, unconfirmed),
        (OwnerFailure::Unavailable, OwnerEffect::Retry, at, unconfirmed),
        (OwnerFailure::Elsewhere, CHECK_EPOCH, doubted, doubted),
        (OwnerFailure::Fenced, end(OwnerEnd::Fenced), at, at),
        (OwnerFailure::Withdrawn, end(OwnerEnd::Withdrawn), at, at),
        (OwnerFailure::Fatal, CHECK_EPOCH, at, at),
    ] {
        for (mut state, position) in [(reading(false, &[]), in_a_read), (committing(), in_a_commit)] {
            check(&mut state, [(OwnerInput::Failed(failure.clone()), effect.clone())]);
            assert_eq!(state.position(), position, "{failure:?}");
        }
    }
}

/// After a retry the look begins again, with the position if it is in doubt.
#[test]
fn a_retry_opens_what_is_in_doubt() {
    for (failure, effect) in
        [(OwnerFailure::Unavailable, OwnerEffect::Open), (OwnerFailure::Elsewhere, OwnerEffect::Open)]
    {
        let mut state = committing();
        state.step(OwnerInput::Failed(failure), Duration::ZERO).unwrap();
        if state.effect() == CHECK_EPOCH {
            check(&mut state, [(OwnerInput::Epoch { is_own: true }, OwnerEffect::Retry)]);
        }
        check(&mut state, [(WOKEN, effect), (opened(false), READ_ISOLATED)]);
    }
    let mut state = reading(false, &[]);
    check(
        &mut state,
        [(OwnerInput::Failed(OwnerFailure::Unavailable), OwnerEffect::Retry), (WOKEN, OwnerEffect::Load)],
    );
}

/// A new owner explains a position that is elsewhere, and an inconsistency.
#[test]
fn the_epoch_says_whether_there_is_a_new_owner() {
    let epoch = |is_own| OwnerInput::Epoch { is_own };
    let failed = OwnerInput::Failed;
    let fatal = || end(OwnerEnd::Fatal);
    for (failure, answer, effect) in [
        (OwnerFailure::Elsewhere, epoch(true), OwnerEffect::Retry),
        (OwnerFailure::Elsewhere, epoch(false), end(OwnerEnd::Fenced)),
        (OwnerFailure::Elsewhere, failed(OwnerFailure::Unavailable), OwnerEffect::Retry),
        (OwnerFailure::Elsewhere, failed(OwnerFailure::TimedOut), OwnerEffect::Retry),
        (OwnerFailure::Elsewhere, failed(OwnerFailure::Fatal), CHECK_EPOCH),
        (OwnerFailure::Fatal, epoch(true), fatal()),
        (OwnerFailure::Fatal, epoch(false), end(OwnerEnd::Fenced)),
        (OwnerFailure::Fatal, failed(OwnerFailure::Unavailable), fatal()),
        (OwnerFailure::Fatal, failed(OwnerFailure::TimedOut), fatal()),
        (OwnerFailure::Fatal, failed(OwnerFailure::Fatal), fatal()),
    ] {
        let mut state = reading(false, &[]);
        check(&mut state, [(failed(failure), CHECK_EPOCH), (answer, effect)]);
    }
}

/// Whatever failed while an event was tried on its own, it was not the event.
#[test]
fn a_failure_uncounts_an_event_that_is_tried_on_its_own() {
    let uncount = OwnerEffect::UncountAttempt { seq: 11 };
    let counted = (OwnerInput::Counted(1), OwnerEffect::Prepare { losses: Some(1) });
    let steps = [
        (OwnerInput::Prepared, WORK),
        (OwnerInput::Worked(WorkEnd::Done), COMMIT),
        (OwnerInput::Unstorable, WORK),
        (
            OwnerInput::Worked(WorkEnd::Stalled { events: 1, last: 11, hanging: vec![11] }),
            OwnerEffect::Isolate { seq: 11, single_through: 11, losses: 1 },
        ),
    ];
    for done in 0..=steps.len() {
        for (failure, effect) in [
            (OwnerFailure::TimedOut, OwnerEffect::Retry),
            (OwnerFailure::Withdrawn, end(OwnerEnd::Withdrawn)),
            (OwnerFailure::Elsewhere, CHECK_EPOCH),
            (OwnerFailure::Fatal, CHECK_EPOCH),
        ] {
            let mut state = reading(true, &[]);
            check(&mut state, [(PAGE, CHOOSE), (first(11), OwnerEffect::CountAttempt { seq: 11 })]);
            check(&mut state, [counted.clone()]);
            for step in steps.iter().take(done) {
                check(&mut state, [step.clone()]);
            }
            let failed = OwnerInput::Failed(failure);
            check(&mut state, [(failed, uncount.clone()), (OwnerInput::Uncounted, effect)]);
        }
    }
    // It was not counted yet, or was counted afterwards.
    let mut state = reading(true, &[]);
    check(
        &mut state,
        [
            (PAGE, CHOOSE),
            (first(11), OwnerEffect::CountAttempt { seq: 11 }),
            (OwnerInput::Failed(OwnerFailure::TimedOut), OwnerEffect::Retry),
        ],
    );
}

/// Requests get smaller with each time-out, and larger with each page that is done.
#[test]
fn less_is_asked_for_after_time_outs() {
    let mut state = reading(false, &[]);
    let read = |after, events, bytes| OwnerEffect::Read { after, events, bytes };
    for (events, bytes) in [(250, 2048), (125, 1024), (62, 512)] {
        check(
            &mut state,
            [
                (OwnerInput::Failed(OwnerFailure::TimedOut), OwnerEffect::Retry),
                (WOKEN, OwnerEffect::Load),
                (OwnerInput::Loaded, read(10, events, bytes)),
            ],
        );
    }
    assert_eq!(state.narrowing().divisor(), 8);
    check(
        &mut state,
        [
            (FULL_PAGE, OwnerEffect::Choose { most: 62 }),
            (NOTHING, read(20, 125, 1024)),
            (FULL_PAGE, OwnerEffect::Choose { most: 125 }),
            (NOTHING, read(20, 250, 2048)),
            (PAGE, OwnerEffect::Choose { most: 250 }),
            (NOTHING, WAIT),
        ],
    );
    assert_eq!(state.narrowing().divisor(), 1);
}

/// Fails this read; returns what follows, and begins again if that is a retry.
fn fail(state: &mut OwnerState, failure: OwnerFailure) -> OwnerEffect {
    let effect = answer_at(state, Duration::ZERO, OwnerInput::Failed(failure));
    if effect == OwnerEffect::Retry {
        state.step(WOKEN, Duration::ZERO).unwrap();
        state.step(OwnerInput::Loaded, Duration::ZERO).unwrap();
    }
    effect
}

#[test]
fn an_owner_rests_after_twenty_time_outs_in_a_row() {
    let mut state = reading(false, &[]);
    for _ in 0..20 {
        assert_eq!(fail(&mut state, OwnerFailure::TimedOut), OwnerEffect::Retry);
    }
    assert_eq!(state.effect(), OwnerEffect::Read { after: 10, events: 1, bytes: 4 });
    assert_eq!(fail(&mut state, OwnerFailure::TimedOut), end(OwnerEnd::TimedOut { times: 20 }));
}

/// Other failures in between are no answers.
#[test]
fn a_page_ends_the_row_of_time_outs() {
    let mut state = reading(false, &[]);
    for _ in 0..20 {
        fail(&mut state, OwnerFailure::TimedOut);
        fail(&mut state, OwnerFailure::Unavailable);
    }
    state.step(FULL_PAGE, Duration::ZERO).unwrap();
    state.step(NOTHING, Duration::ZERO).unwrap();
    assert_eq!(state.narrowing().divisor(), 512);
    for _ in 0..20 {
        assert_eq!(fail(&mut state, OwnerFailure::TimedOut), OwnerEffect::Retry);
    }
    assert_eq!(fail(&mut state, OwnerFailure::TimedOut), end(OwnerEnd::TimedOut { times: 20 }));
}

/// It is permanent in the same words, whatever else failed in between.
#[test]
fn an_owner_ends_after_twenty_refusals_in_the_same_words() {
    let mut state = reading(false, &[]);
    assert_eq!(fail(&mut state, refused("not this")), OwnerEffect::Retry);
    for _ in 0..19 {
        assert_eq!(fail(&mut state, refused("no")), OwnerEffect::Retry);
        assert_eq!(fail(&mut state, OwnerFailure::Unavailable), OwnerEffect::Retry);
    }
    let refusals = OwnerEnd::Refused { why: "no".to_owned(), times: 20 };
    assert_eq!(fail(&mut state, refused("no")), end(refusals));
}

/// Only a look that has read everything ends the row, or other words.
#[test]
fn a_look_and_other_words_end_the_row_of_refusals() {
    let mut state = reading(false, &[]);
    for other in [false, true] {
        for _ in 0..19 {
            assert_eq!(fail(&mut state, refused("no")), OwnerEffect::Retry);
        }
        if other {
            assert_eq!(fail(&mut state, refused("never")), OwnerEffect::Retry);
        } else {
            let empty = OwnerInput::Read { through: 10, more: false, held: false };
            check(&mut state, [(empty, CHOOSE), (NOTHING, WAIT), (WOKEN, OwnerEffect::Load)]);
            check(&mut state, [(OwnerInput::Loaded, READ)]);
        }
    }
    for _ in 0..19 {
        assert_eq!(fail(&mut state, refused("no")), OwnerEffect::Retry);
    }
    assert!(matches!(fail(&mut state, refused("no")), OwnerEffect::End(OwnerEnd::Refused { .. })));
}

#[test]
fn nothing_follows_the_end() {
    let mut state = OwnerState::new(LIMITS);
    check(&mut state, [(OwnerInput::Failed(OwnerFailure::Withdrawn), end(OwnerEnd::Withdrawn))]);
    assert!(state.step(WOKEN, Duration::ZERO).is_err());
    assert!(state.step(OwnerInput::Failed(OwnerFailure::Fatal), Duration::ZERO).is_err());
}
