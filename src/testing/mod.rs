//! For the tests of programs that use wakeq.

mod notifier;

pub use notifier::{Faults, MemoryNotifier};
