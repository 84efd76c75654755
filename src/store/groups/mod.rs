//! Consumer groups: nodes, subscribers, what each is given, and locks. One file per table.

mod dead;
mod locks;
mod nodes;
mod positions;
mod single;
mod subscribers;
mod subscriptions;
mod upkeep;

pub use dead::{GroupDead, GroupDeadCursor, InvalidGroupDeadCursor};
pub use positions::{FailingEvent, GroupPosition};
pub(crate) use single::Claimed;
pub(crate) use upkeep::RemovedGroup;

use crate::event::{EventSource, SourceList};

/// Sources as they are in a row. What can't be read of it is of a newer release, and nobody's business here.
fn sources(json: &str) -> Vec<EventSource> {
    SourceList::from_json(json).map(|list| list.0).unwrap_or_default()
}

fn json(sources: &[EventSource]) -> String {
    SourceList(sources.to_vec()).to_json()
}
