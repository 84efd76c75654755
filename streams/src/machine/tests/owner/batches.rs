//! Batches: how many events they have, which are processed one at a time, and which entities are
//! isolated.

use std::time::Duration;

use super::{
    CHOOSE, COMMIT, FULL_PAGE, LIMITS, PAGE, READ, READ_ISOLATED, STALL, TOGETHER, WOKEN, WORK, answer_at,
    check, entity, erasure, first, isolated, isolated_read, opened, reading,
};
use crate::event::ISOLATED_MAX;
use crate::machine::{
    FencedPosition, OwnerEffect, OwnerFailure, OwnerInput, OwnerState, WorkEnd, failure_after_losses,
};

/// An owner whose batch is this, which begins at 11.
fn working(was_lost: bool, events: OwnerInput, prepared: OwnerEffect) -> OwnerState {
    let mut state = reading(was_lost, &[]);
    check(&mut state, [(FULL_PAGE, CHOOSE), (events, prepared)]);
    state
}

fn stalled(events: usize, last: i64, hanging: &[i64]) -> OwnerInput {
    OwnerInput::Worked(WorkEnd::Stalled { events, last, hanging: hanging.to_vec() })
}

/// As many entities as can be isolated, except this many.
fn all_but(room: usize) -> Vec<String> {
    (room..ISOLATED_MAX).map(|number| format!("e{number}")).collect()
}

fn reading_with_room(was_lost: bool, room: usize) -> OwnerState {
    let names = all_but(room);
    reading(was_lost, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn events_are_committed_together_and_an_erasure_on_its_own() {
    let mut state = working(false, first(11), TOGETHER);
    check(
        &mut state,
        [
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Committed(14), CHOOSE),
            (erasure(15), OwnerEffect::Erase),
            (OwnerInput::Erased, OwnerEffect::Commit { is_erasure: true }),
            (OwnerInput::Committed(15), CHOOSE),
        ],
    );
    assert_eq!(state.position(), FencedPosition::At(15));
}

/// What must not be stored was marked, and the rest is processed again.
#[test]
fn a_batch_with_an_event_that_must_not_be_stored_is_processed_again() {
    let mut state = working(false, first(11), TOGETHER);
    check(
        &mut state,
        [
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Unstorable, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Committed(14), CHOOSE),
        ],
    );
}

#[test]
fn batches_are_halved_when_they_write_too_much_and_doubled_by_commits() {
    let mut state = working(false, first(11), TOGETHER);
    state.step(OwnerInput::Prepared, Duration::ZERO).unwrap();
    for (events, most) in [(500, 250), (250, 125), (125, 62), (3, 1), (1, 1)] {
        let too_much = OwnerInput::Worked(WorkEnd::TooMuch { events });
        assert_eq!(answer_at(&mut state, Duration::ZERO, too_much), OwnerEffect::Work { most });
    }
    let mut mosts = Vec::new();
    for seq in 11..=20 {
        state.step(OwnerInput::Worked(WorkEnd::Done), Duration::ZERO).unwrap();
        let OwnerEffect::Choose { most } = answer_at(&mut state, Duration::ZERO, OwnerInput::Committed(seq))
        else {
            panic!("the next batch follows a commit");
        };
        mosts.push(most);
        check(&mut state, [(first(seq + 1), TOGETHER), (OwnerInput::Prepared, WORK)]);
    }
    assert_eq!(mosts, [2, 4, 8, 16, 32, 64, 128, 256, 500, 500]);
}

/// An erasure says nothing about how much events write.
#[test]
fn an_erasure_leaves_the_size_of_batches() {
    let mut state = working(false, first(11), TOGETHER);
    let half = OwnerEffect::Choose { most: 4 };
    check(
        &mut state,
        [
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::TooMuch { events: 4 }), OwnerEffect::Work { most: 2 }),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Committed(12), half.clone()),
            (erasure(13), OwnerEffect::Erase),
            (OwnerInput::Erased, OwnerEffect::Commit { is_erasure: true }),
            (OwnerInput::Committed(13), half),
        ],
    );
}

/// After a lost owner the events of one page are counted one by one, up to where it goes; erasures
/// run no code that may end a process.
#[test]
fn after_a_lost_owner_a_page_is_processed_one_event_at_a_time() {
    for (was_lost, seq, effect) in [
        (true, 11, OwnerEffect::CountAttempt { seq: 11 }),
        (true, 20, OwnerEffect::CountAttempt { seq: 20 }),
        (true, 21, TOGETHER),
        (false, 11, TOGETHER),
    ] {
        working(was_lost, first(seq), effect);
    }
    working(true, erasure(11), OwnerEffect::Erase);
    let mut state = working(true, first(20), OwnerEffect::CountAttempt { seq: 20 });
    check(
        &mut state,
        [
            (OwnerInput::Counted(1), OwnerEffect::Prepare { losses: Some(1) }),
            (OwnerInput::Prepared, WORK),
            (OwnerInput::Worked(WorkEnd::Done), COMMIT),
            (OwnerInput::Committed(20), CHOOSE),
            (first(21), TOGETHER),
        ],
    );
}

/// The database says once that the previous owner was lost.
#[test]
fn a_lost_owner_is_remembered_until_a_page_was_read() {
    let mut state = OwnerState::new(LIMITS);
    let failed = || (OwnerInput::Failed(OwnerFailure::Unavailable), OwnerEffect::Retry);
    check(&mut state, [(WOKEN, OwnerEffect::Open), (opened(true), READ_ISOLATED), failed()]);
    check(&mut state, [(WOKEN, OwnerEffect::Open), (opened(false), READ_ISOLATED)]);
    check(&mut state, [(isolated_read(&[]), OwnerEffect::Load), failed(), (WOKEN, OwnerEffect::Load)]);
    check(&mut state, [(OwnerInput::Loaded, READ), failed(), (WOKEN, OwnerEffect::Load)]);
    let count = OwnerEffect::CountAttempt { seq: 11 };
    check(&mut state, [(OwnerInput::Loaded, READ), (FULL_PAGE, CHOOSE), (first(11), count)]);
}

/// An event with which owners were lost is taken out of the way, as long as there is room.
#[test]
fn an_event_that_ended_owners_has_its_entity_isolated() {
    let isolate = |losses| OwnerEffect::Isolate { seq: 11, single_through: 20, losses };
    for (room, counted, effect) in [
        (32, 0, OwnerEffect::Prepare { losses: Some(0) }),
        (32, 1, OwnerEffect::Prepare { losses: Some(1) }),
        (32, 2, isolate(1)),
        (1, 3, isolate(2)),
        (0, 2, OwnerEffect::Prepare { losses: Some(2) }),
        (0, 9, OwnerEffect::Prepare { losses: Some(9) }),
    ] {
        let mut state = reading_with_room(true, room);
        let count = OwnerEffect::CountAttempt { seq: 11 };
        check(&mut state, [(PAGE, CHOOSE), (first(11), count), (OwnerInput::Counted(counted), effect)]);
    }
    let mut state = working(true, first(11), OwnerEffect::CountAttempt { seq: 11 });
    check(&mut state, [(OwnerInput::Counted(2), isolate(1)), (OwnerInput::Isolated(entity("ada")), CHOOSE)]);
    assert_eq!(isolated(&state), ["ada"]);
}

/// The entities of events that hang are isolated, all of them or as many as there is room for. If
/// that is not enough, the events of the batch are processed one at a time.
#[test]
fn the_entities_of_a_batch_that_hangs_are_isolated() {
    /// Room, events, those that hang, those that are isolated, and whether the batch is processed
    /// one at a time.
    type Case = (usize, usize, &'static [i64], &'static [&'static str], bool);
    let cases: [Case; 8] = [
        (32, 3, &[11], &["11"], false),
        (32, 3, &[11, 13], &["11", "13"], false),
        (32, 3, &[], &[], true),
        (2, 3, &[11, 13], &["11", "13"], false),
        (1, 3, &[11, 13], &["11"], true),
        (0, 3, &[11], &[], true),
        (0, 2, &[11, 12], &[], true),
        (32, 1, &[13], &["13"], false),
    ];
    for (room, events, hanging, isolates, one_at_a_time) in cases {
        let mut state = reading_with_room(false, room);
        check(&mut state, [(FULL_PAGE, CHOOSE), (first(11), TOGETHER), (OwnerInput::Prepared, WORK)]);
        let mut effect = answer_at(&mut state, Duration::ZERO, stalled(events, 13, hanging));
        // The only event of a batch is the cause.
        let losses = u32::from(events == 1);
        for name in isolates {
            let seq = name.parse().unwrap();
            assert_eq!(effect, OwnerEffect::Isolate { seq, single_through: 13, losses });
            effect = answer_at(&mut state, Duration::ZERO, OwnerInput::Isolated(entity(name)));
        }
        assert_eq!(effect, OwnerEffect::Choose { most: (events / 2).max(1) });
        assert!(isolated(&state).ends_with(isolates), "{hanging:?}");
        let next = if one_at_a_time { OwnerEffect::CountAttempt { seq: 13 } } else { TOGETHER };
        check(&mut state, [(first(13), next)]);
    }
}

/// It was a batch of its own by chance: that it hung counts, and the next time it is one again.
#[test]
fn an_event_that_hangs_in_a_batch_of_one_and_can_not_be_isolated_is_counted() {
    let mut state = reading_with_room(false, 0);
    let count = OwnerEffect::CountAttempt { seq: 11 };
    check(
        &mut state,
        [
            (FULL_PAGE, CHOOSE),
            (first(11), TOGETHER),
            (OwnerInput::Prepared, WORK),
            (stalled(1, 11, &[11]), count.clone()),
            (OwnerInput::Counted(1), OwnerEffect::Choose { most: 1 }),
            (first(11), count),
            (OwnerInput::Counted(2), OwnerEffect::Prepare { losses: Some(2) }),
            (OwnerInput::Prepared, WORK),
            // It was counted before it began.
            (stalled(1, 11, &[11]), OwnerEffect::Choose { most: 1 }),
            (first(12), TOGETHER),
        ],
    );
}

/// While an event is tried on its own, its entity is isolated with the attempt that hung.
#[test]
fn an_event_that_hangs_on_its_own_is_isolated() {
    let mut state = working(true, first(11), OwnerEffect::CountAttempt { seq: 11 });
    check(
        &mut state,
        [
            (OwnerInput::Counted(1), OwnerEffect::Prepare { losses: Some(1) }),
            (OwnerInput::Prepared, WORK),
            (stalled(1, 11, &[11]), OwnerEffect::Isolate { seq: 11, single_through: 11, losses: 1 }),
            (OwnerInput::Isolated(entity("ada")), OwnerEffect::Choose { most: 1 }),
        ],
    );
}

/// The rest of the type comes first after an entity was isolated.
#[test]
fn an_isolated_entity_waits_for_the_rest_of_its_type() {
    let mut state = working(false, first(11), TOGETHER);
    let now = STALL * 2;
    state.step(OwnerInput::Prepared, now).unwrap();
    state.step(stalled(2, 12, &[11]), now).unwrap();
    let choose = OwnerEffect::Choose { most: 1 };
    assert_eq!(answer_at(&mut state, now, OwnerInput::Isolated(entity("ada"))), choose);
}

#[test]
fn an_event_dies_after_its_attempts() {
    for (losses, attempts, times) in
        [(0, 1, None), (1, 1, None), (2, 1, Some(1)), (3, 3, None), (4, 3, Some(3)), (9, 3, Some(8))]
    {
        let failure = failure_after_losses(losses, attempts);
        assert_eq!(failure.as_ref().map(|(_, times)| *times), times, "{losses} of {attempts}");
        if let Some((why, times)) = failure {
            assert!(why.contains(&format!(" {times} times ")), "{why}");
        }
    }
}
