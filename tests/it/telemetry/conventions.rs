//! Names, units and attributes, compared with OpenTelemetry's semantic conventions.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, metric};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_semantic_conventions::{attribute, metric as name};

use super::collector::{ReceivedTelemetry, attributes};

/// The metrics that the conventions define: name, unit, required attributes, optional attributes.
const KNOWN: [(&str, &str, &[&str], &[&str]); 3] = [
    (
        name::MESSAGING_PROCESS_DURATION,
        "s",
        &[
            attribute::MESSAGING_OPERATION_NAME,
            attribute::MESSAGING_SYSTEM,
            attribute::MESSAGING_DESTINATION_NAME,
        ],
        &[attribute::MESSAGING_DESTINATION_SUBSCRIPTION_NAME, attribute::ERROR_TYPE],
    ),
    (
        name::MESSAGING_CLIENT_SENT_MESSAGES,
        "{message}",
        &[
            attribute::MESSAGING_OPERATION_NAME,
            attribute::MESSAGING_SYSTEM,
            attribute::MESSAGING_DESTINATION_NAME,
        ],
        &[attribute::ERROR_TYPE],
    ),
    (
        name::HTTP_SERVER_REQUEST_DURATION,
        "s",
        &[attribute::HTTP_REQUEST_METHOD, attribute::URL_SCHEME, attribute::HTTP_RESPONSE_STATUS_CODE],
        &[attribute::HTTP_ROUTE, attribute::ERROR_TYPE],
    ),
];

/// Our own metrics: unit and attributes.
const OWN: [(&str, &str, &[&str]); 20] = [
    ("wakeq.broadcasts", "{event}", &["outcome"]),
    ("wakeq.run.outcomes", "{outcome}", &["outcome"]),
    ("wakeq.handler.retries", "{event}", &["handler"]),
    ("wakeq.target.held", "{request}", &["handler"]),
    ("wakeq.probe.recovered", "{event}", &[]),
    ("wakeq.handler.depth", "{event}", &["handler"]),
    ("wakeq.handler.oldest", "s", &["handler"]),
    ("wakeq.handler.halted", "{object}", &["handler"]),
    ("wakeq.limit.running", "{event}", &["limit"]),
    ("wakeq.limit.waiting", "{event}", &["limit"]),
    ("wakeq.queue.depth", "{event}", &["queue"]),
    ("wakeq.queue.canvases", "{canvas}", &["queue"]),
    ("wakeq.queue.pulls", "{event}", &["outcome", "queue"]),
    ("wakeq.webhooks", "{request}", &["outcome"]),
    ("wakeq.log.held", "s", &[]),
    ("wakeq.quota.used", "1", &["canvas", "quota"]),
    ("wakeq.pool.connections", "{connection}", &["state"]),
    ("wakeq.notifier.up", "", &[]),
    ("wakeq.worker.running", "{event}", &[]),
    ("wakeq.worker.lot", "{notification}", &[]),
];

/// Every metric is one of the conventions, exactly as they define it, or one of ours.
#[track_caller]
pub(super) fn check_metrics(received: &ReceivedTelemetry) {
    let own: BTreeMap<_, _> = OWN.iter().map(|(name, unit, keys)| (*name, (*unit, *keys))).collect();
    for (name, metric) in &received.metrics {
        let points = received.points(name);
        if let Some((_, unit, required, optional)) = KNOWN.iter().find(|(known, ..)| known == name) {
            assert_eq!(metric.unit, *unit, "{name}");
            for point in &points {
                let has = |key: &&&str| point.attributes.contains_key(**key);
                assert_eq!(required.iter().filter(has).count(), required.len(), "{name}: {point:?}");
                let known =
                    |key: &String| required.contains(&key.as_str()) || optional.contains(&key.as_str());
                assert!(point.attributes.keys().all(known), "{name}: {point:?}");
            }
        } else if let Some((unit, keys)) = own.get(name.as_str()) {
            assert_eq!(metric.unit, *unit, "{name}");
            for point in &points {
                assert!(point.attributes.keys().eq(keys.iter()), "{name}: {point:?}");
            }
        } else {
            panic!("{name} is in no list: is it documented?");
        }
    }
    for (known, ..) in KNOWN {
        assert!(received.metrics.contains_key(known), "{known} did not come");
    }
    let duration = received.metrics[name::MESSAGING_PROCESS_DURATION].data.as_ref();
    let Some(metric::Data::Histogram(duration)) = duration else { panic!("{duration:?}") };
    assert_eq!(duration.aggregation_temporality, AggregationTemporality::Cumulative as i32);
    let sent = received.metrics[name::MESSAGING_CLIENT_SENT_MESSAGES].data.as_ref();
    let Some(metric::Data::Sum(sent)) = sent else { panic!("{sent:?}") };
    assert!(sent.is_monotonic);
    let greet =
        [(attribute::MESSAGING_SYSTEM, "wakeq"), (attribute::MESSAGING_DESTINATION_NAME, "WORKER/greet")];
    assert_eq!(received.sum(name::MESSAGING_CLIENT_SENT_MESSAGES, &greet), 2.0);
    assert_eq!(received.sum(name::MESSAGING_PROCESS_DURATION, &greet), 3.0);
    assert_eq!(received.sum(name::MESSAGING_PROCESS_DURATION, &[(attribute::ERROR_TYPE, "error")]), 1.0);
    assert_eq!(received.sum("wakeq.handler.retries", &[("handler", "WORKER/greet")]), 1.0);
}

/// Every span of the queue has the attributes that the conventions require.
#[track_caller]
pub(super) fn check_spans(spans: &[&Span]) {
    for span in spans {
        let found = attributes(&span.attributes);
        let (operation, destination) = span.name.split_once(' ').unwrap();
        if matches!(operation, "send" | "process") {
            for (key, value) in [
                (attribute::MESSAGING_SYSTEM, "wakeq"),
                (attribute::MESSAGING_OPERATION_NAME, operation),
                (attribute::MESSAGING_OPERATION_TYPE, operation),
                (attribute::MESSAGING_DESTINATION_NAME, destination),
            ] {
                assert_eq!(found.get(key).map(String::as_str), Some(value), "{key}: {span:?}");
            }
            assert!(found.contains_key(attribute::MESSAGING_MESSAGE_ID), "{span:?}");
        } else {
            assert_eq!(found[attribute::HTTP_REQUEST_METHOD], operation);
            assert_eq!(found[attribute::HTTP_ROUTE], destination);
            assert_eq!(found[attribute::HTTP_RESPONSE_STATUS_CODE], "202");
            assert_eq!(found[attribute::URL_SCHEME], "http");
        }
    }
}
