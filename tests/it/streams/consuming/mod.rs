//! Consumers over a log: the same tests with each provider and each store of positions.

mod answers;
mod bytes;
mod failures;
mod flow;
mod measured;
mod scene;
