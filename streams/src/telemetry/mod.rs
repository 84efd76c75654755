//! The metrics of consumers, brokers and processors of entities. It knows nothing of the other
//! modules.
//!
//! They go to the program's OpenTelemetry provider, if there is one. Nothing here exports, and
//! nothing here may fail or slow down what it measures.

mod brokering;
mod consuming;
mod entities;

pub(crate) use brokering::BrokerMetrics;
pub use brokering::{GroupGauge, GroupGauges, GroupsGauge};
pub(crate) use consuming::ConsumerMetrics;
pub(crate) use entities::EntityMetrics;
