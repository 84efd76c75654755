//! The service's limits, and its messages for requests beyond them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use crate::proto::protobuf::Duration as ProtoDuration;

use super::{Answer, Refusal};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The most messages in one publish request.
pub(super) const MOST_MESSAGES: usize = 1_000;
/// The size of one publish request, and of one message.
pub(super) const LARGEST_PUBLISH: usize = 10_000_000;
pub(super) const MOST_ATTRIBUTES: usize = 100;
pub(super) const LONGEST_ATTRIBUTE_KEY: usize = 256;
pub(super) const LONGEST_ATTRIBUTE_VALUE: usize = 1_024;
pub(super) const LONGEST_ORDERING_KEY: usize = 1_024;
/// The size of a request to acknowledge or to modify deadlines.
pub(super) const LARGEST_ACKNOWLEDGEMENT: usize = 512 * 1_024;
/// A pull may request more, but receives no more.
pub(super) const LARGEST_PULL: usize = 1_000;
/// The limit for the messages of a pull's response, unless a single message is larger.
pub(super) const LARGEST_PULL_BYTES: usize = 10_000_000;
pub(super) const LONGEST_FILTER: usize = 256;
pub(super) const MOST_LABELS: usize = 64;
const LONGEST_LABEL: usize = 63;

pub(super) const DEFAULT_ACK_DEADLINE: i32 = 10;
pub(super) const LONGEST_ACK_DEADLINE: i32 = 600;
pub(super) const SHORTEST_RETENTION: Duration = Duration::from_secs(10 * 60);
pub(super) const LONGEST_RETENTION: Duration = Duration::from_secs(31 * 24 * 60 * 60);
pub(super) const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
pub(super) const DEFAULT_EXPIRATION: Duration = Duration::from_secs(31 * 24 * 60 * 60);
pub(super) const SHORTEST_EXPIRATION: Duration = DAY;
pub(super) const DEFAULT_MINIMUM_BACKOFF: Duration = Duration::from_secs(10);
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(600);
pub(super) const DEFAULT_DELIVERY_ATTEMPTS: i32 = 5;
pub(super) const MOST_DELIVERY_ATTEMPTS: i32 = 100;
/// The bounds of a snapshot's lifetime.
pub(super) const LONGEST_SNAPSHOT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
pub(super) const SHORTEST_SNAPSHOT: Duration = Duration::from_secs(60 * 60);
/// The most subscriptions of one topic.
pub(super) const MOST_SUBSCRIPTIONS_OF_A_TOPIC: usize = 10_000;
/// The most snapshots of one topic, each of which keeps what is published after it.
pub(super) const MOST_SNAPSHOTS_OF_A_TOPIC: usize = 5_000;
/// The size of a schema's definition.
pub(super) const LARGEST_SCHEMA: usize = 300 * 1_024;
/// The most schemas of one project.
pub(super) const MOST_SCHEMAS: usize = 10_000;
/// The most revisions of one schema.
pub(super) const MOST_REVISIONS: usize = 20;
/// Per policy.
pub(super) const MOST_MEMBERS: usize = 1_500;
pub(super) const MOST_PERMISSIONS: usize = 100;

pub(super) fn too_large(field: &str, passed: impl Display, maximum: impl Display) -> Refusal {
    Refusal::invalid(format!(
        "The value for {field} is too large. You passed {passed} in the request, but the maximum value is \
         {maximum}."
    ))
}

pub(super) fn too_small(field: &str, passed: impl Display, minimum: impl Display) -> Refusal {
    Refusal::invalid(format!(
        "The value for {field} is too small. You passed {passed} in the request, but the minimum value is \
         {minimum}."
    ))
}

/// Refuses a size beyond a limit.
pub(super) fn at_most(field: &str, passed: usize, maximum: usize) -> Answer<()> {
    if passed > maximum { Err(too_large(field, passed, maximum)) } else { Ok(()) }
}

/// Refuses a resource beyond a topic's limit.
pub(super) fn room_for(what: &str, present: usize, most: usize) -> Answer<()> {
    if present >= most {
        let words = format!("The topic has {present} {what}, which is the limit: delete some first.");
        return Err(Refusal::new(tonic::Code::ResourceExhausted, words));
    }
    Ok(())
}

/// Refuses what the service's documentation calls an invalid argument without details.
pub(super) fn bad_argument(argument: &str) -> Refusal {
    Refusal::invalid(format!("You have passed an invalid argument to the service (argument={argument})."))
}

/// Checks that a duration is within its bounds.
pub(super) fn duration(
    field: &str,
    passed: &ProtoDuration,
    shortest: Duration,
    longest: Duration,
) -> Answer<Duration> {
    match std_duration(passed) {
        Some(duration) if (shortest..=longest).contains(&duration) => Ok(duration),
        other => {
            let passed = other.map_or_else(|| format!("{}s", passed.seconds), words);
            Err(Refusal::invalid(format!(
                "The value for {field} is out of bounds. You passed {passed} in the request, but the value \
                 must be between {} and {}.",
                words(shortest),
                words(longest)
            )))
        }
    }
}

/// Checks that a back-off is within its bounds; the refusal states them in seconds.
pub(super) fn backoff(field: &str, passed: &ProtoDuration) -> Answer<Duration> {
    match std_duration(passed) {
        Some(duration) if duration <= LONGEST_BACKOFF => Ok(duration),
        other => {
            let passed = other.map_or_else(|| format!("{}s", passed.seconds), seconds);
            Err(Refusal::invalid(format!(
                "The value for {field} is out of bounds. You passed {passed} in the request, but the value must be \
                 between 0s and {}.",
                seconds(LONGEST_BACKOFF)
            )))
        }
    }
}

/// A duration in seconds: `700s`.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs_f64())
}

/// The longest duration in protobuf; longer ones have no JSON form.
const LONGEST_DURATION: Duration = Duration::from_secs(315_576_000_000);

/// Converts a duration, unless it is negative, malformed or too long.
pub(super) fn std_duration(duration: &ProtoDuration) -> Option<Duration> {
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    let duration = Duration::new(u64::try_from(duration.seconds).ok()?, nanos);
    (duration <= LONGEST_DURATION).then_some(duration)
}

/// Converts a duration to protobuf.
pub(super) fn proto_duration(duration: Duration) -> ProtoDuration {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    ProtoDuration { seconds, nanos: duration.subsec_nanos().cast_signed() }
}

/// A duration in the service's notation: `9m59s`, `744h`.
pub(super) fn words(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3_600, seconds % 3_600 / MINUTE.as_secs());
    let rest = duration - Duration::from_secs(seconds - seconds % 60);
    let mut text = String::new();
    for (number, unit) in [(hours, 'h'), (minutes, 'm')] {
        if number > 0 {
            text.push_str(&format!("{number}{unit}"));
        }
    }
    if !rest.is_zero() || text.is_empty() {
        text.push_str(&format!("{}s", rest.as_secs_f64()));
    }
    text
}

/// Refuses invalid labels.
pub(super) fn check_labels(labels: &BTreeMap<String, String>) -> Answer<()> {
    at_most("labels", labels.len(), MOST_LABELS)?;
    for (key, value) in labels {
        let starts_well = key.starts_with(is_label_letter);
        if !starts_well || key.chars().count() > LONGEST_LABEL || !key.chars().all(is_label_character) {
            return Err(bad_argument(&format!(
                "Invalid labels: Invalid field \"labels\"; key \"{key}\" does not conform to regular \
                 expression \"[\\p{{Ll}}\\p{{Lo}}][\\p{{Ll}}\\p{{Lo}}\\p{{N}}_-]{{0,62}}\""
            )));
        }
        if value.chars().count() > LONGEST_LABEL || !value.chars().all(is_label_character) {
            return Err(bad_argument(&format!(
                "Invalid labels: Invalid field \"labels.{key}\"; value \"{value}\" does not conform to regular \
                 expression \"[\\p{{Ll}}\\p{{Lo}}\\p{{N}}_-]{{0,63}}\""
            )));
        }
    }
    Ok(())
}

fn is_label_letter(character: char) -> bool {
    character.is_alphabetic() && !character.is_uppercase()
}

fn is_label_character(character: char) -> bool {
    is_label_letter(character) || character.is_numeric() || character == '_' || character == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_as_the_service_says_them() {
        let table = [
            (Duration::ZERO, "0s"),
            (Duration::from_secs(599), "9m59s"),
            (Duration::from_secs(600), "10m"),
            (LONGEST_RETENTION, "744h"),
            (Duration::from_millis(3_600_500), "1h0.5s"),
        ];
        for (duration, text) in table {
            assert_eq!(words(duration), text);
        }
    }

    #[test]
    fn durations_out_of_bounds_are_refused_in_the_service_s_words() {
        let passed = ProtoDuration { seconds: 599, nanos: 0 };
        let refusal = duration("message retention duration", &passed, SHORTEST_RETENTION, LONGEST_RETENTION);
        assert_eq!(
            refusal.unwrap_err().message,
            "The value for message retention duration is out of bounds. You passed 9m59s in the request, but \
             the value must be between 10m and 744h."
        );
        for passed in [
            ProtoDuration { seconds: -600, nanos: 0 },
            ProtoDuration { seconds: 600, nanos: -1 },
            ProtoDuration { seconds: 600, nanos: 1_000_000_000 },
            ProtoDuration { seconds: 2_678_400, nanos: 1 },
        ] {
            assert!(duration("x", &passed, SHORTEST_RETENTION, LONGEST_RETENTION).is_err(), "{passed:?}");
        }
    }

    #[test]
    fn rejects_durations_that_json_cannot_represent() {
        for (seconds, nanos, expected) in
            [(315_576_000_000, 0, true), (315_576_000_000, 1, false), (1_000_000_000_000, 0, false)]
        {
            assert_eq!(std_duration(&ProtoDuration { seconds, nanos }).is_some(), expected, "{seconds}");
        }
    }

    #[test]
    fn labels_follow_the_rules_of_labels() {
        let long = "a".repeat(63);
        let longer = "a".repeat(64);
        let table = [
            ("env", "test", true),
            ("größe_1-x", "", true),
            (long.as_str(), long.as_str(), true),
            (longer.as_str(), "", false),
            ("a", longer.as_str(), false),
            ("", "x", false),
            ("Upper", "x", false),
            ("a.b", "x", false),
            ("1a", "x", false),
            ("a", "Upper", false),
        ];
        for (key, value, accepted) in table {
            let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            assert_eq!(check_labels(&labels).is_ok(), accepted, "{key}={value}");
        }
        let many: BTreeMap<String, String> = (0..65).map(|i| (format!("a{i}"), String::new())).collect();
        assert!(check_labels(&many).is_err());
    }
}
