//! Answers that took long: a page is shown with one that is half a minute old at most, while it is
//! asked for again, rather than not at all until then. The live part of the page follows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

/// What takes less is waited for.
const LONG: Duration = Duration::from_millis(150);
/// How many times as long as it took an answer is shown, and at most.
const TIMES: u32 = 100;
const OLDEST: Duration = Duration::from_secs(30);
/// How long it is remembered that a question took long: the next time it may take long again.
const KNOWN: Duration = Duration::from_secs(300);
/// How many answers are kept, and how many bytes of all of them.
const ANSWERS_MAX: usize = 100;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Answers that took long, by their questions.
#[derive(Default)]
pub(super) struct Earlier(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    /// How often all were forgotten.
    forgotten: u64,
    by_question: HashMap<String, Known>,
}

impl Answers {
    fn has_room(&self, bytes: usize) -> bool {
        let held: usize = self.by_question.values().map(|known| known.answer.len()).sum();
        self.by_question.len() < ANSWERS_MAX && held.saturating_add(bytes) <= BYTES_MAX
    }
}

struct Known {
    answer: Bytes,
    at: Instant,
    /// How old it may get, and when it last took that long.
    oldest: Duration,
    long_at: Instant,
}

impl Earlier {
    /// Begins to ask: what is forgotten meanwhile makes the answer an old one.
    pub(super) fn begin(&self) -> u64 {
        self.answers().forgotten
    }

    /// Keeps an answer, if the question takes long and nothing was changed since the beginning.
    pub(super) fn keep(&self, begun: u64, question: &str, answer: &Bytes, took: Duration) {
        let (mut answers, at, answer) = (self.answers(), Instant::now(), answer.clone());
        if answers.forgotten != begun {
            return;
        }
        let before = answers.by_question.remove(question);
        answers.by_question.retain(|_, known| known.long_at.elapsed() < KNOWN);
        let (oldest, long_at) = match before {
            _ if took >= LONG => (took.saturating_mul(TIMES).min(OLDEST), at),
            Some(known) if known.long_at.elapsed() < KNOWN => (known.oldest, known.long_at),
            Some(_) | None => return,
        };
        if answers.has_room(answer.len()) {
            answers.by_question.insert(question.to_owned(), Known { answer, at, oldest, long_at });
        }
    }

    /// The answer to a question that may take long.
    pub(super) fn find(&self, question: &str) -> Option<Bytes> {
        let answers = self.answers();
        let known = answers.by_question.get(question)?;
        (known.at.elapsed() < known.oldest).then(|| known.answer.clone())
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
    async fn what_takes_long_is_shown_for_a_while() {
        let (earlier, answer) = (Earlier::default(), Bytes::from_static(b"answer"));
        let begun = earlier.begin();
        earlier.keep(begun, "quick", &answer, LONG - Duration::from_millis(1));
        earlier.keep(begun, "long", &answer, LONG);
        earlier.keep(begun, "longer", &answer, Duration::from_secs(9));
        assert_eq!(earlier.find("quick"), None);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(earlier.find("long"), Some(answer.clone()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(earlier.find("long"), None);
        assert_eq!(earlier.find("longer"), Some(answer.clone()));
        // It may take long again.
        let newer = Bytes::from_static(b"newer");
        earlier.keep(begun, "longer", &newer, Duration::ZERO);
        tokio::time::advance(OLDEST - Duration::from_secs(1)).await;
        assert_eq!(earlier.find("longer"), Some(newer.clone()));
        tokio::time::advance(KNOWN).await;
        earlier.keep(begun, "longer", &newer, Duration::ZERO);
        assert_eq!(earlier.find("longer"), None, "that was long ago");
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

    #[test]
    fn few_answers_are_kept() {
        let (earlier, long) = (Earlier::default(), Duration::from_secs(1));
        let large = Bytes::from(vec![b'x'; BYTES_MAX]);
        earlier.keep(0, "large", &large, long);
        earlier.keep(0, "small", &Bytes::from_static(b"x"), long);
        assert!(earlier.find("large").is_some() && earlier.find("small").is_none());
        earlier.forget();
        for question in 0..2 * ANSWERS_MAX {
            earlier.keep(1, &question.to_string(), &Bytes::new(), long);
        }
        assert_eq!(earlier.answers().by_question.len(), ANSWERS_MAX);
    }
}
