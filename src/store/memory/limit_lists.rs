//! What operators do with limits: set, remove and list them, and look at what is in use.

use std::collections::BTreeSet;

use super::Tables;
use super::limit_rows::{Wait, pace};
use crate::event::{
    Actor, CanvasId, EventId, HeldLimit, Limit, LimitName, LimitUse, LimitWait, NewLimit, Timestamp,
};
use crate::store::kernel::StoreError;
use crate::store::limits::PutLimit;

/// How many of those that wait before an event are counted, to say when it starts.
const BEFORE_MAX: usize = 10_000;

impl Tables {
    /// Tables in memory have no audit log.
    pub(in crate::store) fn put_limit(
        &mut self,
        canvas: CanvasId,
        name: &LimitName,
        definition: &NewLimit,
        actor: &Actor,
    ) -> Result<Option<PutLimit>, StoreError> {
        let (now, by) = (self.now, actor.name().to_owned());
        let key = (canvas, name.clone());
        let before = self.limits.defined.get(&key);
        let is_new = before.is_none();
        let (created_at, created_by) =
            before.map_or((now, by.clone()), |before| (before.created_at, before.created_by.clone()));
        let limit = Limit {
            canvas,
            name: name.clone(),
            definition: *definition,
            created_at,
            created_by,
            updated_at: now,
            updated_by: by,
        };
        self.limits.defined.insert(key, limit.clone());
        Ok(Some(PutLimit { new: is_new, limit }))
    }

    pub(in crate::store) fn remove_limit(
        &mut self,
        canvas: CanvasId,
        name: &LimitName,
        _actor: &Actor,
    ) -> Result<bool, StoreError> {
        Ok(self.limits.defined.remove(&(canvas, name.clone())).is_some())
    }

    pub(in crate::store) fn limit(
        &self,
        canvas: CanvasId,
        name: &LimitName,
    ) -> Result<Option<Limit>, StoreError> {
        Ok(self.limits.defined.get(&(canvas, name.clone())).cloned())
    }

    pub(in crate::store) fn limits(
        &self,
        canvas: CanvasId,
        after: Option<&LimitName>,
        limit: u32,
    ) -> Result<Vec<Limit>, StoreError> {
        let own = self.limits.defined.values().filter(|defined| defined.canvas == canvas);
        let left = own.filter(|defined| after.is_none_or(|after| defined.name > *after));
        Ok(left.take(usize::try_from(limit).unwrap_or(usize::MAX)).cloned().collect())
    }

    /// Of a family, the keys that are in use.
    pub(in crate::store) fn limit_uses(
        &self,
        canvas: CanvasId,
        name: &LimitName,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<LimitUse>, StoreError> {
        let keys = format!("{name}:");
        let waited = self.limits.waits.values().map(|wait| &wait.held);
        let counted = self.limits.states.keys().chain(waited);
        let meant = |held: &&HeldLimit| {
            held.canvas == canvas
                && after.is_none_or(|after| held.name.as_str() > after)
                && (held.name == name.as_str() || held.name.starts_with(&keys))
        };
        let meant: BTreeSet<&HeldLimit> = counted.filter(meant).collect();
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(meant.into_iter().take(limit).filter_map(|held| self.use_of(held)).collect())
    }

    fn use_of(&self, held: &HeldLimit) -> Option<LimitUse> {
        let holders = self.live_holders(held);
        let waiting = self.count_waits(held);
        Some(LimitUse {
            canvas: held.canvas,
            name: held.name.parse().ok()?,
            running: u32::try_from(holders.len()).unwrap_or(u32::MAX),
            holders: holders.into_iter().take(LimitUse::HOLDERS_MAX).collect(),
            waiting: waiting.min(LimitUse::WAITING_MAX),
            next_start: self.next_start(held),
        })
    }

    pub(in crate::store) fn waits_for(
        &self,
        canvas: CanvasId,
        id: EventId,
    ) -> Result<Option<LimitWait>, StoreError> {
        let row = self.events.get(&id).filter(|row| row.address().scope.canvas == canvas);
        let Some(wait) = row.and_then(|_| self.limits.waits.get(&id)) else { return Ok(None) };
        let held = &wait.held;
        let is_own =
            |id: &EventId| self.events.get(id).is_some_and(|row| row.address().scope.canvas == canvas);
        let holders = self.live_holders(held).into_iter().filter(is_own);
        let name = held.name.parse().map_err(|_| StoreError::Defect)?;
        Ok(Some(LimitWait {
            canvas: held.canvas,
            name,
            since: wait.since,
            holders: holders.take(LimitUse::HOLDERS_MAX).collect(),
            next: self.start_of(id, wait).filter(|at| *at > self.now),
        }))
    }

    /// When it was told to come, or when its rate comes to it, after those that wait before it.
    fn start_of(&self, id: EventId, wait: &Wait) -> Option<Timestamp> {
        let Some(rate) = self.rate(&wait.held).filter(|_| wait.woken_at.is_none()) else {
            return wait.woken_at;
        };
        let line = self.line(&wait.held);
        let before = line.range(..(wait.due, id)).take(BEFORE_MAX).count();
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        Some(self.next_start(&wait.held).unwrap_or(self.now) + pace(rate) * before)
    }
}
