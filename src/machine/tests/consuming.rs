//! ORD-04: a consumer that follows [`consume`] consumes each event once and in order, whatever it
//! receives.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::event::Link;
use crate::machine::{Consumption, consume};

/// The chain of one object, with gaps for ids that other objects take from the same sequence.
fn chains() -> impl Strategy<Value = Vec<Link>> {
    prop::collection::vec(1_i64..5, 1..30).prop_map(|steps| {
        let mut prev = 0;
        let link = |step| {
            let link = Link { id: prev + step, prev };
            prev = link.id;
            link
        };
        steps.into_iter().map(link).collect()
    })
}

/// The chain in any order, with some events repeated.
fn deliveries() -> impl Strategy<Value = (Vec<Link>, Vec<Link>)> {
    (chains(), prop::collection::vec(any::<prop::sample::Index>(), 0..20)).prop_flat_map(|(chain, again)| {
        let again = again.iter().map(|index| chain[index.index(chain.len())]);
        let sent: Vec<Link> = chain.iter().copied().chain(again).collect();
        (Just(chain), Just(sent).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    // Shows: ORD-04
    #[test]
    fn every_event_is_consumed_once_and_in_order((chain, sent) in deliveries()) {
        let mut waiting = VecDeque::from(sent);
        let (mut last, mut consumed, mut delayed_in_a_row) = (0, Vec::new(), 0);
        while let Some(link) = waiting.pop_front() {
            match consume(last, link) {
                Consumption::Consume => {
                    last = link.id;
                    consumed.push(link);
                    delayed_in_a_row = 0;
                }
                Consumption::Delay => {
                    waiting.push_back(link);
                    delayed_in_a_row += 1;
                }
                Consumption::Done => {}
            }
            prop_assert!(delayed_in_a_row <= waiting.len(), "nothing that is left is ever consumed");
        }
        prop_assert_eq!(consumed, chain);
    }

    /// An event is in the future, the present, then the past: answers change in this order.
    #[test]
    fn an_event_is_delayed_then_consumed_then_done(prev in 0_i64..100, step in 1_i64..100) {
        let link = Link { id: prev + step, prev };
        let answers: Vec<Consumption> = (0..250).map(|last| consume(last, link)).collect();
        let place = |answer: &Consumption| match answer {
            Consumption::Delay => 0,
            Consumption::Consume => 1,
            Consumption::Done => 2,
        };
        prop_assert!(answers.is_sorted_by_key(place));
        prop_assert_eq!(consume(link.prev, link), Consumption::Consume);
        prop_assert_eq!(consume(link.id, link), Consumption::Done);
    }
}
