//! The only integration test binary.
#![allow(clippy::print_stdout, reason = "figures, shown by `cargo test -- --nocapture`")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod basics;
mod brokers;
mod documents;
mod emitting;
mod notify;
mod notify_google;
mod notify_memory;
mod operating;
mod packages;
mod scenarios;
mod schema;
mod simulation;
mod support;
mod tidy;
mod together;
mod world;
