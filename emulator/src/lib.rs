//! A Pub/Sub emulator: the broker, and the protocol that it speaks.
//!
//! It must never need anything of `wakeq`, and never starts a process.
