//! Ticks that were not emitted in time.

use std::time::Duration;

use super::{moment, schedule};
use crate::cron::{MAKE_UP_MAX, MissedTicks, Moment, Plan, plan};
use crate::event::Timestamp;

fn at(now: &str) -> Moment {
    Moment { now: moment(now), ahead: Duration::from_secs(75), late: Duration::from_secs(120) }
}

fn planned(expression: &str, missed: MissedTicks, next: &str, now: &str, most: usize) -> Plan {
    plan(&schedule(expression, "UTC"), missed, moment(next), &at(now), most)
}

#[track_caller]
fn check(missed: MissedTicks, next: &str, now: &str, ticks: &[&str], then: &str, left_out: Option<&str>) {
    let moments = ticks.iter().map(|tick| moment(tick)).collect();
    let expected = Plan { ticks: moments, next: Some(moment(then)), left_out: left_out.map(moment) };
    assert_eq!(planned("0 * * * *", missed, next, now, 1000), expected);
}

const ALL: [MissedTicks; 3] = [MissedTicks::Skip, MissedTicks::Once, MissedTicks::All];

/// Ticks that are only late, or ahead, are emitted under every policy.
#[test]
fn late_and_early_ticks_do_not_count_as_missed() {
    for missed in ALL {
        let one = ["2027-01-01T12:00:00Z"];
        check(missed, one[0], "2027-01-01T11:58:45Z", &one, "2027-01-01T13:00:00Z", None);
        check(missed, one[0], "2027-01-01T12:02:00Z", &one, "2027-01-01T13:00:00Z", None);
        check(missed, one[0], "2027-01-01T11:58:44.999999Z", &[], one[0], None);
    }
}

#[test]
fn each_policy_does_what_it_says() {
    let (first, now, then) = ("2027-01-01T09:00:00Z", "2027-01-01T12:02:01Z", "2027-01-01T13:00:00Z");
    check(MissedTicks::Skip, first, now, &[], then, Some(first));
    check(MissedTicks::Once, first, now, &["2027-01-01T12:00:00Z"], then, Some(first));
    let each =
        ["2027-01-01T09:00:00Z", "2027-01-01T10:00:00Z", "2027-01-01T11:00:00Z", "2027-01-01T12:00:00Z"];
    check(MissedTicks::All, first, now, &each, then, None);
    // With one that is only late.
    let now = "2027-01-01T12:02:00Z";
    check(MissedTicks::Skip, first, now, &each[3..], then, Some(first));
    check(MissedTicks::Once, first, now, &each[2..], then, Some(first));
    check(MissedTicks::All, first, now, &each, then, None);
    // A single missed tick is the last of them.
    check(MissedTicks::Once, each[3], "2027-01-01T12:59:00Z", &[each[3], then], "2027-01-01T14:00:00Z", None);
}

/// Of very many the last thousand are made up for, found without visiting each.
#[test]
fn a_thousand_are_made_up_for() {
    let every_second =
        planned("* * * * * *", MissedTicks::All, "2020-01-01T00:00:00Z", "2027-01-01T00:00:00Z", 5000);
    let line = moment("2026-12-31T23:58:00Z");
    let made_up: Vec<_> = every_second.ticks.iter().filter(|tick| **tick < line).collect();
    assert_eq!((made_up.len(), made_up.last()), (MAKE_UP_MAX, Some(&&moment("2026-12-31T23:57:59Z"))));
    assert_eq!(every_second.ticks.len(), MAKE_UP_MAX + 120 + 76, "the late ones, those ahead, and now");
    assert_eq!(every_second.left_out, Some(moment("2020-01-01T00:00:00Z")));
    // All of them in one month, long ago.
    let january =
        planned("* * * * 1 *", MissedTicks::All, "2020-01-01T00:00:00Z", "2026-12-31T00:00:00Z", 5000);
    assert_eq!(january.ticks.first(), Some(&moment("2026-01-31T23:43:20Z")));
    assert_eq!(january.ticks.last(), Some(&moment("2026-01-31T23:59:59Z")));
    let rare = planned("0 0 29 2 *", MissedTicks::All, "1972-02-29T00:00:00Z", "2027-01-01T00:00:00Z", 5000);
    assert_eq!((rare.ticks.len(), rare.left_out), (14, None));
}

/// A transaction has room for a limited number: the rest is left for the next, and none is skipped.
#[test]
fn ticks_beyond_the_limit_follow_in_the_next_transaction() {
    for missed in ALL {
        let mut next: Timestamp = moment("2027-01-01T00:00:00Z");
        let at = at("2027-01-01T00:10:00Z");
        let (schedule, mut ticks) = (schedule("* * * * * *", "UTC"), Vec::new());
        let whole = plan(&schedule, missed, next, &at, 10_000);
        loop {
            let page = plan(&schedule, missed, next, &at, 7);
            assert!(page.ticks.len() <= 7);
            if page.ticks.is_empty() {
                break;
            }
            ticks.extend(page.ticks);
            next = page.next.unwrap();
        }
        assert_eq!((ticks, Some(next)), (whole.ticks, whole.next), "{missed}");
    }
}
