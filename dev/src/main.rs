//! `cargo dev`.

fn main() {}
