//! Emit: rows, ids that callers chose, idempotency keys.

use std::collections::HashMap;

use super::{ChosenId, EVENTS_MAX, KeptAnswer, LiveRow, Tables};
use crate::event::{
    CanvasId, ChosenIdTaken, EventId, HandlerScope, HeldLimit, IdempotencyKey, LimitKey, NewEvent,
    WaitingMaxReached,
};
use crate::store::events::{IdempotencyOutcome, InsertOutcome, NewState};
use crate::store::kernel::StoreError;
use crate::store::minute::IDEMPOTENCY_KEPT;
use crate::store::quotas::Additions;

impl Tables {
    /// There are no quotas in memory.
    pub(in crate::store) fn admit(
        &self,
        _canvas: CanvasId,
        _added: &Additions<'_>,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    pub(in crate::store) fn waiting_max_reached(
        &self,
        keys: &[(CanvasId, &LimitKey)],
    ) -> Result<Option<WaitingMaxReached>, StoreError> {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        let reached = |(canvas, key): (CanvasId, &LimitKey)| {
            let held = HeldLimit { canvas, name: key.as_str().to_owned() };
            let most = self.limits.definition(&held)?.definition.waiting_max?;
            let is_reached = self.count_waits(&held) >= u64::from(most);
            is_reached.then(|| WaitingMaxReached { canvas, key: key.clone(), most })
        };
        Ok(keys.into_iter().find_map(reached))
    }

    pub(in crate::store) fn insert<'a>(
        &mut self,
        events: impl ExactSizeIterator<Item = &'a NewEvent> + Clone,
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        if self.events.len() + events.len() > EVENTS_MAX {
            return Err(StoreError::Config(
                "a store in memory holds 1,000,000 events: use a database for more",
            ));
        }
        events.clone().try_for_each(|event| self.check_member(event))?;
        Ok(events.map(|event| self.write_row(event)).collect())
    }

    fn write_row(&mut self, event: &NewEvent) -> InsertOutcome {
        // There are no queues in memory.
        if event.only_queues {
            return InsertOutcome::new(false);
        }
        let delay_until = event.due.at(self.now);
        let link = event.object.as_ref().map(|object| self.next_link(event.address.scope.canvas, object));
        let row = LiveRow {
            event: event.clone(),
            place: event.place(link),
            enqueued_at: self.now,
            delay_until,
            notify_at: Some(self.wake_at(delay_until, self.timing.grace)),
            locked_at: None,
            worker: None,
            probes: 0,
            claims: 0,
            nonce: 0,
            losses: 0,
            retries: 0,
            last_error: None,
            postponed_since: None,
            cancelled_by: None,
            checkpoint: None,
        };
        let due_soon = self.is_due_soon(&row);
        self.events.insert(event.id, row);
        InsertOutcome::New { due_soon, link, copies: Vec::new(), pulled: Vec::new() }
    }

    pub(in crate::store) fn insert_chosen(&mut self, event: &NewEvent) -> Result<InsertOutcome, StoreError> {
        self.check_repeats(std::iter::once(event))?;
        if self.handler_of_id(event.id).is_some() {
            return Ok(InsertOutcome::Known);
        }
        let inserted = self.insert(std::iter::once(event))?;
        let chosen = ChosenId { scope: event.address.scope.clone(), emitted_at: self.now };
        self.chosen.insert(event.id, chosen);
        Ok(inserted.into_iter().next().unwrap_or(InsertOutcome::Known))
    }

    /// The handler of the event that has an id, or had it.
    fn handler_of_id(&self, id: EventId) -> Option<&HandlerScope> {
        let row = self.events.get(&id).or_else(|| self.dead.get(&id).map(|dead| &dead.row));
        let live = row.map(|row| &row.address().scope);
        live.or_else(|| self.chosen.get(&id).map(|chosen| &chosen.scope))
    }

    /// Refuses the first of these events whose chosen id is that of an event for another handler,
    /// also if that is among them.
    fn check_repeats<'a>(&self, events: impl Iterator<Item = &'a NewEvent>) -> Result<(), StoreError> {
        let mut new = HashMap::new();
        for NewEvent { id, address, .. } in events {
            let known = self.handler_of_id(*id).or_else(|| new.get(id).copied());
            let HandlerScope { module, name, .. } = known.unwrap_or(&address.scope);
            if (module, name) != (&address.scope.module, &address.scope.name) {
                let taken = ChosenIdTaken { id: *id, module: module.clone(), name: name.clone() };
                return Err(taken.into());
            }
            new.insert(*id, &address.scope);
        }
        Ok(())
    }

    /// All or none.
    pub(in crate::store) fn insert_all(
        &mut self,
        events: &[NewEvent],
        chosen: &[bool],
    ) -> Result<Vec<InsertOutcome>, StoreError> {
        let by_choice = events.iter().zip(chosen).filter(|(_, chosen)| **chosen);
        self.check_repeats(by_choice.map(|(event, _)| event))?;
        let mut inserted = Vec::with_capacity(events.len());
        let (mut refused, objects) = (None, self.objects.clone());
        for (event, chosen) in events.iter().zip(chosen) {
            let one = if *chosen {
                self.insert_chosen(event)
            } else if event.unique.is_some() {
                self.insert_unique(event)
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
                events.iter().zip(&inserted).filter(|(_, one)| matches!(one, InsertOutcome::New { .. }))
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
        key: &IdempotencyKey,
        events: &[NewEvent],
        chosen: &[bool],
        state: Option<NewState<'_>>,
        answer: impl FnOnce(&[InsertOutcome]) -> String,
    ) -> Result<IdempotencyOutcome, StoreError> {
        if let Some(used) = self.used(key) {
            return Ok(used);
        }
        let inserted = self.insert_on(events, chosen, state)?;
        self.remember(key, answer(&inserted));
        Ok(IdempotencyOutcome::First(inserted))
    }

    /// What a key was used for; `None` if it is free.
    pub(super) fn used(&self, key: &IdempotencyKey) -> Option<IdempotencyOutcome> {
        let known = self.keys.get(&place(key));
        let known = known.filter(|known| known.created_at >= self.now - IDEMPOTENCY_KEPT)?;
        Some(if known.fingerprint == key.fingerprint {
            IdempotencyOutcome::Replayed(known.answer.clone())
        } else {
            IdempotencyOutcome::Mismatch
        })
    }

    pub(super) fn remember(&mut self, key: &IdempotencyKey, answer: String) {
        let kept = KeptAnswer { fingerprint: key.fingerprint.clone(), answer, created_at: self.now };
        self.keys.insert(place(key), kept);
    }
}

fn place(key: &IdempotencyKey) -> (CanvasId, String, String) {
    (key.canvas, key.holder.clone(), key.key.clone())
}
