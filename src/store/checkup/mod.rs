//! What `wakeq doctor` asks the server: facts, without a judgement. Nothing here changes anything.

mod locks;
mod server;
mod tables;

pub(crate) use locks::HeldLock;
pub(crate) use server::{HeldSnapshot, Right, Server, Settings};
pub(crate) use tables::{Chores, TableSize, Unknown};
