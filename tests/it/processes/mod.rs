//! Processes: how they run, share the work, end and die.

mod checkpoints;
mod killed;
mod leases;
mod limits;
mod local;
mod scaling_out;
mod several;
mod transactions;
pub(crate) mod work;
