//! Tests of schedules: what ticks when, in zones whose clocks change.

mod daylight;
mod expressions;
mod missed;
mod properties;
mod words;

use super::CronSchedule;
use crate::event::Timestamp;

fn schedule(expression: &str, zone: &str) -> CronSchedule {
    CronSchedule::new(expression, zone).unwrap()
}

fn moment(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The ticks after one moment, up to and including another, as local times.
#[track_caller]
fn check(expression: &str, zone: &str, (after, until): (&str, &str), expected: &[&str]) {
    let schedule = schedule(expression, zone);
    let ticks = schedule.upcoming(moment(after), 1000);
    let ticks = ticks.into_iter().take_while(|tick| *tick <= moment(until));
    let shown: Vec<_> =
        ticks.map(|tick| schedule.local(tick).format("%m-%dT%H:%M:%S%:z").to_string()).collect();
    assert_eq!(shown, expected, "{expression} in {zone}");
}
