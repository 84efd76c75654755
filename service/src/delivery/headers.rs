//! The headers of a delivery: Standard Webhooks, CloudEvents in binary mode, trace and attempt, and
//! those that the target adds. Pure.

use chrono::SecondsFormat;
use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, Entry, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, USER_AGENT,
};

use super::sign;
use wakeq::Execution;
use wakeq::events::{EventOptions, Tag};
use wakeq::limits::LimitKey;
use wakeq::order::Place;
use wakeq::queues::CopyOf;
use wakeq::targets::{OwnDeployment, Secrets, TargetHeaders};

const AGENT: &str = concat!("wakeq/", env!("CARGO_PKG_VERSION"));

/// All headers of a request except `host`, `content-length` and those that the target adds.
/// `timestamp_s` is the time of sending, in seconds since 1970.
pub(super) fn headers(
    event: &Execution,
    deployment: Option<&OwnDeployment>,
    secrets: &Secrets,
    timestamp_s: u64,
    token: Option<&str>,
) -> Result<HeaderMap, InvalidHeaderValue> {
    let id = event.id.to_string();
    let signatures = sign::signatures(secrets, &id, timestamp_s, event.json.as_bytes());
    let source = format!("/canvases/{}", event.address.scope.canvas);
    let time = event.enqueued_at.to_rfc3339_opts(SecondsFormat::Micros, true);
    let mut headers = HeaderMap::with_capacity(16);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    for (name, value) in [
        ("webhook-id", id.as_str()),
        ("webhook-timestamp", &timestamp_s.to_string()),
        ("webhook-signature", &signatures),
        ("ce-specversion", "1.0"),
        ("ce-id", &id),
        ("ce-source", &source),
        ("ce-type", &event.address.to_string()),
        ("ce-time", &time),
        ("wakeq-attempt", &event.attempt.to_string()),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value)?);
    }
    if let Some(claim) = event.claim() {
        headers.insert("wakeq-claim", HeaderValue::from_str(&claim)?);
    }
    if let Some(trace) = &event.metadata.traceparent {
        headers.insert("traceparent", HeaderValue::from_str(trace.as_str())?);
    }
    if let Some(Place { object, link }) = &event.place {
        for (name, value) in [
            ("ce-object", object.as_str()),
            ("ce-link", &link.id.to_string()),
            ("ce-prev", &link.prev.to_string()),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value)?);
        }
    }
    if let Some(CopyOf { queue, origin }) = &event.copy_of {
        for (name, value) in [("ce-queue", queue.as_str()), ("ce-origin", &origin.to_string())] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value)?);
        }
    }
    if let Some(options) = event.options.as_deref() {
        for (name, value) in asked(options) {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value)?);
        }
    }
    if let Some(deployment) = deployment {
        headers.insert(OwnDeployment::HEADER, HeaderValue::from_str(deployment.id())?);
    }
    if let Some(token) = token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The headers for what the emit asked for, as far as it says something to the receiver: how many
/// more attempts there are, for how long this one may take, when none starts any more, its batch,
/// its tags, the keys of its limits, and that it is urgent.
fn asked(options: &EventOptions) -> impl Iterator<Item = (&'static str, String)> {
    let retries = options.retries().map(|retries| ("wakeq-retries", retries.to_string()));
    let timeout = options.timeout().map(|timeout| ("wakeq-timeout", timeout.as_secs_f64().to_string()));
    let moment = options.not_after().map(|moment| moment.to_rfc3339_opts(SecondsFormat::Micros, true));
    let moment = moment.map(|moment| ("wakeq-not-after", moment));
    let batch = options.batch().map(|batch| ("wakeq-batch", batch.to_string()));
    let joined = |texts: Vec<&str>| (!texts.is_empty()).then(|| texts.join(","));
    let tags = joined(options.tags().iter().map(Tag::as_str).collect()).map(|tags| ("wakeq-tags", tags));
    let limits = joined(options.limits().iter().map(LimitKey::as_str).collect());
    let limits = limits.map(|limits| ("wakeq-limits", limits));
    let urgent = options.is_urgent().then(|| ("wakeq-urgent", "true".to_owned()));
    [retries, timeout, moment, batch, tags, limits, urgent].into_iter().flatten()
}

/// Adds the headers of a target. None takes the place of another: a token goes before an
/// `authorization` of the target's.
pub(super) fn add_own(headers: &mut HeaderMap, own: &TargetHeaders) -> Result<(), InvalidHeaderValue> {
    for (name, value) in own.iter() {
        let mut value = HeaderValue::from_str(value)?;
        value.set_sensitive(true);
        // A name that was checked at registration is the name of a header.
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        if let Entry::Vacant(place) = headers.entry(name) {
            place.insert(value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeq::events::Metadata;
    use wakeq::machine::Link;
    use wakeq::targets::Secret;
    use wakeq::{CanvasId, EventId, HandlerAddress, HandlerScope};

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn written(token: Option<&str>) -> Result<Vec<String>, InvalidHeaderValue> {
        written_of(None, None, token)
    }

    fn written_of(
        place: Option<Place>,
        copy_of: Option<CopyOf>,
        token: Option<&str>,
    ) -> Result<Vec<String>, InvalidHeaderValue> {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, "send-email").unwrap();
        let emitted_at = "2026-01-31T08:00:00.123456Z".parse().unwrap();
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap();
        let address = HandlerAddress { scope, modifier: "eu".parse().unwrap() };
        let mut event = Execution::new(address, r#"{"a": 1}"#, emitted_at);
        event.id = EventId(ID.parse().unwrap());
        event.attempt = 3;
        event.metadata = Metadata { traceparent: Some(trace) };
        (event.place, event.copy_of) = (place, copy_of);
        let current = Secret::from_bytes(vec![7; 24]).unwrap();
        let headers = headers(&event, None, &Secrets { current, previous: None }, 1_769_846_400, token)?;
        Ok(headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect())
    }

    #[test]
    fn a_delivery_says_what_it_is_and_who_signed_it() {
        let headers = written(None).unwrap();
        let signature = headers.iter().find_map(|header| header.strip_prefix("webhook-signature: "));
        let expected = [
            "content-type: application/json".to_owned(),
            format!("user-agent: {AGENT}"),
            format!("webhook-id: {ID}"),
            "webhook-timestamp: 1769846400".to_owned(),
            format!("webhook-signature: {}", signature.unwrap()),
            "ce-specversion: 1.0".to_owned(),
            format!("ce-id: {ID}"),
            "ce-source: /canvases/00000000-0000-0000-0000-000000000000".to_owned(),
            "ce-type: WORKER/send-email/eu".to_owned(),
            "ce-time: 2026-01-31T08:00:00.123456Z".to_owned(),
            "wakeq-attempt: 3".to_owned(),
            "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
        ];
        assert_eq!(headers, expected);
        assert!(signature.unwrap().starts_with("v1,"));
    }

    // See also ORD-07.
    // Shows: ORD-03
    #[test]
    fn an_event_on_an_object_says_which_link_it_is() {
        let place = Place { object: "work:1".parse().unwrap(), link: Link { id: 17, prev: 12 } };
        let headers = written_of(Some(place), None, None).unwrap();
        for expected in ["ce-object: work:1", "ce-link: 17", "ce-prev: 12"] {
            assert!(headers.contains(&expected.to_owned()), "{headers:?}");
        }
    }

    #[test]
    fn a_copy_says_of_which_queue_and_event_it_is_one() {
        let copy = CopyOf { queue: "email_events".parse().unwrap(), origin: EventId(uuid::Uuid::nil()) };
        let headers = written_of(None, Some(copy), None).unwrap();
        for expected in [
            "ce-queue: email_events",
            "ce-origin: 00000000-0000-0000-0000-000000000000",
            "ce-type: WORKER/send-email/eu",
        ] {
            assert!(headers.contains(&expected.to_owned()), "{headers:?}");
        }
    }

    #[test]
    fn a_delivery_says_what_its_emit_asked_for() {
        let event = wakeq::Event::new("send-email", &1).unwrap();
        let event = event.retries(7).unwrap().timeout(std::time::Duration::from_millis(1_500)).unwrap();
        let event = event.not_after("2026-01-31T08:05:00Z".parse().unwrap()).unwrap();
        let event = event.batch("import:42").unwrap().tag("customer:7").unwrap().tag("late").unwrap();
        let event = event.limit("customer:7").unwrap().limit("mails").unwrap().urgent();
        let headers: Vec<_> = asked(event.options().unwrap()).collect();
        let expected = [
            ("wakeq-retries", "7".to_owned()),
            ("wakeq-timeout", "1.5".to_owned()),
            ("wakeq-not-after", "2026-01-31T08:05:00.000000Z".to_owned()),
            ("wakeq-batch", "import:42".to_owned()),
            ("wakeq-tags", "customer:7,late".to_owned()),
            ("wakeq-limits", "customer:7,mails".to_owned()),
            ("wakeq-urgent", "true".to_owned()),
        ];
        assert_eq!(headers, expected);
        let delays =
            wakeq::Event::new("send-email", &1).unwrap().delays([std::time::Duration::ZERO]).unwrap();
        assert_eq!(asked(delays.options().unwrap()).count(), 0);
    }

    #[test]
    fn a_token_goes_along_if_there_is_one() {
        assert!(written(Some("a.b.c")).unwrap().contains(&"authorization: Bearer a.b.c".to_owned()));
        assert!(written(Some("a\r\nhost: b")).is_err(), "and nothing else with it");
    }

    #[test]
    fn headers_of_the_target_replace_none_of_ours() {
        let own = [("X-Api-Key", "s3cr3t"), ("Authorization", "Basic YTpi")];
        let own = TargetHeaders::new(own).unwrap();
        let added = |mut headers: HeaderMap| {
            add_own(&mut headers, &own).unwrap();
            assert!(headers["x-api-key"].is_sensitive() && !format!("{headers:?}").contains("s3cr3t"));
            (headers.len(), headers["authorization"].to_str().unwrap().to_owned())
        };
        let token: HeaderMap =
            [(AUTHORIZATION, HeaderValue::from_static("Bearer a.b.c"))].into_iter().collect();
        assert_eq!(added(HeaderMap::new()), (2, "Basic YTpi".to_owned()));
        assert_eq!(added(token), (2, "Bearer a.b.c".to_owned()));
    }
}
