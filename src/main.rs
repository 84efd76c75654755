//! The `wakeq` command.

fn main() {}
