//! Limits of retry policies, common to targets and pulled queues.

use std::time::Duration;

/// The longest delay between two attempts.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is wrong with a retry policy, if anything.
pub(super) fn check_retries(
    retries: u32,
    (delay, factor, delay_max): (Duration, u32, Duration),
) -> Result<(), &'static str> {
    if retries > 1000 {
        return Err("an event is tried again up to 1,000 times");
    }
    if delay_max > DELAY_MAX {
        return Err("the longest delay between two attempts is 30 days");
    }
    if delay > delay_max {
        return Err("the first delay must not be longer than the longest one (`delay_max_s`)");
    }
    if !(1..=100).contains(&factor) {
        return Err("the factor between two delays must be 1 to 100");
    }
    Ok(())
}
