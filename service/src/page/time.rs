//! Times and durations, as people read them. The browser shows a time in its own zone.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use maud::{Markup, html};

/// A moment: how far it is from now, with the exact time on hover.
pub(crate) fn moment(at: DateTime<Utc>) -> Markup {
    let exact = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! { time datetime=(exact) title=(exact) { (distance(at, Utc::now())) } }
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
    use chrono::TimeDelta;

    use super::*;

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
    fn a_moment_is_before_or_after_now() {
        let now = Utc::now();
        assert_eq!(distance(now, now), "now");
        assert_eq!(distance(now + TimeDelta::minutes(5), now), "in 5 min");
        assert_eq!(distance(now - TimeDelta::hours(3), now), "3 h ago");
    }
}
