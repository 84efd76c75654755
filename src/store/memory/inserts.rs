//! Emit: rows, ids that callers chose, idempotency keys.

use super::{Chosen, EVENTS_MAX, Key, Row, Tables};
use crate::event::{Due, Place, Timestamp};
use crate::store::{Inserted, Keyed, NewEvent, NewKey, NewState, StoreError, chores};

impl Tables {
    pub(in crate::store) fn insert<'a>(
        &mut self,
        events: impl ExactSizeIterator<Item = &'a NewEvent>,
    ) -> Result<Vec<Inserted>, StoreError> {
        if self.events.len() + events.len() > EVENTS_MAX {
            return Err(StoreError::Config(
                "a store in memory holds 1,000,000 events: use a database for more",
            ));
        }
        Ok(events.map(|event| self.insert_row(event)).collect())
    }

    fn insert_row(&mut self, event: &NewEvent) -> Inserted {
        // There are no queues in memory.
        if event.only_queues {
            return Inserted::New { due_soon: false, link: None, copies: Vec::new(), pulled: Vec::new() };
        }
        let delay_until = self.due(event);
        let link = event.object.as_ref().map(|object| self.next_link(event.address.scope.canvas, object));
        let row = Row {
            address: event.address.clone(),
            value: event.value.clone(),
            traceparent: Some(event.traceparent.clone()),
            enqueued_at: self.now,
            delay_until,
            notify_at: Some(self.wake_at(delay_until, self.timing.grace)),
            locked_at: None,
            worker: None,
            probes: 0,
            claims: 0,
            losses: 0,
            retries: 0,
            last_error: None,
            place: event.object.clone().zip(link).map(|(object, link)| Place { object, link }),
        };
        let due_soon = self.is_due_soon(&row);
        self.events.insert(event.id, row);
        Inserted::New { due_soon, link, copies: Vec::new(), pulled: Vec::new() }
    }

    fn due(&self, event: &NewEvent) -> Timestamp {
        match event.due {
            Due::Now => self.now,
            Due::After(delay) => self.now + delay,
            Due::At(moment) => moment,
        }
    }

    pub(in crate::store) fn insert_chosen(&mut self, event: &NewEvent) -> Result<Inserted, StoreError> {
        let canvas = event.address.scope.canvas;
        let is_known = self.chosen.contains_key(&event.id)
            || self.events.contains_key(&event.id)
            || self.dead.contains_key(&event.id);
        if is_known {
            return Ok(Inserted::Known);
        }
        let inserted = self.insert(std::iter::once(event))?;
        let chosen = Chosen { canvas, emitted_at: self.now };
        self.chosen.insert(event.id, chosen);
        Ok(inserted.into_iter().next().unwrap_or(Inserted::Known))
    }

    /// All or none.
    pub(in crate::store) fn insert_all(
        &mut self,
        events: &[NewEvent],
        chosen: &[bool],
    ) -> Result<Vec<Inserted>, StoreError> {
        let mut inserted = Vec::with_capacity(events.len());
        let (mut refused, objects) = (None, self.objects.clone());
        for (event, chosen) in events.iter().zip(chosen) {
            let one = if *chosen {
                self.insert_chosen(event)
            } else {
                self.insert(std::iter::once(event)).map(|mut inserted| inserted.remove(0))
            };
            match one {
                Ok(one) => inserted.push(one),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if refused.is_some() {
            for (event, _) in
                events.iter().zip(&inserted).filter(|(_, one)| matches!(one, Inserted::New { .. }))
            {
                self.events.remove(&event.id);
                self.chosen.remove(&event.id);
            }
            self.objects = objects;
        }
        refused.map_or(Ok(inserted), Err)
    }

    pub(in crate::store) fn insert_once(
        &mut self,
        key: &NewKey,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
        answer: impl FnOnce(&[Inserted]) -> String,
    ) -> Result<Keyed, StoreError> {
        let place = (key.canvas, key.holder.clone(), key.key.clone());
        let known =
            self.keys.get(&place).filter(|known| known.created_at >= self.now - chores::IDEMPOTENCY_KEPT);
        if let Some(known) = known {
            let same = known.fingerprint == key.fingerprint;
            return Ok(if same { Keyed::Replayed(known.answer.clone()) } else { Keyed::Mismatch });
        }
        let inserted = self.insert_on(events, chosen, state)?;
        let kept =
            Key { fingerprint: key.fingerprint.clone(), answer: answer(&inserted), created_at: self.now };
        self.keys.insert(place, kept);
        Ok(Keyed::First(inserted))
    }
}
