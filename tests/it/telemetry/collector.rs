//! A little OpenTelemetry collector on loopback: it takes OTLP over HTTP, and remembers what came.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::support::PATIENCE;

pub(super) struct Collector {
    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` has to be.
    pub(super) url: String,
    received: watch::Receiver<Received>,
    _serving: AbortOnDropHandle<()>,
}

/// Everything that came, the latest metrics by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    pub(super) spans: Vec<Span>,
    pub(super) metrics: BTreeMap<String, Metric>,
    /// Attributes of who sent them.
    pub(super) resource: BTreeMap<String, String>,
}

/// A point of a metric: its attributes, and its value or how often it was measured.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) attributes: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = watch::channel(Received::default());
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(take(stream, sender.clone()));
            }
        });
        Self { url, received, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Waits until what came has this.
    pub(super) async fn until(&self, words: &str, has: impl Fn(&Received) -> bool) -> Received {
        let mut received = self.received.clone();
        let waited = tokio::time::timeout(PATIENCE, received.wait_for(|received| has(received))).await;
        match waited.map(|found| found.unwrap().clone()) {
            Ok(found) => found,
            Err(_) => panic!("{words} did not come: {:#?}", *self.received.borrow()),
        }
    }

    pub(super) fn received(&self) -> Received {
        self.received.borrow().clone()
    }
}

/// The requests of a connection, one after the other.
async fn take(mut stream: TcpStream, received: watch::Sender<Received>) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).ok()?.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        let whole = end + 4 + length.parse::<usize>().ok()?;
        while bytes.len() < whole {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let body = &bytes[end + 4..whole];
        if head.starts_with("post /v1/traces") {
            let request = ExportTraceServiceRequest::decode(body).ok()?;
            received.send_modify(|received| received.take_spans(request));
        } else {
            assert!(head.starts_with("post /v1/metrics"), "{head}");
            let request = ExportMetricsServiceRequest::decode(body).ok()?;
            received.send_modify(|received| received.take_metrics(request));
        }
        bytes.drain(..whole);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
    }
}

impl Received {
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

    /// The spans of a trace, by how they are called.
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
