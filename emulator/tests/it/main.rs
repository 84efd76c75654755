//! The emulator from outside.

#![allow(clippy::unwrap_used, reason = "tests")]

mod admin;
mod endpoints;
mod inbox;
