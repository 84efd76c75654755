//! Registered queues: their registration, and the turns in which the copies that emits make are
//! taken.

mod admin;
mod depth;
mod handlers;
mod leases;
mod pulls;
mod registration;
mod turns;
mod upkeep;

pub use admin::{Facet, FacetSettings, RegisteredQueue};
pub use depth::QueueDepth;
pub(crate) use handlers::{DuePlace, LeasedEvents};
pub use leases::Lease;
pub(crate) use leases::LeasePosition;
pub(crate) use pulls::{Fence, LeasedRow, PulledSplit};
pub(crate) use registration::{NewQueueRow, QueuePut};
#[cfg(test)]
pub(in crate::store) use turns::TurnOutcome;
pub(crate) use turns::TurnRequest;
