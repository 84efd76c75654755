//! Properties of every schedule at every moment.

use std::time::Duration;

use chrono::{DateTime, TimeDelta};
use proptest::prelude::*;

use super::schedule;
use crate::cron::{MissedTicks, Moment, plan};
use crate::event::Timestamp;

const EXPRESSIONS: [&str; 22] = [
    "* * * * *",
    "*/7 * * * *",
    "30 * * * *",
    "30 2 * * *",
    "0 0 * * *",
    "59 23 * * *",
    "*/15 1-3 * * *",
    "0 */2 * * *",
    "30 0-23 * * SUN",
    "0 3 29 2 *",
    "0 0 31 * *",
    "0 12 L * *",
    "0 9 * * MON#1",
    "15 2 * 3,10,11 SUN",
    "* 2 * * *",
    "7 */11 * * * *",
    "*/20 30 2 * * *",
    "59 59 * * * *",
    "0 0 1 1 *",
    "0 6 15W * *",
    "0 1 * * +SUN",
    "30 1,2,3 * * *",
];
const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Pacific/Kwajalein",
    "Antarctica/Troll",
    "Europe/Dublin",
    "America/Scoresbysund",
];

/// Any moment of these years; half of them within two days of a change of the clock.
fn moments() -> impl Strategy<Value = Timestamp> {
    let changes: Vec<Timestamp> = [
        "2027-03-28T01:00:00Z",
        "2027-10-31T01:00:00Z",
        "2027-03-14T07:00:00Z",
        "2027-11-07T06:00:00Z",
        "2027-04-03T15:00:00Z",
        "2027-10-02T15:30:00Z",
        "2011-12-30T10:00:00Z",
        "1993-08-21T12:00:00Z",
        "2027-09-05T04:00:00Z",
        "2027-04-04T03:00:00Z",
        "2024-03-31T01:00:00Z",
    ]
    .map(|text| text.parse().unwrap())
    .into();
    let near = (prop::sample::select(changes), -172_800_i64..172_800)
        .prop_map(|(change, seconds)| change + TimeDelta::seconds(seconds));
    let any = (0_i64..2_200_000_000).prop_map(|seconds| DateTime::from_timestamp(seconds, 0).unwrap());
    (prop_oneof![near, any], 0_i64..1_000_000)
        .prop_map(|(moment, micros)| moment + TimeDelta::microseconds(micros))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The next tick is later, a whole second, and the same from every moment between the one that
    /// was asked for and the tick.
    #[test]
    fn the_next_tick_is_later_and_the_same_from_any_moment_before_it(
        expression in prop::sample::select(&EXPRESSIONS[..]),
        zone in prop::sample::select(&ZONES[..]),
        after in moments(),
        share in 0.0_f64..1.0,
    ) {
        let schedule = schedule(expression, zone);
        let next = schedule.next(after).unwrap();
        prop_assert!(next > after);
        prop_assert_eq!(next.timestamp_subsec_nanos(), 0);
        let between = TimeDelta::microseconds(((next - after).num_microseconds().unwrap() as f64 * share) as i64);
        prop_assert_eq!(schedule.next(after + between), Some(next), "asked at {}", after + between);
        prop_assert_eq!(schedule.next(next - TimeDelta::microseconds(1)), Some(next));
    }

    /// A later question never has an earlier answer.
    #[test]
    fn ticks_never_go_back(
        expression in prop::sample::select(&EXPRESSIONS[..]),
        zone in prop::sample::select(&ZONES[..]),
        one in moments(),
        other in moments(),
    ) {
        let schedule = schedule(expression, zone);
        let (first, second) = (one.min(other), one.max(other));
        prop_assert!(schedule.next(first) <= schedule.next(second));
    }

    /// A schedule for every minute ticks every minute, however the clock changes.
    #[test]
    fn every_hour_is_as_long_as_any_other(zone in prop::sample::select(&ZONES[..]), after in moments()) {
        let schedule = schedule("* * * * *", zone);
        let ticks = schedule.upcoming(after, 200);
        for pair in ticks.windows(2) {
            prop_assert_eq!(pair[1] - pair[0], TimeDelta::minutes(1), "{:?} in {}", pair, zone);
        }
    }

    /// A schedule for one time of day ticks about once a day.
    #[test]
    fn a_time_of_the_day_comes_once_a_day(
        zone in prop::sample::select(&ZONES[..]),
        after in moments(),
        hour in 0_u32..24,
        minute in 0_u32..60,
    ) {
        let schedule = schedule(&format!("{minute} {hour} * * *"), zone);
        let ticks = schedule.upcoming(after, 10);
        for pair in ticks.windows(2) {
            let hours = (pair[1] - pair[0]).num_minutes() as f64 / 60.0;
            // Samoa and Kwajalein skipped a day; there the next tick is at the same time of the day
            // after it.
            prop_assert!((20.0..=28.0).contains(&hours), "{hours} hours between {pair:?} in {zone}");
        }
    }

    /// Each tick is planned once, whenever a pass happens and however much room it has.
    #[test]
    fn every_tick_is_planned_once(
        expression in prop::sample::select(&EXPRESSIONS[..]),
        zone in prop::sample::select(&ZONES[..]),
        start in moments(),
        waits_s in prop::collection::vec((0_u64..100, 1_usize..4), 1..40),
    ) {
        let schedule = schedule(expression, zone);
        let (ahead, late) = (Duration::from_secs(75), Duration::from_secs(100_000));
        let first = schedule.next(start).unwrap();
        let (mut next, mut now, mut planned) = (first, start, Vec::new());
        for (wait_s, room) in waits_s {
            now += TimeDelta::seconds(wait_s.cast_signed());
            let page = plan(&schedule, MissedTicks::Skip, next, &Moment { now, ahead, late }, room);
            planned.extend(page.ticks);
            next = page.next.unwrap();
        }
        let expected: Vec<_> = schedule.upcoming(start, planned.len());
        prop_assert_eq!(planned, expected);
    }
}
