//! The questions of `wakeq doctor` to the server: facts, without judgement. Nothing here changes
//! anything.

mod locks;
mod role;
mod server;
mod strangers;
mod tables;

pub(crate) use locks::HeldLock;
pub(crate) use role::{Right, RolePowers};
pub(crate) use server::{HeldSnapshot, Server, Settings};
pub(crate) use strangers::Strangers;
pub(crate) use tables::{Chores, CrowdedLimit, ReleaseWorkers, Switched, TableSize, UnknownHandler};
