//! What was read a moment ago, for all browsers of a process: they watch the same numbers, which
//! are asked for once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

use crate::http::problem::Problem;

/// How old an answer may be.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// How many answers are kept, and how large each may be.
const ENTRIES_MAX: usize = 500;
const BYTES_MAX: usize = 256 * 1024;

/// An answer and its time, behind a lock that is held while it is asked for.
type Entry = Arc<tokio::sync::Mutex<Option<(Instant, Bytes)>>>;

/// Answers by what was asked for.
#[derive(Default)]
pub(super) struct Memo(Mutex<HashMap<String, Entry>>);

impl Memo {
    /// The answer to a question: one that is fresh, or else what `ask` brings. Those who ask at the
    /// same time wait for one answer. An error is not kept.
    pub(super) async fn find<F>(&self, question: &str, ask: F) -> Result<Bytes, Problem>
    where
        F: Future<Output = Result<Bytes, Problem>>,
    {
        let entry = self.entry(question);
        let mut kept = entry.lock().await;
        if let Some((at, answer)) = &*kept
            && at.elapsed() < FRESH
        {
            return Ok(answer.clone());
        }
        let at = Instant::now();
        let answer = ask.await?;
        *kept = (answer.len() <= BYTES_MAX).then(|| (at, answer.clone()));
        Ok(answer)
    }

    /// Forgets all answers: something was changed, and each of them may tell of that.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn entry(&self, question: &str) -> Entry {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= ENTRIES_MAX && !entries.contains_key(question) {
            entries.retain(|_, entry| is_in_use(entry));
            if entries.len() >= ENTRIES_MAX {
                // All are in use: this answer is shared with nobody.
                return Entry::default();
            }
        }
        Arc::clone(entries.entry(question.to_owned()).or_default())
    }
}

/// Whether somebody waits for it, or may still use it.
fn is_in_use(entry: &Entry) -> bool {
    match entry.try_lock() {
        Ok(kept) => kept.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    async fn asked(memo: &Memo, question: &str, times: &AtomicUsize) -> Bytes {
        let ask = async {
            times.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(Bytes::from_static(b"answer"))
        };
        memo.find(question, ask).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn ten_browsers_ask_once_until_the_answer_is_old() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        let many = futures_util::future::join_all((0..10).map(|_| asked(&memo, "a", &times))).await;
        assert!(many.iter().all(|answer| answer == "answer"));
        assert_eq!(times.load(Ordering::SeqCst), 1);
        asked(&memo, "b", &times).await;
        assert_eq!(times.load(Ordering::SeqCst), 2, "another question is another answer");
        tokio::time::advance(FRESH).await;
        asked(&memo, "a", &times).await;
        assert_eq!(times.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_change_all_is_asked_for_again() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        asked(&memo, "a", &times).await;
        memo.forget();
        asked(&memo, "a", &times).await;
        assert_eq!(times.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_asked_for_again_and_old_answers_make_room() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        assert!(memo.find("a", async { Err(Problem::internal()) }).await.is_err());
        assert_eq!(asked(&memo, "a", &times).await, "answer");
        for question in 0..2 * ENTRIES_MAX {
            asked(&memo, &format!("{question}"), &times).await;
        }
        assert!(memo.0.lock().unwrap().len() <= ENTRIES_MAX);
        tokio::time::advance(FRESH).await;
        asked(&memo, "new", &times).await;
        assert!(memo.0.lock().unwrap().len() < 3, "old ones have gone");
    }
}
