//! Registered queues: their registration, the copies that emits make, and the turns in which they
//! are taken.

mod admin;
mod depth;
mod leases;
mod placements;
mod pulls;
mod registration;
mod registry;
mod turns;
mod upkeep;

pub use admin::{Facet, FacetSettings, RegisteredQueue};
pub use depth::QueueDepth;
pub use leases::Lease;
pub(crate) use leases::LeasePosition;
pub(super) use placements::Placements;
pub(crate) use pulls::{Fence, LeasedRow, PulledSplit};
pub(crate) use registration::{NewQueueRow, QueuePut};
pub use registry::Emission;
pub(super) use registry::{QueueRegistry, RegistryCache, STALE_TRIES, too_busy};
pub(crate) use turns::{TurnOutcome, TurnRequest};
