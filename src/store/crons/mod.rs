//! Crons: their records, and the ticks that become events. When a schedule ticks is decided
//! elsewhere.

mod records;
mod runs;
mod ticks;

pub(crate) use records::{CronPut, CronRow, CronUnpaused, NewCronRow};
pub(crate) use runs::CronRun;
pub(crate) use ticks::{CronDue, CronStep, TickOutcome};
