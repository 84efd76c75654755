//! Actors are threads that share the entities of a type. An entity stays with the same actor as
//! long as the number of actors does not change.
//!
//! An actor that hangs is replaced. Its thread can't be ended, and is abandoned; the entities that
//! it had in memory are loaded again.
//!
//! An actor runs one job at a time, so no two events of an entity are ever processed at the same
//! time. A job may take long or panic; no connection is held meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, mpsc};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::cache::Key;
use super::define::Entity;
use super::envelope::InboxEvent;
use super::run::{BatchProgress, FatalError, Limits};
use super::shard::{Shard, WorkOutput};
use wakeq::internals::stable_hash;

/// Maximum number of threads that may hang before the processor stops.
const HANGING_MAX: usize = 32;

type Job<E> = Box<dyn FnOnce(&mut Shard<E>) + Send>;

pub(super) struct Actors<E: Entity> {
    limits: Limits,
    actors: RwLock<Vec<Actor<E>>>,
    count: usize,
    /// Threads of replaced actors that have not ended.
    hanging: Arc<AtomicUsize>,
}

/// A thread and the queue of its jobs.
struct Actor<E: Entity> {
    jobs: mpsc::Sender<Job<E>>,
    /// Jobs that were queued and have not ended.
    open: Arc<AtomicUsize>,
    /// Cancelled when the actor is replaced: nothing waits for its answers from then on.
    replaced: CancellationToken,
}

/// An answer that an actor has yet to give.
struct PendingAnswer<T> {
    answer: oneshot::Receiver<T>,
    replaced: CancellationToken,
}

impl<T> PendingAnswer<T> {
    async fn get(self) -> Result<T, FatalError> {
        tokio::select! {
            biased;
            answer = self.answer => answer.map_err(|_| died()),
            () = self.replaced.cancelled() => Err(FatalError("an actor that hangs was replaced".to_owned())),
        }
    }
}

impl<E: Entity> Actor<E> {
    fn start(
        number: usize,
        limits: Limits,
        is_whole: bool,
        hanging: &Arc<AtomicUsize>,
    ) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job<E>>();
        let (open, replaced) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let (of_thread, is_over, hanging) = (Arc::clone(&open), replaced.clone(), Arc::clone(hanging));
        std::thread::Builder::new().name(format!("{}-{number}", E::TYPE)).spawn(move || {
            let mut shard = Shard::new(limits);
            if !is_whole {
                shard.mark_partial(None);
            }
            while let Ok(job) = jobs.recv() {
                // The caller finds that there is no answer. The shard's cache is intact, because a
                // batch changes copies.
                let _ = catch_unwind(AssertUnwindSafe(|| job(&mut shard)));
                of_thread.fetch_sub(1, Ordering::SeqCst);
                if is_over.is_cancelled() {
                    break;
                }
            }
            if is_over.is_cancelled() {
                hanging.fetch_sub(1, Ordering::SeqCst);
            }
        })?;
        Ok(Self { jobs: sender, open, replaced })
    }
}

impl<E: Entity> Actors<E> {
    /// Starts this many threads. They end when this is dropped, after the jobs that are queued by
    /// then.
    pub(super) fn start(count: usize, limits: Limits) -> std::io::Result<Self> {
        let hanging = Arc::default();
        let actors = (0..count).map(|number| Actor::start(number, limits, true, &hanging));
        let actors = RwLock::new(actors.collect::<std::io::Result<_>>()?);
        Ok(Self { limits, actors, count, hanging })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Replaces the actors with unfinished jobs, and drops what the others have of a batch. Errors:
    /// if too many threads hang, or a new one can't be started.
    pub(super) async fn replace_hanging(&self) -> Result<(), FatalError> {
        {
            let mut actors = self.actors.write().unwrap_or_else(PoisonError::into_inner);
            for (number, actor) in actors.iter_mut().enumerate() {
                if actor.open.load(Ordering::SeqCst) == 0 {
                    continue;
                }
                if self.hanging.fetch_add(1, Ordering::SeqCst) >= HANGING_MAX {
                    self.hanging.fetch_sub(1, Ordering::SeqCst);
                    return Err(FatalError(format!(
                        "{HANGING_MAX} threads hang in validate or apply of {}: stop this process, \
                         and deal with the events that died",
                        E::TYPE
                    )));
                }
                let started = Actor::start(number, self.limits, false, &self.hanging);
                let new =
                    started.map_err(|error| FatalError(format!("no thread could be started: {error}")))?;
                std::mem::replace(actor, new).replaced.cancel();
            }
        }
        self.ask_all(|shard| shard.roll_back()).await.map(drop)
    }

    /// The actor of an entity, which is the same in every process with the same number of actors.
    pub(super) fn of(&self, key: &Key) -> usize {
        let hash = stable_hash(&[key.canvas.0.as_bytes(), E::TYPE.as_bytes(), key.id.as_str().as_bytes()]);
        let count = u64::try_from(self.count).unwrap_or(1);
        usize::try_from(hash % count).unwrap_or_default()
    }

    /// Runs a job on an actor and returns its answer.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        actor: usize,
        job: impl FnOnce(&mut Shard<E>) -> T + Send + 'static,
    ) -> Result<T, FatalError> {
        self.begin(actor, job).get().await
    }

    fn begin<T: Send + 'static>(
        &self,
        actor: usize,
        job: impl FnOnce(&mut Shard<E>) -> T + Send + 'static,
    ) -> PendingAnswer<T> {
        let (sender, answer) = oneshot::channel();
        let actors = self.actors.read().unwrap_or_else(PoisonError::into_inner);
        let Some(actor) = actors.get(actor) else {
            return PendingAnswer { answer, replaced: CancellationToken::new() };
        };
        let job: Job<E> = Box::new(move |shard| {
            let _ = sender.send(job(shard));
        });
        actor.open.fetch_add(1, Ordering::SeqCst);
        // A thread that has ended drops the job, and the sender with it.
        let _ = actor.jobs.send(job);
        PendingAnswer { answer, replaced: actor.replaced.clone() }
    }

    /// Runs the same job on all actors and returns their answers.
    pub(super) async fn ask_all<T: Send + 'static>(
        &self,
        job: impl Fn(&mut Shard<E>) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, FatalError> {
        let begun: Vec<_> = (0..self.count).map(|actor| self.begin(actor, job.clone())).collect();
        let mut answers = Vec::with_capacity(begun.len());
        for answer in begun {
            answers.push(answer.get().await?);
        }
        Ok(answers)
    }

    /// Queues the same job on all actors, without waiting for it.
    pub(super) fn tell_all(&self, job: impl Fn(&mut Shard<E>) + Clone + Send + 'static) {
        for actor in 0..self.count {
            drop(self.begin(actor, job.clone()));
        }
    }

    /// Processes the events of a batch, each on its entity's actor, the actors in parallel.
    /// `stored` says whether they are in the repository already, which is looked up for events that
    /// were sent before. `None` if the batch would write more than it may: then nothing of it may
    /// be committed.
    pub(super) async fn work(
        &self,
        events: &[InboxEvent],
        stored: bool,
        written: &Arc<BatchProgress>,
    ) -> Result<Option<WorkOutput>, FatalError> {
        let mut parts: Vec<Vec<(usize, InboxEvent)>> = vec![Vec::new(); self.count];
        for (place, event) in events.iter().enumerate() {
            let key = Key { canvas: event.canvas, id: event.entity.clone() };
            parts[self.of(&key)].push((place, event.clone()));
        }
        let begun: Vec<_> = parts
            .into_iter()
            .enumerate()
            .filter(|(_, part)| !part.is_empty())
            .map(|(actor, part)| {
                let written = Arc::clone(written);
                self.begin(actor, move |shard| shard.work(part, stored, &written))
            })
            .collect();
        let (mut worked, mut is_whole) = (WorkOutput::default(), true);
        for part in begun {
            // Wait for the others too, so that none of them is still busy with the batch
            // afterwards.
            let Some(mut part) = part.get().await?? else {
                is_whole = false;
                continue;
            };
            worked.decisions.append(&mut part.decisions);
            worked.changed.append(&mut part.changed);
        }
        if !is_whole || written.is_too_much() {
            self.ask_all(|shard| shard.roll_back()).await?;
            return Ok(None);
        }
        worked.decisions.sort_unstable_by_key(|(place, _)| *place);
        Ok(Some(worked))
    }

    /// The keys, in their order, that are not in memory and may be in the database.
    pub(super) async fn cold(&self, keys: Vec<Key>) -> Result<Vec<Key>, FatalError> {
        let mut parts: Vec<Vec<(usize, Key)>> = vec![Vec::new(); self.count];
        for (place, key) in keys.into_iter().enumerate() {
            parts[self.of(&key)].push((place, key));
        }
        let parts = parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty());
        let begun: Vec<_> =
            parts.map(|(actor, part)| self.begin(actor, move |shard| shard.cold(part))).collect();
        let mut cold = Vec::new();
        for part in begun {
            cold.extend(part.get().await?);
        }
        cold.sort_unstable_by_key(|(place, _)| *place);
        Ok(cold.into_iter().map(|(_, key)| key).collect())
    }
}

pub(super) fn died() -> FatalError {
    FatalError("an actor gave no answer: it panicked outside of validate and apply".to_owned())
}
