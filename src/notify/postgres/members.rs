//! The workers that share the events, and which of them is to handle an event first.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::event::{EventId, stable_hash};

/// How long a worker that says nothing still counts: two and a half of its messages. So an event
/// that a dead worker was to handle waits no longer than for its promise, even if the others are
/// never idle.
const SILENCE_MAX: Duration = Duration::from_secs(50);

/// Maximum number of other workers that count. Beyond them, events are looked at twice.
const OTHERS_MAX: usize = 100;

/// This process, and the others of which it has heard. If views differ, an event is looked at by
/// two workers, or by none for as long as it is in reserve.
#[derive(Debug)]
pub(super) struct Members {
    own: Uuid,
    others: HashMap<Uuid, Instant>,
}

impl Members {
    pub(super) fn of(own: Uuid) -> Self {
        Self { own, others: HashMap::new() }
    }

    /// This worker is there. Returns whether it is new.
    pub(super) fn heard(&mut self, worker: Uuid) -> bool {
        if worker == self.own || (self.others.len() >= OTHERS_MAX && !self.others.contains_key(&worker)) {
            return false;
        }
        self.others.insert(worker, Instant::now()).is_none()
    }

    /// This worker has left. Returns whether it was there.
    pub(super) fn left(&mut self, worker: Uuid) -> bool {
        self.others.remove(&worker).is_some()
    }

    /// Forgets workers that have been silent for too long. Returns whether there were any.
    pub(super) fn forget_silent(&mut self) -> bool {
        let before = self.others.len();
        self.others.retain(|_, heard| heard.elapsed() < SILENCE_MAX);
        self.others.len() < before
    }

    pub(super) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// Whether this process is to handle the event first. With the same members every process
    /// gives the same answer (rendezvous hashing), and a change of members moves few events.
    pub(super) fn is_own(&self, event: EventId) -> bool {
        let score = |worker: &Uuid| stable_hash(&[worker.as_bytes(), event.0.as_bytes()]);
        let own = score(&self.own);
        self.others.keys().all(|other| score(other) < own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_one_members_and_few_move_when_one_leaves() {
        let ids: Vec<Uuid> = (0..5).map(|_| Uuid::new_v4()).collect();
        let mut all: Vec<Members> = ids.iter().map(|id| Members::of(*id)).collect();
        for members in &mut all {
            ids.iter().for_each(|id| {
                members.heard(*id);
            });
        }
        let events: Vec<EventId> = (0..5_000).map(|_| EventId::new()).collect();
        let owner = |all: &[Members], event| {
            let owners: Vec<Uuid> =
                all.iter().filter(|members| members.is_own(event)).map(|members| members.own).collect();
            assert_eq!(owners.len(), 1, "{owners:?}");
            owners[0]
        };
        let before: Vec<Uuid> = events.iter().map(|event| owner(&all, *event)).collect();
        for id in &ids {
            let share = before.iter().filter(|owner| *owner == id).count();
            assert!((800..1_200).contains(&share), "{share} of 5,000");
        }
        let gone = all.pop().unwrap().own;
        assert!(all.iter_mut().all(|members| members.left(gone)));
        for (event, before) in events.iter().zip(&before) {
            assert!(*before == gone || owner(&all, *event) == *before, "it moved for no reason");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_members_are_forgotten() {
        let mut members = Members::of(Uuid::new_v4());
        let other = Uuid::new_v4();
        assert!(members.heard(other));
        tokio::time::advance(SILENCE_MAX / 2).await;
        assert!(!members.heard(other) && !members.forget_silent());
        tokio::time::advance(SILENCE_MAX).await;
        assert!(members.forget_silent() && members.is_alone());
        assert!(!members.left(other));
    }
}
