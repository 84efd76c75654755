//! What a reader knows of its position, and how much it asks for after failures.

use crate::machine::{FencedPosition, Narrowing};
use FencedPosition::{At, Unconfirmed, Unknown};

#[test]
fn a_position_is_known_while_it_is_at_a_place() {
    for (position, known, last) in [
        (FencedPosition::UNOPENED, None, 0),
        (Unknown { last: 7 }, None, 7),
        (At(0), Some(0), 0),
        (At(7), Some(7), 7),
        (Unconfirmed { from: 7 }, None, 7),
    ] {
        assert_eq!((position.known(), position.last()), (known, last), "{position:?}");
    }
}

#[test]
fn a_refusal_and_a_lost_answer_leave_the_last_place() {
    for (position, doubted, unanswered) in [
        (At(7), Unknown { last: 7 }, Unconfirmed { from: 7 }),
        (Unknown { last: 7 }, Unknown { last: 7 }, Unconfirmed { from: 7 }),
        (Unconfirmed { from: 7 }, Unconfirmed { from: 7 }, Unconfirmed { from: 7 }),
    ] {
        assert_eq!((position.doubted(), position.unanswered()), (doubted, unanswered), "{position:?}");
    }
}

/// Only a lost answer leaves open whether something was written, and only where it was before shows
/// that it was not.
#[test]
fn the_place_shows_whether_a_write_was_carried_out() {
    for (position, at, is_unwritten) in [
        (Unconfirmed { from: 7 }, 7, true),
        (Unconfirmed { from: 7 }, 8, false),
        (Unconfirmed { from: 7 }, 6, false),
        (Unknown { last: 7 }, 7, false),
        (FencedPosition::UNOPENED, 0, false),
        (At(7), 7, false),
    ] {
        assert_eq!(position.is_unwritten(at), is_unwritten, "{position:?} is at {at}");
    }
}

#[test]
fn limits_are_halved_by_failures_and_doubled_by_successes() {
    let mut narrowing = Narrowing::NONE;
    let mut parts = Vec::new();
    while !narrowing.is_narrowest() {
        parts.push(narrowing.part_of(500));
        narrowing = narrowing.narrowed();
    }
    assert_eq!(parts, [500, 250, 125, 62, 31, 15, 7, 3, 1, 1]);
    assert_eq!((narrowing.divisor(), narrowing.part_of(500), narrowing.part_of(4096)), (1024, 1, 4));
    assert_eq!(narrowing.narrowed(), narrowing, "there is no smaller part");
    assert_eq!(narrowing.widened().part_of(4096), 8);
    assert_eq!(Narrowing::NONE.widened(), Narrowing::NONE);
    assert_eq!(Narrowing::NONE.part_of(0), 1, "one event is always read");
}
