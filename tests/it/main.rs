//! The only integration test binary.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "clippy.toml allows them in tests, but not in their helpers"
)]

mod scenarios;
mod simulation;
mod tidy;
mod world;
