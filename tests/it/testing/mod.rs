//! The kit for tests of handlers: it behaves as the worker and Postgres do; and what its assertions
//! say.

mod agreement;
mod batches;
mod cancelling;
mod checkpoints;
mod ended_search;
mod history;
mod kit;
mod limit_rates;
mod limit_removals;
mod limits;
mod memory;
mod options;
mod search;
mod search_limits;
mod search_places;
mod unique;
mod worker;

use wakeq::machine::Outcome;
use wakeq::testing::TestKit;

use crate::support::{Stage, connect};

/// A kit on a database of its own, which lives as long as the stage.
async fn on_postgres() -> (Stage, TestKit) {
    let (stage, _) = Stage::memory().await;
    let kit = TestKit::on(connect(stage.database.url(), stage.store.timing().clone()).await);
    (stage, kit)
}

/// The edges that a run took from the claim on, in the diagram's words: those before depend on when
/// it arrived.
fn doings(trail: &[Outcome]) -> String {
    let from = trail.iter().position(|outcome| *outcome == Outcome::LockClaimed).map_or(0, |at| at + 1);
    trail[from..].iter().map(|outcome| outcome.as_str()).collect::<Vec<_>>().join(" ")
}
