//! A Pub/Sub emulator for tests and development.

pub mod broker;
mod clock;
mod config;
mod emulator;
mod google;
mod locate;
mod port;
mod process;
pub mod proto;
mod provision;
mod server;
mod source;
mod watchdog;

pub use broker::{FaultCode, Faults, Method, NextCalls};
pub use clock::{Clock, ManualClock};
pub use config::{Config, ConfigError};
pub use emulator::{Emulator, Options, start};
pub use google::{EmulatorError, GoogleEmulator};
pub use locate::{Installation, NotInstalled, find, program_on_path};
pub use port::free_port;
pub use process::{Ending, Guard, Guarded, Launch, ProcessError, RunAs};
pub use provision::{Provision, ProvisionError, Provisioned, ShortFormError};
pub use source::Source;
