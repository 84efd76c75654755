//! The real state machine in simulated worlds: stories, and thousands of random ones.

mod over_the_emulator;
mod random_worlds;
mod scenarios;
pub(crate) mod world;
