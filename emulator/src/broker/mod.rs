//! The broker: topics, subscriptions, messages and leases, without any I/O.

mod delivery;
mod faults;
mod message;
mod refusal;
mod streams;
mod time;

pub use delivery::Figures;
pub use faults::Faults;
pub use message::Message;
pub use refusal::{Answer, Reason, Refusal};
pub use streams::StreamId;
pub use time::Time;
