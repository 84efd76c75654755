//! What `wakeq doctor` asks the server: facts, without judgement. Nothing here changes anything.

mod locks;
mod role;
mod server;
mod tables;

pub(crate) use locks::HeldLock;
pub(crate) use role::{Right, RolePowers};
pub(crate) use server::{HeldSnapshot, Server, Settings};
pub(crate) use tables::{Chores, TableSize, UnknownHandler};
