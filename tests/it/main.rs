//! The only integration test binary.
#![allow(clippy::print_stdout, reason = "figures, shown by `cargo test -- --nocapture`")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod basics;
mod brokers;
mod cli;
mod control;
mod documents;
mod door;
mod emit;
mod hostile;
mod notify;
mod notify_google;
mod notify_memory;
mod operations;
mod packages;
mod scenarios;
mod schema;
mod simulation;
mod states;
mod support;
mod tidy;
mod together;
mod worker;
mod worker_failures;
mod worker_lot;
mod worker_shutdown;
mod world;
