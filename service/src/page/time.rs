//! Times and durations, as people read them. The browser shows a time in its own zone.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeDelta, Timelike, Utc};
use maud::{Markup, html};

/// This machine's time. For what is shown or asked for: what is stored has the database's.
pub(crate) fn now() -> DateTime<Utc> {
    SystemTime::now().into()
}

/// How often what is asked for with a distance from now becomes another question.
const STEP_S: i64 = 10;

/// The same in whole steps, for what a filter counts from now: so browsers that look at the same
/// list ask the same.
pub(crate) fn now_in_steps() -> DateTime<Utc> {
    step(now())
}

fn step(now: DateTime<Utc>) -> DateTime<Utc> {
    let seconds = now.timestamp();
    DateTime::from_timestamp(seconds - seconds.rem_euclid(STEP_S), 0).unwrap_or(now)
}

/// A moment: how far it is from now, with the exact time on hover.
pub(crate) fn moment(at: DateTime<Utc>) -> Markup {
    let exact = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! { time datetime=(exact) title=(exact) { (distance(at, now())) } }
}

/// A moment that people plan by, such as an end: how far it is from now, and the time on the clock.
pub(crate) fn appointed(at: DateTime<Utc>) -> Markup {
    html! { (moment(at)) ", " (on_the_clock(at)) }
}

/// A moment as the time on the clock.
pub(crate) fn on_the_clock(at: DateTime<Utc>) -> Markup {
    let exact = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! { time datetime=(exact) title=(exact) data-exact { (in_utc(at)) } }
}

/// A moment as it is said on the next page, where the browser shows it in its own zone.
pub(crate) fn in_utc(at: DateTime<Utc>) -> String {
    format!("{} UTC", at.format("%Y-%m-%d %H:%M:%S"))
}

/// A moment that may be missing.
pub(crate) fn moment_or(at: Option<DateTime<Utc>>, otherwise: &str) -> Markup {
    at.map_or_else(|| html! { span.quiet { (otherwise) } }, moment)
}

/// A length of time in seconds, with as many digits as one reads.
pub(crate) fn length(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s < 0.0 => "0 s".to_owned(),
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s => words(Duration::from_secs_f64(s.min(1e12))),
    }
}

/// A moment as a field has it, and as [`written`] reads it.
pub(crate) fn exact(moment: DateTime<Utc>) -> String {
    let seconds = if moment.second() == 0 { "" } else { ":%S" };
    moment.format(&format!("%Y-%m-%dT%H:%M{seconds}")).to_string()
}

/// A moment as people write it: a time, or how far it is from `now`, as `1 h`, `1 h ago` or
/// `in 2 d`. A time without a zone is in UTC. `None` if it is neither.
pub(crate) fn written(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let text = text.trim();
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Some(at.to_utc());
    }
    let bare = text.trim_end_matches('Z');
    let at = CLOCKS.iter().find_map(|form| NaiveDateTime::parse_from_str(bare, form).ok());
    let day = || NaiveDate::parse_from_str(bare, "%Y-%m-%d").ok().map(|day| day.and_time(NaiveTime::MIN));
    if let Some(at) = at.or_else(day) {
        return Some(at.and_utc());
    }
    if let Some(ahead) = text.strip_prefix("in ") {
        return now.checked_add_signed(apart(ahead)?);
    }
    now.checked_sub_signed(apart(text.strip_suffix("ago").unwrap_or(text))?)
}

/// Times without a zone.
const CLOCKS: [&str; 4] = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"];

fn apart(text: &str) -> Option<TimeDelta> {
    TimeDelta::from_std(humantime::parse_duration(text).ok()?).ok()
}

fn distance(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let ahead = at > now;
    let far = (at - now).abs().to_std().unwrap_or_default();
    match (far.as_secs(), ahead) {
        (0, _) => "now".to_owned(),
        (_, true) => format!("in {}", words(far)),
        (_, false) => format!("{} ago", words(far)),
    }
}

fn words(far: Duration) -> String {
    let seconds = far.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_a_time_or_as_a_distance() {
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().to_utc();
        let now = at("2030-01-31T08:00:00Z");
        for (text, moment) in [
            ("2030-01-30T07:00:00+01:00", "2030-01-30T06:00:00Z"),
            ("2030-01-30T06:00:00", "2030-01-30T06:00:00Z"),
            ("2030-01-30 06:00", "2030-01-30T06:00:00Z"),
            ("2030-01-30T06:00Z", "2030-01-30T06:00:00Z"),
            ("2030-01-30", "2030-01-30T00:00:00Z"),
            (" 1 h ", "2030-01-31T07:00:00Z"),
            ("90s", "2030-01-31T07:58:30Z"),
            ("1 h 30 min ago", "2030-01-31T06:30:00Z"),
            ("in 2 days", "2030-02-02T08:00:00Z"),
        ] {
            assert_eq!(written(text, now), Some(at(moment)), "{text}");
        }
        for text in ["", "soon", "90", "-1 h", "in", "2030-13-01", "99999999999999 years"] {
            assert_eq!(written(text, now), None, "{text}");
        }
    }

    #[test]
    fn lengths_have_few_digits() {
        for (seconds, text) in [
            (0.0, "0 µs"),
            (0.000_25, "250 µs"),
            (0.0123, "12 ms"),
            (2.34, "2.3 s"),
            (59.0, "59 s"),
            (125.0, "2 min"),
            (7_300.0, "2 h"),
            (300_000.0, "3 d"),
            (f64::NAN, "0 s"),
            (f64::INFINITY, "0 s"),
            (-1.0, "0 s"),
        ] {
            assert_eq!(length(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_step_begins_with_a_whole_one_before_now() {
        let at = |text: &str| DateTime::parse_from_rfc3339(text).unwrap().to_utc();
        for (now, begin) in [
            ("2030-01-31T08:00:00Z", "2030-01-31T08:00:00Z"),
            ("2030-01-31T08:00:09.999Z", "2030-01-31T08:00:00Z"),
            ("2030-01-31T08:00:10Z", "2030-01-31T08:00:10Z"),
            ("1969-12-31T23:59:59.5Z", "1969-12-31T23:59:50Z"),
        ] {
            assert_eq!(step(at(now)), at(begin), "{now}");
        }
    }

    #[test]
    fn a_moment_is_before_or_after_now() {
        let now = super::now();
        assert_eq!(distance(now, now), "now");
        assert_eq!(distance(now + TimeDelta::minutes(5), now), "in 5 min");
        assert_eq!(distance(now - TimeDelta::hours(3), now), "3 h ago");
    }
}
