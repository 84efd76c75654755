//! An entity's decisions on events that are sent once, twice, late, or ahead of others.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::machine::{EntityDecision, decide_event};
use wakeq::machine::Link;

const EARLIER: Link = Link { id: 4, prev: 0 };
const LATEST: Link = Link { id: 9, prev: 4 };

// ENT-26: the most recent undecided event is processed.
// Shows: ENT-27
#[test]
fn the_most_recent_is_processed() {
    assert_eq!(decide_event(0, 3, EARLIER, false), EntityDecision::Process);
    assert_eq!(decide_event(4, 8, LATEST, false), EntityDecision::Process);
    // Also if the event before it died, and so was not decided.
    assert_eq!(decide_event(0, 8, LATEST, false), EntityDecision::Process);
}

// ENT-28
#[test]
fn the_most_recent_that_was_processed_is_answered_again() {
    assert_eq!(decide_event(9, 11, LATEST, true), EntityDecision::AnswerAgain);
    // It was rejected: the rejection is its result.
    assert_eq!(decide_event(9, 11, LATEST, false), EntityDecision::AnswerAgain);
}

// ENT-29, ENT-30
#[test]
fn an_older_one_is_done_if_it_is_in_the_repository_and_refused_if_not() {
    assert_eq!(decide_event(9, 11, EARLIER, true), EntityDecision::Done);
    assert_eq!(decide_event(9, 11, EARLIER, false), EntityDecision::Refuse);
}

#[test]
fn an_event_whose_predecessor_has_not_come_waits() {
    assert_eq!(decide_event(4, 5, Link { id: 12, prev: 9 }, false), EntityDecision::Delay);
    // Whatever link it claims: deciding it would make all events sent until then count as older.
    for id in [13, i64::MAX] {
        assert_eq!(decide_event(4, 11, Link { id, prev: 0 }, false), EntityDecision::Delay);
    }
}

/// What happens to an event when it is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stored,
    Rejected,
    Dies,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    prop::collection::vec(prop::sample::select(vec![Fate::Stored, Fate::Rejected, Fate::Dies]), 1..20)
}

/// An inbox: the events in order, each followed by some that were sent before.
fn inboxes() -> impl Strategy<Value = (Vec<Fate>, Vec<usize>)> {
    fates().prop_flat_map(|fates| {
        let rows = (0..fates.len()).map(|at| prop::collection::vec(0..=at, 0..3)).collect::<Vec<_>>();
        (Just(fates), rows).prop_map(|(fates, again)| {
            let rows = again.into_iter().enumerate().flat_map(|(at, again)| std::iter::once(at).chain(again));
            (fates, rows.collect())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is sent again, each event is stored once and in order; a stored event is never
    /// processed again, nor is any event older than the last decision.
    // Shows: ENT-26
    #[test]
    fn nothing_is_stored_twice_or_out_of_order((fates, rows) in inboxes()) {
        let (mut last, mut stored, mut links) = (0, Vec::new(), BTreeMap::new());
        let mut previous_row = 0;
        for (seq, event) in (1..).zip(rows) {
            let link = *links.entry(event).or_insert(Link { id: seq, prev: previous_row });
            previous_row = seq;
            let in_repository = stored.contains(&event);
            match decide_event(last, seq - 1, link, in_repository) {
                EntityDecision::Process => {
                    prop_assert!(!in_repository && link.id > last);
                    if fates[event] != Fate::Dies {
                        last = link.id;
                    }
                    if fates[event] == Fate::Stored {
                        stored.push(event);
                    }
                }
                EntityDecision::AnswerAgain => prop_assert_eq!(link.id, last),
                EntityDecision::Done => prop_assert!(in_repository && link.id < last),
                EntityDecision::Refuse => prop_assert!(!in_repository && link.id < last),
                EntityDecision::Delay => prop_assert!(false, "all before it came by"),
            }
        }
        let wanted: Vec<usize> = (0..fates.len()).filter(|at| fates[*at] == Fate::Stored).collect();
        prop_assert_eq!(stored, wanted);
    }

    /// As the entity advances: delayed, processed, answered again, then done or refused.
    // Shows: ENT-26
    #[test]
    fn the_answers_follow_one_another(prev in 0_i64..100, step in 1_i64..100, stored: bool) {
        let link = Link { id: prev + step, prev };
        let place = |answer: &EntityDecision| match answer {
            EntityDecision::Delay => 0,
            EntityDecision::Process => 1,
            EntityDecision::AnswerAgain => 2,
            EntityDecision::Done | EntityDecision::Refuse => 3,
        };
        let answers: Vec<EntityDecision> = (0..250).map(|last| decide_event(last, last, link, stored)).collect();
        prop_assert!(answers.is_sorted_by_key(place));
        let late = if stored { EntityDecision::Done } else { EntityDecision::Refuse };
        prop_assert!(answers.iter().skip(200).all(|answer| *answer == late));
    }
}
