//! The only integration test binary.
#![allow(clippy::print_stdout, reason = "figures, shown by `cargo test -- --nocapture`")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod access;
mod admin;
mod canvases;
mod cli;
mod clients;
mod crons;
mod database;
mod deploy;
mod documents;
mod edge;
mod emit;
mod hooks;
mod http;
mod limits;
mod listening;
mod log;
mod notify;
mod order;
mod pages;
mod processes;
mod pulled;
mod push;
mod queues;
mod simulation;
mod streams;
mod support;
mod targets;
mod telemetry;
mod testing;
mod tidy;
mod worker;
