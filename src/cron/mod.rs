//! When a cron ticks: expressions, zones, daylight saving, and what happens to missed ticks.
//!
//! Pure: the clock is an argument, and nothing here knows a table or an event. What a row may hold
//! is checked here when it is made.

mod plan;
mod schedule;
mod words;
mod zone;

#[cfg(test)]
mod tests;

pub use plan::MissedTicks;
#[cfg(test)]
use plan::Plan;
pub(crate) use plan::{MAKE_UP_MAX, Moment, plan};
pub use schedule::{CronSchedule, InvalidSchedule};
pub use words::in_words;
