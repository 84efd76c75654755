//! The HTTP API.

mod emit;
