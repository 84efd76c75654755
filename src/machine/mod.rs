//! The state machine that every notification runs through, and other decisions. Pure: no I/O, no
//! clock, no randomness, no tasks.
//!
//! `docs/state_machine.md` has the chart, and a test compares it with the code. A driver performs
//! [`State::effect`] and passes the answer to [`State::step`], until the effect is to wait or to
//! answer the notification:
//!
//! ```
//! use std::time::Duration;
//! use wakeq::machine::{Answer, Effect, Input, Outcome, Policy, State};
//!
//! let minutes = |count: u64| Duration::from_secs(60 * count);
//! let policy = Policy { lease: minutes(1), horizon: minutes(10), losses_max: 5, retry_delay_max: minutes(60), spreads: true };
//! let state = State::EventLoad;
//! assert_eq!(state.effect(), Effect::LoadEvent);
//! let transition = state.step(Input::Loaded(None), &policy).unwrap();
//! assert_eq!(transition.outcome, Outcome::EventMissing);
//! assert_eq!(transition.next.effect(), Effect::Answer(Answer::Acknowledge));
//! ```

mod check;
mod order;
mod outcome;
pub(crate) mod policy;
mod run;
mod running;
#[cfg(test)]
mod tests;

pub use check::{CheckResult, check_schedule};
pub use order::{Consumption, consume, pass_over};
pub use outcome::Outcome;
pub(crate) use policy::RetryPolicy;
pub use policy::{EventPolicy, Policy};
pub use run::{Answer, Effect, HandlerEnd, Input, Removal, State, Transition, UnexpectedInput, When};
pub use running::{Claimed, Running};

pub use crate::event::{Cause, Claim, Link, Schedule, Turn};
