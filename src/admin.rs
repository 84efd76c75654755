//! Control: rules, counts, explanations, dead events, single events. What users and operators do; never on the way of
//! an event.

use std::sync::Arc;

use crate::event::{CanvasId, EventId, HandlerScope, Notification, RuleKind, Timestamp};
use crate::explain::{Explanation, explain};
use crate::notify::Notifier;
use crate::store::{DeadEvent, DeadFilter, HandlerCounts, PURGE_PAGE, Rule, Store, StoreError};
use crate::wake::{Pass, WakeError, Waker};

/// Most rows that a list holds.
pub const LIST_MAX: u32 = 1000;

/// Who does something, for the record and for what only admins may do.
///
/// ```
/// use wakeq::Actor;
///
/// let ada = Actor::user("ada@example.com");
/// let operations = Actor::admin("operations");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    name: String,
    admin: bool,
}

impl Actor {
    /// Somebody who may pause and unpause.
    pub fn user(name: &str) -> Self {
        Self { name: name.into(), admin: false }
    }

    /// Somebody who may also block and unblock.
    pub fn admin(name: &str) -> Self {
        Self { name: name.into(), admin: true }
    }
}

/// Why a handler is stopped, and for how long.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Shown wherever the rule is; 1,000 characters at most.
    pub reason: Option<String>,
    /// The rule ends by itself then, within a minute.
    pub until: Option<Timestamp>,
}

/// What lifting a rule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Whether the rule stood.
    pub lifted: bool,
    /// Whether the handler is still stopped, by a rule of the other kind.
    pub still: Option<RuleKind>,
    /// Events whose notifications were published by this call. Workers carry on where it was cut short.
    pub woken: usize,
}

/// The events of one handler, by what they wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerStats {
    /// The handler, with all its modifiers.
    pub scope: HandlerScope,
    /// Due and free to run.
    pub waiting: i64,
    /// Not due yet.
    pub delayed: i64,
    /// Due, and held by a pause or a block.
    pub paused: i64,
    /// On a worker now.
    pub running: i64,
    /// Given up, and kept.
    pub dead: i64,
    /// Since when the oldest due event has been due.
    pub oldest_due: Option<Timestamp>,
    /// The rules in force, a block first.
    pub rules: Vec<Rule>,
    /// Since when some worker has had events for it but no such handler.
    pub unknown_since: Option<Timestamp>,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Only admins block and unblock.
    #[error("only an admin may {verb} a handler")]
    AdminOnly {
        /// `block` or `unblock`.
        verb: &'static str,
    },
    /// The rule's own data was refused.
    #[error("{0}")]
    Invalid(&'static str),
    /// The event is not there, or runs.
    #[error("event {0} is not waiting: it runs, has ended, or never was; `wakeq explain` tells which")]
    NotWaiting(EventId),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database or Pub/Sub, while waking; workers carry on.
    #[error("the change is made, but waking events stopped; a worker carries on within a minute")]
    Wake(#[source] WakeError),
}

/// Controls a queue. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    store: Store,
    notifier: Arc<dyn Notifier>,
    waker: Waker,
}

impl Admin {
    /// Control over a store; what it lifts is woken through the notifier.
    pub fn new(store: Store, notifier: Arc<dyn Notifier>) -> Self {
        let waker = Waker::new(store.clone(), Arc::clone(&notifier));
        Self { store, notifier, waker }
    }

    /// Stops a handler for its users: once this has returned, no worker can claim an event of it. One claimed a
    /// moment before may just be starting. Again: replaces reason and end.
    /// Returns whether the pause is new.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, CanvasId, HandlerScope, Stop};
    ///
    /// let handler = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// admin.pause(&handler, &Actor::user("ada"), &Stop::default()).await?;
    /// let resumed = admin.unpause(&handler).await?;
    /// println!("{} events woken", resumed.woken);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pause(&self, scope: &HandlerScope, actor: &Actor, stop: &Stop) -> Result<bool, AdminError> {
        self.stop(RuleKind::Pause, scope, actor, stop).await
    }

    /// Lifts a pause and wakes what waited. A block stays, and the answer says so.
    pub async fn unpause(&self, scope: &HandlerScope) -> Result<Resumed, AdminError> {
        self.lift(RuleKind::Pause, scope).await
    }

    /// Stops a handler whatever its users do. Only for admins.
    pub async fn block(&self, scope: &HandlerScope, actor: &Actor, stop: &Stop) -> Result<bool, AdminError> {
        if !actor.admin {
            return Err(AdminError::AdminOnly { verb: "block" });
        }
        self.stop(RuleKind::Block, scope, actor, stop).await
    }

    /// Lifts a block and wakes what waited. Only for admins. A pause stays, and the answer says so.
    pub async fn unblock(&self, scope: &HandlerScope, actor: &Actor) -> Result<Resumed, AdminError> {
        if !actor.admin {
            return Err(AdminError::AdminOnly { verb: "unblock" });
        }
        self.lift(RuleKind::Block, scope).await
    }

    async fn stop(
        &self,
        kind: RuleKind,
        scope: &HandlerScope,
        actor: &Actor,
        stop: &Stop,
    ) -> Result<bool, AdminError> {
        if !(1..=200).contains(&actor.name.chars().count()) || actor.name.contains('\0') {
            return Err(AdminError::Invalid(
                "the actor's name must have 1 to 200 characters, none of them NUL",
            ));
        }
        if stop.reason.as_ref().is_some_and(|reason| reason.chars().count() > 1000 || reason.contains('\0')) {
            return Err(AdminError::Invalid(
                "the reason must have at most 1,000 characters, none of them NUL",
            ));
        }
        if let Some(until) = stop.until
            && until <= self.store.clock().await?
        {
            return Err(AdminError::Invalid("the rule would end in the past: give a later moment"));
        }
        let reason = stop.reason.as_deref();
        Ok(self.store.add_rule(kind, scope, reason, stop.until, &actor.name).await?)
    }

    async fn lift(&self, kind: RuleKind, scope: &HandlerScope) -> Result<Resumed, AdminError> {
        let lifted = self.store.lift_rule(kind, scope).await?;
        crate::fault::point("rule.lifted");
        let woken = match lifted.job {
            Some(job) => self.waker.resume(job).await.map_err(AdminError::Wake)?,
            None => 0,
        };
        let other = match kind {
            RuleKind::Pause => RuleKind::Block,
            RuleKind::Block => RuleKind::Pause,
        };
        Ok(Resumed { lifted: lifted.job.is_some(), still: lifted.other_stands.then_some(other), woken })
    }

    /// The rules in force, of one handler or of all.
    pub async fn rules(&self, scope: Option<&HandlerScope>) -> Result<Vec<Rule>, AdminError> {
        let handler = scope.map(|scope| (&scope.module, &scope.name));
        Ok(self.store.rules(scope.map(|scope| scope.canvas), handler, i64::from(LIST_MAX)).await?)
    }

    /// The handlers of a canvas that have events, with counts and rules; one handler, if it is named.
    pub async fn stats(
        &self,
        canvas: CanvasId,
        scope: Option<&HandlerScope>,
    ) -> Result<Vec<HandlerStats>, AdminError> {
        let handler = scope.map(|scope| (&scope.module, &scope.name));
        let mut counts = self.store.counts(canvas, handler, i64::from(LIST_MAX)).await?;
        let rules = self.store.rules(Some(canvas), handler, 2 * i64::from(LIST_MAX)).await?;
        for rule in &rules {
            if !counts.iter().any(|counted| counted.scope == rule.scope) {
                let (due, delayed, dead, oldest_due) = (0, 0, 0, None);
                counts.push(HandlerCounts { scope: rule.scope.clone(), due, delayed, dead, oldest_due });
            }
        }
        let mut stats = Vec::with_capacity(counts.len());
        for counted in counts {
            let rules = rules.iter().filter(|rule| rule.scope == counted.scope).cloned().collect();
            stats.push(self.handler_stats(counted, rules).await?);
        }
        stats.sort_by(|one, other| one.scope.cmp(&other.scope));
        Ok(stats)
    }

    async fn handler_stats(
        &self,
        counts: HandlerCounts,
        rules: Vec<Rule>,
    ) -> Result<HandlerStats, AdminError> {
        let HandlerCounts { scope, due, delayed, oldest_due, dead } = counts;
        let running = if due > 0 { self.store.running(&scope).await?.min(due) } else { 0 };
        let unknown_since =
            self.store.unknown_since(&scope, None, 2 * self.store.timing().unknown_handler_wait).await?;
        let held = due - running;
        let (waiting, paused) = if rules.is_empty() { (held, 0) } else { (0, held) };
        Ok(HandlerStats { scope, waiting, delayed, paused, running, dead, oldest_due, rules, unknown_since })
    }

    /// Why an event is not running, since when, until when, and what happens next.
    pub async fn explain(&self, id: EventId) -> Result<Explanation, AdminError> {
        Ok(explain(&self.store, id).await?)
    }

    /// Deletes a waiting event.
    pub async fn cancel(&self, id: EventId) -> Result<(), AdminError> {
        if self.store.cancel(id).await? { Ok(()) } else { Err(AdminError::NotWaiting(id)) }
    }

    /// Makes a waiting event due at once. A rule on its handler still holds it.
    pub async fn run_now(&self, id: EventId) -> Result<(), AdminError> {
        let canvas = self.store.run_now(id).await?.ok_or(AdminError::NotWaiting(id))?;
        self.publish(&[Notification { id, canvas }]).await
    }

    /// Deletes all events of a handler that nobody runs, or with `dry_run` only counts them.
    pub async fn purge(&self, scope: &HandlerScope, dry_run: bool) -> Result<u64, AdminError> {
        if dry_run {
            return Ok(u64::try_from(self.store.purgeable(scope).await?).unwrap_or(0));
        }
        let mut purged = 0;
        loop {
            match self.store.purge_page(scope).await? {
                // What is emitted meanwhile is not chased.
                page if page < PURGE_PAGE => return Ok(purged + page),
                page => purged += page,
            }
        }
    }

    /// Dead events, the latest first, [`LIST_MAX`] at most.
    pub async fn dead(&self, filter: &DeadFilter, limit: u32) -> Result<Vec<DeadEvent>, AdminError> {
        Ok(self.store.dead_events(filter, i64::from(limit.min(LIST_MAX))).await?)
    }

    /// Brings dead events back: as they were, without their retries; how many.
    pub async fn redrive(&self, filter: &DeadFilter) -> Result<u64, AdminError> {
        let mut redriven = 0;
        // What dies again while this runs is not brought back a second time.
        let now = self.store.clock().await?;
        let before = filter.before.map_or(now, |before| before.min(now));
        let filter = DeadFilter { before: Some(before), ..filter.clone() };
        // A broker that is away does not end it: the rows are what counts.
        let mut published = Ok(());
        loop {
            let page = self.store.redrive_page(&filter).await?;
            if page.is_empty() {
                return published.map(|()| redriven);
            }
            redriven += page.len() as u64;
            published = published.and(self.publish(&page).await);
        }
    }

    /// The database's clock.
    pub async fn clock(&self) -> Result<Timestamp, AdminError> {
        Ok(self.store.clock().await?)
    }

    /// Whether the database has all migrations of this program, or newer ones too.
    pub async fn is_migrated(&self) -> Result<bool, AdminError> {
        Ok(self.store.is_migrated().await?)
    }

    /// Whether notifications can be published.
    pub async fn check_notifier(&self) -> Result<(), AdminError> {
        self.notifier.check().await.map_err(|error| AdminError::Wake(error.into()))
    }

    /// Runs the minute's pass now; with `all`, makes the promises of everything that could run due first.
    pub async fn wake(&self, all: bool) -> Result<Pass, AdminError> {
        if all {
            while self.store.make_all_due().await? > 0 {}
        }
        self.store.hasten_minute().await?;
        self.waker.pass(None).await.map_err(AdminError::Wake)
    }

    async fn publish(&self, notifications: &[Notification]) -> Result<(), AdminError> {
        self.notifier.publish(notifications).await.map_err(|error| AdminError::Wake(error.into()))
    }
}
