//! Registered queues: what is copied into them, what processes them, and what each canvas gets.
//!
//! Queues span all canvases: callers check the authorization.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::retries::check_retries;
use super::targets::HEADERS_LEAVE;
use super::{Admin, AdminError, LIST_MAX, checked};
use super::{NewSecret, NewTarget};
use crate::event::{Actor, CanvasId, Keep, Name, PullPolicy, QueuePattern};
use crate::event::{Secret, target_of_queue};
use crate::store::{Facet, FacetSettings, NewQueueRow, QueueDepth, QueuePut, RegisteredQueue};

/// Maximum number of patterns of a queue.
const PATTERNS_MAX: usize = 20;
/// Highest weight of a canvas (its events per round), and highest limit of its events in flight.
const WEIGHT_MAX: u32 = 1000;
const IN_FLIGHT_MAX: u32 = 10_000;
/// Logged if the work after a change of a queue fails.
const WORK_STOPPED: &str = "a queue was changed, but the work that follows from the change stopped";
/// Default limit of a canvas's events in flight in a pulled queue.
const PULLED_IN_FLIGHT: u32 = 1000;

/// A queue to be registered.
#[derive(Clone, Debug, Default)]
pub struct NewQueue {
    /// Patterns of the events that are copied into it, 1 to 20: an event is copied if any pattern
    /// is found in its topic.
    pub patterns: Vec<QueuePattern>,
    /// The default settings of a canvas in this queue.
    pub facets: FacetSettings,
    /// Whether copies are visible to their canvases: callers that may read or operate on a canvas
    /// may then do so with its copies, and rules on the handlers that they name hold them.
    /// Otherwise they are visible only to callers with access to every canvas.
    pub tenant_visible: bool,
    /// The retry policy, if services pull the queue ([`Admin::lease_copies`]). Then no worker runs
    /// its copies, and it has no target. A canvas has 1,000 of them in flight at most by default.
    pub pull: Option<PullPolicy>,
    /// The target to which its events are sent. Without one, functions process it:
    /// [`Handlers::on_queue`](crate::Handlers::on_queue).
    pub target: Option<NewTarget>,
}

/// The result of registering a queue.
#[derive(Clone, Debug)]
pub struct PutQueue {
    /// Whether no queue had this name.
    pub new: bool,
    /// Whether anything changed.
    pub changed: bool,
    /// The queue as it is now.
    pub queue: RegisteredQueue,
    /// The secret that was generated for its target; it is shown only this once.
    pub secret: Option<Secret>,
    /// Copies that may now run and whose notifications were published before this call returned.
    pub woken: usize,
    /// Whether waking continues after the call.
    pub waking: bool,
}

/// What happens to the waiting copies of a queue that is unregistered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitingCopies {
    /// They are processed as before; the queue is removed after the last one.
    #[default]
    Drain,
    /// They are deleted, except those that are running.
    Drop,
}

/// The result of unregistering a queue, which receives no more copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedQueue {
    /// Whether the queue is gone. If not, it is removed within a minute after its last copy.
    pub gone: bool,
}

/// The settings of a canvas in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFacet {
    /// The settings as they were set; the queue's settings apply to what is not set.
    pub settings: FacetSettings,
    /// Copies that may now run and whose notifications were published before this call returned.
    pub woken: usize,
    /// Whether waking continues after the call.
    pub waking: bool,
}

impl Admin {
    /// Registers a queue, or replaces the one registered under its name. From then on, every emit
    /// of an event whose topic matches a pattern adds a copy to the queue, in the transaction of
    /// the emit. Registering the same queue again changes nothing.
    ///
    /// The queue receives events of all canvases. The settings of single canvases are kept.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::Actor;
    /// use wakeq::queues::NewQueue;
    ///
    /// let emails = NewQueue { patterns: vec![".*:email_event:.*".parse()?], ..NewQueue::default() };
    /// admin.put_queue(&"email_events".parse()?, &emails, &Actor::user("ada")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put_queue(
        &self,
        name: &Name,
        new: &NewQueue,
        actor: &Actor,
    ) -> Result<PutQueue, AdminError> {
        checked(actor)?;
        let new = self.checked_queue(name, new)?;
        let before = self.queue_row(name).await?;
        if let Some(before) = before.as_ref().filter(|before| is_same(before, &new)) {
            return Ok(PutQueue {
                new: false,
                changed: false,
                queue: before.clone(),
                secret: None,
                woken: 0,
                waking: false,
            });
        }
        let row = NewQueueRow {
            name,
            patterns: &new.patterns,
            facets: new.facets,
            tenant_visible: new.tenant_visible,
            pull: new.pull.as_ref(),
            wakes: before.as_ref().is_some_and(|before| unblocks_waiting(before, &new)),
            actor,
        };
        let (put, secret) = self.put_row(&row, new.target.as_ref()).await?;
        let is_new = match put {
            QueuePut::New => true,
            QueuePut::Replaced => false,
            QueuePut::TooMany => return Err(AdminError::TooManyQueues),
            QueuePut::HeadersLeave => return Err(AdminError::Invalid(HEADERS_LEAVE)),
            QueuePut::TooCostly => return Err(AdminError::TooCostlyPatterns),
            QueuePut::Stale => return Err(AdminError::QueuesChange),
        };
        let queue = self.queue_row(name).await?.ok_or_else(|| AdminError::NoQueue(name.clone()))?;
        let (woken, waking) = if row.wakes { self.wake_queue(name).await? } else { (0, false) };
        Ok(PutQueue { new: is_new, changed: true, queue, secret, woken, waking })
    }

    async fn put_row(
        &self,
        row: &NewQueueRow<'_>,
        target: Option<&NewTarget>,
    ) -> Result<(QueuePut, Option<Secret>), AdminError> {
        let Some(new) = target else { return Ok((self.store.put_queue(row, None).await?.0, None)) };
        let address = target_of_queue(row.name);
        let (target, is_made) = self.target_row(&address, new, row.actor).await?;
        let (put, outcome) = self.store.put_queue(row, Some(&target)).await?;
        let taken = outcome.is_some_and(|outcome| outcome.secret_taken);
        Ok((put, (taken && is_made).then_some(target.secret)))
    }

    /// The registered queues by name, including those that are being drained: at most 100, since no
    /// more can be registered.
    pub async fn queues(&self) -> Result<Vec<RegisteredQueue>, AdminError> {
        Ok(self.store.queues(None).await?)
    }

    /// The queue of this name. [`Admin::facet_settings`] lists the canvases with settings of their
    /// own.
    pub async fn queue(&self, name: &Name) -> Result<RegisteredQueue, AdminError> {
        self.queue_row(name).await?.ok_or_else(|| AdminError::NoQueue(name.clone()))
    }

    /// The canvases with settings of their own in a queue, by id, after the given one: up to
    /// `limit`, and up to 1,001, since one more than a page tells whether another page follows.
    pub async fn facet_settings(
        &self,
        name: &Name,
        after: Option<CanvasId>,
        limit: u32,
    ) -> Result<Vec<(CanvasId, FacetSettings)>, AdminError> {
        let limit = i64::from(limit.min(LIST_MAX + 1));
        let settings = self.store.facet_settings(name, None, after, limit).await?;
        if settings.is_empty() {
            self.queue(name).await?;
        }
        Ok(settings)
    }

    async fn queue_row(&self, name: &Name) -> Result<Option<RegisteredQueue>, AdminError> {
        Ok(self.store.queues(Some(name)).await?.pop())
    }

    /// Unregisters a queue: it receives no more copies. Waiting copies are drained or dropped;
    /// running ones end normally. A repeated call can drop what was to be drained.
    pub async fn delete_queue(
        &self,
        name: &Name,
        waiting: WaitingCopies,
        actor: &Actor,
    ) -> Result<DeletedQueue, AdminError> {
        checked(actor)?;
        if !self.store.drain_queue(name, actor).await? {
            return Err(AdminError::NoQueue(name.clone()));
        }
        match waiting {
            WaitingCopies::Drain => {
                self.store.end_drained().await?;
            }
            WaitingCopies::Drop => {
                let (waker, name) = (self.waker.clone(), name.clone());
                let drop = async move { waker.drop_queue(&name).await.map(|()| false) };
                self.in_background(None, WORK_STOPPED, drop).await?;
            }
        }
        Ok(DeletedQueue { gone: self.queue_row(name).await?.is_none() })
    }

    /// The canvases with copies in a queue, by id, after the given one: up to `limit`, and up to
    /// 1,001, since one more than a page tells whether another page follows.
    pub async fn facets(
        &self,
        name: &Name,
        after: Option<CanvasId>,
        limit: u32,
    ) -> Result<Vec<Facet>, AdminError> {
        let limit = i64::from(limit.min(LIST_MAX + 1));
        let facets = self.store.facets(name, None, after, limit).await?;
        if facets.is_empty() && self.queue_row(name).await?.is_none() {
            return Err(AdminError::NoQueue(name.clone()));
        }
        Ok(facets)
    }

    /// One canvas in a queue, whether it has copies or not.
    pub async fn facet(&self, name: &Name, canvas: CanvasId) -> Result<Facet, AdminError> {
        if let Some(facet) = self.store.facets(name, Some(canvas), None, 1).await?.pop() {
            return Ok(facet);
        }
        self.queue(name).await?;
        let own = self.store.facet_settings(name, Some(canvas), None, 1).await?.pop();
        let settings = own.map(|(_, settings)| settings).unwrap_or_default();
        Ok(Facet {
            canvas,
            waiting: 0,
            running: 0,
            capped: false,
            oldest_due: None,
            position: None,
            settings,
        })
    }

    /// How much there is to do in a queue, for autoscalers. Cheap, however much is waiting.
    pub async fn queue_depth(&self, name: &Name) -> Result<QueueDepth, AdminError> {
        let depth = self.store.queue_depths(Some(name)).await?.pop();
        depth.ok_or_else(|| AdminError::NoQueue(name.clone()))
    }

    /// Sets what a canvas gets of a queue; the queue's settings apply to what is not set. Copies
    /// that may run as a result are woken.
    pub async fn set_facet(
        &self,
        name: &Name,
        canvas: CanvasId,
        settings: FacetSettings,
        actor: &Actor,
    ) -> Result<SetFacet, AdminError> {
        checked(actor)?;
        check_facets(settings)?;
        if canvas.is_reserved() {
            return Err(AdminError::Invalid("no canvas has this id"));
        }
        let queue = self.queue(name).await?;
        let own = self.store.facet_settings(name, Some(canvas), None, 1).await?;
        let before = with_defaults(own.first().map(|(_, own)| *own).unwrap_or_default(), queue.facets);
        let wakes = relaxes(before, with_defaults(settings, queue.facets));
        if !self.store.set_facet(name, canvas, settings, wakes, actor).await? {
            return Err(AdminError::NoQueue(name.clone()));
        }
        let (woken, waking) = if wakes { self.wake_queue(name).await? } else { (0, false) };
        Ok(SetFacet { settings, woken, waking })
    }

    /// Wakes what waits in a queue; returns how many were woken before the patience ended, and
    /// whether waking continues.
    async fn wake_queue(&self, name: &Name) -> Result<(usize, bool), AdminError> {
        let woken = Arc::new(AtomicUsize::new(0));
        let (waker, count, name) = (self.waker.clone(), Arc::clone(&woken), name.clone());
        let wake = async move { waker.wake_queue(Some(&name), &count).await.map(|()| false) };
        let waking = self.in_background(None, WORK_STOPPED, wake).await?;
        Ok((woken.load(Ordering::Relaxed), waking))
    }

    fn checked_queue(&self, name: &Name, new: &NewQueue) -> Result<NewQueue, AdminError> {
        if !(1..=PATTERNS_MAX).contains(&new.patterns.len()) {
            return Err(AdminError::Invalid("a queue has 1 to 20 patterns"));
        }
        check_facets(new.facets)?;
        if let Some(target) = &new.target {
            if new.pull.is_some() {
                return Err(AdminError::Invalid("a queue is pulled or has a target, not both"));
            }
            self.check_target(&target_of_queue(name), target)?;
        }
        let mut new = new.clone();
        if let Some(pull) = &new.pull {
            check_pull(pull)?;
            new.facets.in_flight_max.get_or_insert(PULLED_IN_FLIGHT);
        }
        new.patterns.sort_unstable();
        new.patterns.dedup();
        new.facets.weight.get_or_insert(1);
        Ok(new)
    }
}

fn check_facets(settings: FacetSettings) -> Result<(), AdminError> {
    if settings.weight.is_some_and(|weight| weight > WEIGHT_MAX) {
        return Err(AdminError::Invalid("a weight is 0 to 1,000 events in each round; 0 pauses"));
    }
    if settings.in_flight_max.is_some_and(|cap| !(1..=IN_FLIGHT_MAX).contains(&cap)) {
        return Err(AdminError::Invalid(
            "`in_flight_max` must be 1 to 10,000; omit it for no limit, and pause with the weight 0",
        ));
    }
    Ok(())
}

fn check_pull(policy: &PullPolicy) -> Result<(), AdminError> {
    let PullPolicy { retries, delay, factor, delay_max, halts: _, keep } = *policy;
    if keep != Keep::default() {
        return Err(AdminError::Invalid("copies in queues are not kept: leave `keep_s` out"));
    }
    check_retries(retries, (delay, factor, delay_max)).map_err(AdminError::Invalid)
}

/// Whether registering this queue would change nothing.
fn is_same(before: &RegisteredQueue, new: &NewQueue) -> bool {
    let patterns = before.patterns.iter().map(String::as_str);
    let settings =
        !before.draining && before.facets == new.facets && before.tenant_visible == new.tenant_visible;
    settings && before.pull == new.pull && is_same_set(patterns, &new.patterns) && is_same_target(before, new)
}

fn is_same_set<'a>(before: impl Iterator<Item = &'a str>, new: &[QueuePattern]) -> bool {
    // Postgres sorts by its own collation.
    let mut before: Vec<&str> = before.collect();
    before.sort_unstable();
    before.into_iter().eq(new.iter().map(QueuePattern::as_str))
}

fn is_same_target(before: &RegisteredQueue, new: &NewQueue) -> bool {
    match (&before.target, &new.target) {
        (None, None) => true,
        (Some(before), Some(new)) => {
            let keeps = matches!(new.secret, NewSecret::Keep) && new.headers.is_none();
            keeps
                && before.url == new.url.as_str()
                && before.policy == new.policy
                && before.audience == new.audience
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether waiting copies may run once a queue is replaced.
fn unblocks_waiting(before: &RegisteredQueue, now: &NewQueue) -> bool {
    let got_a_target = now.target.is_some() && !is_same_target(before, now);
    // No worker was notified of the waiting copies.
    let got_workers = before.pull.is_some() && now.pull.is_none();
    got_a_target || got_workers || relaxes(before.facets, now.facets)
}

/// Whether a canvas that could not run copies may do so with the new settings. A higher weight
/// alone is no reason: such a canvas has its turns anyway.
fn relaxes(before: FacetSettings, now: FacetSettings) -> bool {
    let unpaused = before.weight == Some(0) && now.weight != Some(0);
    let raised = match (before.in_flight_max, now.in_flight_max) {
        (Some(before), Some(now)) => now > before,
        (Some(_), None) => true,
        (None, _) => false,
    };
    unpaused || (raised && now.weight != Some(0))
}

/// A canvas's own settings, with the queue's settings as defaults.
fn with_defaults(own: FacetSettings, queue: FacetSettings) -> FacetSettings {
    FacetSettings {
        weight: own.weight.or(queue.weight),
        in_flight_max: own.in_flight_max.or(queue.in_flight_max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(weight: u32, in_flight_max: Option<u32>) -> FacetSettings {
        FacetSettings { weight: Some(weight), in_flight_max }
    }

    #[test]
    fn settings_that_unblock_a_canvas_wake_it() {
        for (before, now, lets) in [
            (settings(0, None), settings(1, None), true),
            (settings(1, None), settings(9, None), false),
            (settings(1, None), settings(0, None), false),
            (settings(1, Some(1)), settings(1, Some(2)), true),
            (settings(1, Some(1)), settings(1, None), true),
            (settings(1, Some(2)), settings(1, Some(1)), false),
            (settings(1, None), settings(1, Some(5)), false),
            (settings(1, Some(1)), settings(0, Some(2)), false),
        ] {
            assert_eq!(relaxes(before, now), lets, "{before:?} {now:?}");
        }
    }

    #[test]
    fn settings_have_limits() {
        for good in [settings(0, Some(1)), settings(1000, Some(10_000)), FacetSettings::default()] {
            assert!(check_facets(good).is_ok(), "{good:?}");
        }
        for bad in [settings(1001, None), settings(1, Some(0)), settings(1, Some(10_001))] {
            assert!(check_facets(bad).is_err(), "{bad:?}");
        }
    }
}
