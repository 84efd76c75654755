//! Workers that drive the real machine over the simulated world: they perform effects and return
//! the answers to the machine.

use std::collections::BTreeSet;
use std::time::Duration;

use wakeq::control::RuleKind;
use wakeq::internals::Level;
use wakeq::machine::{Answer, Effect, HandlerEnd, Input, Outcome, State, Transition, When};
use wakeq::{EventId, Timestamp};

use super::broker::HeldNotification;
use super::limits::LimitedClaim;
use super::slots::{Arrival, Slots};
use super::{Defect, World};

/// Tick length of the parking lot's clock.
const TICK: Duration = Duration::from_millis(1);

/// What happens to the next statement that a worker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// It is executed and answered.
    Up,
    /// It is executed; the answer is lost.
    AnswerLost,
    /// It never arrives.
    Down,
}

/// A process that receives notifications.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) handlers: BTreeSet<String>,
    pub(crate) alive: bool,
    /// It does nothing, and does not renew its leases either.
    pub(crate) stalled: bool,
    pub(crate) line: Line,
    /// Its places; without them everything starts when it arrives.
    pub(crate) slots: Option<Slots>,
    pub(crate) runs: Vec<Run>,
    /// The edges it took, oldest first.
    pub(crate) outcomes: Vec<Outcome>,
}

/// One notification that a worker holds.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) event: EventId,
    /// Its message; `None` once acknowledged because the parking lot keeps the notification in
    /// memory.
    pub(super) taken: Option<HeldNotification>,
    pub(crate) level: Level,
    pub(crate) state: State,
    /// The last edge that it took.
    pub(super) last: Option<Outcome>,
    /// How often the event had been taken on when this run loaded it.
    pub(super) taken_on: u32,
    /// It is in the parking lot until then.
    pub(crate) wakes_at: Option<Timestamp>,
    /// By the worker's own clock, counted from before it sent the claim or the renewal.
    pub(crate) lease_until: Timestamp,
    /// Its handler was told that the event is cancelled.
    pub(crate) is_told: bool,
    /// The limits of which its event has a place.
    pub(crate) held: Vec<String>,
}

/// The result of a run's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It can continue.
    Continues,
    /// The handler runs, or the notification is in the parking lot.
    Waits,
    /// The notification was acknowledged or put back; the run is gone.
    Ended,
}

impl Worker {
    pub(crate) fn new(name: &str, handlers: impl IntoIterator<Item = String>) -> Self {
        Self {
            name: name.to_owned(),
            handlers: handlers.into_iter().collect(),
            alive: true,
            stalled: false,
            line: Line::Up,
            slots: None,
            runs: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    /// Takes a delivery; returns whether there was one.
    pub(crate) fn take(&mut self, world: &mut World, event: EventId) -> bool {
        let taken = world.broker.take(event, world.now);
        taken.map(|taken| self.hold(world, taken)).is_some()
    }

    /// The same of the next notification of one of the two streams.
    pub(crate) fn receive(&mut self, world: &mut World, level: Level) -> bool {
        let taken = world.broker.take_next(level.is_urgent(), world.now);
        taken.map(|taken| self.hold(world, taken)).is_some()
    }

    fn hold(&mut self, world: &World, taken: HeldNotification) {
        let (event, level) = (taken.event, Level::of(taken.urgent));
        self.arrive(world, Arrival { event, taken: Some(taken), level });
    }

    /// Performs the effect of a run's state and moves the run with the answer.
    pub(crate) fn advance(&mut self, world: &mut World, at: usize) -> Progress {
        if self.runs[at].wakes_at.is_some() {
            return Progress::Waits;
        }
        let effect = self.runs[at].state.effect();
        if matches!(effect, Effect::Wait(_) | Effect::Answer(_)) {
            self.leave_places(world, at);
            self.step_aside(world, at);
        }
        match effect {
            Effect::RunHandler => Progress::Waits,
            Effect::Wait(When::In(left)) => self.wait(world, at, left),
            Effect::Wait(When::Soon) | Effect::Answer(Answer::PutBack) => self.put_back(world, at),
            Effect::Answer(Answer::Acknowledge) => self.acknowledge(world, at),
            Effect::LoadEvent
            | Effect::Decide
            | Effect::Recall
            | Effect::Park
            | Effect::FindHandler
            | Effect::Defer
            | Effect::ClaimLock
            | Effect::PauseHandler
            | Effect::SaveRetry { .. }
            | Effect::Release(_)
            | Effect::Remove(..)
            | Effect::HandOver => match self.perform(world, at, &effect) {
                Some(input) => self.step(world, at, input),
                None => self.put_back(world, at),
            },
        }
    }

    /// The handler of a run ends. One that was told that its event is cancelled has stopped, unless
    /// it completed the event.
    pub(crate) fn end_handler(&mut self, world: &mut World, at: usize, ran: HandlerEnd) -> Progress {
        let Run { event, is_told, .. } = self.runs[at];
        let ran = match ran {
            HandlerEnd::Completed | HandlerEnd::Committed | HandlerEnd::LeaseLost => ran,
            HandlerEnd::Rejected
            | HandlerEnd::Failed(_)
            | HandlerEnd::NotYet(_)
            | HandlerEnd::Gone
            | HandlerEnd::ShutDown
            | HandlerEnd::Cancelled => {
                if is_told {
                    HandlerEnd::Cancelled
                } else {
                    ran
                }
            }
        };
        world.record(event).completions += u32::from(ran == HandlerEnd::Completed);
        self.step(world, at, Input::Ran(ran))
    }

    fn step(&mut self, world: &mut World, at: usize, input: Input) -> Progress {
        let policy = world.policy();
        let run = &mut self.runs[at];
        let from = run.state.name();
        let Transition { outcome, next } = run.state.clone().step(input, &policy).unwrap();
        (run.state, run.last) = (next, Some(outcome));
        self.outcomes.push(outcome);
        world.outcomes.insert(outcome);
        let (event, name, state) = (run.event, &self.name, &run.state);
        world.log(|world| format!("{name} {}: {from} -{outcome}-> {state:?}", world.records[&event].label));
        if let State::Process(_) = run.state {
            world.record(event).starts += 1;
            if world.rows.get(&event).is_some_and(|row| row.is_cancelled) {
                world.violated("a cancelled event was started".to_owned());
            }
            let not_after = world.rows.get(&event).and_then(|row| row.not_after);
            if not_after.is_some_and(|moment| moment <= world.now) {
                world.violated("an event was started after its moment".to_owned());
            }
        }
        if matches!(outcome, Outcome::DelayNone | Outcome::DelayNotYet) {
            world.is_taken_on(event);
        }
        if matches!(outcome, Outcome::EarlierLeft | Outcome::ObjectHalted) {
            // What took the event on after this run's look carries it on.
            let taken_on = run.taken_on;
            let record = world.record(event);
            record.turned_away |= record.taken_on == taken_on;
        }
        Progress::Continues
    }

    /// One statement, or a look at what the worker knows. `None`: no answer, and the machine has no
    /// input for that.
    fn perform(&mut self, world: &mut World, at: usize, effect: &Effect) -> Option<Input> {
        let run = &mut self.runs[at];
        let id = run.event;
        let statement = !matches!(effect, Effect::Decide | Effect::FindHandler);
        let line = if statement { std::mem::replace(&mut self.line, Line::Up) } else { Line::Up };
        let arrives = line != Line::Down;
        let answered = line == Line::Up;
        let input = match effect {
            Effect::Decide => Input::Decide,
            Effect::FindHandler => {
                Input::Handler(self.handlers.contains(world.handler_of(id)).then_some(world.retry))
            }
            Effect::LoadEvent => {
                run.taken_on = world.records[&id].taken_on;
                Input::Loaded(world.load(id))
            }
            Effect::Park => Input::Parked(arrives && world.park(id)),
            Effect::Defer => {
                if arrives {
                    world.defer(id);
                }
                Input::Deferred
            }
            Effect::ClaimLock => run.claim(world, arrives, answered),
            Effect::PauseHandler => {
                if arrives {
                    let handler = world.handler_of(id).to_owned();
                    world.add_rule(&handler, RuleKind::Pause);
                }
                Input::HandlerPaused(answered)
            }
            // A last write whose answer is lost is repeated and then looked up, so the worker
            // learns what it did.
            Effect::SaveRetry { claim, retries, delay } => {
                Input::RetrySaved(arrives && world.save_retry(*claim, *retries, *delay))
            }
            Effect::Release(claim) => {
                if arrives {
                    world.release(*claim);
                }
                Input::Released
            }
            Effect::Remove(claim, removal) => {
                let removed = arrives && world.remove(*claim, *removal);
                match world.lane_of(id).filter(|_| removed) {
                    Some(_) => Input::LinkRemoved,
                    None => Input::Removed(removed),
                }
            }
            Effect::HandOver => {
                if arrives {
                    world.hand_over(id);
                }
                Input::HandedOver
            }
            // No event here is a copy in a queue.
            Effect::Recall | Effect::RunHandler | Effect::Wait(_) | Effect::Answer(_) => {
                unreachable!("no statement")
            }
        };
        let has_a_name_for_silence = !matches!(effect, Effect::LoadEvent | Effect::Park | Effect::Defer);
        (answered || has_a_name_for_silence).then_some(input)
    }

    /// A run that ends leaves its places to others. If the statement gets no answer, the minute's
    /// pass finds what has room.
    fn leave_places(&mut self, world: &mut World, at: usize) {
        let held = std::mem::take(&mut self.runs[at].held);
        if held.is_empty() {
            return;
        }
        let line = std::mem::replace(&mut self.line, Line::Up);
        let woken = if line == Line::Down { Vec::new() } else { world.wake_waiting(&held) };
        if line == Line::Up {
            world.publish(&woken);
        }
    }

    /// A run whose event was woken for a place and waits for something else, which is none of its
    /// limits, leaves the place to others.
    fn step_aside(&mut self, world: &mut World, at: usize) {
        let Run { event, last, .. } = self.runs[at];
        let waits_for_others = matches!(
            last,
            Some(
                Outcome::EarlierLeft
                    | Outcome::ObjectHalted
                    | Outcome::RulePaused
                    | Outcome::RuleBlocked
                    | Outcome::Deferred
            )
        );
        if !waits_for_others || world.limits_of(event).is_empty() {
            return;
        }
        let line = std::mem::replace(&mut self.line, Line::Up);
        let left = if line == Line::Down { None } else { world.step_aside(event) };
        if let Some(name) = left.filter(|_| line == Line::Up) {
            let woken = world.wake_waiting(&[name]);
            world.publish(&woken);
        }
    }

    /// Moves the run into the parking lot, which keeps one notification per event, until the
    /// earlier time, and acknowledges.
    fn wait(&mut self, world: &mut World, at: usize, left: Duration) -> Progress {
        let (event, until) = (self.runs[at].event, world.now + left.max(TICK));
        let mut parked = self.runs.iter_mut().filter(|run| run.event == event);
        if let Some(known) = parked.find_map(|run| run.wakes_at.as_mut()) {
            *known = until.min(*known);
            return self.acknowledge(world, at);
        }
        self.runs[at].wakes_at = Some(until);
        if let Some(taken) = self.runs[at].taken.take() {
            world.broker.acknowledge(&taken, world.now);
        }
        if world.defect != Some(Defect::LotKeepsItsPlace) {
            self.leave_slot(world, self.runs[at].level);
        }
        Progress::Waits
    }

    fn acknowledge(&mut self, world: &mut World, at: usize) -> Progress {
        let run = self.runs.remove(at);
        if let Some(taken) = &run.taken {
            world.broker.acknowledge(taken, world.now);
        }
        let name = &self.name;
        world.log(|world| format!("{name} {}: acknowledged", world.records[&run.event].label));
        self.ended(world, &run)
    }

    fn put_back(&mut self, world: &mut World, at: usize) -> Progress {
        let run = self.runs.remove(at);
        match &run.taken {
            Some(taken) => world.broker.put_back(taken, world.now),
            None => world.broker.publish(run.event, world.now),
        }
        let name = &self.name;
        world.log(|world| format!("{name} {}: put back", world.records[&run.event].label));
        self.ended(world, &run)
    }

    /// The process is gone; the broker notices after a while.
    pub(crate) fn die(&mut self, world: &mut World) {
        self.alive = false;
        let waiting = self.close();
        for taken in self.runs.drain(..).filter_map(|run| run.taken).chain(waiting) {
            world.broker.abandon(&taken, world.now);
        }
        let name = &self.name;
        world.log(|_| format!("{name} died"));
    }

    /// Cuts handlers off, releases their claims and puts every notification back.
    pub(crate) fn shut_down(&mut self, world: &mut World) {
        self.close().iter().for_each(|taken| world.broker.put_back(taken, world.now));
        while let Some(at) = self.runs.len().checked_sub(1) {
            if let State::Process(_) = self.runs[at].state {
                self.end_handler(world, at, HandlerEnd::ShutDown);
            }
            let owner = matches!(
                self.runs[at].state,
                State::Pause(_)
                    | State::Release(_)
                    | State::Delete(..)
                    | State::HandOver
                    | State::RetryCheck(..)
                    | State::Postpone(..)
            );
            let mut moved = Progress::Continues;
            while owner && moved == Progress::Continues {
                moved = self.advance(world, at);
            }
            if moved != Progress::Ended {
                self.leave_places(world, at);
                self.put_back(world, at);
            }
        }
        self.alive = false;
        let name = &self.name;
        world.log(|_| format!("{name} shut down"));
    }

    /// When this worker next has something to do by itself.
    pub(crate) fn next_at(&self, world: &World) -> Option<Timestamp> {
        let busy = self.alive && !self.stalled;
        let times = self.runs.iter().filter_map(|run| {
            let renewal_at = run.lease_until - world.timing.lease * 2 / 3;
            if matches!(run.state, State::Process(_)) { Some(renewal_at) } else { run.wakes_at }
        });
        times.filter(|_| busy).min()
    }

    /// Does what is due: renews leases, and restarts runs from the parking lot.
    pub(crate) fn tick(&mut self, world: &mut World) {
        if !self.alive || self.stalled {
            return;
        }
        for at in 0..self.runs.len() {
            let run = &mut self.runs[at];
            if let State::Process(running) = &run.state {
                let renewal_at = run.lease_until - world.timing.lease * 2 / 3;
                if world.now < renewal_at {
                    continue;
                }
                let in_time = world.now <= run.lease_until;
                match in_time.then(|| world.renew(running.claim)).flatten() {
                    Some(is_cancelled) => {
                        run.lease_until = world.now + world.timing.lease;
                        run.is_told |= is_cancelled;
                    }
                    None => {
                        self.end_handler(world, at, HandlerEnd::LeaseLost);
                    }
                }
            }
        }
        self.end_waits(world);
    }
}

impl Run {
    /// Without an answer, the worker knows of no claim. The minute's pass then finds what has room.
    fn claim(&mut self, world: &mut World, arrives: bool, answered: bool) -> Input {
        self.lease_until = world.now + world.timing.lease;
        let (claimed, room) =
            if arrives { world.claim_limited(self.event) } else { (LimitedClaim::Not, Vec::new()) };
        if !answered {
            return Input::Claimed(None);
        }
        let woken = world.wake_waiting(&room);
        world.publish(&woken);
        match claimed {
            LimitedClaim::Claimed(claimed, held) => {
                self.held = held;
                Input::Claimed(Some(claimed))
            }
            LimitedClaim::Full => Input::Limited(None),
            LimitedClaim::Later(left) => Input::Limited(Some(left)),
            LimitedClaim::Not => Input::Claimed(None),
        }
    }
}

/// Lets virtual time pass, stopping whenever a worker has something to do by itself.
pub(crate) fn pass(
    world: &mut World,
    workers: &mut [Worker],
    duration: Duration,
    mut then: impl FnMut(&mut World, &mut [Worker]),
) {
    let end = world.now + duration;
    loop {
        let next = workers.iter().filter_map(|worker| worker.next_at(world)).min();
        let Some(next) = next.filter(|next| *next <= end) else { break };
        leap(world, workers, next);
        for worker in &mut *workers {
            worker.tick(world);
        }
        then(world, workers);
    }
    leap(world, workers, end);
}

/// Jumps to a later moment; client libraries of live processes extend the messages they hold.
fn leap(world: &mut World, workers: &[Worker], to: Timestamp) {
    let live = workers.iter().filter(|worker| worker.alive && !worker.stalled);
    let held: Vec<_> =
        live.flat_map(|worker| &worker.runs).filter_map(|run| run.taken.as_ref()?.held.clone()).collect();
    let from = world.now;
    world.now = from.max(to);
    world.broker.pass(from, world.now, &held);
}
