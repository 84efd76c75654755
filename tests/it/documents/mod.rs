//! What documents say, run as it stands: SQL, shell lines, and the programs in `examples/`.

mod batches;
mod checkpoints;
mod examples;
mod finish;
mod limits;
mod llms;
mod options;
mod pages;
mod routes;
mod search;
mod sql;
mod unique;
