//! Expressions and zones: what is accepted, what is refused with which text, and dates that not
//! every month has.

use chrono::Datelike;

use super::{check, moment, schedule};
use crate::cron::schedule::equivalent_years;
use crate::cron::{CronSchedule, InvalidSchedule};

fn refused(expression: &str, zone: &str) -> String {
    CronSchedule::new(expression, zone).unwrap_err().to_string()
}

#[test]
fn five_fields_or_six() {
    check(
        "*/20 * * * *",
        "UTC",
        ("2027-01-01T00:00:00Z", "2027-01-01T01:00:00Z"),
        &["01-01T00:20:00+00:00", "01-01T00:40:00+00:00", "01-01T01:00:00+00:00"],
    );
    check(
        "*/20 59 23 31 12 *",
        "UTC",
        ("2027-01-01T00:00:00Z", "2027-12-31T23:59:59Z"),
        &["12-31T23:59:00+00:00", "12-31T23:59:20+00:00", "12-31T23:59:40+00:00"],
    );
    check(
        "0 9 * * MON#1",
        "UTC",
        ("2027-01-01T00:00:00Z", "2027-03-01T00:00:00Z"),
        &["01-04T09:00:00+00:00", "02-01T09:00:00+00:00"],
    );
    let january = ("2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z");
    check("0 9 * * FRI#L", "UTC", january, &["01-29T09:00:00+00:00"]);
    check("0 9 * * FRIL", "UTC", january, &["01-29T09:00:00+00:00"]);
    check("0 9 16W * *", "UTC", january, &["01-15T09:00:00+00:00"]);
    check("0 9 1-7 * +MON", "UTC", january, &["01-04T09:00:00+00:00"]);
    let either = ["01-04T09:00:00+00:00", "01-06T09:00:00+00:00"];
    check("0 9 6 * MON", "UTC", (january.0, "2027-01-10T00:00:00Z"), &either);
    assert_eq!(schedule("  0   6 * *  MON ", "UTC").expression(), "0 6 * * MON");
    assert_eq!(
        schedule("@daily", "UTC").next(moment("2027-01-01T00:00:00Z")).unwrap(),
        moment("2027-01-02T00:00:00Z")
    );
}

#[test]
fn a_day_that_not_every_month_or_year_has() {
    check(
        "0 0 31 * *",
        "UTC",
        ("2027-01-01T00:00:00Z", "2027-08-31T00:00:00Z"),
        &[
            "01-31T00:00:00+00:00",
            "03-31T00:00:00+00:00",
            "05-31T00:00:00+00:00",
            "07-31T00:00:00+00:00",
            "08-31T00:00:00+00:00",
        ],
    );
    check(
        "0 0 L 2 *",
        "UTC",
        ("2027-01-01T00:00:00Z", "2028-12-31T00:00:00Z"),
        &["02-28T00:00:00+00:00", "02-29T00:00:00+00:00"],
    );
    let leap = schedule("0 0 29 2 *", "UTC");
    let years: Vec<_> = leap.upcoming(moment("2027-01-01T00:00:00Z"), 3);
    assert_eq!(years, ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z"].map(moment));
    assert_eq!(
        leap.next(moment("2096-03-01T00:00:00Z")),
        Some(moment("2104-02-29T00:00:00Z")),
        "2100 is no leap year"
    );
}

#[test]
fn rejects_expressions_that_never_occur() {
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * * 31 2 *"] {
        assert_eq!(
            refused(expression, "UTC"),
            format!("`{expression}` never occurs: no date within a hundred years matches it")
        );
    }
}

#[test]
fn rejects_invalid_expressions_with_an_example() {
    for expression in [
        "",
        " ",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "x * * * *",
        "*/0 * * * *",
        "*/60 * * * *",
        "*/90 * * * *",
        "5/61 * * * *",
        "0,*/61 * * * *",
        "0 */24 * * *",
        "0 0 */31 * *",
        "0 0 1 */12 *",
        "*/60 * * * * *",
        "5-1 * * * *",
        "* * * * * * 2030",
        "1 2 3 4 5 6 7 8",
        "@never",
        "* * * * MON#6",
        "- * * * *",
    ] {
        let words = refused(expression, "UTC");
        assert!(
            words.contains("is not a cron expression (") && words.contains("`30 8 * * MON-FRI`"),
            "{words}"
        );
    }
    let long = "0,".repeat(200) + "0 * * * *";
    let error = CronSchedule::new(&long, "UTC").unwrap_err();
    assert!(matches!(error, InvalidSchedule::Expression { expression, .. } if expression.len() == 256));
}

#[test]
fn rejects_unknown_zones_with_a_suggestion() {
    let hints = [
        ("europe/berlin", Some("Europe/Berlin")),
        ("Berlin", Some("Europe/Berlin")),
        ("new york", Some("America/New_York")),
        ("Europe/Belrin", Some("Europe/Berlin")),
        ("Amercia/New_York", Some("America/New_York")),
        ("utc", Some("UTC")),
        ("Middle/Earth", None),
        ("", None),
    ];
    for (name, meant) in hints {
        let error = CronSchedule::new("* * * * *", name).unwrap_err();
        let hint = match meant {
            Some(meant) => format!("{name:?} is not a time zone: did you mean {meant}?"),
            None => format!(
                "{name:?} is not a time zone: give its name in the IANA database, such as \
                 Europe/Berlin, or UTC"
            ),
        };
        assert_eq!(error.to_string(), hint);
    }
    let error = CronSchedule::new("* * * * *", &"ä".repeat(5000)).unwrap_err();
    assert!(matches!(error, InvalidSchedule::Zone { name, .. } if name.len() <= 64));
}

/// The parser's own search for a date that never comes covers three thousand years, up to a second
/// of processor time.
#[test]
fn a_search_ends_after_some_hundred_years() {
    for expression in ["0 0 L 2 +7#1", "0 0 30 2 *", "* * * L * +MON#1"] {
        assert!(refused(expression, "UTC").contains("never occurs"), "{expression}");
    }
    for year in [1970, 2026, 4600, 4899, 4900, 4999] {
        let begins = moment(&format!("{year}-03-01T00:00:00Z")) + equivalent_years(year);
        assert!((4500..=4900).contains(&begins.year()), "from {year}: {begins}, and the parser ends in 5000");
        assert_eq!((begins.month(), begins.day()), (3, 1), "from {year}");
    }
    let rare = schedule("0 0 29 2 +SUN#5", "UTC");
    assert_eq!(rare.next(moment("2027-01-01T00:00:00Z")).unwrap(), moment("2032-02-29T00:00:00Z"));
    assert_eq!(rare.next(moment("2032-02-29T00:00:00Z")).unwrap(), moment("2060-02-29T00:00:00Z"));
    assert_eq!(rare.next(moment("2088-02-29T00:00:00Z")).unwrap(), moment("2128-02-29T00:00:00Z"));
    let yearly = schedule("0 0 1 1 *", "UTC");
    for year in [1, 1999, 4898, 4899, 4900, 4999, 5000, 9990] {
        let (at, next) = (format!("{year:04}-05-01T00:00:00Z"), format!("{:04}-01-01T00:00:00Z", year + 1));
        assert_eq!(yearly.next(moment(&at)), Some(moment(&next)), "{year}");
    }
}

#[test]
fn how_often_it_ticks_within_a_minute() {
    for (expression, ticks) in [("* * * * *", 1), ("* * * * * *", 60), ("*/20 0 * * * *", 3), ("@daily", 1)] {
        assert_eq!(schedule(expression, "UTC").minute_ticks(), ticks, "{expression}");
    }
}
