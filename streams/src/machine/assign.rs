//! Allocation of the sources of all groups to subscribers. A pure function: values in, plan out.
//!
//! A plan never allocates a source that another subscriber may still be consuming: the source is
//! first *released* by its subscriber, and allocated to another in a later round, once the
//! subscriber has confirmed the release or is gone. Moves are kept to a minimum: unowned sources go
//! to the subscribers with the fewest, then single sources are moved while that evens out the load.

mod even;
mod members;
mod sketch;

use members::Served;
pub use members::{GroupMember, GroupMembers, MemberStanding, Reallocation, wanted_sources};
use sketch::Sketch;

/// Plans one round for all groups: the subscribers whose sources change, each with its full list.
///
/// Ties go to the node that serves the fewest groups, then to the lowest id. Plans converge when
/// each one is carried out and confirmed before the next: within a group, the numbers of sources
/// then differ by at most one, and so do the numbers of groups that nodes serve, as far as requests
/// and groups of one source allow.
pub fn allocate(groups: &[GroupMembers]) -> Vec<Reallocation> {
    let mut sketches: Vec<Sketch> = groups.iter().map(Sketch::new).collect();
    sketches.sort_by_key(|sketch| sketch.name);
    let mut served = Served::new();
    for sketch in &sketches {
        sketch.count_served(&mut served, 1);
    }
    for sketch in &mut sketches {
        sketch.give_free(&mut served);
    }
    for sketch in &mut sketches {
        sketch.even_within(&served);
    }
    even::across(&mut sketches);
    sketches.iter().flat_map(Sketch::changes).collect()
}
