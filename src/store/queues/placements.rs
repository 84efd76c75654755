//! Which rows an insert writes: for each event one of its own, and a copy for each queue that wants it.

use std::collections::HashMap;

use uuid::Uuid;

use super::Registered;
use crate::event::EventId;
use crate::store::insert::{Inserted, NewEvent};

/// Rows as columns, for `unnest`: the position of the event from 1, the row's id, and the queue of a copy.
#[derive(Debug, Default)]
pub(in crate::store) struct Placements {
    pub(in crate::store) positions: Vec<i64>,
    pub(in crate::store) ids: Vec<Uuid>,
    pub(in crate::store) queues: Vec<Option<String>>,
}

impl Placements {
    /// Where these events go. Copies have new ids each time.
    pub(in crate::store) fn of<'a>(
        events: impl Iterator<Item = &'a NewEvent>,
        registered: &Registered,
    ) -> Self {
        let mut rows = Self::default();
        for (position, event) in (1..).zip(events) {
            if !event.only_queues {
                rows.push(position, event.id, None);
            }
            for queue in registered.queues(&event.address) {
                rows.push(position, EventId::new(), Some(queue.to_string()));
            }
        }
        rows
    }

    fn push(&mut self, position: i64, id: EventId, queue: Option<String>) {
        self.positions.push(position);
        self.ids.push(id.0);
        self.queues.push(queue);
    }

    /// How many of them are copies of the event at this position.
    pub(in crate::store) fn copies(&self, position: i64) -> Vec<EventId> {
        let rows = self.positions.iter().zip(&self.ids).zip(&self.queues);
        rows.filter(|((at, _), queue)| **at == position && queue.is_some())
            .map(|((_, id), _)| EventId(*id))
            .collect()
    }

    /// What became of the events, by whether those at these positions are due soon.
    pub(in crate::store) fn inserted(&self, due_soon: &HashMap<i64, bool>, count: usize) -> Vec<Inserted> {
        let mut copies: HashMap<i64, Vec<EventId>> = HashMap::new();
        for ((position, id), queue) in self.positions.iter().zip(&self.ids).zip(&self.queues) {
            if queue.is_some() {
                copies.entry(*position).or_default().push(EventId(*id));
            }
        }
        let positions = (1..).take(count);
        positions
            .map(|position| Inserted::New {
                due_soon: due_soon.get(&position).copied().unwrap_or(true),
                link: None,
                copies: copies.remove(&position).unwrap_or_default(),
            })
            .collect()
    }
}
