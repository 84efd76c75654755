//! A processor's metrics.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Encoder, Registry, TextEncoder};
use wakeq::CanvasId;
use wakeq_streams::{Applied, Entity, EntityConfig, EntityEvent, Rejection};

use super::{Balance, Bank, Change, OTHER, accept, config, like_accounts, of, withdraw};
use crate::support::wait_while;

// A type that no other test has, since metrics are process-wide.
like_accounts! { Metered "metered" }

/// Whether the hanging event continues.
static GOES_ON: AtomicBool = AtomicBool::new(false);

/// Another type: its withdrawals are invalid, and its events can panic, hang, and grow the state.
struct Counted;

impl Entity for Counted {
    const TYPE: &'static str = "counted";
    type State = Balance;
    type Event = Change;

    fn validate(_: &Balance, change: &Change) -> Result<(), Rejection> {
        if matches!(change, Change::Withdraw { .. }) { Err(Rejection::new("no")) } else { Ok(()) }
    }

    fn apply(mut balance: Balance, change: &Change) -> Applied<Balance> {
        while matches!(change, Change::Meet) && !GOES_ON.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        assert!(!matches!(change, Change::Panics), "apply was told to");
        if let Change::Note { bytes } = change {
            balance.note = "x".repeat(*bytes);
        }
        Applied::new(balance)
    }
}

/// The registry of this process's metrics, installed on first use.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::new();
    let exporter = opentelemetry_prometheus::exporter().with_registry(registry.clone()).build().unwrap();
    opentelemetry::global::set_meter_provider(SdkMeterProvider::builder().with_reader(exporter).build());
    registry
});

/// The metrics so far, as Prometheus scrapes them. Anything counted before the first call is
/// missing.
pub(crate) fn gathered() -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(&REGISTRY.gather(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// The series of a type, by name and, if they have one, outcome; their labels name the type and
/// nothing of a tenant.
fn series(entity_type: &str) -> BTreeMap<String, f64> {
    let text = gathered();
    let label = format!("wakeq_entity_type=\"{entity_type}\"");
    let own = text.lines().filter(|line| line.contains(&label));
    let named = own.filter_map(|line| {
        assert!(!line.contains("ada") && !line.contains("00000000-0000"), "{line}");
        let (labelled, value) = line.rsplit_once(' ')?;
        let name = labelled.split('{').next()?;
        let outcome =
            labelled.split_once("wakeq_entity_outcome=\"").and_then(|(_, rest)| rest.split('"').next());
        let name = outcome.map_or(name.to_owned(), |outcome| format!("{name} {outcome}"));
        Some((name, value.parse().ok()?))
    });
    named.collect()
}

/// Returns once this many entities of a type are isolated.
async fn until_isolated(entity_type: &str, count: f64) {
    // Metrics do not signal changes.
    let is_so = || series(entity_type).get("wakeq_entity_aside") == Some(&count);
    wait_while!(!is_so(), "so many are isolated");
}

/// Each batch and each warm-up is timed, by type, and the gauge shows no warm-up in progress.
#[tokio::test]
async fn batches_and_warm_ups_are_timed() {
    LazyLock::force(&REGISTRY);
    let bank = Bank::open().await;
    let processor = bank.processor_of::<Metered>(config());
    for epoch in [1, 2] {
        accept(&processor, epoch).await;
        // One after the other, on two canvases: a batch each.
        for canvas in [CanvasId::DEFAULT, OTHER] {
            bank.sent_to(&of(canvas, "metered", "ada"), EntityEvent::of(&Change::Report).unwrap()).await;
        }
        withdraw(&processor).await;
    }
    let series = series("metered");
    let value = |name: &str| series.get(&format!("wakeq_entity_{name}")).copied();
    assert_eq!(value("warm_up_duration_seconds_count"), Some(2.0), "{series:#?}");
    assert_eq!((value("batch_duration_seconds_count"), value("warming")), (Some(4.0), Some(0.0)));
    for name in ["batch_duration_seconds_sum", "warm_up_duration_seconds_sum"] {
        assert!(value(name).is_some_and(|seconds| seconds > 0.0 && seconds < 60.0), "{series:#?}");
    }
}

/// Decisions are counted by outcome, including those on isolated entities; so are stalls, isolated
/// entities, evictions and loads. Canvases are counted together.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn decisions_memory_and_stalls_are_counted() {
    LazyLock::force(&REGISTRY);
    let bank = Bank::open().await;
    let limits = EntityConfig { actors: 1, memory_limit_bytes: 4096, ..config() };
    let processor = bank.processor_of::<Counted>(EntityConfig { stall: Duration::from_secs(1), ..limits });
    accept(&processor, 1).await;
    let send = async |canvas, name: &str, change: Change| {
        bank.sent_to(&of(canvas, "counted", name), EntityEvent::of(&change).unwrap()).await
    };
    let note = |bytes| Change::Note { bytes };
    // Three that do not fit together; the first one is loaded again.
    for (canvas, name) in [(CanvasId::DEFAULT, "ada"), (OTHER, "ada"), (CanvasId::DEFAULT, "bob")] {
        send(canvas, name, note(700)).await;
    }
    send(CanvasId::DEFAULT, "ada", note(700)).await;
    send(OTHER, "ada", Change::Withdraw { cents: 1 }).await;
    send(CanvasId::DEFAULT, "bob", Change::Panics).await;
    let memory = series("counted")["wakeq_entity_memory_bytes"];
    assert!(memory > 256.0 && memory <= 4096.0, "{memory}");
    until_isolated("counted", 0.0).await;
    tokio::join!(send(OTHER, "ada", Change::Meet), until_isolated("counted", 1.0));
    until_isolated("counted", 0.0).await;
    GOES_ON.store(true, Ordering::SeqCst);
    withdraw(&processor).await;
    let series = series("counted");
    let value = |name: &str| series.get(&format!("wakeq_entity_{name}")).copied().unwrap_or_default();
    let decided = ["processed", "rejected", "dead"].map(|outcome| value(&format!("decided_total {outcome}")));
    assert_eq!(decided, [4.0, 1.0, 2.0], "{series:#?}");
    // The actor that hung was replaced by one without anything in memory.
    assert_eq!(value("memory_bytes"), 0.0, "{series:#?}");
    assert!(value("evicted_total") >= 1.0 && value("loaded_total") >= 1.0, "{series:#?}");
    // The event was alone in its batch, so that stall is one of its three attempts.
    assert_eq!(value("stalled_total"), 3.0, "{series:#?}");
}
