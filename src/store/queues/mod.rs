//! Registered queues: their registration, the copies that emits make, and the turns that are taken of them.

mod admin;
mod placements;
mod registry;
mod turns;

pub use admin::{Facet, FacetSettings, RegisteredQueue};
pub(crate) use admin::{NewQueueRow, QueuePut};
pub(super) use placements::Placements;
pub(crate) use registry::Emission;
pub(super) use registry::{Registered, RegistryCache, STALE_TRIES, too_busy};
pub(crate) use turns::TakenTurn;
