//! A Pub/Sub emulator for tests and development.
//!
//! It must never need anything of `wakeq`, and never starts a process.

pub mod broker;
mod clock;
mod config;
mod emulator;
pub mod proto;
mod provision;
mod server;

pub use broker::{FaultCode, Faults, Method, NextCalls};
pub use clock::{Clock, ManualClock};
pub use config::{Config, ConfigError};
pub use emulator::{Emulator, Options, start};
pub use provision::{Provision, ProvisionError, Provisioned, ShortFormError};
