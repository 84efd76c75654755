//! Schedules in words: exactly what they say, or none.

use std::collections::HashMap;

use super::{moment, schedule};
use crate::cron::in_words;

#[track_caller]
fn says(expression: &str, words: &str) {
    assert_eq!(in_words(expression).as_deref(), Some(words), "{expression}");
    schedule(expression, "UTC");
}

#[test]
fn times_of_the_day() {
    for (expression, words) in [
        ("0 8 * * *", "every day at 08:00"),
        ("  0   8 * *  * ", "every day at 08:00"),
        ("@daily", "every day at 00:00"),
        ("0 8,20 * * *", "every day at 08:00 and 20:00"),
        ("0,30 9 * * *", "every day at 09:00 and 09:30"),
        ("0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00"),
        ("0 2,5,9,14,18 * * *", "every day at 02:00, 05:00, 09:00, 14:00 and 18:00"),
        ("30 0 8 * * *", "every day at 08:00:30"),
        ("0,20,50 9-17 * * *", "every day at minutes 0, 20 and 50 of the hours from 09 to 17"),
        ("1-20 2 * * *", "every day at minutes 1 to 20 of hour 02"),
    ] {
        says(expression, words);
    }
}

#[test]
fn all_day_long() {
    for (expression, words) in [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0,15,30,45 * * * *", "every 15 minutes"),
        ("*/7 * * * *", "every hour at minutes 0, 7, 14 and so on to 56"),
        ("5-59/15 * * * *", "every hour at minutes 5, 20, 35 and 50"),
        ("0 * * * *", "every hour"),
        ("@hourly", "every hour"),
        ("30 0-23 * * *", "every hour at minute 30"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("5,17 * * * * *", "every minute at seconds 5 and 17"),
        ("30 * * * * *", "every minute at second 30"),
        ("* * * 1 *", "every minute in January"),
        ("0 * * * MON", "every hour on Mondays"),
    ] {
        says(expression, words);
    }
}

#[test]
fn a_part_of_the_day() {
    for (expression, words) in [
        ("0 */2 * * *", "every 2 hours from 00:00 to 22:00, every day"),
        ("15 1-23/2 * * *", "every 2 hours from 01:15 to 23:15, every day"),
        ("0 9-17 * * 1-5", "every hour from 09:00 to 17:00, from Monday to Friday"),
        ("*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:45, from Monday to Friday"),
        ("* 2 * * *", "every minute from 02:00 to 02:59, every day"),
        (
            "*/15 9-17 * 6-8 SAT,SUN",
            "every 15 minutes from 09:00 to 17:45, on Saturdays and Sundays from June to August",
        ),
        ("*/20 30 2 * * *", "every 20 seconds from 02:30:00 to 02:30:40, every day"),
        ("* * 9-17 * * *", "every second from 09:00:00 to 17:59:59, every day"),
    ] {
        says(expression, words);
    }
}

#[test]
fn some_days() {
    for (expression, words) in [
        ("30 8 * * MON-FRI", "from Monday to Friday at 08:30"),
        ("@weekly", "on Sundays at 00:00"),
        ("0 0 * * 6,7", "on Saturdays and Sundays at 00:00"),
        ("0 0 ? * MON", "on Mondays at 00:00"),
        ("0 0 * * 0-7", "every day at 00:00"),
        ("@monthly", "on day 1 of the month at 00:00"),
        ("0 12 */2 * *", "on days 1, 3, 5 and so on to 31 of the month at 12:00"),
        ("0 0 1 */3 *", "on day 1 of the month in January, April, July and October at 00:00"),
        ("0 0 1 1-3 *", "on day 1 of the month from January to March at 00:00"),
        ("@yearly", "on 1 January at 00:00"),
        ("0 0 1,15 JAN *", "on 1 and 15 January at 00:00"),
        ("15 2 * 3,10,11 SUN", "on Sundays in March, October and November at 02:15"),
        ("0 9 6 * MON", "on day 6 of the month and also on Mondays at 09:00"),
        ("0 0 1-31 * MON", "every day at 00:00"),
        ("0 9 1-7 * +MON", "on days 1 to 7 of the month if it is a Monday at 09:00"),
        ("0 9 13 * +FRI,SAT", "on day 13 of the month if it is a Friday or a Saturday at 09:00"),
        ("0 9 * * +MON", "on Mondays at 09:00"),
    ] {
        says(expression, words);
    }
}

#[test]
fn days_with_forms_of_their_own() {
    for (expression, words) in [
        ("0 9 * * MON#1", "on the first Monday of the month at 09:00"),
        ("0 9 * * fri#l", "on the last Friday of the month at 09:00"),
        ("0 9 * * 5L", "on the last Friday of the month at 09:00"),
        ("0 9 * * 7#2", "on the second Sunday of the month at 09:00"),
        ("0 9 * * MON#1,FRI#L", "on the first Monday and the last Friday of the month at 09:00"),
        ("0 0 L * *", "on the last day of the month at 00:00"),
        ("0 0 15,L * *", "on day 15 and the last day of the month at 00:00"),
        ("0 9 LW * *", "on the last weekday (Monday to Friday) of the month at 09:00"),
        ("0 9 16W * *", "on the weekday (Monday to Friday) nearest to day 16 of the month at 09:00"),
        (
            "0 0 L 2 MON#1",
            "on the last day of the month and also on the first Monday of the month in February at 00:00",
        ),
    ] {
        says(expression, words);
    }
}

#[test]
fn there_are_no_words_where_they_would_be_long_or_wrong() {
    for expression in [
        "59 59 * * * *",
        "7 */11 * * * *",
        "3,9 2,5,9,14,18,22 * * *",
        "* 9,12 * * *",
        "0 0 L,LW * *",
        "0 1 * * MON#1,3",
        "0 0 1-7 * +MON#1",
        "0 0 1,2,4,7,11,16,22,29,31 * *",
    ] {
        schedule(expression, "UTC");
        assert_eq!(in_words(expression), None, "{expression}");
    }
    for invalid in ["", "every day", "61 * * * *", ", * * * *", "* * * * * * *", &"0".repeat(1_000)] {
        assert_eq!(in_words(invalid), None, "{invalid}");
    }
}

/// Whatever is said in the same words ticks at the same times.
#[test]
fn the_same_words_are_the_same_ticks() {
    let (mut known, mut unsaid) = (HashMap::new(), 0);
    let minutes = ["0", "*", "*/15", "0,15,30,45", "5-59/15"];
    let hours = ["*", "9-17", "0,6,12,18", "*/6", "9,10,13,20,22"];
    let days = ["*", "1", "1-31", "L", "1-7"];
    let weekdays = ["*", "MON", "1-5", "MON#1", "+MON"];
    for (minute, hour) in minutes.iter().flat_map(|minute| hours.map(|hour| (minute, hour))) {
        for (day, weekday) in days.iter().flat_map(|day| weekdays.map(|weekday| (day, weekday))) {
            let expression = format!("{minute} {hour} {day} * {weekday}");
            let ticks = schedule(&expression, "UTC").upcoming(moment("2027-01-04T10:20:00Z"), 12);
            match in_words(&expression) {
                Some(words) => {
                    let (other, same) =
                        known.entry(words).or_insert_with(|| (expression.clone(), ticks.clone()));
                    assert_eq!(*same, ticks, "{expression} and {other} are said alike");
                }
                None => unsaid += 1,
            }
        }
    }
    assert!(known.len() > 150 && unsaid < 350, "{} are said, {unsaid} are not", known.len());
}
