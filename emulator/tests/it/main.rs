//! The emulator from outside.

#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "tests")]

mod server;
