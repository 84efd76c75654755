//! The only integration test binary.

mod tidy;
