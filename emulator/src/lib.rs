//! A Pub/Sub emulator for tests and development.
//!
//! It must never depend on `wakeq`, nor start a process.

pub mod broker;
mod clock;
mod config;
mod emulator;
mod provision;
mod server;

pub use broker::{FaultCode, Faults, Method, NextCalls};
pub use clock::{Clock, ManualClock};
pub use config::{Config, ConfigError};
pub use emulator::{Emulator, Options, start};
/// The messages of the protocol.
pub use wakeq_emulator_proto as proto;

pub use provision::{Provision, ProvisionCounts, ProvisionError, ShortFormError};
