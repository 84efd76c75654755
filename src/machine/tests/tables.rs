//! The transition tables, with times at the edges.

use std::time::Duration;

use super::{DAY, HORIZON, LEASE, POLICY, claim, retry_policy, schedule};
use crate::event::{Claim, EventId, RuleKind, Schedule, Turn};
use crate::machine::{
    Answer, Cause, Claimed, Effect, EventPolicy, HandlerEnd, Input, Outcome, Policy, Removal, RetryPolicy,
    Running, State, When,
};

const ACKNOWLEDGED: State = State::End(Answer::Acknowledge);
const PUT_BACK: State = State::End(Answer::PutBack);
const SOON: State = State::Queue(When::Soon);

fn after_ms(milliseconds: u64) -> State {
    State::Queue(When::In(Duration::from_millis(milliseconds)))
}

#[track_caller]
fn check(state: State, input: Input, outcome: Outcome, next: State) {
    check_with(&POLICY, state, input, outcome, next);
}

#[track_caller]
fn check_with(policy: &Policy, state: State, input: Input, outcome: Outcome, next: State) {
    let transition = state.step(input, policy).unwrap();
    assert_eq!((transition.outcome, transition.next), (outcome, next));
}

fn running(retries: u32, delay: Duration) -> Running {
    let (policy, postponed) = (retry_policy(2, delay), Duration::ZERO);
    Running { claim: claim(), retries, postponed, policy, left: None, longest: Duration::MAX }
}

fn claimed(losses: u32, is_cancelled: bool) -> Claimed {
    let asked = EventPolicy::default();
    Claimed { claim: claim(), retries: 0, losses, postponed: Duration::ZERO, is_cancelled, asked }
}

// Shows: EV2-53
#[test]
fn a_missing_event_is_acknowledged() {
    check(State::EventLoad, Input::Loaded(None), Outcome::EventMissing, ACKNOWLEDGED);
    let row = schedule(0, None, None);
    check(State::EventLoad, Input::Loaded(Some(row)), Outcome::EventPresent, State::DelayCheck(row));
}

// Shows: EV2-54
#[test]
fn an_event_waits_until_it_is_due() {
    let horizon_ms = 600_000;
    for (due_ms, outcome, next) in [
        (-1, Outcome::DelayNone, None),
        (0, Outcome::DelayNone, None),
        (1, Outcome::DelayNotYet, Some(after_ms(1))),
        (horizon_ms - 1, Outcome::DelayNotYet, Some(after_ms(599_999))),
        (horizon_ms, Outcome::DelayNotYet, Some(after_ms(600_000))),
        (horizon_ms + 1, Outcome::DelayNotYet, Some(ACKNOWLEDGED)),
    ] {
        let row = schedule(due_ms, None, None);
        check(State::DelayCheck(row), Input::Decide, outcome, next.unwrap_or(State::LockCheck(row)));
    }
}

// Without a horizon no notification waits in a worker; the row's promise is the due time.
// Shows: EV2-54
#[test]
fn without_a_horizon_an_early_notification_is_acknowledged() {
    let policy = Policy { horizon: Duration::ZERO, ..POLICY };
    let row = schedule(1, None, None);
    check_with(&policy, State::DelayCheck(row), Input::Decide, Outcome::DelayNotYet, ACKNOWLEDGED);
}

// Shows: EV2-55
#[test]
fn a_claim_stands_for_exactly_one_lease() {
    let lease_ms = 60_000;
    for (locked_ms, outcome, next) in [
        (None, Outcome::LockNone, None),
        (Some(-lease_ms - 1), Outcome::LockExpired, None),
        (Some(-lease_ms), Outcome::IsLocked, Some(after_ms(0))),
        (Some(-lease_ms + 1), Outcome::IsLocked, Some(after_ms(1))),
        (Some(0), Outcome::IsLocked, Some(after_ms(60_000))),
    ] {
        let row = schedule(0, locked_ms, None);
        check(State::LockCheck(row), Input::Decide, outcome, next.unwrap_or(State::RuleCheck(row)));
    }
}

// Shows: EV2-55
#[test]
fn a_claim_from_the_future_is_looked_at_again_after_one_lease() {
    for set_back_ms in [1, 60_000, 86_400_000] {
        let row = schedule(0, Some(set_back_ms), None);
        check(State::LockCheck(row), Input::Decide, Outcome::IsLocked, State::Queue(When::In(LEASE)));
    }
}

// The lease is configurable, and waiting for its end does not depend on the horizon.
// Shows: EV2-55
#[test]
fn the_lease_is_configurable() {
    let policy = Policy { lease: Duration::from_secs(300), horizon: Duration::ZERO, ..POLICY };
    let held = schedule(0, Some(-299_999), None);
    check_with(&policy, State::LockCheck(held), Input::Decide, Outcome::IsLocked, after_ms(1));
    let lost = schedule(0, Some(-300_001), None);
    check_with(&policy, State::LockCheck(lost), Input::Decide, Outcome::LockExpired, State::RuleCheck(lost));
}

// Shows: EV2-56
#[test]
fn a_ruled_event_is_parked_only_while_the_rule_stands() {
    for (kind, outcome) in [(RuleKind::Pause, Outcome::RulePaused), (RuleKind::Block, Outcome::RuleBlocked)] {
        let ruled = State::RuleCheck(schedule(0, None, Some(kind)));
        assert_eq!(ruled.effect(), Effect::Park);
        check(ruled.clone(), Input::Parked(true), outcome, ACKNOWLEDGED);
        check(ruled, Input::Parked(false), Outcome::RuleLifted, SOON);
    }
    let free = schedule(0, None, None);
    check(State::RuleCheck(free), Input::Decide, Outcome::RuleNone, State::HandlerCheck(free));
}

#[test]
fn an_event_without_a_handler_here_is_deferred() {
    let retry = retry_policy(2, DAY);
    let asking = State::HandlerCheck(schedule(0, None, None));
    check(asking.clone(), Input::Handler(None), Outcome::HandlerUnknown, State::Defer);
    check(asking, Input::Handler(Some(retry)), Outcome::HandlerKnown, State::LockClaim(retry));
    check(State::Defer, Input::Deferred, Outcome::Deferred, ACKNOWLEDGED);
}

// Shows: EV2-57
#[test]
fn the_claim_decides_who_runs() {
    let retry = retry_policy(2, DAY);
    let claiming = State::LockClaim(retry);
    check(claiming.clone(), Input::Claimed(None), Outcome::LockClaimFailed, SOON);
    let (claim, postponed, longest) = (claim(), Duration::from_secs(7), Duration::MAX);
    let won = Claimed { claim, retries: 1, postponed, ..claimed(0, false) };
    let running = Running { claim, retries: 1, postponed, policy: retry, left: None, longest };
    check(claiming, Input::Claimed(Some(won)), Outcome::LockClaimed, State::Process(running));
}

/// What frees a place wakes the event, so its notification is done; a start of its own is waited
/// for like the due time.
#[test]
fn an_event_at_a_limit_waits_for_a_place_or_for_its_start() {
    let claiming = State::LockClaim(retry_policy(2, DAY));
    check(claiming.clone(), Input::Limited(None), Outcome::LimitFull, ACKNOWLEDGED);
    for (left, next) in [
        (Duration::ZERO, State::Queue(When::In(Duration::ZERO))),
        (HORIZON, State::Queue(When::In(HORIZON))),
        (HORIZON + Duration::from_millis(1), ACKNOWLEDGED),
    ] {
        check(claiming.clone(), Input::Limited(Some(left)), Outcome::LimitRate, next);
    }
}

#[test]
fn the_fifth_lost_claim_is_poison() {
    for losses in [5, 6] {
        let won = claimed(losses, false);
        let dead = State::Delete(claim(), Removal::Dead(Cause::Poison));
        check(State::LockClaim(retry_policy(2, DAY)), Input::Claimed(Some(won)), Outcome::Poison, dead);
    }
}

/// Its worker died, failed or shut down before it knew.
#[test]
fn an_event_that_was_cancelled_while_it_ran_is_not_started_again() {
    for losses in [0, 5] {
        let claiming = State::LockClaim(retry_policy(2, DAY));
        let gone = State::Delete(claim(), Removal::Cancelled);
        check(claiming, Input::Claimed(Some(claimed(losses, true))), Outcome::Cancelled, gone);
    }
}

// Shows: EV2-58
#[test]
fn a_completed_event_is_deleted_and_only_then_acknowledged() {
    let process = State::Process(running(0, DAY));
    let delete = State::Delete(claim(), Removal::Completed);
    assert_eq!(delete.effect(), Effect::Remove(claim(), Removal::Completed));
    check(process, Input::Ran(HandlerEnd::Completed), Outcome::ExecutesToCompletion, delete.clone());
    check(delete.clone(), Input::Removed(true), Outcome::Deleted, ACKNOWLEDGED);
    check(delete, Input::Removed(false), Outcome::FencedOut, PUT_BACK);
}

/// Nothing is left to delete, and what hands over comes after the commit.
#[test]
fn an_event_that_its_handler_completed_in_a_transaction_is_acknowledged() {
    let delete = State::Delete(claim(), Removal::Committed);
    let process = State::Process(running(0, DAY));
    check(process, Input::Ran(HandlerEnd::Committed), Outcome::ExecutesToCompletion, delete.clone());
    check(delete.clone(), Input::Removed(true), Outcome::Deleted, ACKNOWLEDGED);
    check(delete, Input::LinkRemoved, Outcome::Deleted, State::HandOver);
}

#[test]
fn an_event_that_its_handler_rejects_dies_whatever_retries_are_left() {
    for retries in [0, 2] {
        let process = State::Process(running(retries, DAY));
        let dead = State::Delete(claim(), Removal::Dead(Cause::Rejected));
        check(process, Input::Ran(HandlerEnd::Rejected), Outcome::Rejected, dead);
    }
}

/// Without a trace among the dead events, and without a retry.
#[test]
fn an_event_that_is_cancelled_while_it_runs_is_deleted() {
    let process = State::Process(running(0, DAY));
    let delete = State::Delete(claim(), Removal::Cancelled);
    check(process, Input::Ran(HandlerEnd::Cancelled), Outcome::Cancelled, delete.clone());
    check(delete.clone(), Input::Removed(true), Outcome::Deleted, ACKNOWLEDGED);
    check(delete, Input::Removed(false), Outcome::FencedOut, PUT_BACK);
}

// Whatever else holds for an event, it is woken by others when its turn comes.
// Shows: ORD-04, ORD-29
#[test]
fn an_event_waits_for_its_turn() {
    for (turn, next, outcome) in [
        (Turn::Behind, State::LaneCheck { is_halted: false }, Outcome::EarlierLeft),
        (Turn::Halted, State::LaneCheck { is_halted: true }, Outcome::ObjectHalted),
        (Turn::Held, State::FacetCheck { is_passed: false }, Outcome::FacetHeld),
    ] {
        for due_ms in [-1, 1, 600_001] {
            let loaded = Input::Loaded(Some(Schedule { turn, ..schedule(due_ms, None, None) }));
            check(State::EventLoad, loaded, Outcome::EventPresent, next.clone());
        }
        check(next, Input::Decide, outcome, ACKNOWLEDGED);
    }
}

/// An event that turns have passed over is recalled, and checked once more before its notification
/// is answered: a slot may be free by now.
#[test]
fn an_event_that_its_facet_has_passed_is_recalled_first() {
    let passed = State::FacetCheck { is_passed: true };
    for due_ms in [-1, 1] {
        let row = Schedule { turn: Turn::Passed, ..schedule(due_ms, None, None) };
        check(State::EventLoad, Input::Loaded(Some(row)), Outcome::EventPresent, passed.clone());
    }
    assert_eq!(passed.effect(), Effect::Recall);
    check(passed, Input::Recalled, Outcome::FacetRecalled, SOON);
}

// Shows: ORD-22
#[test]
fn every_removal_of_an_event_of_an_object_hands_over_before_it_acknowledges() {
    let deaths = [Cause::Retries, Cause::Poison, Cause::Rejected, Cause::Expired].map(Removal::Dead);
    let others = [Removal::Completed, Removal::Committed, Removal::Cancelled];
    for removal in others.into_iter().chain(deaths) {
        let delete = State::Delete(claim(), removal);
        check(delete, Input::LinkRemoved, Outcome::Deleted, State::HandOver);
    }
    assert_eq!(State::HandOver.effect(), Effect::HandOver);
    check(State::HandOver, Input::HandedOver, Outcome::HandedOver, ACKNOWLEDGED);
}

// Shows: EV2-59
#[test]
fn an_operational_error_leads_to_the_retry_check() {
    let running = running(0, DAY);
    for after in [None, Some(Duration::from_secs(7))] {
        let failed = Input::Ran(HandlerEnd::Failed(after));
        check(State::Process(running), failed, Outcome::Exception, State::RetryCheck(running, after));
    }
}

#[test]
fn a_run_that_lost_its_lease_or_its_worker_gives_the_notification_back() {
    let process = State::Process(running(0, DAY));
    check(process.clone(), Input::Ran(HandlerEnd::LeaseLost), Outcome::LeaseLost, PUT_BACK);
    let release = State::Release(claim());
    check(process, Input::Ran(HandlerEnd::ShutDown), Outcome::ShutDown, release.clone());
    check(release, Input::Released, Outcome::Released, PUT_BACK);
}

// A handler that is gone does not count against the event, unless it can't be paused.
// Shows: TARGET-04
#[test]
fn a_handler_whose_target_was_removed_is_paused_and_its_event_released() {
    let running = running(0, DAY);
    let pause = State::Pause(running);
    assert_eq!(pause.effect(), Effect::PauseHandler);
    check(State::Process(running), Input::Ran(HandlerEnd::Gone), Outcome::HandlerGone, pause.clone());
    let release = State::Release(claim());
    check(pause.clone(), Input::HandlerPaused(true), Outcome::HandlerPaused, release);
    check(pause, Input::HandlerPaused(false), Outcome::Exception, State::RetryCheck(running, None));
}

// Shows: EV2-60
#[test]
fn a_retry_counts_and_waits() {
    let minutes = Duration::from_secs(300);
    for (delay, next) in [
        (minutes, State::Queue(When::In(minutes))),
        (HORIZON, State::Queue(When::In(HORIZON))),
        (HORIZON + Duration::from_millis(1), ACKNOWLEDGED),
    ] {
        let state = State::RetryCheck(running(1, delay), None);
        assert_eq!(state.effect(), Effect::SaveRetry { claim: claim(), retries: 2, delay });
        check(state, Input::RetrySaved(true), Outcome::RetryAllowed, next);
    }
}

// ORD-04: an event that is too early waits as long as its handler asks for and keeps its attempts,
// even after the last retry.
#[test]
fn an_event_that_is_too_early_waits_and_nothing_is_counted() {
    let minutes = Duration::from_secs(300);
    for (asked, delay, next) in [
        (Duration::ZERO, Duration::from_secs(1), State::Queue(When::In(Duration::from_secs(1)))),
        (minutes, minutes, State::Queue(When::In(minutes))),
        (DAY * 365, DAY, ACKNOWLEDGED),
    ] {
        for retries in [0, 2] {
            let running = running(retries, minutes);
            let postpone = State::Postpone(running, asked);
            check(
                State::Process(running),
                Input::Ran(HandlerEnd::NotYet(asked)),
                Outcome::NotYet,
                postpone.clone(),
            );
            assert_eq!(postpone.effect(), Effect::SaveRetry { claim: claim(), retries, delay });
            check(postpone.clone(), Input::RetrySaved(true), Outcome::Postponed, next.clone());
            check(postpone, Input::RetrySaved(false), Outcome::Exception, SOON);
        }
    }
}

// A handler that asks for less than a second at each run waits longer and longer.
// Shows: TARGET-05
#[test]
fn repeated_postponements_wait_longer_each_time() {
    for (postponed_s, asked_ms, waits_s) in
        [(0, 0, 1), (1, 0, 2), (3, 999, 4), (31, 0, 32), (63, 0, 60), (u64::MAX, 0, 60), (511, 1_000, 1)]
    {
        let running = Running { postponed: Duration::from_secs(postponed_s), ..running(0, DAY) };
        let (retries, delay) = (0, Duration::from_secs(waits_s));
        let postpone = State::Postpone(running, Duration::from_millis(asked_ms));
        assert_eq!(postpone.effect(), Effect::SaveRetry { claim: claim(), retries, delay });
    }
}

// A policy with a short longest delay does not shorten what a target asks for to less than a
// minute; the deployment's limit does.
// Shows: TARGET-05
#[test]
fn a_minute_may_be_asked_for_whatever_the_policy() {
    let policy = RetryPolicy { delay_max: Duration::ZERO, ..retry_policy(2, Duration::ZERO) };
    let asked = Duration::from_secs(90);
    for (longest, delay) in [(DAY, Duration::from_secs(60)), (Duration::from_secs(5), Duration::from_secs(5))]
    {
        let running = Running { policy, longest, ..running(0, DAY) };
        let save = |retries| Effect::SaveRetry { claim: claim(), retries, delay };
        assert_eq!(State::Postpone(running, asked).effect(), save(0));
        assert_eq!(State::RetryCheck(running, Some(asked)).effect(), save(1));
    }
}

// Every wait is spread by the policy's jitter: later than what it says, never earlier, differently
// for each event and each of its attempts, and the same if it is written twice.
// Shows: TARGET-17
#[test]
fn events_that_failed_together_do_not_come_back_together() {
    let minutes = Duration::from_secs(300);
    let waits = |retries: u32, asked: Option<Duration>| -> Vec<Duration> {
        let waits = (0..1_000_u128).map(|number| {
            let id: EventId = format!("{:032x}", number << 64 | number).parse().unwrap();
            let claim = Claim { id, claims: 1, nonce: 0 };
            let policy = RetryPolicy { retries: 9, delay: minutes, ..RetryPolicy::default() };
            let running = Running { claim, policy, ..running(retries, minutes) };
            let state = State::RetryCheck(running, asked);
            assert_eq!(state.effect(), state.effect());
            let Effect::SaveRetry { delay, .. } = state.effect() else { panic!("{state:?}") };
            delay
        });
        waits.collect()
    };
    for (asked, least) in [(None, minutes), (Some(minutes / 2), minutes), (Some(2 * minutes), 2 * minutes)] {
        let waits = waits(0, asked);
        let twelfth = least / 60;
        for part in 0..12 {
            let from = least + twelfth * part;
            let there = waits.iter().filter(|wait| (from..from + twelfth).contains(*wait)).count();
            assert!((40..140).contains(&there), "{there} of 1,000 in part {part} after {least:?}");
        }
        assert!(waits.iter().all(|wait| (least..=least + least / 5).contains(wait)));
    }
}

// A handler asks for a least delay, so the policy's own decides if it is longer.
// Shows: EV2-60
#[test]
fn a_handler_may_say_when_to_try_again() {
    let (minutes, long) = (Duration::from_secs(300), Duration::from_secs(301));
    for (asked, delay) in [(Duration::ZERO, minutes), (long, long), (DAY * 365, DAY)] {
        let state = State::RetryCheck(running(0, Duration::from_secs(300)), Some(asked));
        assert_eq!(state.effect(), Effect::SaveRetry { claim: claim(), retries: 1, delay });
    }
}

// Shows: EV2-61
#[test]
fn after_the_last_retry_the_event_is_dead() {
    for retries in [2, 3] {
        let state = State::RetryCheck(running(retries, DAY), None);
        assert_eq!(state.effect(), Effect::Decide);
        let dead = State::Delete(claim(), Removal::Dead(Cause::Retries));
        check(state, Input::Decide, Outcome::RetryTooMany, dead);
    }
}

// Shows: EV2-62
#[test]
fn a_retry_that_could_not_be_saved_gives_the_notification_back() {
    check(State::RetryCheck(running(0, DAY), None), Input::RetrySaved(false), Outcome::Exception, SOON);
}
