//! Walks all places that an owner can come to with representative answers.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{LIMITS, entity, erasure, first, isolated_read, opened};
use crate::machine::{AttemptEnd, OwnerEffect, OwnerFailure, OwnerInput, OwnerState, WorkEnd};

/// One state at each place, at a time when nothing is due by itself.
pub(super) fn walk() -> Vec<OwnerState> {
    let mut found = vec![OwnerState::new(LIMITS)];
    let mut places = BTreeSet::from([format!("{:?}", found[0].place())]);
    let mut next = 0;
    while let Some(state) = found.get(next).cloned() {
        next += 1;
        for input in answers(&state.effect()) {
            let mut reached = state.clone();
            reached.step(input, Duration::from_millis(500)).unwrap();
            if places.insert(format!("{:?}", reached.place())) {
                found.push(reached);
            }
        }
    }
    found
}

/// Failures of every kind.
pub(super) fn failures() -> [OwnerInput; 7] {
    [
        OwnerFailure::TimedOut,
        OwnerFailure::Refused("no".to_owned()),
        OwnerFailure::Unavailable,
        OwnerFailure::Elsewhere,
        OwnerFailure::Fenced,
        OwnerFailure::Withdrawn,
        OwnerFailure::Fatal,
    ]
    .map(OwnerInput::Failed)
}

/// Answers of every kind to a question. Without `_`: a new effect has to be given its answers.
pub(super) fn answers(effect: &OwnerEffect) -> Vec<OwnerInput> {
    let mut answers = match effect {
        OwnerEffect::LookAgain => {
            vec![OwnerInput::Seen(Some(10)), OwnerInput::Seen(None), OwnerInput::NotSeen]
        }
        // The first one is what is walked: events up to 20 are processed one at a time then.
        OwnerEffect::Open => vec![opened(true), opened(false)],
        OwnerEffect::ReadIsolated { .. } => vec![isolated_read(&[]), isolated_read(&["ada"])],
        OwnerEffect::Load => vec![OwnerInput::Loaded],
        OwnerEffect::Read { .. } => vec![super::PAGE, super::FULL_PAGE],
        OwnerEffect::Choose { .. } => {
            vec![
                super::NOTHING,
                OwnerInput::Chosen { passes: true, first: None },
                first(15),
                first(25),
                erasure(15),
            ]
        }
        OwnerEffect::Erase | OwnerEffect::EraseIsolated => vec![OwnerInput::Erased],
        OwnerEffect::CountAttempt { .. } => vec![OwnerInput::Counted(1), OwnerInput::Counted(2)],
        OwnerEffect::UncountAttempt { .. } | OwnerEffect::UncountIsolated => vec![OwnerInput::Uncounted],
        OwnerEffect::Isolate { .. } => vec![OwnerInput::Isolated(entity("bob"))],
        OwnerEffect::Prepare { .. } => vec![OwnerInput::Prepared],
        OwnerEffect::Work { .. } => [
            WorkEnd::Done,
            WorkEnd::TooMuch { events: 2 },
            WorkEnd::Stalled { events: 1, last: 25, hanging: Vec::new() },
            WorkEnd::Stalled { events: 1, last: 15, hanging: vec![15] },
            WorkEnd::Stalled { events: 2, last: 25, hanging: vec![15, 25] },
        ]
        .map(OwnerInput::Worked)
        .into(),
        OwnerEffect::Commit { is_erasure: true } => vec![OwnerInput::Committed(15)],
        OwnerEffect::Commit { is_erasure: false } => vec![OwnerInput::Committed(15), OwnerInput::Unstorable],
        OwnerEffect::Move { .. } => vec![OwnerInput::Moved],
        OwnerEffect::TakeOutcome => [
            None,
            Some(AttemptEnd::Nothing),
            Some(AttemptEnd::Processed { through: 12 }),
            Some(AttemptEnd::Erasure { seq: 12 }),
            Some(AttemptEnd::TooMuch),
            Some(AttemptEnd::Hung { last: 12 }),
        ]
        .map(OwnerInput::Outcome)
        .into(),
        OwnerEffect::TakeBack => vec![OwnerInput::TakenBack(true), OwnerInput::TakenBack(false)],
        OwnerEffect::CommitIsolated { .. } => vec![
            OwnerInput::Committed(10),
            OwnerInput::IsolatedUnstorable(Some((12, "it is too large".to_owned()))),
        ],
        OwnerEffect::StartAttempt { .. } => vec![OwnerInput::Started],
        OwnerEffect::CheckEpoch => {
            vec![OwnerInput::Epoch { is_own: true }, OwnerInput::Epoch { is_own: false }]
        }
        OwnerEffect::Wait { .. } | OwnerEffect::Retry => {
            vec![OwnerInput::Woken { is_due: false }, OwnerInput::Woken { is_due: true }]
        }
        OwnerEffect::End(_) => return Vec::new(),
    };
    answers.extend(failures());
    answers
}
