//! Exports to a collector: OTLP over HTTP, configured by the `OTEL_` variables.
//!
//! The SDK exports from threads of its own; requests are made on the runtime of the process.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithHttpConfig};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Request timeout, unless `OTEL_EXPORTER_OTLP_TIMEOUT` overrides it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read of a collector's answer.
const ANSWER_BYTES: usize = 64 * 1024;

/// The exporters of metrics and of spans.
pub(super) fn exporters() -> anyhow::Result<(MetricExporter, SpanExporter)> {
    let collector = Collector::new()?;
    let advice = "the only supported OTLP protocol is `http/protobuf` \
                  (OTEL_EXPORTER_OTLP_PROTOCOL), on a collector's port 4318; also check the other \
                  OTEL_EXPORTER_OTLP_ variables";
    let metrics = MetricExporter::builder().with_http().with_http_client(collector.clone()).build();
    let spans = SpanExporter::builder().with_http().with_http_client(collector).build();
    Ok((metrics.context(advice)?, spans.context(advice)?))
}

/// The client, and the runtime that it uses.
#[derive(Clone, Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
}

impl Collector {
    fn new() -> anyhow::Result<Self> {
        let asked = std::env::var("OTEL_EXPORTER_OTLP_TIMEOUT").ok().and_then(|text| text.parse().ok());
        let client = reqwest::Client::builder()
            .timeout(asked.map_or(TIMEOUT, Duration::from_millis))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("wakeq/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("make a client for the collector")?;
        Ok(Self { client, runtime: Handle::current() })
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move { send(&client, request).await });
        AbortOnDropHandle::new(sending).await?
    }
}

async fn send(client: &reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut answer = client.execute(request.try_into()?).await?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > ANSWER_BYTES {
            return Err("the collector's answer is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = answer.status();
    *response.headers_mut() = std::mem::take(answer.headers_mut());
    Ok(response)
}
