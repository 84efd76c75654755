//! I/O.
mod push;
