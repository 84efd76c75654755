//! What documents say, run as it stands: SQL, shell lines, and the programs in `examples/`.

mod checkpoints;
mod examples;
mod finish;
mod options;
mod pages;
mod sql;
mod unique;
