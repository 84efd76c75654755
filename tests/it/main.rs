//! The only integration test binary.
#![allow(clippy::print_stdout, reason = "figures, shown by `cargo test -- --nocapture`")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod basics;
mod brokers;
mod children;
mod crashes;
mod documents;
mod emitting;
mod idle;
mod leases;
mod many;
mod notify;
mod notify_google;
mod notify_memory;
mod operating;
mod packages;
mod scenarios;
mod schema;
mod simulation;
mod support;
mod theatre;
mod tidy;
mod together;
mod world;
