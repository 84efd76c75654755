//! Every phase accepts the answers to its own question, and failures, and refuses all others.

use std::collections::HashSet;
use std::mem::discriminant;
use std::time::Duration;

use super::walk::{answers, walk};
use super::{LIMITS, WOKEN};
use crate::machine::{OwnerEffect, OwnerInput, OwnerState};

/// How many kinds of effects there are.
const EFFECTS: usize = 24;

/// Whether the answer belongs to the question. Without `_`: a new answer has to name its question.
fn belongs(input: &OwnerInput, effect: &OwnerEffect) -> bool {
    match input {
        OwnerInput::Woken { .. } => matches!(effect, OwnerEffect::Wait { .. } | OwnerEffect::Retry),
        OwnerInput::Seen(_) | OwnerInput::NotSeen => matches!(effect, OwnerEffect::LookAgain),
        OwnerInput::Opened { .. } => matches!(effect, OwnerEffect::Open),
        OwnerInput::IsolatedRead(_) => matches!(effect, OwnerEffect::ReadIsolated { .. }),
        OwnerInput::Loaded => matches!(effect, OwnerEffect::Load),
        OwnerInput::Read { .. } => matches!(effect, OwnerEffect::Read { .. }),
        OwnerInput::Chosen { .. } => matches!(effect, OwnerEffect::Choose { .. }),
        OwnerInput::Counted(_) => matches!(effect, OwnerEffect::CountAttempt { .. }),
        OwnerInput::Isolated(_) => matches!(effect, OwnerEffect::Isolate { .. }),
        OwnerInput::Prepared => matches!(effect, OwnerEffect::Prepare { .. }),
        OwnerInput::Worked(_) => matches!(effect, OwnerEffect::Work { .. }),
        OwnerInput::Erased => matches!(effect, OwnerEffect::Erase | OwnerEffect::EraseIsolated),
        OwnerInput::Committed(_) => {
            matches!(effect, OwnerEffect::Commit { .. } | OwnerEffect::CommitIsolated { .. })
        }
        OwnerInput::Unstorable => matches!(effect, OwnerEffect::Commit { is_erasure: false }),
        OwnerInput::IsolatedUnstorable(_) => matches!(effect, OwnerEffect::CommitIsolated { .. }),
        OwnerInput::Moved => matches!(effect, OwnerEffect::Move { .. }),
        OwnerInput::Outcome(_) => matches!(effect, OwnerEffect::TakeOutcome),
        OwnerInput::TakenBack(_) => matches!(effect, OwnerEffect::TakeBack),
        OwnerInput::Started => matches!(effect, OwnerEffect::StartAttempt { .. }),
        OwnerInput::Uncounted => {
            matches!(effect, OwnerEffect::UncountAttempt { .. } | OwnerEffect::UncountIsolated)
        }
        OwnerInput::Epoch { .. } => matches!(effect, OwnerEffect::CheckEpoch),
        OwnerInput::Failed(_) => !matches!(effect, OwnerEffect::End(_)),
    }
}

#[test]
fn every_phase_accepts_the_answers_it_asked_for_and_refuses_every_other() {
    let states = walk();
    let mut inputs: Vec<OwnerInput> = Vec::new();
    for input in states.iter().flat_map(|state| answers(&state.effect())) {
        if !inputs.contains(&input) {
            inputs.push(input);
        }
    }
    for state in &states {
        for input in &inputs {
            let mut stepped = state.clone();
            let answer = stepped.step(input.clone(), Duration::ZERO);
            if belongs(input, &state.effect()) {
                assert!(answer.is_ok(), "{:?} asked for {input:?} and refused it", state.place());
            } else {
                let refused = answer.unwrap_err();
                assert_eq!((&*refused.phase, &*refused.input), (&state.place().0, input));
                assert_eq!(stepped, *state, "it was changed by {input:?}, which it refused");
            }
        }
    }
}

#[test]
fn every_effect_is_asked_for() {
    let asked: HashSet<_> = walk().iter().map(|state| discriminant(&state.effect())).collect();
    assert_eq!(asked.len(), EFFECTS);
}

/// Whatever fails, wherever it is, an owner comes to a retry or its end after a few questions.
#[test]
fn every_failure_comes_to_a_rest() {
    for state in walk() {
        for failure in super::walk::failures() {
            let mut failed = state.clone();
            if failed.step(failure, Duration::ZERO).is_err() {
                assert!(matches!(failed.effect(), OwnerEffect::End(_)));
                continue;
            }
            let is_over = |effect: &OwnerEffect| matches!(effect, OwnerEffect::Retry | OwnerEffect::End(_));
            let steps = (0..4).take_while(|_| {
                let effect = failed.effect();
                let input = answers(&effect).into_iter().next();
                !is_over(&effect) && input.is_some_and(|input| failed.step(input, Duration::ZERO).is_ok())
            });
            assert!(steps.count() < 4, "it goes on: {:?}", failed.place());
        }
    }
}

#[test]
fn a_refusal_names_the_phase_and_the_answer() {
    let mut state = OwnerState::new(LIMITS);
    let refused = state.step(OwnerInput::Loaded, Duration::ZERO).unwrap_err();
    assert_eq!(refused.to_string(), "Wait { held: false } did not ask for Loaded");
    state.step(WOKEN, Duration::ZERO).unwrap();
}
