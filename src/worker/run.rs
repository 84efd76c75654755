//! The driver: performs the effects that the machine asks for, for one notification, until it ends.
//!
//! It decides nothing. Trying the claim before the machine asks only means that the answers to the
//! first questions are already known.

mod claim;
mod last_writes;
mod stage;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::busy::{BusyTargets, EndedRun, TargetKey};
use super::checkpoints::Checkpoints;
use super::counters::RunReport;
use super::execution::Execution;
use super::finished::{FinishedRun, RunEnd};
use super::handlers::{Handler, Registry};
use super::leases::Leases;
use super::permits::Permits;
use super::places::{PlaceRequest, Places};
use super::process::{CutOff, HandlerReport, process};
use super::remote::RemoteHandlers;
use super::statements::Statements;
use super::unknown::UnknownHandlers;
use super::values::Values;
use super::woken::WokenEvents;
use crate::event::{
    CanvasId, CopyOf, EventId, HandlerAddress, Name, Notification, Place, Schedule, Turn, target_of_queue,
};
use crate::machine::{Answer, Effect, HandlerEnd, Input, Outcome, Policy, State, When};
use crate::store::{ClaimedEvent, LoadedEvent, Standing, StoreError};
use crate::telemetry;
use crate::wake::Waker;
use stage::{
    Attempt, AttemptReport, HandOver, LoadedRow, Owner, ReadyEvent, Stage, Summary, UnexpectedEffect,
};

/// How often a run starts over if something changed between two of its statements.
const ROUNDS_MAX: usize = 3;

pub(super) struct Runner {
    pub(super) statements: Statements,
    /// Publishes what the end of an event leads to.
    pub(super) waker: Waker,
    pub(super) registry: Arc<Registry>,
    pub(super) unknown: UnknownHandlers,
    pub(super) remote: Option<Arc<dyn RemoteHandlers>>,
    /// Decides which run may take a place here.
    pub(super) places: Places,
    pub(super) leases: Arc<Leases>,
    pub(super) policy: Policy,
    /// Targets that have no capacity now.
    pub(super) busy: Arc<BusyTargets>,
    pub(super) suspect_losses: u32,
    /// Only one suspect runs here at a time: it might take the process and its runs with it.
    pub(super) suspects: Arc<Semaphore>,
    /// Limits how many bytes of large values are here at once.
    pub(super) values: Values,
    /// Those that were woken at limits by runs of this process.
    pub(super) woken: WokenEvents,
    /// Cuts handlers off when the grace of a shutdown is over.
    pub(super) kill: CancellationToken,
    /// How long a handler may go on after its event was cancelled.
    pub(super) cancel_grace: Duration,
    pub(super) checkpoints: Checkpoints,
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
                span.in_scope(|| {
                    finished.log();
                    self.unknown.warn(&finished.report, self.remote.is_some());
                });
                if let Some((handler, run)) = finished.counted() {
                    self.statements.count(handler, &run);
                }
                return finished;
            }
            round += 1;
            permits = finished.permits;
        }
    }

    /// Another canvas that has events, if any is known. Where looking takes too long, there may be
    /// one, and a reserved id stands for it. Looking through the notifications without need is
    /// harmless.
    pub(super) async fn other_canvas(&self, canvas: CanvasId) -> Option<CanvasId> {
        match self.statements.other_canvas(canvas).await {
            Ok(other) => other,
            Err(error) if error.is_too_long() => Some(CanvasId::OF_QUEUES),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "could not find out whether another canvas has events");
                None
            }
        }
    }

    pub(super) async fn put_off(&self, later: Vec<(EventId, Duration)>) {
        if let Err(error) = self.statements.put_off(&later).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "promises could not be put off; they stay as they are");
        }
    }

    /// Those of these notifications whose events are of urgent routes.
    pub(super) async fn of_urgent_routes(&self, mut asked: Vec<Notification>) -> Vec<Notification> {
        let (any_canvas, one_canvas) = self.registry.urgent();
        match self.statements.of_handlers(&asked, &any_canvas, &one_canvas).await {
            Ok(urgent) => {
                asked.retain(|notification| urgent.contains(&notification.id));
                asked
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "could not find out which events are of urgent routes");
                Vec::new()
            }
        }
    }

    async fn find_remote(&self, address: &HandlerAddress) -> Result<Option<Arc<Handler>>, StoreError> {
        let Some(remote) = &self.remote else { return Ok(None) };
        let found = remote.find(address).await?;
        Ok(found.map(|handler| Arc::new(handler.into())))
    }

    async fn round(&self, notification: Notification, permits: Permits) -> FinishedRun {
        let woken = self.woken.take(notification.id);
        let mut run = Run { runner: self, notification, permits, woken };
        let (mut state, mut stage) = (State::EventLoad, Stage::Arrival);
        let mut trail = Vec::new();
        let end = loop {
            let (reached, answer) = run.perform(stage, state.effect()).await;
            stage = reached;
            let input = match answer {
                Ok(input) => input,
                Err(end) => break end,
            };
            match state.step(input, &self.policy) {
                Ok(transition) => {
                    trail.push(transition.outcome);
                    state = transition.next;
                }
                Err(unexpected) => break defect(&unexpected),
            }
        };
        let mut freed = run.room_in_facet(&stage).await;
        let steps_aside = stage.waits_at_limits() && end.waits_for_others(trail.last());
        if steps_aside || stage.held_limits().is_some() {
            // Boxed, since it is rare, and each run would have room for it.
            freed.extend(Box::pin(run.leave_limits(&stage, steps_aside)).await);
        }
        let Summary { address, queue, turn, attempt, next } = stage.summary();
        let ran = turn.unwrap_or(notification);
        let mut report = Box::new(RunReport {
            notification: ran,
            address,
            queue,
            trail,
            attempt: None,
            error: None,
            waited: None,
            took: None,
            verdict: end.verdict(),
        });
        let mut fault = None;
        if let Some(attempt) = attempt {
            (report.attempt, report.waited) = (Some(attempt.number), Some(attempt.waited));
            report.took = Some(attempt.took);
            (report.error, fault) = (attempt.error, attempt.fault);
        }
        let again = (ran.id != notification.id).then_some(notification);
        let next = next.into_iter().chain(freed).collect();
        FinishedRun { end, permits: run.permits, report, fault, next, again }
    }
}

/// One round of a run. Its knowledge of the event is in its [`Stage`].
struct Run<'a> {
    runner: &'a Runner,
    notification: Notification,
    permits: Permits,
    /// A run here has woken it at a limit.
    woken: bool,
}

/// The stage that an effect leads to, and the machine's answer or why the round ends.
type NextStage = (Stage, Result<Input, RunEnd>);

impl Run<'_> {
    async fn perform(&mut self, stage: Stage, effect: Effect) -> NextStage {
        let (id, statements) = (self.notification.id, &self.runner.statements);
        let answer = match effect {
            Effect::Decide => Ok(Input::Decide),
            Effect::Recall => {
                statements.recalls.call(id).await.map(|()| Input::Recalled).map_err(RunEnd::Failed)
            }
            Effect::Park => statements.parks.call(id).await.map(Input::Parked).map_err(RunEnd::Failed),
            Effect::Defer => {
                statements.defers.call(id).await.map(|()| Input::Deferred).map_err(RunEnd::Failed)
            }
            Effect::Wait(when) => Err(RunEnd::Wait(when)),
            Effect::Answer(answer) => Err(RunEnd::Answer(answer)),
            Effect::LoadEvent
            | Effect::FindHandler
            | Effect::ClaimLock
            | Effect::RunHandler
            | Effect::PauseHandler
            | Effect::SaveRetry { .. }
            | Effect::Release(_)
            | Effect::Remove(..)
            | Effect::HandOver => return self.perform_at(stage, effect).await,
        };
        (stage, answer)
    }

    /// Performs the effects that need something from the stage, or lead to another.
    async fn perform_at(&mut self, stage: Stage, effect: Effect) -> NextStage {
        match (stage, effect) {
            (Stage::Arrival, Effect::LoadEvent) => loaded(self.load().await),
            (Stage::Row(row), Effect::FindHandler) => {
                let found = self.handler_of_row(&row).await;
                handler_found(found, |handler| row.with(handler))
            }
            (Stage::EarlyClaim(held), Effect::FindHandler) => {
                let found = self.find_handler(&held.subject.address, held.subject.queue()).await;
                handler_found(found, |handler| held.with(handler))
            }
            (Stage::Candidate(candidate), Effect::ClaimLock) => self.claim(candidate).await,
            (Stage::ReadyEvent(ready), Effect::ClaimLock) => claimed(ready),
            (Stage::ReadyEvent(ready), Effect::RunHandler) => {
                let (attempt, end) = self.process(ready).await;
                if end == HandlerEnd::ShutDown && attempt.owner.held_claim.is_held_back() {
                    // Boxed, since it is rare, and each run would have room for it.
                    return Box::pin(self.hold_back(attempt)).await;
                }
                (Stage::Attempt(attempt), Ok(Input::Ran(end)))
            }
            (Stage::Attempt(attempt), Effect::PauseHandler) => {
                let paused = self.pause(&attempt).await;
                (Stage::Attempt(attempt), Ok(Input::HandlerPaused(paused)))
            }
            (Stage::Attempt(attempt), Effect::SaveRetry { claim, retries, delay }) => {
                let saved = Box::pin(self.save(&attempt, claim, retries, delay)).await;
                // Whatever the result, this run no longer has the event: a renewal would keep it
                // from other workers.
                (Stage::Ending(attempt.into_ending()), Ok(Input::RetrySaved(saved)))
            }
            (Stage::Attempt(attempt), Effect::Release(claim)) => {
                self.release(claim).await;
                (Stage::Attempt(attempt), Ok(Input::Released))
            }
            (stage, Effect::Remove(claim, removal)) => self.remove(stage, claim, removal).await,
            (Stage::HandOver(hand_over), Effect::HandOver) => {
                let HandOver { lane, ending } = *hand_over;
                (Stage::Ending(ending.after(self.next(lane).await)), Ok(Input::HandedOver))
            }
            (stage, effect) => {
                let end = defect(&UnexpectedEffect { stage: stage.name(), effect });
                (stage, Err(end))
            }
        }
    }

    /// Tries the claim first: if it succeeds, it answers the load and all checks. While a slow
    /// function has to leave places to others, the handler has to be known before. Which claim can
    /// succeed is known of what was woken here.
    async fn load(&self) -> Result<(Stage, Option<Schedule>), StoreError> {
        let statements = &self.runner.statements;
        let sent = Instant::now();
        let may_claim = self.permits.has_place() || !self.runner.places.are_short();
        if may_claim && self.woken {
            // Boxed, since it is rare, and each run would have room for it.
            if let Some(held) = Box::pin(self.claim_woken()).await? {
                let schedule = self.schedule(&held.event);
                return Ok((Stage::EarlyClaim(held), Some(schedule)));
            }
        } else if may_claim && let Some(event) = statements.claim_ahead(self.notification).await? {
            let schedule = self.schedule(&event);
            return Ok((Stage::EarlyClaim(self.hold(event, sent)), Some(schedule)));
        }
        let loaded = statements.loads.call(self.notification.id).await?;
        // Anyone can publish a message: one that names an event of another canvas is treated as
        // naming no event.
        let is_same_canvas = |event: &LoadedEvent| event.address.scope.canvas == self.notification.canvas;
        let Some(event) = loaded.filter(is_same_canvas) else {
            return Ok((Stage::Arrival, None));
        };
        let schedule = event.schedule;
        Ok((Stage::Row(LoadedRow::of(event)), Some(schedule)))
    }

    async fn handler_of_row(&self, row: &LoadedRow) -> Result<Option<Arc<Handler>>, StoreError> {
        if row.is_pulled {
            return Ok(None);
        }
        self.find_handler(&row.address, row.queue.as_ref()).await
    }

    /// The function for an event, or else its target.
    async fn find_handler(
        &self,
        address: &HandlerAddress,
        queue: Option<&Name>,
    ) -> Result<Option<Arc<Handler>>, StoreError> {
        let function = match queue {
            Some(queue) => self.runner.registry.of_queue(queue),
            None => self.runner.registry.find(address),
        };
        match (function, queue) {
            (Some(handler), _) => Ok(Some(Arc::clone(handler))),
            (None, Some(queue)) => self.runner.find_remote(&target_of_queue(queue)).await,
            (None, None) => self.runner.find_remote(address).await,
        }
    }

    /// The result that the load would have had for an event that could be claimed.
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

    /// Whether a target has completed its event itself, by `wakeq.complete`.
    async fn has_completed(&self, owner: &Owner) -> bool {
        let is_target = owner.handler.revision.is_some() && !self.runner.checkpoints.are_in_memory();
        let held = &owner.held_claim;
        is_target && held.has_ended() && self.standing(held).await == Some(Standing::Gone)
    }

    /// Releases an event that a rule held before its handler was called. The next run parks it.
    async fn hold_back(&self, attempt: Attempt) -> NextStage {
        self.release(attempt.owner.held_claim.claim()).await;
        (Stage::Ending(attempt.into_unstarted()), Err(RunEnd::Wait(When::Soon)))
    }

    async fn process(&self, ready: ReadyEvent) -> (Attempt, HandlerEnd) {
        let (postponed, waited) = (ready.postponed(), ready.waited());
        let ReadyEvent { owner, event } = ready;
        let number = u32::try_from(event.retries).unwrap_or(0) + 1;
        let span = tracing::Span::current();
        span.record("handler", tracing::field::display(&event.address));
        span.record("attempt", number);
        if let Some(CopyOf { queue, origin }) = &event.copy_of {
            span.record("queue", tracing::field::display(queue));
            span.record("origin", tracing::field::display(origin));
        }
        if let Some(Place { object, link }) = &event.place {
            span.record("object", tracing::field::display(object));
            span.record("link", link.id);
        }
        if let Some(trace) = &event.metadata.traceparent {
            span.record("trace_id", trace.trace_id());
        }
        let processing = telemetry::process_span(&telemetry::AttemptInfo {
            event: event.claim.id,
            address: &event.address,
            attempt: number,
            emitted_by: event.metadata.traceparent.as_ref(),
        });
        let running = owner.held_claim.running();
        let mut execution = Box::new(Execution::of(*event, number, running, self.runner.checkpoints.clone()));
        if let Some(trace) = telemetry::span_trace(&processing) {
            execution.metadata.traceparent = Some(trace);
        }
        let (id, started) = (execution.id, Instant::now());
        let place = (!self.permits.has_place()).then(|| {
            let address = place_of(&owner.subject.address, owner.subject.queue());
            self.runner.places.take(PlaceRequest { address, kind: owner.handler.kind() })
        });
        let cut_off = CutOff { kill: &self.runner.kill, cancel_grace: self.runner.cancel_grace };
        let has_completed = || self.has_completed(&owner).boxed();
        let running = process(&owner.handler, execution, &owner.held_claim, cut_off, has_completed);
        let mut report = running.instrument(processing.clone()).await;
        drop(place);
        let took = started.elapsed();
        if owner.held_claim.is_in_transaction() {
            let held = &owner.held_claim;
            let standing =
                if held.is_refused() { Some(Standing::Lost) } else { Box::pin(self.standing(held)).await };
            report = report.after_transaction(standing);
        } else if owner.held_claim.has_ended() && Box::pin(self.has_completed(&owner)).await {
            report = report.after_transaction(Some(Standing::Gone));
        }
        if report.end == HandlerEnd::LeaseLost {
            self.give_up(&owner.held_claim).await;
        }
        let report = report.after_cancel(owner.held_claim.is_cancelled());
        let mut report = report.after_patience(postponed, owner.handler.patience);
        if (report.end != HandlerEnd::Completed || self.runner.busy.is_any())
            && let Some(target) = target_of(&owner.handler, &owner.subject.address, owner.subject.queue())
        {
            let canvas = owner.subject.address.scope.canvas;
            let ended = EndedRun { id, canvas, end: report.end, busy: report.busy };
            report.end = self.runner.busy.after(&target, ended, Instant::now());
        }
        if let Some(fault) = report.fault {
            telemetry::failed(&processing, fault, report.error.as_deref().unwrap_or_default());
        }
        let HandlerReport { end, error, fault, result, .. } = report;
        (Attempt { owner, report: AttemptReport { number, waited, took, error, fault, result } }, end)
    }
}

/// The handler whose places an event takes: all copies in a queue are the queue's.
fn place_of(address: &HandlerAddress, queue: Option<&Name>) -> HandlerAddress {
    queue.map_or_else(|| address.clone(), target_of_queue)
}

/// The target that a handler calls; `None` if it is a function.
fn target_of(handler: &Handler, address: &HandlerAddress, queue: Option<&Name>) -> Option<TargetKey> {
    handler.revision.map(|revision| (place_of(address, queue), revision))
}

/// The step after the load.
fn loaded(found: Result<(Stage, Option<Schedule>), StoreError>) -> NextStage {
    match found {
        Ok((stage, schedule)) => (stage, Ok(Input::Loaded(schedule))),
        Err(error) => (Stage::Arrival, Err(RunEnd::Failed(error))),
    }
}

/// The step after the look for the handler.
fn handler_found(
    found: Result<Option<Arc<Handler>>, StoreError>,
    stage_with: impl FnOnce(Option<Arc<Handler>>) -> Stage,
) -> NextStage {
    match found {
        Ok(handler) => {
            let retry = handler.as_ref().map(|handler| handler.retry);
            (stage_with(handler), Ok(Input::Handler(retry)))
        }
        Err(error) => (stage_with(None), Err(RunEnd::Failed(error))),
    }
}

/// The step of a claim that stands.
fn claimed(ready: ReadyEvent) -> NextStage {
    let claimed = ready.claimed();
    (Stage::ReadyEvent(ready), Ok(Input::Claimed(Some(claimed))))
}

/// The end of a round in which the machine and this driver do not fit together.
fn defect(error: &(dyn std::error::Error + 'static)) -> RunEnd {
    tracing::error!(error, "unexpected state transition (bug in wakeq)");
    RunEnd::Answer(Answer::PutBack)
}
