//! One trace from a request to the handlers of the events it emitted, over the wire.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use serde_json::json;

use super::collector::{Collector, attributes, hex};
use super::{ObservedDeployment, conventions};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const UNSAMPLED: &str = "5cf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn named<'a>(spans: &[&'a Span], name: &str) -> Vec<&'a Span> {
    let mut found: Vec<&Span> = spans.iter().copied().filter(|span| span.name == name).collect();
    found.sort_by_key(|span| span.start_time_unix_nano);
    found
}

/// The service by its name, the process by an id of its own, and the attributes from the
/// environment.
fn says_who_it_is(resource: &BTreeMap<String, String>) {
    assert_eq!(resource["service.name"], "wakeq");
    assert_eq!(resource["deployment.environment.name"], "tests");
    assert!(uuid::Uuid::parse_str(&resource["service.instance.id"]).is_ok(), "two processes are two");
}

/// A request, the events it emits and every attempt at them are one trace, which is passed to the
/// target; a retry is linked to the span that emitted the event. Traces that the caller does not
/// sample are not exported, and the target receives that flag, too. Metrics are exported the same
/// way, with the names of the conventions.
// Shows: TELEMETRY-01
#[tokio::test]
async fn one_trace_leads_from_a_request_to_every_attempt() {
    let collector = Collector::start().await;
    let variables = [
        ("WAKEQ_TELEMETRY", "otlp"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=tests"),
    ];
    let mut whole = ObservedDeployment::start(&variables, json!({"retries": 1, "delay_s": 0.01})).await;
    let id = whole.client.emit("greet", Some(&format!("00-{TRACE}-{CALLER}-01"))).await;
    let first = whole.receiver.next().await;
    let parents = [first.header("traceparent").to_owned()];
    first.answer("500 Internal Server Error", &[]);
    let second = whole.receiver.next().await;
    let parents = [parents, [second.header("traceparent").to_owned()]].concat();
    second.answer("204 No Content", &[]);

    let unsampled = whole.client.emit("greet", Some(&format!("00-{UNSAMPLED}-{CALLER}-00"))).await;
    let third = whole.receiver.next().await;
    assert_eq!(third.header("webhook-id"), unsampled);
    let (trace, flags) = (&third.header("traceparent")[3..35], &third.header("traceparent")[53..]);
    assert_eq!((trace, flags), (UNSAMPLED, "00"));
    third.answer("200 OK", &[]);

    let received = collector
        .until("both attempts, and their durations", |received| {
            named(&received.of_trace(TRACE), "process WORKER/greet").len() == 2
                && received.sum("messaging.process.duration", &[]) == 3.0
                && !named(&received.of_trace(TRACE), "POST /v1/canvases/{canvas}/events").is_empty()
        })
        .await;
    let spans = received.of_trace(TRACE);
    let one = |name: &str| match named(&spans, name)[..] {
        [span] => span,
        _ => panic!("not one {name}: {spans:#?}"),
    };
    let request = one("POST /v1/canvases/{canvas}/events");
    assert_eq!((hex(&request.parent_span_id).as_str(), request.kind), (CALLER, SpanKind::Server as i32));
    let send = one("send WORKER/greet");
    assert_eq!((&send.parent_span_id, send.kind), (&request.span_id, SpanKind::Producer as i32));
    assert_eq!(attributes(&send.attributes)["messaging.message.id"], id);
    let attempts = named(&spans, "process WORKER/greet");
    for (attempt, parent) in attempts.iter().zip(&parents) {
        assert_eq!((&attempt.parent_span_id, attempt.kind), (&send.span_id, SpanKind::Consumer as i32));
        assert_eq!(*parent, format!("00-{TRACE}-{}-01", hex(&attempt.span_id)));
    }
    let links: Vec<Vec<_>> =
        attempts.iter().map(|span| span.links.iter().map(|link| link.span_id.clone()).collect()).collect();
    assert_eq!(links, [vec![], vec![send.span_id.clone()]], "the retry is linked");
    let status = attempts.iter().map(|span| span.status.clone().unwrap_or_default().code);
    assert_eq!(status.collect::<Vec<_>>(), [StatusCode::Error as i32, StatusCode::Unset as i32]);
    let failed = attributes(&attempts[0].attributes);
    assert_eq!((failed["error.type"].as_str(), failed["wakeq.attempt"].as_str()), ("error", "1"));
    assert!(attempts[0].events.iter().any(|event| event.name == "exception"), "{:?}", attempts[0].events);
    says_who_it_is(&received.resource);
    conventions::check_spans(&spans);
    conventions::check_metrics(&received);

    assert_eq!(whole.process.stop().await, Some(0));
    let received = collector.received();
    assert_eq!(received.of_trace(UNSAMPLED).len(), 0, "what is not sampled is not sent");
    // The first request, which registered the target, carried no trace and began one.
    assert!(
        received.spans.iter().any(|span| span.name.starts_with("PUT ") && span.parent_span_id.is_empty())
    );
    drop(whole.stage);
}

/// An unreachable collector delays nothing, and the process ends cleanly and in time.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_collector_that_is_away_holds_nothing_up() {
    let variables = [
        ("WAKEQ_TELEMETRY", "otlp"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
    ];
    let mut whole = ObservedDeployment::start(&variables, json!({})).await;
    for _ in 0..20 {
        whole.client.emit("greet", None).await;
        whole.receiver.next().await.answer("200 OK", &[]);
    }
    assert_eq!(whole.process.stop().await, Some(0));
    assert_eq!(whole.stage.rows().await, 0);
}
