//! Crons on Postgres: when they tick, how they are changed, and schedulers that run beside each
//! other.

mod changes;
pub(crate) mod ticks;
mod two_schedulers;
