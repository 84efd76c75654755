//! A small OpenTelemetry collector on loopback: it accepts OTLP over HTTP and keeps what it
//! receives.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::sync::watch;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::TIMEOUT;

pub(super) struct Collector {
    /// The value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(super) url: String,
    received: watch::Receiver<ReceivedTelemetry>,
    _server: MockServer,
}

/// Everything that was received; of each metric only the latest points, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivedTelemetry {
    pub(super) spans: Vec<Span>,
    pub(super) metrics: BTreeMap<String, Metric>,
    /// Attributes of the resource that sent them.
    pub(super) resource: BTreeMap<String, String>,
}

/// A point of a metric: its attributes, and its value or its number of measurements.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let server = MockServer::builder().start().await;
        let (sender, received) = watch::channel(ReceivedTelemetry::default());
        let take = move |request: &Request| {
            sender.send_modify(|received| received.take(request));
            ResponseTemplate::new(200)
        };
        Mock::given(method("POST")).respond_with(take).mount(&server).await;
        Self { url: server.uri(), received, _server: server }
    }

    /// Waits until what was received satisfies this.
    pub(super) async fn until(
        &self,
        words: &str,
        has: impl Fn(&ReceivedTelemetry) -> bool,
    ) -> ReceivedTelemetry {
        let mut received = self.received.clone();
        let waited = tokio::time::timeout(TIMEOUT, received.wait_for(|received| has(received))).await;
        match waited.map(|found| found.unwrap().clone()) {
            Ok(found) => found,
            Err(_) => panic!("{words} did not come: {:#?}", *self.received.borrow()),
        }
    }

    pub(super) fn received(&self) -> ReceivedTelemetry {
        self.received.borrow().clone()
    }
}

impl ReceivedTelemetry {
    fn take(&mut self, request: &Request) {
        let body = request.body.as_slice();
        match request.url.path() {
            "/v1/traces" => self.take_spans(ExportTraceServiceRequest::decode(body).unwrap()),
            "/v1/metrics" => self.take_metrics(ExportMetricsServiceRequest::decode(body).unwrap()),
            other => panic!("nobody sends to {other}"),
        }
    }

    fn take_spans(&mut self, request: ExportTraceServiceRequest) {
        for resource in request.resource_spans {
            self.resource = attributes(&resource.resource.unwrap_or_default().attributes);
            self.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }

    fn take_metrics(&mut self, request: ExportMetricsServiceRequest) {
        let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            self.metrics.insert(metric.name.clone(), metric);
        }
    }

    /// The spans of a trace.
    pub(super) fn of_trace(&self, trace: &str) -> Vec<&Span> {
        self.spans.iter().filter(|span| hex(&span.trace_id) == trace).collect()
    }

    pub(super) fn points(&self, name: &str) -> Vec<Point> {
        self.metrics.get(name).map(points).unwrap_or_default()
    }

    /// The sum of the points with these attributes.
    pub(super) fn sum(&self, name: &str, wanted: &[(&str, &str)]) -> f64 {
        let fits = |point: &Point| {
            wanted.iter().all(|(key, value)| point.attributes.get(*key).is_some_and(|found| found == value))
        };
        self.points(name).into_iter().filter(fits).map(|point| point.value).sum()
    }
}

fn points(metric: &Metric) -> Vec<Point> {
    let number = |point: &opentelemetry_proto::tonic::metrics::v1::NumberDataPoint| Point {
        attributes: attributes(&point.attributes),
        value: match point.value {
            Some(number_data_point::Value::AsDouble(value)) => value,
            Some(number_data_point::Value::AsInt(value)) => value as f64,
            None => f64::NAN,
        },
    };
    match metric.data.as_ref().unwrap() {
        metric::Data::Gauge(gauge) => gauge.data_points.iter().map(number).collect(),
        metric::Data::Sum(sum) => sum.data_points.iter().map(number).collect(),
        metric::Data::Histogram(histogram) => histogram
            .data_points
            .iter()
            .map(|point| Point { attributes: attributes(&point.attributes), value: point.count as f64 })
            .collect(),
        other @ (metric::Data::ExponentialHistogram(_) | metric::Data::Summary(_)) => {
            panic!("nobody sends {other:?}")
        }
    }
}

pub(super) fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    list.iter().map(|pair| (pair.key.clone(), text(pair.value.as_ref()))).collect()
}

fn text(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
