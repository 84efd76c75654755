//! A Pub/Sub emulator for tests and development.
//!
//! It must never need anything of `wakeq`, and never starts a process.

pub mod broker;
pub mod proto;

pub use broker::Faults;
