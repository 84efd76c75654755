//! What an event's emit asked for, in place of its handler's policy.

use std::time::Duration;

use super::{DAY, POLICY, claim, retry_policy};
use crate::machine::{
    Cause, Claimed, Effect, EventPolicy, HandlerEnd, Input, Outcome, Removal, RetryPolicy, Running, State,
};

const MINUTE: Duration = Duration::from_secs(60);
/// The longest delay that the handler's policy has, unless a test says otherwise.
const LONGEST: Duration = DAY;

fn claimed(retries: u32, asked: EventPolicy) -> Claimed {
    Claimed { claim: claim(), retries, losses: 0, postponed: Duration::ZERO, is_cancelled: false, asked }
}

/// The step after the claim of an event whose handler is retried twice, after 5 min each.
fn after_claim(claimed: Claimed) -> (Outcome, State) {
    let policy = RetryPolicy { delay_max: LONGEST, ..retry_policy(2, 5 * MINUTE) };
    let claiming = State::LockClaim(policy);
    let transition = claiming.step(Input::Claimed(Some(claimed)), &POLICY).unwrap();
    (transition.outcome, transition.next)
}

fn running(retries: u32, asked: EventPolicy) -> Running {
    let (outcome, next) = after_claim(claimed(retries, asked));
    assert_eq!(outcome, Outcome::LockClaimed);
    let State::Process(running) = next else { panic!("{next:?}") };
    running
}

/// How a run that fails goes on: the delay of its retry, or why the event dies.
fn after_failure(running: Running, handlers_wait: Option<Duration>) -> Result<Duration, Cause> {
    let failed = Input::Ran(HandlerEnd::Failed(handlers_wait));
    let check = State::Process(running).step(failed, &POLICY).unwrap().next;
    if let Effect::SaveRetry { retries, delay, .. } = check.effect() {
        assert_eq!(retries, running.retries + 1);
        return Ok(delay);
    }
    let dead = check.step(Input::Decide, &POLICY).unwrap();
    let State::Delete(_, Removal::Dead(cause)) = dead.next else { panic!("{dead:?}") };
    let edge = if cause == Cause::Expired { Outcome::Expired } else { Outcome::RetryTooMany };
    assert_eq!(dead.outcome, edge);
    Err(cause)
}

#[test]
fn an_event_has_the_retries_that_its_emit_asked_for() {
    let nothing = EventPolicy::default();
    for (asked, retries, goes_on) in [
        (None, 1, true),
        (None, 2, false),
        (Some(0), 0, false),
        (Some(1), 0, true),
        (Some(1), 1, false),
        (Some(1000), 999, true),
        (Some(1000), 1000, false),
    ] {
        let ended = after_failure(running(retries, EventPolicy { retries: asked, ..nothing }), None);
        assert_eq!(ended, if goes_on { Ok(5 * MINUTE) } else { Err(Cause::Retries) }, "{asked:?} {retries}");
    }
}

/// What the handler asks for counts as with its own policy: as the least delay, and at most for as
/// long as the longest.
#[test]
fn an_event_has_the_delay_that_its_emit_asked_for() {
    for (asked, handlers_wait, delay) in [
        (Duration::ZERO, None, Duration::ZERO),
        (MINUTE, None, MINUTE),
        (MINUTE, Some(2 * MINUTE), 2 * MINUTE),
        (MINUTE, Some(2 * LONGEST), LONGEST),
        (7 * LONGEST, None, 7 * LONGEST),
    ] {
        let asked = EventPolicy { delay: Some(asked), ..EventPolicy::default() };
        assert_eq!(after_failure(running(1, asked), handlers_wait), Ok(delay), "{asked:?}");
    }
}

#[test]
fn the_deployment_limits_the_delay_and_the_policy_spreads_it() {
    let asked = EventPolicy { delay: Some(30 * DAY), ..EventPolicy::default() };
    let short = Running { longest: MINUTE, ..running(0, asked) };
    assert_eq!(after_failure(short, None), Ok(MINUTE));
    let spread = running(0, EventPolicy { delay: Some(10 * MINUTE), ..EventPolicy::default() });
    let policy = RetryPolicy { jitter_percent: 20, ..spread.policy };
    let delay = after_failure(Running { policy, ..spread }, None).unwrap();
    assert!((10 * MINUTE..=12 * MINUTE).contains(&delay) && delay != 10 * MINUTE, "{delay:?}");
}

/// The moment itself is too late.
#[test]
fn an_event_does_not_start_after_its_moment() {
    let left = |left| EventPolicy { left: Some(left), ..EventPolicy::default() };
    let dead = State::Delete(claim(), Removal::Dead(Cause::Expired));
    assert_eq!(after_claim(claimed(1, left(Duration::ZERO))), (Outcome::Expired, dead));
    let running = running(1, left(Duration::from_micros(1)));
    assert_eq!(running.left, Some(Duration::from_micros(1)));
}

/// Who has cancelled an event wants no dead one, and poison is the more useful cause.
#[test]
fn an_expired_event_that_was_cancelled_or_is_poison_ends_as_such() {
    let late = claimed(0, EventPolicy { left: Some(Duration::ZERO), ..EventPolicy::default() });
    assert_eq!(after_claim(Claimed { is_cancelled: true, ..late }).0, Outcome::Cancelled);
    assert_eq!(after_claim(Claimed { losses: 5, ..late }).0, Outcome::Poison);
}

#[test]
fn no_retry_waits_for_a_time_after_the_moment() {
    for (left, retries, ended) in [
        (5 * MINUTE, 0, Err(Cause::Expired)),
        (5 * MINUTE + Duration::from_micros(1), 0, Ok(5 * MINUTE)),
        // None is left anyway.
        (5 * MINUTE, 2, Err(Cause::Retries)),
    ] {
        let asked = EventPolicy { left: Some(left), ..EventPolicy::default() };
        assert_eq!(after_failure(running(retries, asked), None), ended, "{left:?} {retries}");
    }
}

#[test]
fn no_event_is_postponed_beyond_its_moment() {
    let asked = EventPolicy { left: Some(MINUTE), ..EventPolicy::default() };
    let postponed = |wait| {
        let too_early = Input::Ran(HandlerEnd::NotYet(wait));
        State::Process(running(0, asked)).step(too_early, &POLICY).unwrap().next
    };
    let (late, early) = (postponed(MINUTE), postponed(MINUTE / 2));
    assert_eq!(early.effect(), Effect::SaveRetry { claim: claim(), retries: 0, delay: MINUTE / 2 });
    assert_eq!(late.effect(), Effect::Decide);
    let transition = late.step(Input::Decide, &POLICY).unwrap();
    let dead = State::Delete(claim(), Removal::Dead(Cause::Expired));
    assert_eq!((transition.outcome, transition.next), (Outcome::Expired, dead));
}
