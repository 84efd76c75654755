//! The owner of a type: loads its entities, then reads the inbox, has events processed, commits,
//! and only then answers; until it is withdrawn or another owner has the inbox.
//!
//! It is a driver: what to do next is decided by [`OwnerState`], and this performs it. It never
//! waits for the author's code while it holds a connection.

mod inbox;
mod isolated;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempt::Attempts;
use super::config::EntityConfig;
use super::define::Entity;
use super::halt::Halt;
use super::page::Page;
use super::parts::Parts;
use super::residency::Residency;
use super::run::FatalError;
use crate::consumer::{Health, Waits};
use crate::event::IsolatedStep;
use crate::machine::{OwnerEffect, OwnerEnd, OwnerInput, OwnerLimits, OwnerState};
use crate::store::PositionMove;
use wakeq::internals::NewEvent;
use wakeq::log::PageLimit;

/// Half the delay after a first failure.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Half the delay before a first look for what an open transaction holds back.
const FIRST_HELD: Duration = Duration::from_millis(5);
/// How long a processor that gave up because of time-outs is unhealthy before it can get its type
/// again.
const REST: Duration = Duration::from_secs(30);
/// The time limit for noting an orderly end.
const FAREWELL: Duration = Duration::from_secs(1);

/// The owner of the inbox of a type, under one epoch.
pub(super) struct Owner<E: Entity> {
    parts: Arc<Parts<E>>,
    epoch: i64,
    cancel: CancellationToken,
    begun: Instant,
    state: OwnerState,
    residency: Residency,
    attempts: Attempts,
    /// The commit whose answer was lost.
    unconfirmed: Option<UnconfirmedCommit>,
}

/// A commit of unknown outcome: the position after it, how far an isolated entity is then, and what
/// it emits.
struct UnconfirmedCommit {
    to: i64,
    isolated: Option<IsolatedStep>,
    events: Vec<NewEvent>,
}

impl<E: Entity> Owner<E> {
    pub(super) fn new(parts: Arc<Parts<E>>, epoch: i64, cancel: CancellationToken) -> Self {
        let EntityConfig { batch, batch_bytes, poll_interval, stall, .. } = parts.config;
        let limits = OwnerLimits { batch, batch_bytes, poll_interval, stall };
        Self {
            parts,
            epoch,
            cancel,
            begun: Instant::now(),
            state: OwnerState::new(limits),
            residency: Residency::default(),
            attempts: Attempts::default(),
            unconfirmed: None,
        }
    }

    /// Owns the inbox until it is withdrawn or can't continue; then nothing is kept in memory.
    /// Returns the health of the processor, if it changes.
    pub(super) async fn run(mut self) -> Option<Health> {
        let (grown, poll) = (self.parts.provider.watch(&self.parts.source), self.parts.config.poll_interval);
        let mut waits = Waits::new(grown, poll, poll.max(FIRST_WAIT), (FIRST_WAIT, FIRST_HELD));
        let (ended, mut is_due) = (self.attempts.ended(), false);
        let health = loop {
            waits.looks();
            let pause = match self.look(is_due).await {
                Ok(held) => {
                    self.set_health(Health::Healthy);
                    waits.after_all(held)
                }
                Err(halt) => match self.fail(halt).await {
                    ControlFlow::Continue(()) => waits.after_failure(),
                    ControlFlow::Break(health) => break health,
                },
            };
            is_due = tokio::select! {
                biased;
                () = self.cancel.cancelled() => break None,
                () = tokio::time::sleep(pause) => true,
                () = waits.grown() => false,
                () = ended.notified() => false,
            };
        };
        self.abort_attempt().await;
        self.residency.forget(&self.parts);
        let Parts { store, entity_type, .. } = &*self.parts;
        // Without this, the next owner is more careful than it has to be.
        let _ = tokio::time::timeout(FAREWELL, store.leave_entities(entity_type, self.epoch)).await;
        health
    }

    /// Processes what is in the inbox. Returns whether an open transaction holds more of it back.
    async fn look(&mut self, is_due: bool) -> Result<bool, Halt> {
        let (mut page, mut input) = (Page::default(), OwnerInput::Woken { is_due });
        loop {
            self.step(input)?;
            let effect = self.state.effect();
            if let OwnerEffect::Wait { held } = effect {
                return Ok(held);
            }
            input = self.perform(effect, &mut page).await?;
        }
    }

    /// Follows up a failure. Breaks if the owner ends because of it, with the health of the
    /// processor if that changes.
    async fn fail(&mut self, mut halt: Halt) -> ControlFlow<Option<Health>> {
        let mut input = OwnerInput::Failed(halt.failure());
        loop {
            if let Err(defect) = self.step(input) {
                return ControlFlow::Break(self.end(OwnerEnd::Fatal, defect));
            }
            let effect = self.state.effect();
            if effect == OwnerEffect::Retry {
                self.log_retry(halt);
                return ControlFlow::Continue(());
            }
            if let OwnerEffect::End(end) = effect {
                return ControlFlow::Break(self.end(end, halt));
            }
            input = match self.perform(effect, &mut Page::default()).await {
                Ok(answer) => answer,
                Err(other) => {
                    let failure = other.failure();
                    if !matches!(halt, Halt::Fatal(_)) {
                        halt = other;
                    }
                    OwnerInput::Failed(failure)
                }
            };
        }
    }

    fn step(&mut self, input: OwnerInput) -> Result<(), Halt> {
        let stepped = self.state.step(input, self.begun.elapsed());
        stepped.map_err(|unexpected| Halt::Fatal(FatalError(format!("a defect: {unexpected}"))))
    }

    /// Performs an effect. Returns the answer for the state.
    async fn perform(&mut self, effect: OwnerEffect, page: &mut Page) -> Result<OwnerInput, Halt> {
        match effect {
            OwnerEffect::LookAgain => Ok(self.look_again().await),
            OwnerEffect::Open => {
                let cancel = self.cancel.clone();
                unless_cancelled(&cancel, self.open()).await
            }
            OwnerEffect::ReadIsolated { at } => {
                let cancel = self.cancel.clone();
                unless_cancelled(&cancel, self.read_isolated(at)).await
            }
            OwnerEffect::Load => {
                let cancel = self.cancel.clone();
                unless_cancelled(&cancel, self.load()).await
            }
            OwnerEffect::Read { after, events, bytes } => {
                self.read(after, PageLimit { events, bytes }, page).await
            }
            OwnerEffect::Choose { most } => Ok(page.choose(self.state.isolated(), most)),
            OwnerEffect::Erase => self.erase(page).await,
            OwnerEffect::CountAttempt { seq } => self.count_attempt(seq).await,
            OwnerEffect::UncountAttempt { seq } => {
                self.uncount_attempt(seq).await;
                Ok(OwnerInput::Uncounted)
            }
            OwnerEffect::Isolate { seq, single_through, losses } => {
                let event = page.event(seq).cloned().ok_or_else(|| nothing_for("Isolate"))?;
                self.isolate(&event, single_through, losses).await
            }
            OwnerEffect::Prepare { losses } => self.prepare(losses, page).await,
            OwnerEffect::Work { most } => self.work(most, page).await,
            OwnerEffect::Commit { is_erasure: _ } => self.commit(page).await,
            OwnerEffect::Move { to } => self.move_to(to).await,
            OwnerEffect::TakeOutcome => self.take_outcome().await,
            OwnerEffect::TakeBack => self.take_back().await,
            OwnerEffect::EraseIsolated => self.erase_isolated().await,
            OwnerEffect::CommitIsolated { through } => self.commit_isolated(through).await,
            OwnerEffect::UncountIsolated => {
                self.uncount_isolated().await;
                Ok(OwnerInput::Uncounted)
            }
            OwnerEffect::StartAttempt { most, bytes } => self.start_attempt(most, bytes),
            OwnerEffect::CheckEpoch => self.check_epoch().await,
            OwnerEffect::Wait { .. } | OwnerEffect::Retry | OwnerEffect::End(_) => {
                Err(nothing_for("Wait, Retry or End"))
            }
        }
    }

    fn log_retry(&self, halt: Halt) {
        let (what, error) = halt.into_cause();
        tracing::warn!(
            entity_type = E::TYPE,
            part = self.state.narrowing().divisor(),
            error = &*error as &dyn std::error::Error,
            "{what} did not answer a processor of entities; retrying"
        );
    }

    /// Logs why the owner ends. Returns the health of the processor, if it changes.
    fn end(&self, end: OwnerEnd, halt: Halt) -> Option<Health> {
        let fatal = match end {
            OwnerEnd::Withdrawn => return None,
            OwnerEnd::Fenced => {
                tracing::warn!(
                    entity_type = E::TYPE,
                    epoch = self.epoch,
                    "the inbox has another owner by now; its entities are dropped from memory here"
                );
                return None;
            }
            OwnerEnd::TimedOut { times } => {
                let (_, error) = halt.into_cause();
                self.back_off(format!("{error} ({times} times in a row, even for the smallest request)"));
                return None;
            }
            OwnerEnd::Refused { why, times } => FatalError(format!("{why} ({times} times in a row)")),
            OwnerEnd::Fatal => FatalError(halt.into_cause().1.to_string()),
        };
        tracing::error!(
            entity_type = E::TYPE,
            error = &fatal as &dyn std::error::Error,
            "a processor of entities can't continue"
        );
        Some(Health::Unhealthy(fatal.to_string()))
    }

    /// Gives up the type for a while.
    fn back_off(&self, why: String) {
        tracing::error!(entity_type = E::TYPE, why, "a processor of entities pauses");
        let (parts, resting) = (Arc::clone(&self.parts), Health::Unhealthy(why));
        self.set_health(resting.clone());
        tokio::spawn(async move {
            tokio::time::sleep(REST).await;
            parts.health.send_if_modified(|known| {
                let recovers = *known == resting;
                if recovers {
                    *known = Health::Healthy;
                }
                recovers
            });
        });
    }

    fn set_health(&self, health: Health) {
        self.parts.health.send_if_modified(|known| {
            let changes = *known != health;
            *known = health;
            changes
        });
    }

    /// Most bytes that are read at a time: less after time-outs.
    fn page_bytes(&self) -> usize {
        self.state.narrowing().part_of(self.parts.config.batch_bytes)
    }

    /// The current position, for statements that do not move it.
    fn held<'p>(&self, parts: &'p Parts<E>) -> PositionMove<'p> {
        let from = self.state.position().known().unwrap_or_default();
        PositionMove { group: &parts.group, source: &parts.source, epoch: self.epoch, from, to: from }
    }
}

async fn unless_cancelled(
    cancel: &CancellationToken,
    work: impl Future<Output = Result<OwnerInput, Halt>>,
) -> Result<OwnerInput, Halt> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Halt::Withdrawn),
        done = work => done,
    }
}

/// The state asked for something that is not there: a bug in wakeq.
fn nothing_for(effect: &'static str) -> Halt {
    Halt::Fatal(FatalError(format!("a defect: nothing is there for {effect}")))
}
