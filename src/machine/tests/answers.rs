//! Every state accepts the answer to its own question and refuses all others.

use super::POLICY;
use super::walk::{answers, walk};
use crate::machine::{Effect, Input, State, UnexpectedInput};

/// Whether the answer belongs to the question. Without `_`: a new answer has to name its question.
fn belongs(input: &Input, effect: &Effect) -> bool {
    match input {
        Input::Loaded(_) => matches!(effect, Effect::LoadEvent),
        Input::Decide => matches!(effect, Effect::Decide),
        Input::Recalled => matches!(effect, Effect::Recall),
        Input::Parked(_) => matches!(effect, Effect::Park),
        Input::Handler(_) => matches!(effect, Effect::FindHandler),
        Input::Deferred => matches!(effect, Effect::Defer),
        Input::Claimed(_) | Input::Limited(_) => matches!(effect, Effect::ClaimLock),
        Input::Ran(_) => matches!(effect, Effect::RunHandler),
        Input::HandlerPaused(_) => matches!(effect, Effect::PauseHandler),
        Input::RetrySaved(_) => matches!(effect, Effect::SaveRetry { .. }),
        Input::Released => matches!(effect, Effect::Release(_)),
        Input::Removed(_) | Input::LinkRemoved => matches!(effect, Effect::Remove(..)),
        Input::HandedOver => matches!(effect, Effect::HandOver),
    }
}

// Shows: CARD-05
#[test]
fn every_state_accepts_the_answer_it_asked_for_and_refuses_every_other() {
    let states = walk().states;
    let mut inputs: Vec<Input> = Vec::new();
    for input in states.iter().flat_map(|state| answers(&state.effect())) {
        if !inputs.contains(&input) {
            inputs.push(input);
        }
    }
    for state in &states {
        for input in &inputs {
            let stepped = state.clone().step(input.clone(), &POLICY);
            if belongs(input, &state.effect()) {
                assert!(stepped.is_ok(), "{state:?} asked for {input:?} and refused it");
            } else {
                let refused = UnexpectedInput { state: state.clone(), input: input.clone() };
                assert_eq!(stepped, Err(refused));
            }
        }
    }
}

#[test]
fn a_state_that_asks_a_question_gets_further_with_each_answer() {
    for state in walk().states {
        for input in answers(&state.effect()) {
            let next = state.clone().step(input, &POLICY).unwrap().next;
            assert_ne!(next.name(), state.name(), "no state leads to itself");
        }
    }
}

#[test]
fn a_refusal_names_the_state_and_the_answer() {
    let refused = State::EventLoad.step(Input::Released, &POLICY).unwrap_err();
    assert_eq!(refused.to_string(), "EventLoad did not ask for Released");
}
