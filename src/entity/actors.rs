//! Actors: threads that have the entities of a type among them. An entity has the same one for as long as there are as many.
//!
//! An actor does one thing after the other, so no two events of an entity are ever worked at the same time. What it does may take
//! long or panic; it holds no connection meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use tokio::sync::oneshot;

use super::define::Entity;
use super::envelope::Received;
use super::run::Written;
use super::shard::{Broken, Key, Limits, Shard, Worked};
use crate::event::stable_hash;

type Job<E> = Box<dyn FnOnce(&mut Shard<E>) + Send>;

pub(super) struct Actors<E: Entity> {
    threads: Vec<mpsc::Sender<Job<E>>>,
}

impl<E: Entity> Actors<E> {
    /// Starts so many threads; they end when this is dropped, and what they do then is done.
    pub(super) fn start(count: usize, limits: Limits) -> std::io::Result<Self> {
        let start = |number: usize| {
            let (sender, jobs) = mpsc::channel::<Job<E>>();
            let name = format!("{}-{number}", E::TYPE);
            std::thread::Builder::new().name(name).spawn(move || {
                let mut shard = Shard::new(limits);
                while let Ok(job) = jobs.recv() {
                    // Whoever asked finds that there is no answer; what the shard cached was not touched by a batch.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(&mut shard)));
                }
            })?;
            Ok(sender)
        };
        (0..count).map(start).collect::<std::io::Result<_>>().map(|threads| Self { threads })
    }

    pub(super) fn count(&self) -> usize {
        self.threads.len()
    }

    /// Which actor has an entity: the same in every process that has as many.
    pub(super) fn of(&self, key: &Key) -> usize {
        let hash = stable_hash(&[key.canvas.0.as_bytes(), E::TYPE.as_bytes(), key.id.as_str().as_bytes()]);
        let count = u64::try_from(self.threads.len()).unwrap_or(1);
        usize::try_from(hash % count).unwrap_or_default()
    }

    /// Has an actor do something; its answer.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        actor: usize,
        job: impl FnOnce(&mut Shard<E>) -> T + Send + 'static,
    ) -> Result<T, Broken> {
        self.begin(actor, job).await.map_err(|_| died())
    }

    fn begin<T: Send + 'static>(
        &self,
        actor: usize,
        job: impl FnOnce(&mut Shard<E>) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, answer) = oneshot::channel();
        if let Some(thread) = self.threads.get(actor) {
            let job: Job<E> = Box::new(move |shard| {
                let _ = sender.send(job(shard));
            });
            // A thread that has ended drops the job, and with it the sender.
            let _ = thread.send(job);
        }
        answer
    }

    /// Has all actors do the same; their answers.
    pub(super) async fn ask_all<T: Send + 'static>(
        &self,
        job: impl Fn(&mut Shard<E>) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Broken> {
        let begun: Vec<_> = (0..self.threads.len()).map(|actor| self.begin(actor, job.clone())).collect();
        let mut answers = Vec::with_capacity(begun.len());
        for answer in begun {
            answers.push(answer.await.map_err(|_| died())?);
        }
        Ok(answers)
    }

    /// Has all actors do the same, in their turn, and does not wait for it.
    pub(super) fn tell_all(&self, job: impl Fn(&mut Shard<E>) + Clone + Send + 'static) {
        for actor in 0..self.threads.len() {
            drop(self.begin(actor, job.clone()));
        }
    }

    /// Has the events of a batch worked, each by its entity's actor, all of them side by side.
    /// `stored`: whether they are in the repository already, which is asked of what was sent before. None, if the batch would write
    /// more than `limit_bytes`: then nothing of it may be committed.
    pub(super) async fn work(
        &self,
        events: &[Received],
        stored: bool,
        limit_bytes: usize,
    ) -> Result<Option<Worked>, Broken> {
        let written = Arc::new(Written::new(limit_bytes));
        let mut parts: Vec<Vec<(usize, Received)>> = vec![Vec::new(); self.threads.len()];
        for (place, event) in events.iter().enumerate() {
            let key = Key { canvas: event.canvas, id: event.entity.clone() };
            parts[self.of(&key)].push((place, event.clone()));
        }
        let begun: Vec<_> = parts
            .into_iter()
            .enumerate()
            .filter(|(_, part)| !part.is_empty())
            .map(|(actor, part)| {
                let written = Arc::clone(&written);
                self.begin(actor, move |shard| shard.work(part, stored, &written))
            })
            .collect();
        let (mut worked, mut is_whole) = (Worked::default(), true);
        for part in begun {
            // All of them are waited for: none is in the midst of it afterwards.
            let Some(mut part) = part.await.map_err(|_| died())?? else {
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

    /// Those of the keys of which nothing is in memory and the database may have something, in their order.
    pub(super) async fn cold(&self, keys: Vec<Key>) -> Result<Vec<Key>, Broken> {
        let mut parts: Vec<Vec<(usize, Key)>> = vec![Vec::new(); self.threads.len()];
        for (place, key) in keys.into_iter().enumerate() {
            parts[self.of(&key)].push((place, key));
        }
        let parts = parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty());
        let begun: Vec<_> =
            parts.map(|(actor, part)| self.begin(actor, move |shard| shard.cold(part))).collect();
        let mut cold = Vec::new();
        for part in begun {
            cold.extend(part.await.map_err(|_| died())?);
        }
        cold.sort_unstable_by_key(|(place, _)| *place);
        Ok(cold.into_iter().map(|(_, key)| key).collect())
    }
}

fn died() -> Broken {
    Broken("an actor gave no answer: it panicked outside of validate and apply".to_owned())
}
