//! Finds and starts a Pub/Sub emulator, and owns the child processes that development and tests need.
//!
//! It must never need anything of `wakeq`, and never makes topics or subscriptions: a notifier does that.

mod google;
mod locate;
mod port;
mod process;
mod source;

pub use google::{EmulatorError, GoogleEmulator};
pub use locate::{Installation, NotInstalled, find, program_on_path};
pub use port::free_port;
pub use process::{Ending, Guard, Guarded, Launch, ProcessError, RunAs};
pub use source::Source;
