//! A Pub/Sub emulator for tests and development.
//!
//! It must never need anything of `wakeq`, and never starts a process.

pub mod broker;
mod clock;
mod emulator;
pub mod proto;
mod server;

pub use broker::{FaultCode, Faults, Method, NextCalls};
pub use clock::{Clock, ManualClock};
pub use emulator::{Emulator, Options, start};
