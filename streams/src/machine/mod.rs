//! Decisions: which member of a group reads which sources, how far a source is read, and what
//! happens to an event of an entity. Pure: no I/O, no clock, no randomness, no tasks.

mod assign;
mod entity;
mod position;
#[cfg(test)]
mod tests;

pub use assign::{GroupMember, GroupMembers, MemberStanding, Reallocation, allocate, wanted_sources};
pub use entity::{EntityDecision, decide_event};
pub(crate) use position::{FencedPosition, Narrowing};
