//! Answers that took long: a page is shown with one that is half a minute old at most, while it is
//! asked for again, rather than not at all until then. The live part of the page follows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

/// What takes less is waited for.
const LONG: Duration = Duration::from_millis(100);
/// How many times as long as it took an answer is shown, and at most.
const TIMES: u32 = 100;
const OLDEST: Duration = Duration::from_secs(30);

/// Answers that took long, by their questions.
#[derive(Default)]
pub(super) struct Earlier(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    /// How often all were forgotten.
    forgotten: u64,
    by_question: HashMap<String, (Bytes, Instant)>,
}

impl Earlier {
    /// Begins to ask: what is forgotten meanwhile makes the answer an old one.
    pub(super) fn begin(&self) -> u64 {
        self.answers().forgotten
    }

    /// Keeps an answer, if it took long and nothing was changed since the beginning.
    pub(super) fn keep(&self, begun: u64, question: &str, answer: &Bytes, took: Duration) {
        let mut answers = self.answers();
        if took < LONG || answers.forgotten != begun {
            answers.by_question.remove(question);
            return;
        }
        let now = Instant::now();
        answers.by_question.retain(|_, (_, until)| *until > now);
        let until = now + took.saturating_mul(TIMES).min(OLDEST);
        answers.by_question.insert(question.to_owned(), (answer.clone(), until));
    }

    /// The answer to a question that would take long.
    pub(super) fn find(&self, question: &str) -> Option<Bytes> {
        let answers = self.answers();
        let (answer, until) = answers.by_question.get(question)?;
        (*until > Instant::now()).then(|| answer.clone())
    }

    /// Forgets all of them.
    pub(super) fn forget(&self) {
        let mut answers = self.answers();
        answers.forgotten += 1;
        answers.by_question.clear();
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_took_long_is_shown_for_a_while() {
        let (earlier, answer) = (Earlier::default(), Bytes::from_static(b"answer"));
        let begun = earlier.begin();
        earlier.keep(begun, "quick", &answer, Duration::from_millis(99));
        earlier.keep(begun, "long", &answer, Duration::from_millis(100));
        earlier.keep(begun, "longer", &answer, Duration::from_secs(9));
        assert_eq!(earlier.find("quick"), None);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(earlier.find("long"), Some(answer.clone()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(earlier.find("long"), None);
        assert_eq!(earlier.find("longer"), Some(answer.clone()));
        tokio::time::advance(OLDEST).await;
        assert_eq!(earlier.find("longer"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_before_a_change_is_never_shown() {
        let (earlier, answer, long) =
            (Earlier::default(), Bytes::from_static(b"old"), Duration::from_secs(1));
        let begun = earlier.begin();
        earlier.keep(begun, "a", &answer, long);
        earlier.forget();
        assert_eq!(earlier.find("a"), None);
        earlier.keep(begun, "a", &answer, long);
        assert_eq!(earlier.find("a"), None, "it was asked for before");
        earlier.keep(earlier.begin(), "a", &answer, long);
        assert!(earlier.find("a").is_some());
    }
}
