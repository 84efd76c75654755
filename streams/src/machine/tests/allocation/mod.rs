//! Which node of a group gets which source: case by case, and in random clusters.

mod cases;
mod random_clusters;

use crate::machine::{GroupMembers, Reallocation};

/// Changes what the members hold as the plan says.
fn carry_out(groups: &mut [GroupMembers], changes: &[Reallocation]) {
    for change in changes {
        let group = groups.iter_mut().find(|group| group.name == change.group).unwrap();
        let member = group.members.iter_mut().find(|member| member.id == change.subscriber).unwrap();
        member.holds = change.sources.clone();
        member.releasing = change.releasing.clone();
    }
}
