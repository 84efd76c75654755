//! The only integration test binary.
