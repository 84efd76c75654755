//! Changes of the clock: by an hour, by half an hour, at midnight, by a day.

use super::check;

const BERLIN: &str = "Europe/Berlin";
const NEW_YORK: &str = "America/New_York";
const LORD_HOWE: &str = "Australia/Lord_Howe";

/// On 2027-03-28, 02:00 becomes 03:00. A time of day that is skipped comes when the clock is put
/// forward.
#[test]
fn forward_in_berlin() {
    let night = ("2027-03-27T23:30:00Z", "2027-03-28T03:00:00Z");
    check("30 2 * * *", BERLIN, night, &["03-28T03:00:00+02:00"]);
    check("0 2 * * *", BERLIN, night, &["03-28T03:00:00+02:00"]);
    check("*/15 2 * * *", BERLIN, night, &["03-28T03:00:00+02:00"]);
    check("0 2,3 * * *", BERLIN, night, &["03-28T03:00:00+02:00"]);
    check("0 1,3 * * *", BERLIN, night, &["03-28T01:00:00+01:00", "03-28T03:00:00+02:00"]);
    check("0 */2 * * *", BERLIN, night, &["03-28T03:00:00+02:00", "03-28T04:00:00+02:00"]);
    check("30 3 * * *", BERLIN, night, &["03-28T03:30:00+02:00"]);
    let days = ("2027-03-26T12:00:00Z", "2027-03-30T01:00:00Z");
    let daily =
        ["03-27T02:30:00+01:00", "03-28T03:00:00+02:00", "03-29T02:30:00+02:00", "03-30T02:30:00+02:00"];
    check("30 2 * * *", BERLIN, days, &daily);
}

/// A schedule for every hour follows the time that passes.
#[test]
fn every_hour_forward_in_berlin() {
    let night = ("2027-03-27T23:59:00Z", "2027-03-28T02:00:00Z");
    check("30 * * * *", BERLIN, night, &["03-28T01:30:00+01:00", "03-28T03:30:00+02:00"]);
    check(
        "*/30 * * * *",
        BERLIN,
        night,
        &[
            "03-28T01:00:00+01:00",
            "03-28T01:30:00+01:00",
            "03-28T03:00:00+02:00",
            "03-28T03:30:00+02:00",
            "03-28T04:00:00+02:00",
        ],
    );
    check("30 0-23 28 3 *", BERLIN, night, &["03-28T01:30:00+01:00", "03-28T03:30:00+02:00"]);
}

/// On 2027-10-31, 03:00 becomes 02:00. A time of day that comes twice counts once.
#[test]
fn back_in_berlin() {
    let night = ("2027-10-30T23:30:00Z", "2027-10-31T02:30:00Z");
    check("30 2 * * *", BERLIN, night, &["10-31T02:30:00+02:00"]);
    check("*/30 2 * * *", BERLIN, night, &["10-31T02:00:00+02:00", "10-31T02:30:00+02:00"]);
    check("0 2,3 * * *", BERLIN, night, &["10-31T02:00:00+02:00", "10-31T03:00:00+01:00"]);
    let days = ("2027-10-29T12:00:00Z", "2027-11-01T12:00:00Z");
    check(
        "30 2 * * *",
        BERLIN,
        days,
        &["10-30T02:30:00+02:00", "10-31T02:30:00+02:00", "11-01T02:30:00+01:00"],
    );
    // From the second of the two hours on.
    let second = ("2027-10-31T01:10:00Z", "2027-10-31T02:30:00Z");
    check("30 2 * * *", BERLIN, second, &[]);
    check("30 * * * *", BERLIN, second, &["10-31T02:30:00+01:00", "10-31T03:30:00+01:00"]);
}

/// A schedule for every hour ticks in both hours of the same name.
#[test]
fn every_hour_back_in_berlin() {
    let night = ("2027-10-30T23:59:00Z", "2027-10-31T02:00:00Z");
    check(
        "*/30 * * * *",
        BERLIN,
        night,
        &[
            "10-31T02:00:00+02:00",
            "10-31T02:30:00+02:00",
            "10-31T02:00:00+01:00",
            "10-31T02:30:00+01:00",
            "10-31T03:00:00+01:00",
        ],
    );
    let most = ("2027-10-31T00:50:00Z", "2027-10-31T01:00:02Z");
    check("59 59 * * * *", BERLIN, most, &["10-31T02:59:59+02:00"]);
    check(
        "1 * * * * *",
        BERLIN,
        ("2027-10-31T00:59:00Z", "2027-10-31T01:00:02Z"),
        &["10-31T02:59:01+02:00", "10-31T02:00:01+01:00"],
    );
}

/// On 2027-03-14 and 2027-11-07, at two o'clock.
#[test]
fn forward_and_back_in_new_york() {
    let forward = ("2027-03-14T05:30:00Z", "2027-03-14T08:00:00Z");
    check("30 2 * * *", NEW_YORK, forward, &["03-14T03:00:00-04:00"]);
    check("30 * * * *", NEW_YORK, forward, &["03-14T01:30:00-05:00", "03-14T03:30:00-04:00"]);
    let back = ("2027-11-07T05:00:00Z", "2027-11-07T07:30:00Z");
    check("30 1 * * *", NEW_YORK, back, &["11-07T01:30:00-04:00"]);
    check(
        "30 * * * *",
        NEW_YORK,
        back,
        &["11-07T01:30:00-04:00", "11-07T01:30:00-05:00", "11-07T02:30:00-05:00"],
    );
    check("0 1-2 * * *", NEW_YORK, back, &["11-07T02:00:00-05:00"]);
}

/// By half an hour: on 2027-10-03, 02:00 becomes 02:30; on 2027-04-04, 02:00 becomes 01:30.
#[test]
fn half_an_hour_on_lord_howe_island() {
    let forward = ("2027-10-02T15:00:00Z", "2027-10-02T16:30:00Z");
    check("15 2 * * *", LORD_HOWE, forward, &["10-03T02:30:00+11:00"]);
    check(
        "*/15 * * * *",
        LORD_HOWE,
        forward,
        &[
            "10-03T01:45:00+10:30",
            "10-03T02:30:00+11:00",
            "10-03T02:45:00+11:00",
            "10-03T03:00:00+11:00",
            "10-03T03:15:00+11:00",
            "10-03T03:30:00+11:00",
        ],
    );
    let back = ("2027-04-03T14:15:00Z", "2027-04-03T15:45:00Z");
    check("45 1 * * *", LORD_HOWE, back, &["04-04T01:45:00+11:00"]);
    check(
        "*/15 * * * *",
        LORD_HOWE,
        back,
        &[
            "04-04T01:30:00+11:00",
            "04-04T01:45:00+11:00",
            "04-04T01:30:00+10:30",
            "04-04T01:45:00+10:30",
            "04-04T02:00:00+10:30",
            "04-04T02:15:00+10:30",
        ],
    );
}

/// Clocks that are put forward at midnight: the day begins at one.
#[test]
fn midnight_that_is_left_out() {
    check(
        "0 0 * * *",
        "America/Santiago",
        ("2027-09-04T12:00:00Z", "2027-09-06T12:00:00Z"),
        &["09-05T01:00:00-03:00", "09-06T00:00:00-03:00"],
    );
    check(
        "0 0 * * *",
        "America/Santiago",
        ("2027-04-03T12:00:00Z", "2027-04-05T12:00:00Z"),
        &["04-04T00:00:00-04:00", "04-05T00:00:00-04:00"],
    );
    // From half an hour before midnight to half an hour after it.
    check(
        "45 23 * * *",
        "America/Toronto",
        ("1919-03-30T12:00:00Z", "1919-04-01T12:00:00Z"),
        &["03-31T00:30:00-04:00", "03-31T23:45:00-04:00"],
    );
}

/// Samoa had no 30 December 2011, and Kwajalein no 21 August 1993: a day that did not exist has no
/// ticks.
#[test]
fn a_day_that_a_zone_left_out_has_no_ticks() {
    check(
        "0 12 * * *",
        "Pacific/Apia",
        ("2011-12-29T00:00:00Z", "2011-12-31T12:00:00Z"),
        &["12-29T12:00:00-10:00", "12-31T12:00:00+14:00"],
    );
    check(
        "0 */12 * * *",
        "Pacific/Apia",
        ("2011-12-29T20:00:00Z", "2011-12-31T00:00:00Z"),
        &["12-29T12:00:00-10:00", "12-31T00:00:00+14:00", "12-31T12:00:00+14:00"],
    );
    check(
        "0 12 30 * *",
        "Pacific/Apia",
        ("2011-12-01T00:00:00Z", "2012-02-01T00:00:00Z"),
        &["01-30T12:00:00+14:00"],
    );
    check(
        "0 12 * * *",
        "Pacific/Kwajalein",
        ("1993-08-20T12:00:00Z", "1993-08-22T12:00:00Z"),
        &["08-20T12:00:00-12:00", "08-22T12:00:00+12:00"],
    );
}

/// Manila skipped 31 December 1844, and Juneau had a day of October 1867 twice.
#[test]
fn a_day_that_came_twice_counts_once() {
    check(
        "0 12 * * *",
        "America/Juneau",
        ("1867-10-17T00:00:00Z", "1867-10-20T00:00:00Z"),
        &["10-18T12:00:00+15:02", "10-19T12:00:00+15:02"],
    );
    check(
        "0 12 * * *",
        "Asia/Manila",
        ("1844-12-30T12:00:00Z", "1845-01-02T04:00:00Z"),
        &["12-30T12:00:00-15:56", "01-01T12:00:00+08:04", "01-02T12:00:00+08:04"],
    );
}
