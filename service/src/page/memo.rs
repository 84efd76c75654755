//! What was read a moment ago, for all browsers of a process: they watch the same numbers, which
//! are asked for once. Whoever asks has to put into the question what decides about the answer.
//!
//! Somebody who opens a page is shown what is at most two seconds old. Those who leave it open are
//! shown what has changed as soon as it may cost something to look ([`Pace`]). Each canvas has its
//! share of the place, as of the time: once it is full, the one with the most makes room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;
use wakeq::CanvasId;

use super::alone::{Alone, Asked};
use super::browsers::Browsers;
use super::earlier::Earlier;
use super::pace::{Look, Pace, TimeShare};
use super::question::{About, Question};
use super::room::{Stored, first_to_go};
use crate::http::inside::Reply;
use crate::http::problem::Problem;

/// How old an answer may be, and how often somebody who watches asks.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// How long it is remembered that somebody watches.
const WATCHED: Duration = Duration::from_secs(10);
/// How many answers are kept, how many of them about one canvas, or about the platform, and how
/// many bytes of all of them, with their questions.
const ENTRIES_MAX: usize = 500;
const ENTRIES_OF_CANVAS: usize = ENTRIES_MAX / 2;
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
    /// When it was asked for, and the mark and the changes from before.
    at: Instant,
    mark: Mark,
    changes: u64,
    /// When it was asked for the last time, be it in vain, and how long that took.
    last: Asked,
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

    /// Whether nothing was changed since, neither here nor elsewhere, if the mark is this one now.
    fn is_same(&self, slot: &Slot, mark: &Mark) -> bool {
        self.is_current(slot) && mark.is_some() && *mark == self.mark
    }
}

/// Answers by what was asked for.
#[derive(Default)]
pub(super) struct Memo {
    entries: Mutex<HashMap<Question, Entry>>,
    pace: Pace,
    earlier: Earlier,
    browsers: Browsers,
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

    /// A browser begins to watch a page of a canvas.
    pub(super) fn alone(&self, canvas: CanvasId) -> Alone {
        Alone::new(canvas, self.browsers.begin(canvas))
    }

    /// The same for somebody who watches, and asks again and again: also an old answer, as long as
    /// the database has the same mark, or it would cost too much to ask. None if there is no old
    /// one, and it would.
    pub(super) async fn watch<M, F>(
        &self,
        question: &Question,
        alone: &Alone,
        mark: M,
        ask: F,
    ) -> Result<Option<Bytes>, Problem>
    where
        M: Future<Output = Mark>,
        F: Future<Output = Result<Reply, Problem>>,
    {
        let entry = self.entry(question);
        let mut kept = entry.kept.lock().await;
        if let Some(known) = &mut *kept {
            known.watched_at = Some(Instant::now());
            if known.is_fresh(&entry) {
                return Ok(Some(known.answer.clone()));
            }
        }
        let mark = mark.await;
        let is_alone = kept.is_none();
        match &*kept {
            Some(known) if !self.admits(question.about(), known.last, known.is_same(&entry, &mark)) => {
                return Ok(Some(known.answer.clone()));
            }
            None if !alone.admits(|last| self.admits_alone(alone.canvas(), last)) => return Ok(None),
            Some(_) | None => {}
        }
        let at = Instant::now();
        let answer = self.renew(question, &entry, &mut kept, mark, ask).await;
        let took = at.elapsed();
        self.pace.spend(self.share(question.about()), took);
        if is_alone {
            alone.note(Asked { at, took });
        }
        if let Some(known) = &mut *kept {
            known.watched_at = Some(Instant::now());
        }
        answer.map(Some)
    }

    /// Whether to ask again what was asked then, beside the other questions about the same.
    fn admits(&self, about: About, last: Asked, is_same: bool) -> bool {
        let questions = self.questions(about);
        let look = Look { age: last.at.elapsed(), took: last.took, questions, is_same };
        self.pace.admits(self.share(about), &look)
    }

    /// The same for what a browser asks alone, beside what the others of its canvas do.
    fn admits_alone(&self, canvas: CanvasId, last: Asked) -> bool {
        let about = About::Canvas(canvas);
        let questions = self.questions(about).saturating_add(self.browsers.of(canvas));
        let look = Look { age: last.at.elapsed(), took: last.took, questions, is_same: false };
        self.pace.admits(self.share(about), &look)
    }

    /// The share of the questions about a canvas, beside those about others that somebody watches,
    /// and about the platform if there are any.
    fn share(&self, about: About) -> TimeShare {
        let is_of_platform =
            |(question, entry): (&Question, &Entry)| question.about() == About::Platform && is_in_use(entry);
        let has_platform = self.entries().iter().any(is_of_platform);
        TimeShare { about, of: self.browsers.count_canvases() + usize::from(has_platform) }
    }

    /// Asks, and keeps the answer; without one, what was known, and that it was asked for in vain.
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
        let reply = ask.await;
        let (took, watched_at) = (at.elapsed(), kept.as_ref().and_then(|known| known.watched_at));
        let last = Asked { at, took };
        if let (Err(_), Some(known)) = (&reply, &mut *kept) {
            known.last = last;
        }
        let Reply { body, is_recorded } = reply?;
        *kept = None;
        if !is_recorded && self.has_room(question, body.len()) {
            // An entry that is shared with nobody is told of no change.
            let is_unchanged = || Arc::strong_count(entry) > 1 && entry.changes() == changes;
            self.earlier.keep(question, &body, took, is_unchanged);
            *kept = Some(Kept { answer: body.clone(), at, mark, changes, last, watched_at });
        }
        Ok(body)
    }

    /// Whether an answer of this size can be kept beside the others: old ones go, and then those of
    /// the canvas that has the most.
    fn has_room(&self, question: &Question, bytes: usize) -> bool {
        let size = bytes.saturating_add(question.bytes());
        if size <= SMALL {
            return true;
        }
        let mut entries = self.entries();
        entries.retain(|_, entry| is_in_use(entry));
        loop {
            let held = entries.iter().filter_map(|(other, entry)| {
                let kept = entry.kept.try_lock().ok()?;
                let size = kept.as_ref()?.answer.len().saturating_add(other.bytes());
                Some(Stored { about: other.about(), size, key: Some(kept) })
            });
            let held: Vec<_> = held.collect();
            if held.iter().fold(size, |sum, one| sum.saturating_add(one.size)) <= BYTES_MAX {
                return true;
            }
            let Some(mut kept) = first_to_go(held, question.about(), size) else { return false };
            *kept = None;
        }
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
        let entries = self.entries();
        for (_, entry) in entries.iter().filter(|(question, _)| question.depends_on(canvas)) {
            entry.changes.fetch_add(1, Ordering::SeqCst);
        }
        drop(entries);
        self.earlier.forget(canvas);
    }

    /// How many questions about the same are asked: some may be of browsers that have gone.
    fn questions(&self, about: About) -> usize {
        self.entries().keys().filter(|question| question.about() == about).count()
    }

    fn entry(&self, question: &Question) -> Entry {
        let mut entries = self.entries();
        if !entries.contains_key(question) {
            // Old ones go as new ones come, so that they are not counted as questions for long.
            entries.retain(|_, entry| is_in_use(entry));
            if !has_place(&mut entries, question.about()) {
                // All are in use: this answer is shared with nobody.
                return Entry::default();
            }
        }
        Arc::clone(entries.entry(question.clone()).or_default())
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Question, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one more question about this can be kept: once there are too many, one that nobody waits
/// for goes of the canvas that has the most.
fn has_place(entries: &mut HashMap<Question, Entry>, about: About) -> bool {
    if entries.keys().filter(|other| other.about() == about).count() >= ENTRIES_OF_CANVAS {
        return false;
    }
    if entries.len() < ENTRIES_MAX {
        return true;
    }
    let held = entries.iter().map(|(other, entry)| {
        let key = (Arc::strong_count(entry) == 1).then(|| other.clone());
        Stored { about: other.about(), size: 1, key }
    });
    let gone = first_to_go(held.collect(), about, 1);
    gone.is_some_and(|question| entries.remove(&question).is_some())
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
mod tests;
