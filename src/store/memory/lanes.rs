//! Objects, their chains, and the lanes of which only the first event may run.

use super::{LiveRow, Tables};
use crate::event::{
    Actor, CanvasId, EventId, Lane, Link, Name, NewEvent, Notification, ObjectKey, Place, Turn,
};
use crate::store::events::{InsertOutcome, NewState};
use crate::store::kernel::StoreError;
use crate::store::order::{HaltedLane, HaltedPosition, InHand, Object, Tombstone};

impl Tables {
    pub(in crate::store) fn insert_on(
        &mut self,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        let inserted = self.insert_all(events, chosen)?;
        let is_new = matches!(inserted.first(), Some(InsertOutcome::New { .. }));
        if let Some(NewState { canvas, object, state }) = state.filter(|_| is_new) {
            let now = self.now;
            let object = self.object_row(canvas, object);
            (object.state, object.state_at) = (Some(state.to_owned()), Some(now));
        }
        Ok(inserted)
    }

    pub(in crate::store) fn object(
        &self,
        canvas: CanvasId,
        key: &ObjectKey,
    ) -> Result<Option<Object>, StoreError> {
        Ok(self.objects.get(&(canvas, key.clone())).cloned())
    }

    fn object_row(&mut self, canvas: CanvasId, key: &ObjectKey) -> &mut Object {
        let new = || Object { canvas, key: key.clone(), last_id: 0, state: None, state_at: None };
        self.objects.entry((canvas, key.clone())).or_insert_with(new)
    }

    /// Takes the next link of an object's chain.
    pub(super) fn next_link(&mut self, canvas: CanvasId, key: &ObjectKey) -> Link {
        self.last_seq += 1;
        let id = self.last_seq;
        let object = self.object_row(canvas, key);
        Link { id, prev: std::mem::replace(&mut object.last_id, id) }
    }

    /// The place of an event that is redriven: its old one, if it halted its lane; else the last
    /// one.
    pub(super) fn place_again(&mut self, id: EventId, row: &LiveRow) -> Option<Place> {
        let place = row.place.clone()?;
        let lane = lane_of(row)?;
        if self.halted.get(&lane).is_some_and(|halted| halted.event == id) {
            self.halted.remove(&lane);
            return Some(place);
        }
        let link = self.next_link(lane.canvas(), &place.object);
        Some(Place { link, ..place })
    }

    fn first_in(&self, lane: &Lane) -> Option<(EventId, &LiveRow)> {
        let in_lane = self.events.iter().filter(|(_, row)| lane_of(row).as_ref() == Some(lane));
        in_lane.map(|(id, row)| (*id, row)).min_by_key(|(_, row)| row.place.as_ref().map(|place| place.link))
    }

    pub(super) fn turn(&self, row: &LiveRow) -> Turn {
        let Some(lane) = lane_of(row) else { return Turn::First };
        let is_first = self.first_in(&lane).is_none_or(|(_, first)| first.place == row.place);
        match (self.halted.contains_key(&lane), is_first) {
            (true, _) => Turn::Halted,
            (false, true) => Turn::First,
            (false, false) => Turn::Behind,
        }
    }

    /// Records that an event left its chain without being consumed.
    pub(super) fn add_tombstone(&mut self, row: &LiveRow, cause: &str) {
        let Some(Place { object, link }) = row.place.clone() else { return };
        let tombstone = Tombstone { link, cause: cause.to_owned(), left_at: self.now };
        self.tombstones.insert((row.address().scope.canvas, object, link.id), tombstone);
    }

    /// There are no queues in memory.
    pub(in crate::store) fn tombstones(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        (queue, _copies): (Option<&Name>, bool),
        after: i64,
        limit: i64,
    ) -> Result<Vec<Tombstone>, StoreError> {
        let meant = self
            .tombstones
            .iter()
            .filter(|((on, key, id), _)| (*on, key) == (canvas, object) && *id > after && queue.is_none());
        let limit = usize::try_from(limit).unwrap_or(0);
        Ok(meant.take(limit).map(|(_, tombstone)| tombstone.clone()).collect())
    }

    pub(super) fn halt(&mut self, event: EventId, row: &LiveRow) {
        let (Some(lane), Some(place)) = (lane_of(row), &row.place) else { return };
        let (event_seq, halted_at) = (place.link.id, self.now);
        self.halted.entry(lane.clone()).or_insert(HaltedLane { lane, event, event_seq, halted_at });
    }

    /// Renews the promise of the event that is first once this one has been removed.
    pub(super) fn arm_first_of(&mut self, removed: &LiveRow) {
        let first = lane_of(removed).and_then(|lane| self.first_in(&lane).map(|(id, _)| id));
        let armed = first.and_then(|id| Some((id, self.events.get(&id)?.delay_until)));
        let Some((id, due)) = armed else { return };
        let notify_at = self.wake_at(due, self.timing.grace);
        if let Some(row) = self.events.get_mut(&id) {
            (row.notify_at, row.probes) = (Some(notify_at), 0);
        }
    }

    pub(in crate::store) fn firsts(&self, lanes: &[Lane]) -> Result<Vec<Option<Notification>>, StoreError> {
        Ok(lanes.iter().map(|lane| self.runnable_first(lane)).collect())
    }

    fn runnable_first(&self, lane: &Lane) -> Option<Notification> {
        let (_, row) = self.first_in(lane)?;
        let may = self.is_free(row) && self.is_due_soon(row) && !self.halted.contains_key(lane);
        may.then(|| row.notification())
    }

    pub(in crate::store) fn arm_firsts(&mut self, lanes: &[Lane]) -> Result<Vec<Notification>, StoreError> {
        let firsts: Vec<LiveRow> =
            lanes.iter().filter_map(|lane| Some(self.first_in(lane)?.1.clone())).collect();
        for first in firsts.iter().filter(|row| self.is_free(row)).cloned().collect::<Vec<_>>() {
            self.arm_first_of(&first);
        }
        let wanted = lanes.iter().filter_map(|lane| {
            let (_, row) = self.first_in(lane)?;
            (self.is_free(row) && self.is_due_soon(row)).then(|| row.notification())
        });
        Ok(wanted.collect())
    }

    pub(in crate::store) fn first(&self, lane: &Lane) -> Result<Option<(EventId, Link)>, StoreError> {
        Ok(self.first_in(lane).and_then(|(id, row)| Some((id, row.place.as_ref()?.link))))
    }

    pub(in crate::store) fn halted_lanes(
        &self,
        canvas: CanvasId,
        object: Option<&ObjectKey>,
        _copies: bool,
        after: Option<HaltedPosition>,
        limit: i64,
    ) -> Result<Vec<(HaltedLane, bool)>, StoreError> {
        let position = |halted: &HaltedLane| (halted.halted_at, halted.event);
        let meant = |halted: &&HaltedLane| {
            halted.lane.canvas() == canvas
                && object.is_none_or(|object| halted.lane.object == *object)
                && after.is_none_or(|after| position(halted) > after)
        };
        let mut halted: Vec<HaltedLane> = self.halted.values().filter(meant).cloned().collect();
        halted.sort_by_key(position);
        halted.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(halted.into_iter().map(|halted| (halted, true)).collect())
    }

    pub(in crate::store) fn running(
        &self,
        canvas: CanvasId,
        object: &ObjectKey,
        _copies: bool,
        limit: i64,
    ) -> Result<Vec<InHand>, StoreError> {
        let hands = self.events.iter().filter(|(_, row)| !self.is_free(row)).filter_map(|(id, row)| {
            let (lane, link) = (lane_of(row)?, row.place.as_ref()?.link);
            let meant = lane.canvas() == canvas && lane.object == *object;
            meant.then(|| InHand { lane, event: *id, link, worker: row.worker.clone() })
        });
        let mut hands: Vec<InHand> = hands.collect();
        hands.sort_by(|one, other| one.lane.cmp(&other.lane));
        hands.truncate(usize::try_from(limit).unwrap_or(0));
        Ok(hands)
    }

    pub(in crate::store) fn skip_lane(
        &mut self,
        lane: &Lane,
        _copies: bool,
        _actor: &Actor,
    ) -> Result<Vec<Lane>, StoreError> {
        let Some(halted) = self.halted.remove(lane) else { return Ok(Vec::new()) };
        if let Some(dead) = self.dead.get(&halted.event).map(|dead| dead.row.clone()) {
            self.add_tombstone(&dead, "dead");
        }
        Ok(vec![halted.lane])
    }
}

/// The lane of a row, if it is on an object.
pub(super) fn lane_of(row: &LiveRow) -> Option<Lane> {
    let place = row.place.as_ref()?;
    Some(Lane { scope: row.address().scope.clone(), object: place.object.clone(), queue: None })
}
