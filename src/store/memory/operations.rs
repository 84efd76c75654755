//! Operations on all events that match a filter, or are named. Each is done as a whole by its first
//! page, since nothing can come between two pages here, and ended by its second.

use std::collections::BTreeSet;

use super::batch_row::MemberEnd;
use super::lanes::lane_of;
use super::lists::key;
use super::{Dead, LiveRow, OperationJob, Tables};
use crate::event::{
    Actor, CanvasId, EndedOutcome, EventFilter, EventId, IdempotencyKey, Lane, NewOperation, Operation,
    OperationId, OperationKind, OperationPreview, OperationState, Timestamp,
};
use crate::store::events::{
    AttemptEnd, BegunOperation, KeyedBegin, Looked, OPERATIONS_OPEN_MAX, OperationEvents, OperationPosition,
    OperationsAfter, ResumePage,
};
use crate::store::kernel::StoreError;

impl Tables {
    /// Looks at all of them at once.
    pub(in crate::store) fn look_for_operation(
        &self,
        events: OperationEvents<'_>,
        _after: Option<&OperationPosition>,
        _limit: u64,
        _wants_ids: bool,
    ) -> Result<Looked, StoreError> {
        let OperationEvents { canvas, kind, filter, before, ids: named, .. } = events;
        let (mut looked_at, mut ids) = if kind.of_dead() {
            self.dead_meant(canvas, filter, before, *kind == OperationKind::Redrive)
        } else {
            self.live_meant(canvas, filter, before, kind.of_running())
        };
        if let Some(named) = named {
            looked_at = named.len();
            ids.retain(|id| {
                named.iter().any(|named| *id == *named || *id == EventId::chosen(canvas, *named))
            });
        }
        Ok(Looked { looked_at: looked_at as u64, matched: ids.len() as u64, ids, last: None })
    }

    /// The clock does not move between two steps, so events emitted at this very moment count as
    /// before, here and below.
    fn live_meant(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        before: Timestamp,
        of_running: bool,
    ) -> (usize, Vec<EventId>) {
        let of_canvas = self.events.values().filter(|row| row.address().scope.canvas == canvas);
        let mut rows: Vec<&LiveRow> = of_canvas.collect();
        rows.sort_by(|one, other| key(one).cmp(&key(other)));
        let meant = rows.iter().filter(|row| {
            row.enqueued_at <= before && (of_running || self.is_free(row)) && filter.matches(&self.facts(row))
        });
        (rows.len(), meant.map(|row| row.event.id).collect())
    }

    fn dead_meant(
        &self,
        canvas: CanvasId,
        filter: &EventFilter,
        before: Timestamp,
        back: bool,
    ) -> (usize, Vec<EventId>) {
        let mut rows: Vec<(&EventId, &Dead)> =
            self.dead.iter().filter(|(_, dead)| dead.row.address().scope.canvas == canvas).collect();
        rows.sort_by_key(|(id, dead)| (dead.died_at, **id));
        let meant = rows.iter().filter(|(id, dead)| {
            dead.died_at <= before
                && !(back && self.events.contains_key(*id))
                && filter.matches(&dead.facts())
        });
        (rows.len(), meant.map(|(id, _)| **id).collect())
    }

    pub(in crate::store) fn begin_operation(
        &mut self,
        canvas: CanvasId,
        new: &NewOperation,
        (preview, _copies): (&OperationPreview, bool),
        actor: &Actor,
    ) -> Result<Option<BegunOperation>, StoreError> {
        let of_canvas = |operation: &&Operation| operation.canvas == canvas;
        let own: Vec<&Operation> = self.operations.values().filter(of_canvas).collect();
        let is_open = |operation: &&&Operation| operation.state == OperationState::Open;
        if own.iter().filter(is_open).count() >= OPERATIONS_OPEN_MAX {
            return Ok(None);
        }
        // Their ids are in the order in which they were begun.
        let ended = own.iter().rev().filter(|operation| operation.state != OperationState::Open);
        let old: Vec<OperationId> = ended
            .skip(BegunOperation::KEPT_MAX - OPERATIONS_OPEN_MAX)
            .map(|operation| operation.id)
            .collect();
        for id in &old {
            self.operations.remove(id);
        }
        let operation = Operation {
            id: OperationId::new(),
            canvas,
            kind: new.kind.clone(),
            filter: new.filter.clone(),
            named: new.ids().map(|ids| ids.len() as u64),
            before: preview.before,
            state: OperationState::Open,
            preview_count: preview.count,
            preview_more: preview.more,
            looked_at: 0,
            matched: 0,
            changed: 0,
            skipped: 0,
            author: actor.name().to_owned(),
            started_at: self.now,
            updated_at: self.now,
            ended_at: None,
            error: None,
        };
        self.last_job += 1;
        let ids = new.ids().map(<[EventId]>::to_vec);
        let job = OperationJob { id: operation.id, ids, is_done: false };
        self.operation_jobs.insert(self.last_job, job);
        self.operations.insert(operation.id, operation.clone());
        Ok(Some(BegunOperation { operation, job: self.last_job }))
    }

    pub(in crate::store) fn begin_operation_once(
        &mut self,
        key: &IdempotencyKey,
        new: &NewOperation,
        (preview, copies): (&OperationPreview, bool),
        actor: &Actor,
    ) -> Result<KeyedBegin, StoreError> {
        if let Some(used) = self.used(key) {
            return Ok(KeyedBegin::of(used));
        }
        let Some(begun) = self.begin_operation(key.canvas, new, (preview, copies), actor)? else {
            return Ok(KeyedBegin::TooMany);
        };
        self.remember(key, begun.operation.id.to_string());
        Ok(KeyedBegin::Begun(Box::new(begun)))
    }

    pub(in crate::store) fn operation(
        &self,
        canvas: CanvasId,
        id: OperationId,
    ) -> Result<Option<Operation>, StoreError> {
        Ok(self.operations.get(&id).filter(|operation| operation.canvas == canvas).cloned())
    }

    pub(in crate::store) fn operations(
        &self,
        canvas: CanvasId,
        after: Option<OperationsAfter>,
        limit: i64,
    ) -> Result<Vec<Operation>, StoreError> {
        let mut own: Vec<&Operation> =
            self.operations.values().filter(|operation| operation.canvas == canvas).collect();
        own.sort_by_key(|operation| std::cmp::Reverse((operation.started_at, operation.id)));
        own.retain(|operation| after.is_none_or(|after| (operation.started_at, operation.id) < after));
        Ok(own.into_iter().take(usize::try_from(limit).unwrap_or(0)).cloned().collect())
    }

    pub(in crate::store) fn cancel_operation(
        &mut self,
        canvas: CanvasId,
        id: OperationId,
        _actor: &Actor,
    ) -> Result<Option<Operation>, StoreError> {
        let now = self.now;
        let own = self.operations.get_mut(&id).filter(|operation| operation.canvas == canvas);
        let Some(operation) = own else { return Ok(None) };
        if operation.state == OperationState::Open {
            operation.state = OperationState::Cancelled;
            (operation.updated_at, operation.ended_at) = (now, Some(now));
            self.operation_jobs.retain(|_, of| of.id != id);
        }
        self.operation(canvas, id)
    }

    /// The whole operation of a job, or its end once that is done; `None` if the job is of none.
    pub(super) fn operation_page(&mut self, job: i64) -> Result<Option<ResumePage>, StoreError> {
        let now = self.now;
        let Some(OperationJob { id, ids, is_done }) = self.operation_jobs.get(&job).cloned() else {
            return Ok(None);
        };
        let Some(operation) = self.operations.get_mut(&id) else { return Ok(None) };
        if is_done {
            operation.state = OperationState::Done;
            (operation.updated_at, operation.ended_at) = (now, Some(now));
            self.operation_jobs.remove(&job);
            return Ok(Some(ResumePage::default()));
        }
        let Operation { canvas, kind, filter, before, author, .. } = operation.clone();
        let (kind, filter, ids) = (&kind, &filter, ids.as_deref());
        let events = OperationEvents { canvas, kind, filter, ids, before, copies: true };
        let looked = self.look_for_operation(events, None, u64::MAX, true)?;
        let mut page = ResumePage { quiet: !kind.publishes(), more: true, ..ResumePage::default() };
        let changed = match kind {
            OperationKind::Cancel => self.remove_meant(&looked.ids, Some(&author), &mut page),
            OperationKind::Delete => self.remove_meant(&looked.ids, None, &mut page),
            OperationKind::RunNow => self.hurry_meant(&looked.ids, &mut page),
            OperationKind::Redrive => {
                page.notifications = self.bring_back(&looked.ids);
                page.notifications.len()
            }
            OperationKind::DeleteDead => {
                looked.ids.iter().filter(|id| self.dead.remove(*id).is_some()).count()
            }
            OperationKind::Retag { add, remove } => {
                let mut changed = 0;
                for id in &looked.ids {
                    let row = self.events.get_mut(id);
                    changed += usize::from(row.is_some_and(|row| row.event.retag(add, remove)));
                }
                changed
            }
        };
        self.operation_jobs.insert(job, OperationJob { id, ids: None, is_done: true });
        if let Some(operation) = self.operations.get_mut(&id) {
            (operation.looked_at, operation.matched) = (looked.looked_at, looked.matched);
            operation.changed = changed as u64;
            operation.skipped = looked.matched - operation.changed;
            operation.updated_at = now;
        }
        Ok(Some(page))
    }

    /// Deletes those that wait; with an author, those that run are cancelled.
    fn remove_meant(&mut self, ids: &[EventId], author: Option<&str>, page: &mut ResumePage) -> usize {
        let (mut gone, mut asked) = (Vec::new(), 0);
        for id in ids {
            let is_free = self.events.get(id).is_some_and(|row| self.is_free(row));
            if is_free {
                gone.extend(self.events.remove(id));
            } else if let (Some(author), Some(row)) = (author, self.events.get_mut(id))
                && row.cancelled_by.is_none()
            {
                row.cancelled_by = Some(author.to_owned());
                asked += 1;
            }
        }
        let cause = if author.is_some() { "cancelled" } else { "purged" };
        for row in &gone {
            self.add_tombstone(row, cause);
            self.leave_batch(row, MemberEnd::Cancelled);
            if author.is_some() {
                self.keep_ended(row, EndedOutcome::Cancelled, &AttemptEnd::default(), author);
            }
        }
        gone.iter().for_each(|row| self.arm_first_of(row));
        let lanes: BTreeSet<Lane> = gone.iter().filter_map(lane_of).collect();
        page.lanes = lanes.into_iter().collect();
        page.limits = self.places_kept(&gone);
        page.stops = asked > 0;
        gone.len() + asked
    }

    /// Makes those due that wait. What a rule holds stays parked.
    fn hurry_meant(&mut self, ids: &[EventId], page: &mut ResumePage) -> usize {
        let (now, notify_at) = (self.now, self.wake_at(self.now, self.timing.grace));
        let mut due = 0;
        for id in ids {
            let is_free = self.events.get(id).is_some_and(|row| self.is_free(row));
            let Some(row) = self.events.get_mut(id).filter(|_| is_free) else { continue };
            row.delay_until = row.delay_until.min(now);
            row.probes = 0;
            due += 1;
            if row.notify_at.is_some() {
                row.notify_at = Some(notify_at);
                page.notifications.push(row.notification());
            }
        }
        due
    }
}
