//! EV2-63: the delay, lock and rule checks give the same verdict in every order, for an event whose
//! turn it is.

use proptest::prelude::*;

use super::{LEASE, POLICY, schedule};
use crate::event::{RuleKind, Turn};
use crate::machine::{CheckResult, Effect, Input, Outcome, Schedule, State, When, check_schedule};

type Check = fn(Schedule) -> State;

const ORDERS: [[Check; 3]; 6] = [
    [State::DelayCheck, State::LockCheck, State::RuleCheck],
    [State::DelayCheck, State::RuleCheck, State::LockCheck],
    [State::LockCheck, State::DelayCheck, State::RuleCheck],
    [State::LockCheck, State::RuleCheck, State::DelayCheck],
    [State::RuleCheck, State::DelayCheck, State::LockCheck],
    [State::RuleCheck, State::LockCheck, State::DelayCheck],
];

/// The outcome of one check regardless of earlier ones, and whether it lets the event through.
fn check(state: State) -> (Outcome, bool) {
    let parks = state.effect() == Effect::Park;
    let input = if parks { Input::Parked(true) } else { Input::Decide };
    let transition = state.step(input, &POLICY).unwrap();
    let through = !matches!(transition.next, State::Queue(_) | State::End(_));
    (transition.outcome, through)
}

/// Follows the machine's own order: whether it gets as far as looking up the handler.
fn machine_may_claim(schedule: Schedule) -> bool {
    let mut state = State::EventLoad;
    let mut input = Input::Loaded(Some(schedule));
    loop {
        state = state.step(input, &POLICY).unwrap().next;
        let effect = state.effect();
        input = if effect == Effect::Decide {
            Input::Decide
        } else if effect == Effect::Park {
            Input::Parked(true)
        } else {
            return effect == Effect::FindHandler;
        };
    }
}

/// The conditions of the claiming statement.
fn statement_may_claim(row: &Schedule) -> bool {
    let lock_free = row.locked_at.is_none_or(|locked_at| locked_at < row.now - LEASE);
    row.delay_until <= row.now && lock_free && row.rule.is_none() && row.turn == Turn::First
}

/// Mostly close to the edges: due now, lease over now, beyond the horizon.
fn offsets_ms() -> impl Strategy<Value = i64> {
    let edges = prop::sample::select(vec![-600_000, -60_000, 0, 60_000, 600_000]);
    prop_oneof![-10_000_000_i64..10_000_000, (edges, -2_i64..=2).prop_map(|(edge, off)| edge + off)]
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let rules = prop::sample::select(vec![None, Some(RuleKind::Pause), Some(RuleKind::Block)]);
    let turns = [Turn::First, Turn::First, Turn::Behind, Turn::Halted, Turn::Held, Turn::Passed];
    let turns = prop::sample::select(turns.to_vec());
    (offsets_ms(), prop::option::of(offsets_ms()), rules, turns)
        .prop_map(|(due_ms, locked_ms, rule, turn)| Schedule { turn, ..schedule(due_ms, locked_ms, rule) })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    // Shows: EV2-63
    #[test]
    fn the_checks_agree_in_every_order_and_with_the_claim(schedule in schedules()) {
        let may_claim = statement_may_claim(&schedule);
        prop_assert_eq!(machine_may_claim(schedule), may_claim);
        prop_assert_eq!(check_schedule(schedule, &POLICY) == CheckResult::Ready, may_claim);
        // A limit is met by the claim, so only by events that nothing else holds.
        let at_limit = check_schedule(schedule, &POLICY).at_limit(true);
        prop_assert_eq!(at_limit == CheckResult::Limited, may_claim);
        prop_assert!(at_limit != CheckResult::Ready);
        let schedule = Schedule { turn: Turn::First, ..schedule };
        let verdict = statement_may_claim(&schedule);
        let mut outcomes_of_first_order = None;
        for order in ORDERS {
            let checks = order.map(|state| check(state(schedule)));
            let stopped_at = checks.iter().position(|(_, through)| !through);
            prop_assert_eq!(stopped_at.is_none(), verdict);
            let mut outcomes = checks.map(|(outcome, _)| outcome);
            outcomes.sort_unstable();
            let first = *outcomes_of_first_order.get_or_insert(outcomes);
            prop_assert_eq!(outcomes, first);
        }
    }

    #[test]
    fn a_wait_is_within_the_horizon_or_a_lease(schedule in schedules()) {
        for state in [State::DelayCheck(schedule), State::LockCheck(schedule)] {
            if let State::Queue(When::In(left)) =
                state.step(Input::Decide, &POLICY).unwrap().next
            {
                prop_assert!(left <= POLICY.horizon.max(POLICY.lease));
            }
        }
    }
}
