//! Limits over all workers: their definitions, claims through them, and waking what waits for a
//! place.
//!
//! Who holds a place is said by claims alone: a holder whose claim does not stand has none, so
//! nothing is given back and nothing is counted down. The functions in the migrations decide, under
//! the row of each limit. Nothing here publishes.

mod claims;
mod definitions;
mod uses;
mod waking;

pub(crate) use claims::{LimitedClaim, LimitedClaims};
pub(crate) use definitions::PutLimit;
pub(crate) use waking::{LimitsWithRoom, WokenEvent};
