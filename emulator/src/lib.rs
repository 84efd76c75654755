//! Finds, starts and provisions a Pub/Sub emulator.
