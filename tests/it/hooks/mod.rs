//! Hooks: put through the API, and called by senders of each kind, whose signatures are computed
//! here.

mod bodies;
mod callers;
mod life;
pub(crate) mod signing;
