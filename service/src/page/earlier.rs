//! Answers that took long: a page is shown with one that is half a minute old at most, while it is
//! asked for again, rather than not at all until then. The live part of the page follows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;
use wakeq::CanvasId;

use super::question::Question;
use super::room::{Stored, first_to_go};

/// What takes less is waited for.
const LONG: Duration = Duration::from_millis(150);
/// How many times as long as it took an answer is shown, and at most.
const TIMES: u32 = 100;
const OLDEST: Duration = Duration::from_secs(30);
/// How long it is remembered that a question took long: the next time it may take long again.
const KNOWN: Duration = Duration::from_secs(300);
/// How many answers are kept, and how many bytes of all of them with their questions. Beyond that,
/// those of the canvas that has the most make room.
const ANSWERS_MAX: usize = 100;
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Answers that took long, by their questions.
#[derive(Default)]
pub(super) struct Earlier(Mutex<Answers>);

#[derive(Default)]
struct Answers(HashMap<Question, Known>);

impl Answers {
    fn make_room(&mut self, question: &Question, answer: &Bytes) -> bool {
        let size = bytes_of(question, answer);
        loop {
            let bytes = self.0.iter().map(|(other, known)| bytes_of(other, &known.answer));
            let is_much = bytes.fold(size, usize::saturating_add) > BYTES_MAX;
            let is_many = self.0.len() >= ANSWERS_MAX;
            if !is_much && !is_many {
                return true;
            }
            // What counts is what there is too much of.
            let counted = |size: usize| if is_much { size } else { 1 };
            let held = self.0.iter().map(|(other, known)| {
                let size = counted(bytes_of(other, &known.answer));
                Stored { about: other.about(), size, key: Some(other.clone()) }
            });
            match first_to_go(held.collect(), question.about(), counted(size)) {
                Some(gone) => self.0.remove(&gone),
                None => return false,
            };
        }
    }
}

fn bytes_of(question: &Question, answer: &Bytes) -> usize {
    answer.len().saturating_add(question.bytes())
}

struct Known {
    answer: Bytes,
    at: Instant,
    /// How old it may get, and when it last took that long.
    oldest: Duration,
    long_at: Instant,
}

impl Earlier {
    /// Keeps an answer, if the question takes long and nothing was changed since it was asked.
    pub(super) fn keep(
        &self,
        question: &Question,
        answer: &Bytes,
        took: Duration,
        is_unchanged: impl FnOnce() -> bool,
    ) {
        let (mut answers, at, answer) = (self.answers(), Instant::now(), answer.clone());
        // Asked while nothing can be forgotten: a change that comes later forgets this answer.
        if !is_unchanged() {
            return;
        }
        let before = answers.0.remove(question);
        answers.0.retain(|_, known| known.long_at.elapsed() < KNOWN);
        let (oldest, long_at) = match before {
            _ if took >= LONG => (took.saturating_mul(TIMES).min(OLDEST), at),
            Some(known) if known.long_at.elapsed() < KNOWN => (known.oldest, known.long_at),
            Some(_) | None => return,
        };
        if answers.make_room(question, &answer) {
            answers.0.insert(question.clone(), Known { answer, at, oldest, long_at });
        }
    }

    /// The answer to a question that may take long.
    pub(super) fn find(&self, question: &Question) -> Option<Bytes> {
        let answers = self.answers();
        let known = answers.0.get(question)?;
        (known.at.elapsed() < known.oldest).then(|| known.answer.clone())
    }

    /// Forgets what a change of a canvas, or of the platform if there is none, may have changed.
    pub(super) fn forget(&self, changed: Option<CanvasId>) {
        self.answers().0.retain(|question, _| !question.depends_on(changed));
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn question(text: &str) -> Question {
        Question::new(None, text.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_shown_for_a_while() {
        let (earlier, answer) = (Earlier::default(), Bytes::from_static(b"answer"));
        let keep = |text: &str, answer: &Bytes, took| earlier.keep(&question(text), answer, took, || true);
        let find = |text: &str| earlier.find(&question(text));
        keep("quick", &answer, LONG - Duration::from_millis(1));
        keep("long", &answer, LONG);
        keep("longer", &answer, Duration::from_secs(9));
        assert_eq!(find("quick"), None);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert_eq!(find("long"), Some(answer.clone()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(find("long"), None);
        assert_eq!(find("longer"), Some(answer.clone()));
        // It may take long again.
        let newer = Bytes::from_static(b"newer");
        keep("longer", &newer, Duration::ZERO);
        tokio::time::advance(OLDEST - Duration::from_secs(1)).await;
        assert_eq!(find("longer"), Some(newer.clone()));
        tokio::time::advance(KNOWN).await;
        keep("longer", &newer, Duration::ZERO);
        assert_eq!(find("longer"), None, "that was long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_from_before_a_change_is_never_shown() {
        let (earlier, answer, long) =
            (Earlier::default(), Bytes::from_static(b"old"), Duration::from_secs(1));
        let canvas = |number| Some(CanvasId(Uuid::from_u128(number)));
        let of = |number| Question::new(canvas(number), "a".to_owned());
        for number in [1, 2] {
            earlier.keep(&of(number), &answer, long, || true);
        }
        earlier.forget(canvas(1));
        assert_eq!((earlier.find(&of(1)), earlier.find(&of(2))), (None, Some(answer.clone())));
        earlier.keep(&of(1), &answer, long, || false);
        assert_eq!(earlier.find(&of(1)), None, "it was asked for before");
        earlier.keep(&of(1), &answer, long, || true);
        assert!(earlier.find(&of(1)).is_some());
    }

    #[test]
    fn few_answers_are_kept() {
        let (earlier, long) = (Earlier::default(), Duration::from_secs(1));
        let large = Bytes::from(vec![b'x'; BYTES_MAX - "large".len()]);
        earlier.keep(&question("large"), &large, long, || true);
        earlier.keep(&question("small"), &Bytes::from_static(b"x"), long, || true);
        let find = |text: &str| earlier.find(&question(text));
        assert!(find("large").is_some() && find("small").is_none());
        earlier.forget(None);
        for number in 0..2 * ANSWERS_MAX {
            earlier.keep(&question(&number.to_string()), &Bytes::new(), long, || true);
        }
        assert_eq!(earlier.answers().0.len(), ANSWERS_MAX);
    }

    #[test]
    fn a_canvas_with_many_answers_makes_room_for_as_many_of_another() {
        let (earlier, long) = (Earlier::default(), Duration::from_secs(1));
        let of = |canvas, number: usize| {
            Question::new(Some(CanvasId(Uuid::from_u128(canvas))), number.to_string())
        };
        for canvas in [1, 2] {
            for number in 0..2 * ANSWERS_MAX {
                earlier.keep(&of(canvas, number), &Bytes::new(), long, || true);
            }
        }
        let is_known = |canvas, number| earlier.find(&of(canvas, number)).is_some();
        let known = |canvas| (0..2 * ANSWERS_MAX).filter(|number| is_known(canvas, *number)).count();
        assert_eq!((known(1), known(2)), (ANSWERS_MAX / 2, ANSWERS_MAX / 2));
        let large = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
        earlier.keep(&of(3, 1), &large, long, || true);
        earlier.keep(&of(4, 1), &large, long, || true);
        assert!(earlier.find(&of(3, 1)).is_some() && earlier.find(&of(4, 1)).is_none());
    }
}
