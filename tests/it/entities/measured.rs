//! What a processor says of itself in metrics.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Encoder, Registry, TextEncoder};
use wakeq::{Applied, CanvasId, Entity, EntityEvent, EntityId, Rejection};

use super::{Balance, Bank, Change, accept, config, withdraw};

/// A type that no other test has, since metrics are of the whole process.
struct Metered;

impl Entity for Metered {
    const TYPE: &'static str = "metered";
    type State = Balance;
    type Event = Change;

    fn validate(_: &Balance, _: &Change) -> Result<(), Rejection> {
        Ok(())
    }

    fn apply(balance: Balance, _: &Change) -> Applied<Balance> {
        Applied::new(balance)
    }
}

/// Where the metrics of this process are gathered, from its first use on.
static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let registry = Registry::new();
    let exporter = opentelemetry_prometheus::exporter().with_registry(registry.clone()).build().unwrap();
    opentelemetry::global::set_meter_provider(SdkMeterProvider::builder().with_reader(exporter).build());
    registry
});

/// What is gathered by now, as Prometheus finds it. What is counted before the first call is not.
pub(crate) fn gathered() -> String {
    let mut text = Vec::new();
    TextEncoder::new().encode(&REGISTRY.gather(), &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// The series of the type, by their names; their labels name the type and nothing of a tenant.
fn series() -> BTreeMap<String, f64> {
    let text = gathered();
    let own = text.lines().filter(|line| line.contains("wakeq_entity_type=\"metered\""));
    let named = own.filter_map(|line| {
        assert!(!line.contains("ada") && !line.contains("00000000-0000"), "{line}");
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.split('{').next()?.to_owned(), value.parse().ok()?))
    });
    named.collect()
}

/// Each batch and each warm-up is timed, by type; and it is told that no warm-up goes on.
#[tokio::test]
async fn batches_and_warm_ups_are_timed() {
    LazyLock::force(&REGISTRY);
    let bank = Bank::open().await;
    let processor = bank.processor_of::<Metered>(config());
    let send = async |canvas| {
        let ada = EntityId::new(canvas, "metered", "ada").unwrap();
        let sent = bank.entities.send(&ada, EntityEvent::of(&Change::Report).unwrap()).await.unwrap();
        bank.ended_on(canvas, sent.id.0).await;
    };
    for epoch in [1, 2] {
        accept(&processor, epoch).await;
        // One after the other, of two canvases: a batch each.
        send(CanvasId::DEFAULT).await;
        send(CanvasId(uuid::Uuid::from_u128(7))).await;
        withdraw(&processor).await;
    }
    let series = series();
    let value = |name: &str| series.get(&format!("wakeq_entity_{name}")).copied();
    assert_eq!(value("warm_up_duration_seconds_count"), Some(2.0), "{series:#?}");
    assert_eq!((value("batch_duration_seconds_count"), value("warming")), (Some(4.0), Some(0.0)));
    for name in ["batch_duration_seconds_sum", "warm_up_duration_seconds_sum"] {
        assert!(value(name).is_some_and(|seconds| seconds > 0.0 && seconds < 60.0), "{series:#?}");
    }
}
