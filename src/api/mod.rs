//! The JSON of the API: what the server writes and the command line reads, and the other way round.
//!
//! Plain data and conversions; no I/O, no decisions.

mod handlers;
mod list;

pub(crate) use handlers::Handler;
pub(crate) use list::List;
