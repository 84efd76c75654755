//! The thread that writes the data. The changes of many requests that come while it writes are
//! written together next.
//!
//! Who changes something may wait until that is in the file. Before a change, callers wait while a
//! lot waits to be written already, as it does when the disk hangs; so the queue has a limit. After
//! a failure, nothing more is written, and everybody who waits is told.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::file::{DataFile, WRITTEN_AT_ONCE};
use super::{frames, records};
use crate::broker::{Broker, Change};
use crate::server::stderr;

/// A file of twice this size or less is never written anew.
const SMALL: u64 = 512 << 10;

/// When so many bytes wait to be written, callers wait before they change more.
const WAITING_MAX: u64 = 64 << 20;

/// The way to the thread, which ends when this is dropped and everything is written.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    progress: watch::Receiver<Progress>,
    waiting_max: u64,
}

const STOPPED: &str = "the emulator has stopped";

/// How many turns with changes there were, up to one of them; 0 for none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::server) struct Position(u64);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Notified when there is something in the queue, or nothing will come any more.
    filled: Condvar,
    /// Set when most of the file may be out of date.
    wants_state: AtomicBool,
    /// About how many bytes wait to be written. It grows only under the broker's lock.
    waiting: AtomicU64,
    /// Whether it was said that callers wait, since the queue was empty last.
    said_full: AtomicBool,
}

/// What callers do not wait for is small beside what there is in memory: each lease ends once, each
/// message expires once, and no message is delivered again while callers wait.
#[derive(Default)]
struct Queue {
    entries: Vec<Entry>,
    added: u64,
    closed: bool,
}

enum Entry {
    /// The changes of one turn, and about how many bytes they take.
    Turn(Vec<Change>, u64),
    /// Everything that there is after the turns before it.
    State(Vec<Change>),
}

#[derive(Clone, Debug, Default)]
struct Progress {
    written: u64,
    failure: Option<Arc<str>>,
}

impl Journal {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub(crate) fn start(file: DataFile) -> io::Result<Self> {
        Self::with_room_for(WAITING_MAX, file)
    }

    /// The same with another limit to what waits.
    pub(super) fn with_room_for(waiting_max: u64, file: DataFile) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (sender, progress) = watch::channel(Progress::default());
        let writer = Writer {
            // What was left of an earlier process is looked at with the first change.
            check_at: 2 * SMALL,
            file,
            shared: Arc::clone(&shared),
            progress: sender,
            bytes: Vec::new(),
            turns: 0,
            weight: 0,
        };
        std::thread::Builder::new().name("data".to_owned()).spawn(move || writer.run())?;
        Ok(Self { shared, progress, waiting_max })
    }

    /// Passes on what has changed in the broker. Must be called under the broker's lock, so that
    /// changes stay in order.
    pub(in crate::server) fn add(&self, broker: &Broker) -> Position {
        let changes = broker.take_changes();
        if changes.is_empty() {
            return Position::default();
        }
        let state = self.shared.wants_state.swap(false, Ordering::Relaxed).then(|| broker.state());
        let ended = self.progress.has_changed().is_err();
        let weight = records::weight(&changes);
        let mut queue = self.shared.queue();
        queue.added += 1;
        let position = Position(queue.added);
        if !queue.closed && !ended {
            self.shared.waiting.fetch_add(weight, Ordering::Relaxed);
            queue.entries.push(Entry::Turn(changes, weight));
            queue.entries.extend(state.map(Entry::State));
        }
        drop(queue);
        self.shared.filled.notify_one();
        position
    }

    /// The position of what was added last.
    pub(in crate::server) fn latest(&self) -> Position {
        Position(self.shared.queue().added)
    }

    /// Whether so much waits to be written that nothing more should be changed.
    pub(in crate::server) fn is_full(&self) -> bool {
        // Without its thread, nobody would make room.
        self.shared.waiting.load(Ordering::Relaxed) >= self.waiting_max && self.progress.has_changed().is_ok()
    }

    /// Waits while it is full. Fails, with the reason, if nothing will be written any more.
    pub(in crate::server) async fn room(&self) -> Result<(), Arc<str>> {
        let failure = self.progress.borrow().failure.clone();
        if let Some(failure) = failure {
            return Err(failure);
        }
        if !self.is_full() {
            return Ok(());
        }
        if !self.shared.said_full.swap(true, Ordering::Relaxed) {
            let waiting = self.waiting_max >> 20;
            stderr::say(format!(
                "pubsub-emulator: the disk does not keep up: more than {waiting} MiB of data wait to be \
                 written, and calls that change something wait, too\n"
            ));
        }
        let mut progress = self.progress.clone();
        let is_over = |progress: &Progress| progress.failure.is_some() || !self.is_full();
        let goes_on = progress.wait_for(is_over).await.is_ok();
        let failure = progress.borrow().failure.clone();
        match failure {
            Some(failure) => Err(failure),
            None if goes_on => Ok(()),
            None => Err(STOPPED.into()),
        }
    }

    /// Waits until everything up to this position is in the file. Fails, with the reason, if it
    /// never will be.
    pub(in crate::server) async fn written(&self, position: Position) -> Result<(), Arc<str>> {
        let mut progress = self.progress.clone();
        let is_over = |progress: &Progress| progress.written >= position.0 || progress.failure.is_some();
        // It fails when the thread has ended, which is seen below.
        let _seen = progress.wait_for(is_over).await.is_ok();
        let Progress { written, failure } = progress.borrow().clone();
        if written >= position.0 {
            return Ok(());
        }
        Err(failure.unwrap_or_else(|| STOPPED.into()))
    }

    /// Lets the thread write what there is and end, and waits for that. The folder is free then.
    pub(in crate::server) async fn close(&self) {
        self.shared.close();
        let mut progress = self.progress.clone();
        while progress.changed().await.is_ok() {}
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.queue().closed = true;
        self.filled.notify_one();
    }

    /// Makes room.
    fn written(&self, weight: u64) {
        if self.waiting.fetch_sub(weight, Ordering::Relaxed) == weight {
            self.said_full.store(false, Ordering::Relaxed);
        }
    }

    /// Waits for entries. `None` after the last ones.
    fn take(&self) -> Option<Vec<Entry>> {
        let queue = self.queue();
        let mut queue = self
            .filled
            .wait_while(queue, |queue| queue.entries.is_empty() && !queue.closed)
            .unwrap_or_else(PoisonError::into_inner);
        let entries = std::mem::take(&mut queue.entries);
        (!entries.is_empty()).then_some(entries)
    }
}

struct Writer {
    file: DataFile,
    shared: Arc<Shared>,
    progress: watch::Sender<Progress>,
    /// When the file has this length, it is looked whether most of it is out of date.
    check_at: u64,
    /// Frames that are not written yet, how many turns they have, and what those were taken to
    /// need.
    bytes: Vec<u8>,
    turns: u64,
    weight: u64,
}

impl Writer {
    fn run(mut self) {
        while let Some(entries) = self.shared.take() {
            if let Err(error) = self.write(entries) {
                self.fail(&error);
                break;
            }
        }
        // In this order: the folder is free for whoever waits for the end.
        let Self { file, progress, .. } = self;
        drop(file);
        drop(progress);
    }

    fn write(&mut self, entries: Vec<Entry>) -> io::Result<()> {
        for entry in entries {
            match entry {
                Entry::Turn(changes, weight) => {
                    frames::push(&mut self.bytes, |bytes| records::encode(bytes, changes))?;
                    self.turns += 1;
                    self.weight += weight;
                    if self.bytes.len() >= WRITTEN_AT_ONCE {
                        self.flush()?;
                    }
                }
                Entry::State(state) => {
                    self.flush()?;
                    self.rewrite(state);
                }
            }
        }
        self.flush()?;
        self.bytes.shrink_to(WRITTEN_AT_ONCE);
        if self.file.length() >= self.check_at {
            // Until the state has come, it is not asked for again.
            self.check_at = u64::MAX;
            self.shared.wants_state.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.turns == 0 {
            return Ok(());
        }
        self.file.append(&self.bytes)?;
        self.bytes.clear();
        let turns = std::mem::take(&mut self.turns);
        self.shared.written(std::mem::take(&mut self.weight));
        // After that: whoever waits for room looks again now.
        self.progress.send_modify(|progress| progress.written += turns);
        Ok(())
    }

    /// Writes the file anew if it is more than twice as large as it has to be.
    fn rewrite(&mut self, state: Vec<Change>) {
        let needed = records::size(&state).max(SMALL);
        if self.file.length() / 2 > needed
            && let Err(error) = self.file.replace(records::parts(state))
        {
            // The old one is as good, and only larger.
            stderr::say(format!("pubsub-emulator: the data can't be written anew, and grows: {error}\n"));
        }
        self.check_later();
    }

    /// Looks again when the file has grown by a quarter, and is not small.
    fn check_later(&mut self) {
        let length = self.file.length();
        self.check_at = (length + length / 4).max(2 * SMALL);
    }

    fn fail(&mut self, error: &io::Error) {
        let mut queue = self.shared.queue();
        queue.closed = true;
        queue.entries.clear();
        self.shared.waiting.store(0, Ordering::Relaxed);
        drop(queue);
        stderr::say(format!("pubsub-emulator: the data can't be written: {error}: changes are refused\n"));
        let failure = Some(error.to_string().into());
        self.progress.send_modify(|progress| progress.failure = failure);
    }
}
