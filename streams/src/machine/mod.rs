//! Decisions: which member of a group reads which sources, and what happens to an event of an
//! entity. Pure: no I/O, no clock, no randomness, no tasks.

mod assign;
mod entity;
#[cfg(test)]
mod tests;

pub use assign::{GroupMember, GroupMembers, MemberStanding, Reallocation, allocate, wanted_sources};
pub use entity::{EntityDecision, decide_event};
