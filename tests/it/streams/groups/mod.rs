//! Consumer groups whose nodes are processes, and die.

mod crashes;
pub(crate) mod node;
mod stage;
