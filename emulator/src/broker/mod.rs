//! The broker: topics, subscriptions, messages and leases, without any I/O.

mod message;
mod refusal;
mod time;

pub use message::Message;
pub use refusal::{Answer, Reason, Refusal};
pub use time::Time;
