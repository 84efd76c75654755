//! The metrics of consumers, brokers and processors of entities. It knows nothing of the other
//! modules.
//!
//! They go to the program's OpenTelemetry provider; without the feature `telemetry`, or without a
//! provider, they go nowhere. Nothing here exports, and nothing here may fail or slow down what it
//! measures.

#[cfg(feature = "telemetry")]
mod brokering;
#[cfg(feature = "telemetry")]
mod consuming;
#[cfg(feature = "telemetry")]
mod entities;
#[cfg(not(feature = "telemetry"))]
mod silent;

#[cfg(feature = "telemetry")]
pub(crate) use brokering::BrokerMetrics;
#[cfg(feature = "telemetry")]
pub use brokering::{GroupGauge, GroupGauges, GroupsGauge};
#[cfg(feature = "telemetry")]
pub(crate) use consuming::ConsumerMetrics;
#[cfg(feature = "telemetry")]
pub(crate) use entities::EntityMetrics;
#[cfg(not(feature = "telemetry"))]
pub(crate) use silent::{BrokerMetrics, ConsumerMetrics, EntityMetrics};
