//! How often what browsers watch is read again, so that all of it together costs the database about
//! a hundredth of the time at most.
//!
//! There is a budget of time to ask in, which fills slowly, so that numbers are live while asking
//! is cheap, or nobody has looked for a while. Once it is spent, each question has an equal part of
//! the time that is left. Decides only; reads no answer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

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
    /// How many questions are asked again and again.
    pub(super) questions: usize,
    /// Whether nothing was written since.
    pub(super) is_same: bool,
}

/// The budget of a process.
pub(super) struct Pace(Mutex<Budget>);

struct Budget {
    /// In seconds; less than nothing if the last question took more than there was.
    left_s: f64,
    at: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new(Budget { left_s: BUDGET.as_secs_f64(), at: Instant::now() }))
    }
}

impl Pace {
    /// Whether to ask again.
    pub(super) fn admits(&self, look: &Look) -> bool {
        let questions = u32::try_from(look.questions).unwrap_or(u32::MAX);
        let part = look.took.saturating_mul(PART.saturating_mul(questions)).min(OLDEST);
        match look.is_same {
            true => look.age >= part.max(SAME),
            false => look.age >= part || self.left_s() > 0.0,
        }
    }

    /// Notes how long a question took.
    pub(super) fn spend(&self, took: Duration) {
        let left_s = self.left_s() - took.as_secs_f64();
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        budget.left_s = left_s.max(-BUDGET.as_secs_f64());
    }

    fn left_s(&self) -> f64 {
        let mut budget = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = budget.at.elapsed().as_secs_f64() / f64::from(PART);
        budget.left_s = (budget.left_s + filled).min(BUDGET.as_secs_f64());
        budget.at = Instant::now();
        budget.left_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(age_s: u64, took_ms: u64, questions: usize, is_same: bool) -> Look {
        Look { age: Duration::from_secs(age_s), took: Duration::from_millis(took_ms), questions, is_same }
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_is_spent_and_fills_again() {
        let pace = Pace::default();
        assert!(pace.admits(&look(2, 100, 1, false)));
        pace.spend(BUDGET);
        assert!(!pace.admits(&look(2, 100, 1, false)));
        assert!(pace.admits(&look(20, 100, 1, false)), "its part of the time");
        assert!(!pace.admits(&look(20, 100, 3, false)), "which others have parts of, too");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pace.admits(&look(2, 100, 1, false)));
        pace.spend(Duration::from_secs(3_600));
        tokio::time::advance(BUDGET * PART + Duration::from_secs(1)).await;
        assert!(pace.admits(&look(2, 100, 1, false)), "there is no debt for hours");
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
            assert_eq!(pace.admits(&asked), admitted, "{:?} {:?}", asked.age, asked.took);
        }
    }
}
