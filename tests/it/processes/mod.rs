//! Processes: how they run, share the work, end and die.

mod killed;
mod leases;
mod local;
mod scaling_out;
mod several;
pub(crate) mod work;
