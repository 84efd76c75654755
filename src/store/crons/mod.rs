//! Crons: their records, the ticks that become events, and what became of the last ones. When a
//! schedule ticks is decided elsewhere.

mod last_events;
mod records;
mod runs;
mod ticks;

pub(crate) use last_events::{LastEvent, LastEventPlace};
pub(crate) use records::{CronPut, CronRow, CronUnpaused, NewCronRow};
pub(crate) use runs::CronRun;
pub(crate) use ticks::{CronDue, CronStep, TickOutcome};
