//! The row of an event, and the forms in which it is read.

use std::time::Duration;

use crate::event::{
    BatchName, Checkpoint, Claim, ErrorGroupId, EventFacts, EventFilter, EventOptions, EventState,
    HandlerAddress, Name, NewEvent, Notification, ObjectKey, Place, Schedule, Tag, Timestamp, Unique,
};
use crate::store::events::{ClaimedEvent, DeadEvent, EndedEvent, LoadedEvent};

#[derive(Clone, Debug)]
pub(super) struct LiveRow {
    pub(super) event: NewEvent,
    pub(super) place: Option<Place>,
    pub(super) enqueued_at: Timestamp,
    pub(super) delay_until: Timestamp,
    pub(super) notify_at: Option<Timestamp>,
    pub(super) locked_at: Option<Timestamp>,
    pub(super) worker: Option<Name>,
    pub(super) probes: i32,
    pub(super) claims: i32,
    pub(super) nonce: i32,
    pub(super) losses: i32,
    pub(super) retries: i32,
    pub(super) last_error: Option<String>,
    pub(super) postponed_since: Option<Timestamp>,
    pub(super) cancelled_by: Option<String>,
    pub(super) checkpoint: Option<Checkpoint>,
}

impl LiveRow {
    pub(super) fn address(&self) -> &HandlerAddress {
        &self.event.address
    }

    pub(super) fn value_bytes(&self) -> i32 {
        i32::try_from(self.event.value.len()).unwrap_or(i32::MAX)
    }

    pub(super) fn tags(&self) -> &[Tag] {
        self.event.options.as_deref().map_or(&[], EventOptions::tags)
    }

    pub(super) fn object(&self) -> Option<&ObjectKey> {
        self.place.as_ref().map(|place| &place.object)
    }

    pub(super) fn batch(&self) -> Option<&BatchName> {
        self.event.options.as_deref().and_then(EventOptions::batch)
    }

    /// The unique key that it has.
    pub(super) fn unique_key(&self) -> Option<&str> {
        self.event.unique.as_deref().map(Unique::text)
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        self.unique_key() == Some(key)
    }

    /// How long after it was due it has its key once it has ended; `None`: only while it waits, or
    /// without a key.
    pub(super) fn held_for(&self) -> Option<Duration> {
        self.event.unique.as_deref().and_then(Unique::held_for)
    }

    pub(super) fn notification(&self) -> Notification {
        Notification::new(self.event.id, self.address().scope.canvas).urgent_if(self.event.is_urgent())
    }

    /// As a load finds it; `runs` while its lease stands. Limits are for the tables to tell.
    pub(super) fn loaded(&self, schedule: Schedule, runs: bool) -> LoadedEvent {
        LoadedEvent {
            address: self.address().clone(),
            schedule,
            enqueued_at: self.enqueued_at,
            notify_at: self.notify_at,
            retries: self.retries,
            claims: self.claims,
            losses: self.losses,
            last_error: self.last_error.clone(),
            metadata: self.event.metadata.clone(),
            options: self.event.options.clone(),
            worker: self.worker.clone().filter(|_| runs),
            was_leased: false,
            place: self.place.clone(),
            copy_of: None,
            pulled: false,
            value_bytes: self.value_bytes(),
            is_limited: false,
            waits: false,
        }
    }

    /// As its new owner gets it.
    pub(super) fn claimed(&self, took_over: bool, locked_at: Timestamp) -> ClaimedEvent {
        ClaimedEvent {
            claim: Claim { id: self.event.id, claims: self.claims, nonce: self.nonce },
            address: self.address().clone(),
            value: self.event.value.clone(),
            retries: self.retries,
            losses: self.losses,
            postponed_since: self.postponed_since,
            took_over,
            delay_until: self.delay_until,
            enqueued_at: self.enqueued_at,
            locked_at,
            metadata: self.event.metadata.clone(),
            options: self.event.options.clone(),
            place: self.place.clone(),
            copy_of: None,
            is_limited: false,
            is_cancelled: self.cancelled_by.is_some(),
            held: None,
        }
    }
}

/// An event that has ended and is kept.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) event: EndedEvent,
    pub(super) value: String,
    pub(super) result: Option<String>,
}

impl Ended {
    /// Whether it meets the conditions of a filter on events, and those on results.
    pub(super) fn meets(&self, of_event: &EventFilter, of_result: &EventFilter) -> bool {
        let facts = self.facts();
        let result = self.result.as_deref();
        let has_result = |value| of_result.matches(&EventFacts { value, ..facts });
        of_event.matches(&facts) && (*of_result == EventFilter::default() || result.is_some_and(has_result))
    }

    /// What a filter looks at. It asks for no state: an event that has ended has none of them.
    fn facts(&self) -> EventFacts<'_> {
        let options = self.event.options.as_deref();
        EventFacts {
            address: &self.event.address,
            state: EventState::Dead,
            worker: None,
            waits_for: None,
            tags: options.map_or(&[], EventOptions::tags),
            object: self.event.place.as_ref().map(|place| &place.object),
            batch: options.and_then(EventOptions::batch),
            emitted: self.event.enqueued_at,
            due: None,
            died: None,
            group: None,
            error: self.event.error.as_deref(),
            value: &self.value,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Dead {
    pub(super) row: LiveRow,
    pub(super) cause: &'static str,
    pub(super) died_at: Timestamp,
}

impl Dead {
    /// Those that died of the same error.
    fn group(&self) -> ErrorGroupId {
        ErrorGroupId::of(&self.row.address().scope, self.cause, self.row.last_error.as_deref())
    }

    /// What a filter looks at.
    pub(super) fn facts(&self) -> EventFacts<'_> {
        EventFacts {
            address: self.row.address(),
            state: EventState::Dead,
            worker: None,
            waits_for: None,
            tags: self.row.tags(),
            object: self.row.object(),
            batch: self.row.batch(),
            emitted: self.row.enqueued_at,
            due: None,
            died: Some(self.died_at),
            group: Some(self.group()),
            error: self.row.last_error.as_deref(),
            value: &self.row.event.value,
        }
    }

    /// As it is listed; `halts` while its lane is halted by it.
    pub(super) fn shown(&self, halts: bool) -> DeadEvent {
        let Self { row, cause, died_at } = self;
        DeadEvent {
            id: row.event.id,
            address: row.address().clone(),
            cause: (*cause).into(),
            retries: row.retries,
            losses: row.losses,
            last_error: row.last_error.clone(),
            error_group: self.group(),
            enqueued_at: row.enqueued_at,
            died_at: *died_at,
            metadata: row.event.metadata.clone(),
            options: row.event.options.clone(),
            place: row.place.clone(),
            copy_of: None,
            halts,
        }
    }
}
