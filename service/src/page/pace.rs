//! How often what browsers watch is read again, so that all of it together costs the database about
//! a hundredth of the time at most.
//!
//! There is a budget of time to ask in, which fills slowly, so that numbers are live while asking
//! is cheap, or nobody has looked for a while. Once it is spent, each question has an equal part of
//! the time that is left. Each canvas that somebody looks at has an equal share of both, so that
//! nobody is held up by the questions of another tenant. Decides only; reads no answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::question::About;

/// How much of the time may be spent on asking: once from the budget, once by equal parts.
const PART: u32 = 200;
/// The time to ask in that is saved up.
const BUDGET: Duration = Duration::from_secs(5);
/// How old an answer may get although nothing was written: the clock alone changes what is due.
const SAME: Duration = Duration::from_secs(30);
/// How old any answer may get.
const OLDEST: Duration = Duration::from_secs(300);

/// A question that somebody who watches asks again.
pub(super) struct Look {
    /// How old the answer is, and how long it took.
    pub(super) age: Duration,
    pub(super) took: Duration,
    /// How many questions about the same are asked again and again.
    pub(super) questions: usize,
    /// Whether nothing was written since.
    pub(super) is_same: bool,
}

/// The share of the questions about one canvas, or about the platform.
#[derive(Clone, Copy)]
pub(super) struct TimeShare {
    pub(super) about: About,
    /// One of how many it is.
    pub(super) of: usize,
}

impl TimeShare {
    fn count(self) -> u32 {
        u32::try_from(self.of).unwrap_or(u32::MAX).max(1)
    }

    /// What is saved up, in seconds.
    fn full_s(self) -> f64 {
        BUDGET.as_secs_f64() / f64::from(self.count())
    }
}

/// The budgets of a process: of those that have spent something, since the others have all of it.
#[derive(Default)]
pub(super) struct Pace(Mutex<HashMap<About, Budget>>);

struct Budget {
    /// In seconds; less than nothing if the last question took more than there was.
    left_s: f64,
    at: Instant,
}

impl Budget {
    /// What is left now of a share like this.
    fn left_s(&self, share: TimeShare) -> f64 {
        let filled = self.at.elapsed().as_secs_f64() / f64::from(PART) / f64::from(share.count());
        (self.left_s + filled).min(share.full_s())
    }
}

impl Pace {
    /// Whether to ask again.
    pub(super) fn admits(&self, share: TimeShare, look: &Look) -> bool {
        let questions = u32::try_from(look.questions).unwrap_or(u32::MAX).max(1);
        let parts = PART.saturating_mul(share.count()).saturating_mul(questions);
        let part = look.took.saturating_mul(parts).min(OLDEST);
        match look.is_same {
            true => look.age >= part.max(SAME),
            false => look.age >= part || left_s(&self.budgets(), share) > 0.0,
        }
    }

    /// Notes how long a question took.
    pub(super) fn spend(&self, share: TimeShare, took: Duration) {
        let mut budgets = self.budgets();
        let left_s = left_s(&budgets, share) - took.as_secs_f64();
        budgets.retain(|_, budget| budget.left_s(share) < share.full_s());
        let budget = Budget { left_s: left_s.max(-share.full_s()), at: Instant::now() };
        budgets.insert(share.about, budget);
    }

    fn budgets(&self) -> MutexGuard<'_, HashMap<About, Budget>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn left_s(budgets: &HashMap<About, Budget>, share: TimeShare) -> f64 {
    budgets.get(&share.about).map_or_else(|| share.full_s(), |budget| budget.left_s(share))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;
    use wakeq::CanvasId;

    use super::*;

    const ALL: TimeShare = TimeShare { about: About::Platform, of: 1 };

    fn look(age_s: u64, took_ms: u64, questions: usize, is_same: bool) -> Look {
        Look { age: Duration::from_secs(age_s), took: Duration::from_millis(took_ms), questions, is_same }
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_is_spent_and_fills_again() {
        let pace = Pace::default();
        assert!(pace.admits(ALL, &look(2, 100, 1, false)));
        pace.spend(ALL, BUDGET);
        assert!(!pace.admits(ALL, &look(2, 100, 1, false)));
        assert!(pace.admits(ALL, &look(20, 100, 1, false)), "its part of the time");
        assert!(!pace.admits(ALL, &look(20, 100, 3, false)), "which others have parts of, too");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pace.admits(ALL, &look(2, 100, 1, false)));
        pace.spend(ALL, Duration::from_secs(3_600));
        tokio::time::advance(BUDGET * PART + Duration::from_secs(1)).await;
        assert!(pace.admits(ALL, &look(2, 100, 1, false)), "there is no debt for hours");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unchanged_answer_waits_its_interval_whatever_budget_is_left() {
        let pace = Pace::default();
        for (asked, admitted) in [
            (look(29, 1, 1, true), false),
            (look(30, 1, 1, true), true),
            (look(30, 100, 2, true), false),
            (look(40, 100, 2, true), true),
            (look(300, 5_000, 500, true), true),
        ] {
            assert_eq!(pace.admits(ALL, &asked), admitted, "{:?} {:?}", asked.age, asked.took);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_canvas_spends_no_share_but_its_own() {
        let pace = Pace::default();
        let of = |canvas: u128| TimeShare { about: About::Canvas(CanvasId(Uuid::from_u128(canvas))), of: 2 };
        pace.spend(of(1), BUDGET);
        assert!(!pace.admits(of(1), &look(2, 100, 1, false)));
        assert!(pace.admits(of(2), &look(2, 100, 1, false)));
        pace.spend(of(2), BUDGET / 2);
        assert!(!pace.admits(of(2), &look(2, 100, 1, false)), "it is half of the budget");
        for canvas in [1, 2] {
            assert!(!pace.admits(of(canvas), &look(39, 100, 1, false)));
            assert!(pace.admits(of(canvas), &look(40, 100, 1, false)), "its part of the time");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pace.admits(of(2), &look(2, 100, 1, false)) && !pace.admits(of(1), &look(2, 100, 1, false)));
        pace.spend(of(3), Duration::ZERO);
        tokio::time::advance(2 * BUDGET * PART + Duration::from_secs(1)).await;
        pace.spend(of(3), Duration::from_secs(1));
        assert_eq!(pace.budgets().len(), 1, "those that are full again are forgotten");
    }
}
