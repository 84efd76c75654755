//! Interprets a target's answer for the event. Pure: maps status, headers and the time to a
//! verdict. Repeats nothing that the target sent, apart from its status.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, RETRY_AFTER};

use super::DeliveryOutcome;

/// A target may ask for this wait whatever its policy.
const MINUTE: Duration = Duration::from_secs(60);

/// The header by which a target says what its status can't.
const OUTCOME: HeaderName = HeaderName::from_static("wakeq-outcome");

/// The verdict on an answer, by its status. Of its headers, only `Retry-After`, together with
/// `Date`, and `Wakeq-Outcome` are used. `body` describes the length of its body.
pub(super) fn verdict(
    status: StatusCode,
    headers: &HeaderMap,
    body: &str,
    now: SystemTime,
    delay_max: Duration,
) -> DeliveryOutcome {
    let answered = format!("the target answered {} with {body}", named(status));
    let failed = |advice: &str| DeliveryOutcome::failed(format!("{answered}: {advice}"));
    let said = text(headers, &OUTCOME);
    // Without a wait, or with one that is over, the run decides: at least a second, and growing.
    let wait = retry_after(headers, now).map(|wait| wait.min(delay_max.max(MINUTE)));
    match status.as_u16() {
        200..=299 => DeliveryOutcome::Completed,
        _ if said == Some("dead") => {
            DeliveryOutcome::Dead { message: format!("{answered}: it said that no retry can help") }
        }
        _ if said == Some("retry") => DeliveryOutcome::Failed {
            message: format!("{answered}: it said that this counts as a failure"),
            after: wait,
        },
        425 => DeliveryOutcome::NotYet { delay: wait.unwrap_or_default(), fault: None },
        410 => DeliveryOutcome::Gone { reason: format!("the target answered {}", named(status)) },
        429 | 503 if wait.is_some() => DeliveryOutcome::Busy {
            message: format!("{answered}: it said when to try again"),
            delay: wait.unwrap_or_default(),
        },
        429 => DeliveryOutcome::Busy {
            message: format!("{answered}: it has no capacity now"),
            delay: Duration::ZERO,
        },
        503 => failed("it has no capacity now"),
        300..=399 => failed("redirects are not followed; register the URL that it should go to"),
        401 | 403 => {
            failed("it did not accept the sender; check its secret, its audience, and the clock here")
        }
        404 | 405 => failed("it does not accept POST at this URL; register the one that does"),
        413 => failed("the event's value is too large for it"),
        _ => failed("it should answer 2xx once the event is done; its own log shows why it did not"),
    }
}

/// Whether an answer says that its body is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let media_type = text(headers, &CONTENT_TYPE).and_then(|text| text.split(';').next());
    media_type.map(str::trim).map(str::to_ascii_lowercase).is_some_and(|media_type| {
        media_type == "application/json"
            || media_type.starts_with("application/") && media_type.ends_with("+json")
    })
}

/// For example `500 Internal Server Error`, or the number alone.
fn named(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// The delay requested by `Retry-After`, if it can be parsed: whole seconds, or a time, which is
/// compared with the target's own `Date` if there is one.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = text(headers, &RETRY_AFTER)?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let now = self::text(headers, &DATE).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    Some(at.duration_since(now).unwrap_or_default())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;
    const DAY: Duration = Duration::from_secs(86400);

    fn answered(status: u16, headers: &[(HeaderName, &str)]) -> DeliveryOutcome {
        let headers = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        verdict(StatusCode::from_u16(status).unwrap(), &headers, "3 bytes", NOW, DAY)
    }

    fn wait(status: u16, headers: &[(HeaderName, &str)]) -> Option<u64> {
        let verdict = answered(status, headers);
        match verdict {
            DeliveryOutcome::Busy { delay, .. } => Some(delay.as_secs()),
            DeliveryOutcome::Failed { .. } => None,
            DeliveryOutcome::Completed
            | DeliveryOutcome::NotYet { .. }
            | DeliveryOutcome::Gone { .. }
            | DeliveryOutcome::Dead { .. } => panic!("{status}: {verdict:?}"),
        }
    }

    #[test]
    fn every_status_has_its_verdict() {
        for status in 100..=999 {
            let verdict = answered(status, &[(RETRY_AFTER, "7")]);
            match status {
                200..=299 => assert_eq!(verdict, DeliveryOutcome::Completed),
                425 => {
                    let delay = Duration::from_secs(7);
                    assert_eq!(verdict, DeliveryOutcome::NotYet { delay, fault: None });
                }
                410 => {
                    assert_eq!(
                        verdict,
                        DeliveryOutcome::Gone { reason: "the target answered 410 Gone".to_owned() }
                    );
                }
                _ => {
                    let (message, delay) = match verdict.clone() {
                        DeliveryOutcome::Failed { message, after } => (message, after),
                        DeliveryOutcome::Busy { message, delay } => (message, Some(delay)),
                        DeliveryOutcome::Completed
                        | DeliveryOutcome::NotYet { .. }
                        | DeliveryOutcome::Gone { .. }
                        | DeliveryOutcome::Dead { .. } => panic!("{status}: {verdict:?}"),
                    };
                    assert!(message.starts_with(&format!("the target answered {status}")), "{message}");
                    assert!(message.contains(" with 3 bytes: "), "{message}");
                    let honoured = matches!(status, 429 | 503);
                    assert_eq!(delay, honoured.then_some(Duration::from_secs(7)), "{status}");
                }
            }
        }
    }

    #[test]
    fn an_answer_is_a_result_only_if_it_says_that_it_is_json() {
        let says = |text: &str| is_json(&[(CONTENT_TYPE, text.parse().unwrap())].into_iter().collect());
        for json in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
            assert!(says(json), "{json}");
        }
        for other in ["text/html", "text/json", "application/jsonp", "application/x-ndjson", ""] {
            assert!(!says(other), "{other}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn a_target_can_end_an_event_that_it_did_not_accept() {
        for status in [400, 410, 425, 429, 500, 503] {
            let said = |word| answered(status, &[(OUTCOME, word), (RETRY_AFTER, "7")]);
            let DeliveryOutcome::Dead { message } = said("dead") else {
                panic!("{status}: {:?}", said("dead"))
            };
            assert!(message.ends_with("with 3 bytes: it said that no retry can help"), "{message}");
            assert_eq!(said("deadly"), answered(status, &[(RETRY_AFTER, "7")]));
        }
        assert_eq!(answered(204, &[(OUTCOME, "dead")]), DeliveryOutcome::Completed);
    }

    /// Also where its status alone would postpone the event, or hold the target.
    #[test]
    fn a_target_can_have_a_failure_counted_and_say_when_to_try_again() {
        for status in [302, 400, 410, 425, 429, 500, 503] {
            for (wait, after) in [(None, None), (Some("7"), Some(7)), (Some("999999"), Some(86400))] {
                let mut headers = vec![(OUTCOME, "retry")];
                headers.extend(wait.map(|wait| (RETRY_AFTER, wait)));
                let DeliveryOutcome::Failed { message, after: asked } = answered(status, &headers) else {
                    panic!("{status}: {:?}", answered(status, &headers))
                };
                assert!(message.ends_with("it said that this counts as a failure"), "{message}");
                assert_eq!(asked.map(|asked| asked.as_secs()), after, "{status}");
            }
        }
        assert_eq!(answered(204, &[(OUTCOME, "retry")]), DeliveryOutcome::Completed);
    }

    #[test]
    fn retry_after_is_seconds_or_a_moment_and_bounded() {
        for (status, without) in [(429, Some(0)), (503, None)] {
            assert_eq!(wait(status, &[]), without);
            assert_eq!(wait(status, &[(RETRY_AFTER, "0")]), Some(0));
            assert_eq!(wait(status, &[(RETRY_AFTER, " 120 ")]), Some(120));
            for long in ["86401", "99999999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
                assert_eq!(wait(status, &[(RETRY_AFTER, long)]), Some(86400), "{long}");
            }
            for unreadable in ["", "-1", "1.5", "+5", "soon", "0x10", "Thu, 99 Jan 1970 00:00:00 GMT"] {
                assert_eq!(wait(status, &[(RETRY_AFTER, unreadable)]), without, "{unreadable}");
            }
        }
        let at = (RETRY_AFTER, "Thu, 01 Jan 1970 01:00:00 GMT");
        assert_eq!(
            wait(503, std::slice::from_ref(&at)),
            Some(3600),
            "by our clock, if it does not say its own"
        );
        let date = (DATE, "Thu, 01 Jan 1970 00:59:00 GMT");
        assert_eq!(wait(503, &[at.clone(), date]), Some(60), "by its own");
        let past = (DATE, "Thu, 01 Jan 1970 02:00:00 GMT");
        assert_eq!(wait(503, &[at.clone(), past]), Some(0));
        assert_eq!(wait(503, &[at, (DATE, "now")]), Some(3600));
        for old_form in ["Thursday, 01-Jan-70 00:01:00 GMT", "Thu Jan  1 00:01:00 1970"] {
            assert_eq!(wait(503, &[(RETRY_AFTER, old_form)]), Some(60), "{old_form}");
        }
    }
}
