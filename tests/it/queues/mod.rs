//! Registered queues: their copies, how workers and services take them, and who sees them.

mod copies;
mod crashes;
mod pulls;
mod registration;
pub(crate) mod turns;
