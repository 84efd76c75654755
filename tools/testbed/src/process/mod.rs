//! Child processes: found, started on ports of their own, and ended with this process.
//!
//! It must never know what a program is for.

mod at_end;
mod guarded;
mod path;
mod port;
mod watchdog;

pub use at_end::AtEnd;
pub use guarded::{ChildProcess, Ending, Guard, Launch, ProcessError, RunAs};
pub use path::program_on_path;
pub use port::free_port;
