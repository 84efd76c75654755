//! The driver: performs what the machine asks for, for one notification, until it ends.
//!
//! It decides nothing. Trying the claim before the machine asks only means that the answers to the
//! first questions are already known.

mod last_writes;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::counters::RunReport;
use super::finished::{FinishedRun, RunEnd};
use super::handlers::{Execution, Handler, Registry, canvas_key};
use super::leases::{HeldClaim, Leases};
use super::permits::{PermitKind, Permits};
use super::process::process;
use super::remote::RemoteHandlers;
use super::statements::{SoloClaim, Statements};
use super::values::Values;
use crate::event::{CopyOf, HandlerAddress, Notification, Place, Schedule, Turn, target_of_queue};
use crate::machine::{Answer, Claimed, Effect, HandlerEnd, Input, Outcome, Policy, State};
use crate::store::{ClaimedEvent, LoadedEvent, StoreError};
use crate::telemetry;

/// How often a run starts over if something changed between two of its statements.
const ROUNDS_MAX: usize = 3;
/// Longest reason for a pause, in characters.
const REASON_MAX: usize = 1000;

pub(super) struct Runner {
    pub(super) statements: Statements,
    pub(super) registry: Arc<Registry>,
    pub(super) remote: Option<Arc<dyn RemoteHandlers>>,
    /// How many remote handlers of one tenant run here at a time.
    pub(super) remote_share: usize,
    pub(super) leases: Arc<Leases>,
    pub(super) policy: Policy,
    pub(super) suspect_losses: u32,
    /// Only one suspect runs here at a time: it might take the process and its runs with it.
    pub(super) suspects: Arc<Semaphore>,
    /// Limits how many bytes of large values are here at a time.
    pub(super) values: Values,
    /// Cuts handlers off when the grace of a shutdown is over.
    pub(super) kill: CancellationToken,
}

impl Runner {
    /// Runs one notification to its end.
    pub(super) async fn run(&self, notification: Notification, mut permits: Permits) -> FinishedRun {
        let span = telemetry::run_span!(notification);
        let mut round = 1;
        loop {
            let finished = self.round(notification, permits).instrument(span.clone()).await;
            let met_a_change = matches!(
                finished.report.trail.last(),
                Some(Outcome::LockClaimFailed | Outcome::RuleLifted | Outcome::FacetRecalled)
            );
            if round == ROUNDS_MAX || !met_a_change {
                span.in_scope(|| finished.log());
                return finished;
            }
            round += 1;
            permits = finished.permits;
        }
    }

    async fn find_remote(&self, address: &HandlerAddress) -> Result<Option<Arc<Handler>>, StoreError> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let found = remote.find(address, self.remote_share).await?;
        Ok(found.map(|handler| Arc::new(handler.into())))
    }

    async fn round(&self, notification: Notification, permits: Permits) -> FinishedRun {
        let mut run = Run { runner: self, notification, permits, facts: Facts::default() };
        let mut state = State::EventLoad;
        let mut trail = Vec::new();
        let end = loop {
            let input = match run.perform(state.effect()).await {
                Ok(input) => input,
                Err(end) => break end,
            };
            match state.step(input, &self.policy) {
                Ok(transition) => {
                    trail.push(transition.outcome);
                    state = transition.next;
                }
                Err(unexpected) => {
                    tracing::error!(
                        error = &unexpected as &dyn std::error::Error,
                        "unexpected state transition (bug in wakeq)"
                    );
                    break RunEnd::Answer(Answer::PutBack);
                }
            }
        };
        let freed = run.room_in_facet().await;
        let Run { facts, permits, .. } = run;
        let ran = facts.turn.unwrap_or(notification);
        let report = RunReport {
            notification: ran,
            address: facts.address,
            queue: facts.copy_of.map(|copy| copy.queue),
            trail,
            attempt: facts.attempt,
            error: facts.error,
            took: facts.took,
            verdict: end.verdict(),
        };
        let again = (ran != notification).then_some(notification);
        FinishedRun {
            end,
            permits,
            report,
            fault: facts.fault,
            next: facts.next.into_iter().chain(freed).collect(),
            again,
        }
    }
}

/// One round of a run.
struct Run<'a> {
    runner: &'a Runner,
    notification: Notification,
    permits: Permits,
    facts: Facts,
}

/// What a run has learned so far.
#[derive(Default)]
struct Facts {
    address: Option<HandlerAddress>,
    handler: Option<Arc<Handler>>,
    /// The event's losses, including the one that a claim would count.
    losses: u32,
    /// The size of its value in bytes, known once it was loaded.
    value_bytes: i32,
    event: Option<ClaimedEvent>,
    place: Option<Place>,
    copy_of: Option<CopyOf>,
    /// The copy's queue is pulled: no function or target of this worker may run it.
    pulled: bool,
    /// The copy whose turn was taken, if any: not always the one that the notification named.
    turn: Option<Notification>,
    is_limited: bool,
    next: Option<Notification>,
    held: Option<HeldClaim>,
    /// Until when the run may look for the events that have their turn after it.
    looks_end: Option<Instant>,
    attempt: Option<u32>,
    error: Option<String>,
    fault: Option<&'static str>,
    took: Option<Duration>,
}

impl Run<'_> {
    async fn perform(&mut self, effect: Effect) -> Result<Input, RunEnd> {
        let id = self.notification.id;
        let statements = &self.runner.statements;
        Ok(match effect {
            Effect::LoadEvent => Input::Loaded(self.load().await.map_err(RunEnd::Failed)?),
            Effect::Decide => Input::Decide,
            Effect::Recall => {
                statements.recalls.call(id).await.map_err(RunEnd::Failed)?;
                Input::Recalled
            }
            Effect::Park => Input::Parked(statements.parks.call(id).await.map_err(RunEnd::Failed)?),
            Effect::FindHandler => {
                self.facts.handler = self.find_handler().await.map_err(RunEnd::Failed)?;
                Input::Handler(self.facts.handler.as_ref().map(|handler| handler.retry))
            }
            Effect::Defer => {
                statements.defers.call(id).await.map_err(RunEnd::Failed)?;
                Input::Deferred
            }
            Effect::ClaimLock => Input::Claimed(self.claim().await?),
            Effect::RunHandler => Input::Ran(self.process().await),
            Effect::PauseHandler => Input::HandlerPaused(self.pause().await),
            Effect::SaveRetry { claim, retries, delay } => {
                let saved = self.save(claim, retries, delay).await;
                // Whatever the result, this run no longer has the event: a renewal would keep it
                // from other workers.
                self.facts.held = None;
                Input::RetrySaved(saved)
            }
            Effect::Release(claim) => {
                if let Err(error) = statements.releases.call(claim).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the claim was not released; it ends when its lease expires"
                    );
                }
                Input::Released
            }
            Effect::Remove(claim, removal) => {
                let removed = self.remove(claim, removal).await;
                self.facts.held = None;
                match (removed, &self.facts.place) {
                    (true, Some(_)) => Input::LinkRemoved,
                    (false, Some(_)) => {
                        // The removal may have happened all the same, and then no one else would
                        // wake the next event.
                        self.facts.next = self.next().await;
                        Input::Removed(false)
                    }
                    (removed, None) => Input::Removed(removed),
                }
            }
            Effect::HandOver => {
                self.facts.next = self.next().await;
                Input::HandedOver
            }
            Effect::Wait(when) => return Err(RunEnd::Wait(when)),
            Effect::Answer(answer) => return Err(RunEnd::Answer(answer)),
        })
    }

    /// Tries the claim first: if it succeeds, it answers the load and all checks.
    async fn load(&mut self) -> Result<Option<Schedule>, StoreError> {
        let statements = &self.runner.statements;
        let sent = Instant::now();
        if let Some(event) = statements.claim_ahead(self.notification).await? {
            let schedule = self.schedule(&event);
            self.take(event, sent);
            return Ok(Some(schedule));
        }
        let loaded = statements.loads.call(self.notification.id).await?;
        // Anyone can publish a message: one that names an event of another canvas is treated as
        // naming no event.
        let is_same_canvas = |event: &LoadedEvent| event.address.scope.canvas == self.notification.canvas;
        let Some(event) = loaded.filter(is_same_canvas) else {
            return Ok(None);
        };
        self.facts.losses =
            u32::try_from(event.losses).unwrap_or(0) + u32::from(event.schedule.locked_at.is_some());
        self.facts.address = Some(event.address);
        self.facts.copy_of = event.copy_of;
        self.facts.pulled = event.pulled;
        self.facts.value_bytes = event.value_bytes;
        Ok(Some(event.schedule))
    }

    /// The function for the event, or else its target.
    async fn find_handler(&self) -> Result<Option<Arc<Handler>>, StoreError> {
        let Some(address) = self.facts.address.as_ref().filter(|_| !self.facts.pulled) else {
            return Ok(None);
        };
        let function = match &self.facts.copy_of {
            Some(copy) => self.runner.registry.of_queue(&copy.queue),
            None => self.runner.registry.find(address),
        };
        match (function, &self.facts.copy_of) {
            (Some(handler), _) => Ok(Some(Arc::clone(handler))),
            (None, Some(copy)) => self.runner.find_remote(&target_of_queue(&copy.queue)).await,
            (None, None) => self.runner.find_remote(address).await,
        }
    }

    /// What the load would have returned for an event that could be claimed.
    fn schedule(&self, event: &ClaimedEvent) -> Schedule {
        let just_expired = event.locked_at - self.runner.policy.lease - Duration::from_micros(1);
        Schedule {
            delay_until: event.delay_until,
            locked_at: event.took_over.then_some(just_expired),
            rule: None,
            turn: Turn::First,
            now: event.locked_at,
        }
    }

    async fn claim(&mut self) -> Result<Option<Claimed>, RunEnd> {
        if self.facts.event.is_none() {
            self.claim_with_permits().await?;
        }
        Ok(self.facts.event.as_ref().map(|event| Claimed {
            claim: event.claim,
            retries: u32::try_from(event.retries).unwrap_or(0),
            losses: u32::try_from(event.losses).unwrap_or(0),
        }))
    }

    async fn claim_with_permits(&mut self) -> Result<(), RunEnd> {
        // A suspect may wait long for its turn: it must not hold its handler's permit meanwhile.
        let suspect = self.facts.losses >= self.runner.suspect_losses;
        if suspect {
            self.acquire(PermitKind::Suspect, &self.runner.suspects, 1)?;
        }
        if let Some(handler) = self.facts.handler.clone() {
            if let Some(limit) = &handler.concurrency {
                self.acquire(PermitKind::Handler, limit, 1)?;
            }
            // Last, so that an event that waits for its handler takes nothing from the canvas's
            // other handlers.
            if let Some(share) = &handler.share {
                self.acquire(PermitKind::Canvas, share, 1)?;
            }
        }
        // Nothing else is waited for once there is room for the value.
        let large = self.runner.values.permits_for(self.facts.value_bytes);
        if let Some(count) = large {
            self.acquire(PermitKind::Value, &self.runner.values.semaphore, count)?;
        }
        let (notification, alone) = (self.notification, SoloClaim { suspect, large: large.is_some() });
        let sent = Instant::now();
        let key = self.facts.key_of_target();
        let statements = &self.runner.statements;
        let claimed = match &self.facts.copy_of {
            Some(copy) => statements.take_turn(&copy.queue, notification.id, alone).await,
            None => statements.claim(notification, key, alone).await,
        };
        if let Some(event) = claimed.map_err(RunEnd::Failed)? {
            self.take(event, sent);
        }
        Ok(())
    }

    fn acquire(&mut self, kind: PermitKind, semaphore: &Arc<Semaphore>, count: u32) -> Result<(), RunEnd> {
        if self.permits.try_acquire(kind, semaphore, count) {
            Ok(())
        } else {
            Err(RunEnd::NeedsPermits(kind, Arc::clone(semaphore), count))
        }
    }

    fn take(&mut self, event: ClaimedEvent, sent: Instant) {
        self.facts.held = Some(self.runner.leases.hold(event.claim, sent));
        self.facts.address = Some(event.address.clone());
        self.facts.place = event.place.clone();
        if event.copy_of.is_some() {
            self.facts.copy_of = event.copy_of.clone();
            let (id, canvas) = (event.claim.id, event.address.scope.canvas);
            self.facts.turn = Some(Notification { id, canvas });
            self.facts.is_limited = event.is_limited;
        }
        self.facts.event = Some(event);
    }

    async fn process(&mut self) -> HandlerEnd {
        let (Some(event), Some(handler), Some(held)) =
            (self.facts.event.take(), &self.facts.handler, &self.facts.held)
        else {
            return HandlerEnd::LeaseLost;
        };
        let attempt = u32::try_from(event.retries).unwrap_or(0) + 1;
        let span = tracing::Span::current();
        span.record("handler", tracing::field::display(&event.address));
        span.record("attempt", attempt);
        if let Some(CopyOf { queue, origin }) = &event.copy_of {
            span.record("queue", tracing::field::display(queue));
            span.record("origin", tracing::field::display(origin));
        }
        if let Some(Place { object, link }) = &event.place {
            span.record("object", tracing::field::display(object));
            span.record("link", link.id);
        }
        if let Some(trace) = &event.traceparent {
            span.record("trace_id", trace.trace_id());
        }
        self.facts.attempt = Some(attempt);
        let processing = telemetry::process_span(&telemetry::AttemptInfo {
            event: event.claim.id,
            address: &event.address,
            attempt,
            emitted_by: event.traceparent.as_ref(),
        });
        let waited = (event.locked_at - event.enqueued_at).to_std().unwrap_or_default();
        let mut execution = execution(event, attempt);
        execution.traceparent = telemetry::span_trace(&processing).or(execution.traceparent);
        let started = Instant::now();
        let running = process(handler, execution, held, &self.runner.kill);
        let report = running.instrument(processing.clone()).await;
        let took = started.elapsed();
        if report.end == HandlerEnd::LeaseLost {
            self.give_up(held).await;
        }
        self.facts.took = Some(took);
        let report = report.at_age(waited + took, handler.patience);
        if let Some(fault) = report.fault {
            telemetry::failed(&processing, fault, report.error.as_deref().unwrap_or_default());
        }
        (self.facts.error, self.facts.fault) = (report.error, report.fault);
        report.end
    }

    /// Pauses the handler of this run, whose target was removed; returns whether the database
    /// answered.
    async fn pause(&self) -> bool {
        let (Some(address), Some(handler)) = (&self.facts.address, &self.facts.handler) else { return false };
        // Rules do not pause queues, and the handlers that a queue's copies name still exist.
        if self.facts.copy_of.is_some() {
            return false;
        }
        let reason = self.facts.error.as_deref().unwrap_or("its target was removed");
        let reason: String = reason.chars().take(REASON_MAX).collect();
        match self.runner.statements.pause_gone(address, handler.revision, &reason).await {
            Ok(true) => tracing::warn!(
                reason,
                "the handler's target reports that it was removed (410 Gone); the handler is \
                 paused until it is unpaused"
            ),
            Ok(false) => {
                tracing::info!(
                    reason,
                    "the handler's target reports that it was removed (410 Gone); the handler was \
                     paused already, or has another target by now"
                )
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    reason,
                    "the handler's target reports that it was removed (410 Gone), but the handler \
                     could not be paused; retrying"
                );
                return false;
            }
        }
        true
    }
}

impl Facts {
    /// The key that the claim needs for a handler that is not registered in this worker.
    fn key_of_target(&self) -> Option<String> {
        let handler = self.handler.as_ref()?;
        handler.revision?;
        self.address.as_ref().map(canvas_key)
    }
}

fn execution(event: ClaimedEvent, attempt: u32) -> Execution {
    Execution {
        id: event.claim.id,
        address: event.address,
        json: event.value,
        attempt,
        enqueued_at: event.enqueued_at,
        due_at: event.delay_until,
        claimed_at: event.locked_at,
        traceparent: event.traceparent,
        place: event.place,
        copy_of: event.copy_of,
    }
}
