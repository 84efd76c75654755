//! Walks all states that can be reached from `EventLoad` with representative answers.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{DAY, POLICY, claim, retry_policy, schedule};
use crate::event::{RuleKind, Schedule, Turn};
use crate::machine::{Claimed, Effect, EventPolicy, HandlerEnd, Input, Outcome, State};

/// An edge of the chart: from, outcome, to.
pub(super) type Edge = (&'static str, &'static str, &'static str);

pub(super) struct Walk {
    pub(super) states: Vec<State>,
    pub(super) edges: BTreeSet<Edge>,
    pub(super) outcomes: BTreeSet<Outcome>,
}

/// The name in the chart of the edge from `Queue`.
const RECEIVED: &str = "Receive notification";

pub(super) fn walk() -> Walk {
    let mut found =
        Walk { states: vec![State::EventLoad], edges: BTreeSet::new(), outcomes: BTreeSet::new() };
    let mut next = 0;
    while let Some(state) = found.states.get(next).cloned() {
        next += 1;
        if let State::Queue(_) = state {
            found.edges.insert((state.name(), RECEIVED, State::EventLoad.name()));
        }
        for input in answers(&state.effect()) {
            let transition = state.clone().step(input, &POLICY).unwrap();
            found.edges.insert((state.name(), transition.outcome.as_str(), transition.next.name()));
            found.outcomes.insert(transition.outcome);
            if !found.states.contains(&transition.next) {
                found.states.push(transition.next);
            }
        }
    }
    found
}

/// Answers of every kind to a question. Without `_`: a new effect has to be given its answers.
pub(super) fn answers(effect: &Effect) -> Vec<Input> {
    match effect {
        Effect::LoadEvent => loads(),
        Effect::Decide => vec![Input::Decide],
        Effect::Recall => vec![Input::Recalled],
        Effect::Park => vec![Input::Parked(true), Input::Parked(false)],
        Effect::FindHandler => [
            None,
            Some(retry_policy(2, Duration::from_secs(300))),
            Some(retry_policy(2, DAY)),
            Some(retry_policy(0, DAY)),
        ]
        .map(Input::Handler)
        .into(),
        Effect::Defer => vec![Input::Deferred],
        Effect::ClaimLock => claims(),
        Effect::RunHandler => [
            HandlerEnd::Completed,
            HandlerEnd::Committed,
            HandlerEnd::Rejected,
            HandlerEnd::Failed(None),
            HandlerEnd::Failed(Some(Duration::from_secs(1))),
            HandlerEnd::NotYet(Duration::from_secs(1)),
            HandlerEnd::NotYet(2 * POLICY.horizon),
            HandlerEnd::Gone,
            HandlerEnd::LeaseLost,
            HandlerEnd::ShutDown,
            HandlerEnd::Cancelled,
        ]
        .map(Input::Ran)
        .into(),
        Effect::PauseHandler => vec![Input::HandlerPaused(true), Input::HandlerPaused(false)],
        Effect::SaveRetry { .. } => vec![Input::RetrySaved(true), Input::RetrySaved(false)],
        Effect::Release(_) => vec![Input::Released],
        Effect::Remove(..) => vec![Input::Removed(true), Input::Removed(false), Input::LinkRemoved],
        Effect::HandOver => vec![Input::HandedOver],
        Effect::Wait(_) | Effect::Answer(_) => Vec::new(),
    }
}

/// A claim that failed, those of events of all kinds, and what limits have against one.
fn claims() -> Vec<Input> {
    let claims = [
        None,
        claimed(0, 0),
        claimed(1, 4),
        claimed(2, 0),
        claimed(0, 5),
        cancelled(),
        claimed_with(Duration::ZERO),
        claimed_with(Duration::from_secs(60)),
        claimed_with(2 * DAY),
    ];
    let limited = [None, Some(Duration::ZERO), Some(POLICY.horizon), Some(2 * POLICY.horizon)];
    claims.map(Input::Claimed).into_iter().chain(limited.map(Input::Limited)).collect()
}

fn claimed(retries: u32, losses: u32) -> Option<Claimed> {
    let (postponed, asked) = (Duration::ZERO, EventPolicy::default());
    Some(Claimed { claim: claim(), retries, losses, postponed, is_cancelled: false, asked })
}

/// An event whose attempts may start for this long.
fn claimed_with(left: Duration) -> Option<Claimed> {
    let asked = EventPolicy { left: Some(left), ..EventPolicy::default() };
    claimed(0, 0).map(|claimed| Claimed { asked, ..claimed })
}

fn cancelled() -> Option<Claimed> {
    claimed(1, 5).map(|claimed| Claimed { is_cancelled: true, ..claimed })
}

/// A missing row, and rows due and not, locked and not, under each rule, at each turn.
fn loads() -> Vec<Input> {
    let mut loads = vec![Input::Loaded(None)];
    for due_ms in [-1, 0, 1, 600_000, 600_001] {
        for locked_ms in [None, Some(-60_001), Some(-60_000), Some(0), Some(3_600_000)] {
            for rule in [None, Some(RuleKind::Pause), Some(RuleKind::Block)] {
                for turn in [Turn::First, Turn::Behind, Turn::Halted, Turn::Held, Turn::Passed] {
                    let row = Schedule { turn, ..schedule(due_ms, locked_ms, rule) };
                    loads.push(Input::Loaded(Some(row)));
                }
            }
        }
    }
    loads
}
