//! What runs by the minute's pass: overdue promises, and what is deleted because it is too old or
//! no longer used. A row of `chores` lets one process through. And the rows of workers, each of
//! which its process writes in every pass, and those of programs that lease events.

mod chores;
mod expiry;
mod history;
mod idle;
mod missed;
mod parts;
mod programs;
mod workers;

pub(crate) use chores::{MakingDue, MinuteOutcome};
pub(crate) use expiry::ExpiryPart;
pub(in crate::store) use expiry::IDEMPOTENCY_KEPT;
pub use expiry::Retention;
pub(crate) use idle::IdleRetention;
#[cfg(test)]
pub(crate) use missed::MISSED_PAGE;
pub(crate) use missed::MissedCursor;
pub use programs::Program;
pub(crate) use programs::ProgramPosition;
pub(crate) use workers::{Activity, Attendance, NewWorker, SlowedAddress, WorkerPosition};
pub use workers::{Worker, WorkerRun, WorkerState, WorkerSummary};
