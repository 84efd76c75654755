//! The only integration test binary.

mod scenarios;
mod simulation;
mod world;
