//! The state machine that every notification runs through. Pure: no I/O, no clock, no randomness, no task.
//!
//! `docs/state_machine.md` draws it, and a test holds the drawing to the code.

mod look;
mod outcome;
mod policy;
mod run;
#[cfg(test)]
mod tests;

pub use look::{Standing, look};
pub use outcome::Outcome;
pub use policy::{Policy, RetryPolicy};
pub use run::{
    Answer, Claimed, Effect, Input, Ran, Removal, Running, State, Transition, UnexpectedInput, When,
};

pub use crate::event::{Cause, Schedule};
