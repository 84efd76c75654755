//! The only integration test binary.

mod brokers;
mod notify;
mod notify_google;
mod notify_memory;
