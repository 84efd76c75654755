//! Crons on Postgres: when they tick, what becomes of the last tick, how they are changed, and
//! schedulers that run beside each other.

mod changes;
pub(crate) mod last_events;
pub(crate) mod ticks;
mod two_schedulers;
