//! The log of a command: to standard error, as text for people or as JSON for Cloud Logging.
//!
//! Must not decide what is worth logging, and adds nothing to it.

use std::fmt;
use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use opentelemetry::trace::TraceContextExt;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::layer::{Filter, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};

use super::failure::causes;
use crate::config::on_cloud_run;
use wakeq::internals::telemetry::TRACES;

/// Turns spans into traces, in addition to the log.
pub(super) type Traces = Box<dyn Layer<Registry> + Send + Sync>;

/// Crates that handle network traffic.
const WIRE: [&str; 11] = [
    "axum",
    "h2",
    "hyper",
    "hyper_util",
    "reqwest",
    "rustls",
    "sqlx",
    "sqlx_core",
    "sqlx_postgres",
    "tonic",
    "tower",
];

#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogArgs {
    /// Log format on standard error [default: text, on Cloud Run json]
    #[arg(long, env = "WAKEQ_LOG_FORMAT", global = true, ignore_case = true)]
    log_format: Option<Format>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Human-readable lines
    Text,
    /// One JSON object per line, with Cloud Logging's field names
    Json,
}

/// Starts logging: long-running processes log what they do, other commands only problems that their
/// errors don't name, and nothing that was merely slow, unless `RUST_LOG` says otherwise.
///
/// `traces` receives the spans in addition, which `RUST_LOG` does not filter.
pub(crate) fn start(arguments: LogArgs, is_long_running: bool, traces: Option<Traces>) {
    let usual = if is_long_running { "info" } else { "warn,sqlx=error" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let filter = filter.and(filter_fn(|metadata| {
        let target = metadata.target();
        target != TRACES && *metadata.level() <= most_verbose(target)
    }));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let format = arguments.log_format.unwrap_or(if on_cloud_run() { Format::Json } else { Format::Text });
    let registry = tracing_subscriber::registry().with(traces);
    match format {
        Format::Json => {
            let project = std::env::var("GOOGLE_CLOUD_PROJECT").ok().filter(|project| !project.is_empty());
            let lines = lines.fmt_fields(JsonFields::new()).event_format(CloudLogging { project });
            registry.with(lines.with_filter(filter)).init();
        }
        Format::Text => {
            let coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            registry.with(lines.with_ansi(coloured).with_filter(filter)).init();
        }
    }
}

/// Selects what belongs in a trace: the spans made for it, and what handlers record themselves. The
/// libraries' own spans would drown it, and exporting traces would create more of them.
pub(super) fn traced<S>() -> impl Filter<S> {
    filter_fn(|metadata| {
        let target = metadata.target();
        let krate = target.split("::").next().unwrap_or_default();
        let own = ["wakeq", "wakeq_streams", "wakeq_service"].contains(&krate)
            || krate.starts_with("opentelemetry");
        target == TRACES || (*metadata.level() <= Level::INFO && !own && !has_secrets(target))
    })
}

/// The most verbose level of a crate that is logged, whatever `RUST_LOG` says: beyond it, a message
/// may reveal bytes, headers or parameters, and those of MCP the values of events.
fn most_verbose(target: &str) -> Level {
    let krate = target.split("::").next().unwrap_or_default();
    if krate == "rmcp" {
        Level::INFO
    } else if WIRE.contains(&krate) || krate.starts_with("google_cloud_") {
        Level::DEBUG
    } else {
        Level::TRACE
    }
}

fn has_secrets(target: &str) -> bool {
    most_verbose(target) != Level::TRACE
}

/// One object per line: `severity`, `message` and `time`, as Cloud Logging names them, and the
/// fields of the event and its spans. If the project is known, the line also names its trace.
struct CloudLogging {
    project: Option<String>,
}

impl CloudLogging {
    /// Adds the trace of the current span if traces are recorded, otherwise the one in the log's
    /// fields.
    fn trace(&self, entry: &mut Map<String, Value>) {
        let Some(project) = &self.project else { return };
        let context = opentelemetry::Context::current();
        let around = context.span().span_context().clone();
        let trace = if around.is_valid() {
            entry.insert("logging.googleapis.com/spanId".into(), around.span_id().to_string().into());
            entry.insert("logging.googleapis.com/trace_sampled".into(), around.is_sampled().into());
            around.trace_id().to_string()
        } else if let Some(Value::String(known)) = entry.get("trace_id") {
            known.clone()
        } else {
            return;
        };
        let name = format!("projects/{project}/traces/{trace}");
        entry.insert("logging.googleapis.com/trace".into(), name.into());
    }
}

impl<S, N> FormatEvent<S, N> for CloudLogging
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut entry = Map::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<N>>().map(|fields| fields.fields.as_str());
            if let Some(Ok(Value::Object(fields))) = fields.map(serde_json::from_str) {
                entry.extend(fields);
            }
        }
        event.record(&mut Fields(&mut entry));
        self.trace(&mut entry);
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let metadata = event.metadata();
        entry.insert("severity".into(), severity(*metadata.level()).into());
        entry.insert("time".into(), time.into());
        entry.insert("target".into(), metadata.target().into());
        writeln!(writer, "{}", Value::Object(entry))
    }
}

fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, causes(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_may_show_values_is_not_logged() {
        for (target, level) in [
            ("rmcp::service", Level::INFO),
            ("hyper::proto::h1", Level::DEBUG),
            ("google_cloud_gax", Level::DEBUG),
            ("wakeq::worker", Level::TRACE),
        ] {
            assert_eq!(most_verbose(target), level, "{target}");
        }
    }

    #[test]
    fn cloud_logging_finds_its_fields() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .fmt_fields(JsonFields::new())
            .event_format(CloudLogging { project: Some("shop".into()) })
            .finish();
        let broken = io::Error::other("it \"broke\"\nin two");
        tracing::subscriber::with_default(subscriber, || {
            let span =
                tracing::info_span!("run", event = "e1", attempt = tracing::field::Empty, trace_id = "4bf9");
            span.record("attempt", 2);
            let _inside = span.enter();
            tracing::warn!(error = &broken as &dyn std::error::Error, count = 3_u64, "went {}", "wrong");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let entry: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let field = |name: &str| entry.get(name).cloned().unwrap_or_default();
        assert_eq!((field("severity"), field("message")), ("WARNING".into(), "went wrong".into()));
        assert_eq!((field("event"), field("attempt"), field("count")), ("e1".into(), 2.into(), 3.into()));
        assert_eq!(field("logging.googleapis.com/trace"), "projects/shop/traces/4bf9");
        assert_eq!(field("error"), "it \"broke\" in two");
        let time = field("time");
        assert!(chrono::DateTime::parse_from_rfc3339(time.as_str().unwrap()).is_ok(), "{time}");
    }
}
