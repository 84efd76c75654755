//! The rows that an insert writes: for each event its own, and a copy for each matching queue.

use std::fmt::Write;

use super::outcome::{InsertOutcome, InsertedRows};
use crate::event::{EventId, NewEvent};
use crate::store::kernel::QueueRegistry;

/// The rows of each event, as columns for `unnest`: their ids and, at the same positions, the
/// queues of those that are copies, each as the text of an array. So nothing has to be joined, and
/// no value is sent twice.
#[derive(Debug, Default)]
pub(super) struct Placements {
    pub(super) ids: Vec<String>,
    pub(super) queues: Vec<String>,
    copies: Vec<Vec<QueueCopy>>,
}

/// A row that is a copy.
#[derive(Clone, Copy, Debug)]
struct QueueCopy {
    id: EventId,
    /// Its queue is pulled.
    pulled: bool,
}

impl Placements {
    /// The rows of these events. Copies get new ids each time.
    pub(super) fn of(events: &[&NewEvent], registered: &QueueRegistry) -> Self {
        let mut rows = Self::default();
        for event in events {
            let (mut ids, mut queues) = (String::from("{"), String::from("{"));
            let mut copies = Vec::new();
            if !event.only_queues {
                ids.push_str(&event.id.to_string());
                queues.push_str("NULL");
            }
            for queue in registered.queues(&event.address) {
                let comma = if ids.len() > 1 { "," } else { "" };
                let copy = EventId::new();
                // Writing to a string can't fail, and a name needs no escaping.
                let _ = write!(ids, "{comma}{copy}");
                let _ = write!(queues, "{comma}\"{queue}\"");
                copies.push(QueueCopy { id: copy, pulled: registered.is_pulled(queue) });
            }
            ids.push('}');
            queues.push('}');
            rows.ids.push(ids);
            rows.queues.push(queues);
            rows.copies.push(copies);
        }
        rows
    }

    /// The outcomes of this many events, from the answers to their insert.
    pub(super) fn outcomes(&self, events: usize, inserted: &InsertedRows) -> Vec<InsertOutcome> {
        let outcome = |(at, position): (usize, i64)| {
            let Some((due_soon, link)) = inserted.get(&position).copied() else {
                return InsertOutcome::Known;
            };
            let copies = self.copies.get(at).map(Vec::as_slice).unwrap_or_default();
            let pulled = copies.iter().filter(|copy| copy.pulled).map(|copy| copy.id).collect();
            InsertOutcome::New { due_soon, link, copies: copies.iter().map(|copy| copy.id).collect(), pulled }
        };
        (0..events).zip(1..).map(outcome).collect()
    }
}
