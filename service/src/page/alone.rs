//! What a browser that watches asks for itself alone, since no answer is kept that it could share:
//! what is recorded, has no room, could not be answered, or is asked in other words each time.
//!
//! Nothing is left of it but how long it took, so a page that is looked at again asks all of it
//! again, or nothing of it and is shown as it was. Of what is recorded, it is known when it was, so
//! that a page that is open has a line now and then, and not one for each look. Decides nothing
//! about when to ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wakeq::CanvasId;

/// How long somebody who is shown the same again and again is not recorded once more.
const RECORDED_FOR: Duration = Duration::from_secs(300);

/// When something was asked, and how long that took.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) at: Instant,
    pub(super) took: Duration,
}

/// What one browser asks alone.
pub(super) struct Alone {
    canvas: CanvasId,
    looks: Mutex<Looks>,
    /// When it was recorded that this is read, by path and query.
    reads: Mutex<HashMap<String, Instant>>,
    /// By which browsers are counted.
    _browser: Arc<()>,
}

#[derive(Default)]
struct Looks {
    /// All of the last look that asked something alone.
    last: Option<Asked>,
    /// All of this one, so far.
    now: Option<Asked>,
    /// Whether this one may, once it had to be decided.
    is_admitted: Option<bool>,
}

impl Alone {
    /// Nothing yet: the first look asks whatever it has to.
    pub(super) fn new(canvas: CanvasId, browser: Arc<()>) -> Self {
        Self { canvas, looks: Mutex::default(), reads: Mutex::default(), _browser: browser }
    }

    /// The canvas whose page it watches.
    pub(super) fn canvas(&self) -> CanvasId {
        self.canvas
    }

    /// Begins another look.
    pub(super) fn begin(&self) {
        let mut looks = self.looks();
        let now = looks.now.take();
        looks.last = now.or(looks.last);
        looks.is_admitted = None;
    }

    /// Whether this look may ask, as `decide` says about the last one: once for all of the page.
    pub(super) fn admits(&self, decide: impl FnOnce(Asked) -> bool) -> bool {
        let mut looks = self.looks();
        let last = looks.last;
        *looks.is_admitted.get_or_insert_with(|| last.is_none_or(decide))
    }

    /// Notes what this look has asked.
    pub(super) fn note(&self, asked: Asked) {
        let mut looks = self.looks();
        let took = looks.now.map_or(Duration::ZERO, |now| now.took);
        let at = looks.now.map_or(asked.at, |now| now.at.min(asked.at));
        looks.now = Some(Asked { at, took: took.saturating_add(asked.took) });
    }

    /// Whether this look had something to ask and may not, so that its page is not whole.
    pub(super) fn is_postponed(&self) -> bool {
        self.looks().is_admitted == Some(false)
    }

    /// Whether it was recorded a moment ago that the person reads this.
    pub(super) fn has_read(&self, path: &str) -> bool {
        self.reads().get(path).is_some_and(|at| at.elapsed() < RECORDED_FOR)
    }

    /// Notes that it was recorded.
    pub(super) fn note_read(&self, path: &str) {
        let mut reads = self.reads();
        reads.retain(|_, at| at.elapsed() < RECORDED_FOR);
        reads.insert(path.to_owned(), Instant::now());
    }

    fn reads(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use axum::body::Bytes;

    use super::*;
    use crate::http::inside::Reply;
    use crate::http::problem::Problem;
    use crate::page::memo::{FRESH, Memo};
    use crate::page::question::Question;

    const COSTLY: Duration = Duration::from_millis(500);
    const HOUR_S: u32 = 3_600;

    fn question(text: &str) -> Question {
        Question::new(Some(CanvasId::DEFAULT), text.to_owned())
    }

    fn answer(is_recorded: bool) -> Result<Reply, Problem> {
        Ok(Reply { body: Bytes::from_static(b"answer"), is_recorded })
    }

    /// Watches these questions for an hour; returns how many were asked in each look.
    async fn watched(
        memo: &Memo,
        questions: impl Fn(u32) -> Vec<Question>,
        answer: impl Fn() -> Result<Reply, Problem>,
    ) -> Vec<usize> {
        let (alone, mut looks) = (memo.alone(CanvasId::DEFAULT), Vec::new());
        for second in (0..HOUR_S).step_by(2) {
            let asked = Cell::new(0);
            alone.begin();
            for question in questions(second) {
                let ask = async {
                    asked.set(asked.get() + 1);
                    tokio::time::sleep(COSTLY).await;
                    answer()
                };
                let shown = memo.watch(&question, &alone, async { None }, ask).await;
                assert_eq!(shown.is_ok_and(|shown| shown.is_none()), alone.is_postponed());
            }
            looks.push(asked.get());
            tokio::time::advance(FRESH).await;
        }
        looks
    }

    /// Costs about a hundredth of the time at most, and is asked every five minutes at least.
    #[track_caller]
    fn is_seldom(looks: &[usize], what: &str) {
        let part = COSTLY.as_secs_f64() * looks.iter().sum::<usize>() as f64 / f64::from(HOUR_S);
        assert!(part < 0.012, "{what}: {part} of the time");
        let longest = looks.split(|asked| *asked > 0).map(<[usize]>::len).max();
        assert!(longest.is_some_and(|longest| longest <= 150), "{what}: {longest:?} looks without an answer");
        assert!(looks[0] > 0, "{what}: the first look asks at once");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_kept_is_asked_for_seldom_if_it_costs_much() {
        let one = |_| vec![question("a")];
        let failing = watched(&Memo::default(), one, || Err(Problem::unavailable("the database"))).await;
        is_seldom(&failing, "no answer");
        is_seldom(&watched(&Memo::default(), one, || answer(true)).await, "an answer that is recorded");
        let other = |second: u32| vec![question(&second.to_string())];
        is_seldom(&watched(&Memo::default(), other, || answer(false)).await, "another question each time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_asks_all_of_it_or_nothing() {
        let two = |_| vec![question("a"), question("b")];
        let looks = watched(&Memo::default(), two, || answer(true)).await;
        assert!(looks.iter().all(|asked| [0, 2].contains(asked)), "{looks:?}");
        is_seldom(&looks, "two");
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_answer_is_shown_while_it_is_asked_for_in_vain() {
        let memo = Memo::default();
        let alone = memo.alone(CanvasId::DEFAULT);
        memo.watch(&question("a"), &alone, async { None }, async { answer(false) }).await.unwrap();
        drop(alone);
        tokio::time::advance(FRESH).await;
        let one = |_| vec![question("a")];
        let failing = watched(&memo, one, || Err(Problem::unavailable("the database"))).await;
        is_seldom(&failing, "no other answer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_shown_for_hours_is_recorded_now_and_then() {
        let memo = Memo::default();
        let [alone, other] = [(); 2].map(|()| memo.alone(CanvasId::DEFAULT));
        let mut recorded = 0;
        for _ in (0..HOUR_S).step_by(2) {
            if !alone.has_read("/a") {
                alone.note_read("/a");
                recorded += 1;
            }
            tokio::time::advance(FRESH).await;
        }
        assert_eq!(recorded, 12);
        assert!(
            !alone.has_read("/b") && !other.has_read("/a"),
            "neither another question nor another browser"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_cheap_question_is_asked_at_each_look() {
        let (memo, times) = (Memo::default(), Cell::new(0));
        let alone = memo.alone(CanvasId::DEFAULT);
        for _ in 0..100 {
            alone.begin();
            let ask = async {
                times.set(times.get() + 1);
                answer(true)
            };
            memo.watch(&question("a"), &alone, async { None }, ask).await.unwrap();
            tokio::time::advance(FRESH).await;
        }
        assert_eq!(times.get(), 100);
    }
}
