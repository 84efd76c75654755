//! What was read a moment ago, for all browsers of a process: they watch the same numbers, which
//! are asked for once. Whoever asks has to put into the question what decides about the answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

use crate::http::inside::Reply;
use crate::http::problem::Problem;

/// How old an answer may be.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// How many answers are kept, and how many bytes of all of them.
const ENTRIES_MAX: usize = 500;
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Answers up to this size are kept without a look at how large the others are.
const SMALL: usize = 8 * 1024;

/// An answer and its time, behind a lock that is held while it is asked for.
type Entry = Arc<tokio::sync::Mutex<Option<(Instant, Bytes)>>>;

/// Answers by what was asked for.
#[derive(Default)]
pub(super) struct Memo(Mutex<HashMap<String, Entry>>);

impl Memo {
    /// The answer to a question: one that is fresh, or else what `ask` brings. Those who ask at the
    /// same time wait for one answer. Neither an error is kept nor an answer whose reading is
    /// recorded.
    pub(super) async fn find<F>(&self, question: &str, ask: F) -> Result<Bytes, Problem>
    where
        F: Future<Output = Result<Reply, Problem>>,
    {
        let entry = self.entry(question);
        let mut kept = entry.lock().await;
        if let Some((at, answer)) = &*kept
            && at.elapsed() < FRESH
        {
            return Ok(answer.clone());
        }
        let at = Instant::now();
        let Reply { body, is_recorded } = ask.await?;
        *kept = (!is_recorded && self.has_room(body.len())).then(|| (at, body.clone()));
        Ok(body)
    }

    /// Whether an answer of this size can be kept beside the others, of which old ones go.
    fn has_room(&self, bytes: usize) -> bool {
        if bytes <= SMALL {
            return true;
        }
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| is_in_use(entry));
        let held = entries.values().filter_map(|entry| entry.try_lock().ok());
        let held: usize = held.filter_map(|kept| Some(kept.as_ref()?.1.len())).sum();
        held.saturating_add(bytes) <= BYTES_MAX
    }

    /// Forgets all answers, because something was changed: whoever has changed it looks at once.
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
            Ok(reply(Bytes::from_static(b"answer")))
        };
        memo.find(question, ask).await.unwrap()
    }

    fn reply(body: Bytes) -> Reply {
        Reply { body, is_recorded: false }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_recorded_is_asked_for_by_each_reader() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        let read = async || {
            let ask = async {
                times.fetch_add(1, Ordering::SeqCst);
                Ok(Reply { is_recorded: true, ..reply(Bytes::from_static(b"value")) })
            };
            memo.find("a", ask).await.unwrap()
        };
        assert_eq!((read().await, read().await), (Bytes::from("value"), Bytes::from("value")));
        assert_eq!(times.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_are_kept_as_far_as_there_is_room() {
        let memo = Memo::default();
        let large = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
        let is_kept = async |question: &str| {
            memo.find(question, async { Ok(reply(large.clone())) }).await.unwrap();
            memo.find(question, async { Err(Problem::internal()) }).await.is_ok()
        };
        assert!(is_kept("a").await && is_kept("b").await);
        assert!(!is_kept("c").await, "there is no room");
        tokio::time::advance(FRESH).await;
        assert!(is_kept("c").await, "the others are old");
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
    async fn after_a_change_everything_is_asked_for_again() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        let (memo, times) = (&memo, &times);
        asked(memo, "a", times).await;
        // It was asked for before the change, so nobody else may have it.
        let early = asked(memo, "b", times);
        let change = async { memo.forget() };
        tokio::join!(early, change);
        for question in ["a", "b", "a", "b"] {
            asked(memo, question, times).await;
        }
        assert_eq!(times.load(Ordering::SeqCst), 4, "each once before the change, and once after it");
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
