//! What was read a moment ago, for all browsers of a process: they watch the same numbers, which
//! are asked for once. Whoever asks has to put into the question what decides about the answer.
//!
//! Somebody who opens a page is shown what is at most two seconds old. Those who leave it open are
//! shown what has changed as soon as it may cost something to look ([`Pace`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;
use wakeq::CanvasId;

use super::earlier::Earlier;
use super::pace::{Look, Pace};
use super::question::Question;
use crate::http::inside::Reply;
use crate::http::problem::Problem;

/// How old an answer may be, and how often somebody who watches asks.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// How long it is remembered that somebody watches.
const WATCHED: Duration = Duration::from_secs(10);
/// How many answers are kept, and how many bytes of all of them.
const ENTRIES_MAX: usize = 500;
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Answers up to this size are kept without a look at how large the others are.
const SMALL: usize = 8 * 1024;

/// A question's answer.
#[derive(Default)]
struct Slot {
    /// How often something was changed that the answer depends on.
    changes: AtomicU64,
    /// Locked while it is asked for.
    kept: tokio::sync::Mutex<Option<Kept>>,
}

impl Slot {
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

type Entry = Arc<Slot>;

/// What the database was like: the same mark, the same answer.
pub(super) type Mark = Option<Arc<str>>;

struct Kept {
    answer: Bytes,
    /// When it was asked for, how long that took, and the mark and the changes from before.
    at: Instant,
    took: Duration,
    mark: Mark,
    changes: u64,
    watched_at: Option<Instant>,
}

impl Kept {
    fn is_fresh(&self, slot: &Slot) -> bool {
        self.is_current(slot) && self.at.elapsed() < FRESH
    }

    /// Whether nothing was changed since it was asked for.
    fn is_current(&self, slot: &Slot) -> bool {
        self.changes == slot.changes()
    }

    fn is_watched(&self) -> bool {
        self.watched_at.is_some_and(|at| at.elapsed() < WATCHED)
    }
}

/// Answers by what was asked for.
#[derive(Default)]
pub(super) struct Memo {
    entries: Mutex<HashMap<Question, Entry>>,
    pace: Pace,
    earlier: Earlier,
}

impl Memo {
    /// The answer to a question: one that is fresh, or else what `ask` brings. Those who ask at the
    /// same time wait for one answer. Neither an error is kept nor an answer whose reading is
    /// recorded.
    pub(super) async fn find<F>(&self, question: &Question, ask: F) -> Result<Bytes, Problem>
    where
        F: Future<Output = Result<Reply, Problem>>,
    {
        let entry = self.entry(question);
        let mut kept = entry.kept.lock().await;
        if let Some(known) = &*kept
            && known.is_fresh(&entry)
        {
            return Ok(known.answer.clone());
        }
        self.renew(question, &entry, &mut kept, None, ask).await
    }

    /// The same for somebody who watches, and asks again and again: also an old answer, as long as
    /// the database has the same mark, or it would cost too much to ask.
    pub(super) async fn watch<M, F>(&self, question: &Question, mark: M, ask: F) -> Result<Bytes, Problem>
    where
        M: Future<Output = Mark>,
        F: Future<Output = Result<Reply, Problem>>,
    {
        let entry = self.entry(question);
        let mut kept = entry.kept.lock().await;
        let mark = match &mut *kept {
            None => mark.await,
            Some(known) => {
                known.watched_at = Some(Instant::now());
                if known.is_fresh(&entry) {
                    return Ok(known.answer.clone());
                }
                let mark = mark.await;
                let is_same = known.is_current(&entry) && mark.is_some() && mark == known.mark;
                let (age, took) = (known.at.elapsed(), known.took);
                if !self.pace.admits(&Look { age, took, questions: self.questions(), is_same }) {
                    return Ok(known.answer.clone());
                }
                mark
            }
        };
        let began = Instant::now();
        let answer = self.renew(question, &entry, &mut kept, mark, ask).await;
        self.pace.spend(began.elapsed());
        if let Some(known) = &mut *kept {
            known.watched_at = Some(Instant::now());
        }
        answer
    }

    /// Asks, and keeps the answer.
    async fn renew<F>(
        &self,
        question: &Question,
        entry: &Entry,
        kept: &mut Option<Kept>,
        mark: Mark,
        ask: F,
    ) -> Result<Bytes, Problem>
    where
        F: Future<Output = Result<Reply, Problem>>,
    {
        let (at, changes) = (Instant::now(), entry.changes());
        let Reply { body, is_recorded } = ask.await?;
        let (took, watched_at) = (at.elapsed(), kept.as_ref().and_then(|known| known.watched_at));
        *kept = None;
        if !is_recorded && self.has_room(body.len()) {
            // An entry that is shared with nobody is told of no change.
            let is_unchanged = || Arc::strong_count(entry) > 1 && entry.changes() == changes;
            self.earlier.keep(question, &body, took, is_unchanged);
            *kept = Some(Kept { answer: body.clone(), at, took, mark, changes, watched_at });
        }
        Ok(body)
    }

    /// Whether an answer of this size can be kept beside the others, of which old ones go.
    fn has_room(&self, bytes: usize) -> bool {
        if bytes <= SMALL {
            return true;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|_, entry| is_in_use(entry));
        let held = entries.values().filter_map(|entry| entry.kept.try_lock().ok());
        let held: usize = held.filter_map(|kept| Some(kept.as_ref()?.answer.len())).sum();
        held.saturating_add(bytes) <= BYTES_MAX
    }

    /// An answer of the last half a minute to a question that takes long, to be shown while it is
    /// asked again.
    pub(super) fn earlier(&self, question: &Question) -> Option<Bytes> {
        self.earlier.find(question)
    }

    /// Something of a canvas is being changed, or of the platform if there is none. At its end what
    /// depends on it is asked for again, since whoever has changed it looks at once: also if it
    /// failed or was cut off, when nobody knows what it has come to. Those who watch are shown what
    /// they were, until the pace lets them ask.
    pub(super) fn changing(&self, canvas: Option<CanvasId>) -> Changing<'_> {
        Changing { memo: self, canvas, is_refused: false }
    }

    fn changed(&self, canvas: Option<CanvasId>) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, entry) in entries.iter().filter(|(question, _)| question.depends_on(canvas)) {
            entry.changes.fetch_add(1, Ordering::SeqCst);
        }
        drop(entries);
        self.earlier.forget(canvas);
    }

    /// How many questions are asked, about: some may be of browsers that have gone.
    fn questions(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn entry(&self, question: &Question) -> Entry {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if !entries.contains_key(question) {
            // Old ones go as new ones come, so that they are not counted as questions for long.
            entries.retain(|_, entry| is_in_use(entry));
            if entries.len() >= ENTRIES_MAX {
                // All are in use: this answer is shared with nobody.
                return Entry::default();
            }
        }
        Arc::clone(entries.entry(question.clone()).or_default())
    }
}

/// A change, until it has ended in whatever way.
pub(super) struct Changing<'m> {
    memo: &'m Memo,
    canvas: Option<CanvasId>,
    is_refused: bool,
}

impl Changing<'_> {
    /// Ends one that was not even tried: nothing was changed.
    pub(super) fn refuse(mut self) {
        self.is_refused = true;
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if !self.is_refused {
            self.memo.changed(self.canvas);
        }
    }
}

/// Whether somebody waits for it, or may still use it.
fn is_in_use(entry: &Entry) -> bool {
    Arc::strong_count(entry) > 1
        || match entry.kept.try_lock() {
            Ok(kept) => kept.as_ref().is_some_and(|known| known.is_fresh(entry) || known.is_watched()),
            Err(_) => true,
        }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use uuid::Uuid;

    use super::*;

    /// A question about the platform.
    fn question(text: &str) -> Question {
        Question::new(None, text.to_owned())
    }

    async fn asked(memo: &Memo, text: &str, times: &AtomicUsize) -> Bytes {
        asked_about(memo, &question(text), times).await
    }

    async fn asked_about(memo: &Memo, question: &Question, times: &AtomicUsize) -> Bytes {
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
    async fn a_recorded_answer_is_asked_for_by_each_reader() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        let read = async || {
            let ask = async {
                times.fetch_add(1, Ordering::SeqCst);
                Ok(Reply { is_recorded: true, ..reply(Bytes::from_static(b"value")) })
            };
            memo.find(&question("a"), ask).await.unwrap()
        };
        assert_eq!((read().await, read().await), (Bytes::from("value"), Bytes::from("value")));
        assert_eq!(times.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_are_kept_as_far_as_there_is_room() {
        let memo = Memo::default();
        let large = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
        let is_kept = async |text: &str| {
            let question = question(text);
            memo.find(&question, async { Ok(reply(large.clone())) }).await.unwrap();
            memo.find(&question, async { Err(Problem::internal()) }).await.is_ok()
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
        let change = async { drop(memo.changing(None)) };
        tokio::join!(early, change);
        for question in ["a", "b", "a", "b"] {
            asked(memo, question, times).await;
        }
        assert_eq!(times.load(Ordering::SeqCst), 4, "each once before the change, and once after it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_canvas_leaves_what_is_known_of_others() {
        let canvas = |number| Some(CanvasId(Uuid::from_u128(number)));
        let questions = [canvas(1), canvas(2), None].map(|own| Question::new(own, "a".to_owned()));
        for (changed, again) in [(canvas(1), [true, false, true]), (None, [true; 3])] {
            let (memo, times) = (Memo::default(), AtomicUsize::new(0));
            for question in &questions {
                asked_about(&memo, question, &times).await;
            }
            memo.changing(changed).refuse();
            for question in &questions {
                asked_about(&memo, question, &times).await;
            }
            assert_eq!(times.load(Ordering::SeqCst), 3, "nothing was changed");
            drop(memo.changing(changed));
            for (question, is_asked) in questions.iter().zip(again) {
                let before = times.load(Ordering::SeqCst);
                asked_about(&memo, question, &times).await;
                assert_eq!(times.load(Ordering::SeqCst) > before, is_asked);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_before_a_change_is_not_shown_after_it() {
        let (memo, a) = (Memo::default(), question("a"));
        let ask = async |is_changed: bool| {
            let ask = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(is_changed.then(|| memo.changing(None)));
                Ok(reply(Bytes::from_static(b"answer")))
            };
            memo.find(&a, ask).await.unwrap()
        };
        ask(true).await;
        assert_eq!(memo.earlier(&a), None, "it was asked for before the change");
        ask(false).await;
        assert!(memo.earlier(&a).is_some());
    }

    /// As when the browser goes away, or the request takes too long.
    #[tokio::test(start_paused = true)]
    async fn after_a_change_without_an_answer_everything_is_asked_for_again() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        asked(&memo, "a", &times).await;
        let change = async {
            let _changing = memo.changing(None);
            std::future::pending::<()>().await;
        };
        assert!(tokio::time::timeout(Duration::from_millis(1), change).await.is_err());
        asked(&memo, "a", &times).await;
        assert_eq!(times.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_is_asked_for_again_and_old_answers_make_room() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        assert!(memo.find(&question("a"), async { Err(Problem::internal()) }).await.is_err());
        assert_eq!(asked(&memo, "a", &times).await, "answer");
        for number in 0..2 * ENTRIES_MAX {
            asked(&memo, &format!("{number}"), &times).await;
        }
        assert!(memo.entries.lock().unwrap().len() <= ENTRIES_MAX);
        tokio::time::advance(FRESH).await;
        asked(&memo, "new", &times).await;
        assert!(memo.entries.lock().unwrap().len() < 3, "old ones have gone");
    }

    /// Watches for a while, every two seconds; returns how often it was asked.
    async fn watched(memo: &Memo, seconds: u64, took: Duration, mark: impl Fn(u64) -> Mark) -> usize {
        let times = AtomicUsize::new(0);
        for second in (0..seconds).step_by(2) {
            let ask = async {
                times.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(took).await;
                Ok(reply(Bytes::from_static(b"answer")))
            };
            memo.watch(&question("a"), async { mark(second) }, ask).await.unwrap();
            tokio::time::advance(FRESH).await;
        }
        times.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_not_changed_is_not_asked_for_again_for_half_a_minute() {
        let cheap = Duration::from_millis(1);
        let same = watched(&Memo::default(), 60, cheap, |_| Some("1:1:".into())).await;
        assert!((2..=3).contains(&same), "once, and as time alone may change it: {same}");
        let changing = watched(&Memo::default(), 60, cheap, |second| Some(second.to_string().into())).await;
        assert_eq!(changing, 30, "each time");
        let unknown = watched(&Memo::default(), 60, cheap, |_| None).await;
        assert_eq!(unknown, 30, "what is not known may have changed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_costs_much_is_asked_for_seldom() {
        let costly = Duration::from_millis(500);
        let times = watched(&Memo::default(), 3_600, costly, |_| None).await;
        let part = costly.as_secs_f64() * times as f64 / 3_600.0;
        assert!(part < 0.012, "{times} times are {part} of the time");
        assert!(times > 20, "and not never: {times}");
    }

    #[tokio::test(start_paused = true)]
    async fn forms_of_others_make_what_costs_much_no_more_frequent() {
        let (memo, costly) = (Memo::default(), Duration::from_millis(500));
        let changed = |_| {
            drop(memo.changing(None));
            None
        };
        let times = watched(&memo, 3_600, costly, changed).await;
        let part = costly.as_secs_f64() * times as f64 / 3_600.0;
        assert!(part < 0.012, "{times} times are {part} of the time");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_opens_a_page_is_shown_what_is_fresh() {
        let (memo, times) = (Memo::default(), AtomicUsize::new(0));
        let a = question("a");
        let old = async { Ok(reply(Bytes::from_static(b"old"))) };
        memo.watch(&a, async { Some("1:1:".into()) }, old).await.unwrap();
        assert_eq!(memo.find(&a, async { Err(Problem::internal()) }).await.unwrap(), "old");
        tokio::time::advance(FRESH).await;
        assert_eq!(asked(&memo, "a", &times).await, "answer");
        let watching = memo.watch(&a, async { None }, async { Err(Problem::internal()) }).await;
        assert_eq!(watching.unwrap(), "answer", "and with it those who watch");
    }
}
