//! What the owner of an inbox does next: tables of answers and the effects that follow them.

mod answers;
mod attempts;
mod batches;
mod failures;
mod pages;
mod walk;

use std::time::Duration;

use crate::event::IsolatedEntity;
use crate::machine::{FirstEvent, OwnerEffect, OwnerInput, OwnerLimits, OwnerState};
use wakeq::CanvasId;

const POLL: Duration = Duration::from_secs(1);
const STALL: Duration = Duration::from_secs(30);
const LIMITS: OwnerLimits = OwnerLimits { batch: 500, batch_bytes: 4096, poll_interval: POLL, stall: STALL };

const WOKEN: OwnerInput = OwnerInput::Woken { is_due: false };
const READ_ISOLATED: OwnerEffect = OwnerEffect::ReadIsolated { at: 10 };
const READ: OwnerEffect = OwnerEffect::Read { after: 10, events: 500, bytes: 4096 };
const CHOOSE: OwnerEffect = OwnerEffect::Choose { most: 500 };
const WAIT: OwnerEffect = OwnerEffect::Wait { held: false };
const TOGETHER: OwnerEffect = OwnerEffect::Prepare { losses: None };
const COMMIT: OwnerEffect = OwnerEffect::Commit { is_erasure: false };
const WORK: OwnerEffect = OwnerEffect::Work { most: usize::MAX };

/// The last page of an inbox, up to 20.
const PAGE: OwnerInput = OwnerInput::Read { through: 20, more: false, held: false };
/// A page up to 20, which is not the last.
const FULL_PAGE: OwnerInput = OwnerInput::Read { through: 20, more: true, held: false };
/// Nothing is left of the page.
const NOTHING: OwnerInput = OwnerInput::Chosen { passes: false, first: None };

/// The next batch begins with this event.
fn first(seq: i64) -> OwnerInput {
    chosen(false, seq)
}

/// The same; whether events of isolated entities were dropped.
fn chosen(passes: bool, seq: i64) -> OwnerInput {
    OwnerInput::Chosen { passes, first: Some(FirstEvent { seq, is_erasure: false }) }
}

fn erasure(seq: i64) -> OwnerInput {
    OwnerInput::Chosen { passes: false, first: Some(FirstEvent { seq, is_erasure: true }) }
}

/// The position is at 10.
fn opened(was_lost: bool) -> OwnerInput {
    OwnerInput::Opened { at: 10, was_lost }
}

fn isolated_read(names: &[&str]) -> OwnerInput {
    OwnerInput::IsolatedRead(names.iter().map(|id| entity(id)).collect())
}

/// An isolated entity that is done up to 10.
fn entity(id: &str) -> IsolatedEntity {
    IsolatedEntity { canvas: CanvasId::DEFAULT, id: id.parse().unwrap(), after: 10, single_through: 0 }
}

/// The ids of the isolated entities.
fn isolated(state: &OwnerState) -> Vec<&str> {
    state.isolated().iter().map(|one| one.id.as_str()).collect()
}

/// Passes an answer at this time; returns what has to be done next.
#[track_caller]
fn answer_at(state: &mut OwnerState, now: Duration, input: OwnerInput) -> OwnerEffect {
    state.step(input, now).unwrap();
    state.effect()
}

/// Passes answers at the beginning, and compares what has to be done after each.
#[track_caller]
fn check<const N: usize>(state: &mut OwnerState, answers: [(OwnerInput, OwnerEffect); N]) {
    for (input, effect) in answers {
        let shown = format!("{input:?}");
        assert_eq!(answer_at(state, Duration::ZERO, input), effect, "after {shown}");
    }
}

/// An owner at its first read, whose position is at 10.
fn reading(was_lost: bool, isolated: &[&str]) -> OwnerState {
    let mut state = OwnerState::new(LIMITS);
    check(
        &mut state,
        [
            (WOKEN, OwnerEffect::Open),
            (opened(was_lost), READ_ISOLATED),
            (isolated_read(isolated), OwnerEffect::Load),
            (OwnerInput::Loaded, READ),
        ],
    );
    state
}
