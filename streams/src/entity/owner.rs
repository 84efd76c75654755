//! The owner of a type: loads its entities, then reads the inbox, has events processed, commits,
//! and only then answers; until it is withdrawn or another owner has the inbox.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::aside::Asides;
use super::config::EntityConfig;
use super::define::Entity;
use super::envelope::InboxEvent;
use super::halt::{Halt, is_time_out, refusal};
use super::parts::Parts;
use super::run::FatalError;
use super::shard::{Shard, Size};
use super::warm::{LoadProgress, Loader};
use crate::consumer::{Health, Waits};
use crate::store::{BatchEnd, EntityBatch, IsolatedStep, PositionMove};
use wakeq::internals::{InsertOutcome, NewEvent};
use wakeq::log::PageLimit;

/// Half the delay after a first failure.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Half the delay before a first look for what an open transaction holds back.
const FIRST_HELD: Duration = Duration::from_millis(5);
/// How many sequence numbers the stored position may trail events of other types, within one poll
/// interval.
const IDLE_MOVE: i64 = 10_000;

/// The most by which a page is divided after time-outs.
const NARROWEST: usize = 1024;
/// How long a processor that gave up because of time-outs is unhealthy before it can get its type
/// again.
const REST: Duration = Duration::from_secs(30);
/// The time limit for noting an orderly end.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// The processor stops when the database has refused the same this many times in a row.
const SAME_REFUSALS: u32 = 20;

/// The owner of the inbox of a type, under one epoch.
pub(super) struct Owner<E: Entity> {
    pub(super) parts: Arc<Parts<E>>,
    pub(super) epoch: i64,
    pub(super) cancel: CancellationToken,
    /// The stored position; `None` before it was opened, or when it is uncertain.
    pub(super) committed: Option<i64>,
    /// The last position that is known.
    pub(super) last_known: i64,
    /// The inbox was read up to this `seq`.
    read_through: i64,
    /// When the position was last moved past events of other types.
    caught_up: Instant,
    /// Whether memory matches the repository, and how far loading it has come.
    warm: bool,
    load_progress: LoadProgress,
    /// The commit whose answer was lost.
    unconfirmed: Option<UnconfirmedCommit>,
    /// Whether all existing entities are in memory, and whether it was logged that they are not.
    pub(super) whole: bool,
    warned: bool,
    /// Maximum number of events in a batch, lower after a batch that would have written too much.
    pub(super) most: usize,
    /// The text of the database's last refusal, and how often it came in a row.
    refusals: (String, u32),
    /// The number of time-outs in a row. Every page is divided by `narrow`.
    time_outs: u32,
    narrow: usize,
    /// The previous owner was lost, so the events that it may have been processing are processed
    /// one at a time.
    is_wary: bool,
    /// Events up to this `seq` are processed one at a time.
    pub(super) alone_through: i64,
    pub(super) asides: Asides,
}

/// A commit of unknown outcome: the position after it, how far an entity that is set aside has come
/// then, and what it emits.
struct UnconfirmedCommit {
    to: i64,
    aside: Option<IsolatedStep>,
    events: Vec<NewEvent>,
}

impl<E: Entity> Owner<E> {
    pub(super) fn new(parts: Arc<Parts<E>>, epoch: i64, cancel: CancellationToken) -> Self {
        let most = parts.config.batch;
        Self {
            parts,
            epoch,
            cancel,
            committed: None,
            last_known: 0,
            read_through: 0,
            caught_up: Instant::now(),
            warm: false,
            load_progress: LoadProgress::default(),
            unconfirmed: None,
            whole: false,
            warned: false,
            most,
            refusals: (String::new(), 0),
            time_outs: 0,
            narrow: 1,
            is_wary: false,
            alone_through: 0,
            asides: Asides::new(),
        }
    }

    /// Owns the inbox until it is withdrawn or can't continue; then nothing is kept in memory.
    /// Returns the health of the processor, if it changes.
    pub(super) async fn run(mut self) -> Option<Health> {
        let (grown, poll) = (self.parts.provider.watch(&self.parts.source), self.parts.config.poll_interval);
        let mut waits = Waits::new(grown, poll, poll.max(FIRST_WAIT), (FIRST_WAIT, FIRST_HELD));
        let (mut health, tried) = (None, self.asides.tried());
        loop {
            waits.looks();
            let ended = self.process_all().await;
            let ended = self.unless_deposed(ended).await;
            let pause = match self.unless_for_ever(ended) {
                Ok(held) => {
                    self.is(Health::Healthy);
                    waits.after_all(held)
                }
                Err(Halt::Unavailable(who, error)) => {
                    if is_time_out(&*error) {
                        self.time_outs += 1;
                        self.narrow = (self.narrow * 2).min(NARROWEST);
                    }
                    tracing::warn!(
                        entity_type = E::TYPE,
                        part = self.narrow,
                        error = &*error as &dyn std::error::Error,
                        "{who} did not answer a processor of entities; retrying"
                    );
                    waits.after_failure()
                }
                Err(Halt::Withdrawn) => break,
                Err(Halt::Fenced) => {
                    tracing::warn!(
                        entity_type = E::TYPE,
                        epoch = self.epoch,
                        "the inbox has another owner by now; its entities are dropped from memory here"
                    );
                    break;
                }
                Err(Halt::Fatal(fatal)) => {
                    tracing::error!(
                        entity_type = E::TYPE,
                        error = &fatal as &dyn std::error::Error,
                        "a processor of entities can't continue"
                    );
                    health = Some(Health::Unhealthy(fatal.to_string()));
                    break;
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => break,
                () = tokio::time::sleep(pause) => self.look_again().await,
                () = waits.grown() => {}
                () = tried.notified() => {}
            }
        }
        self.drop_attempt().await;
        self.forget();
        let Parts { store, entity_type, .. } = &*self.parts;
        // Without this, the next owner is more careful than it has to be.
        let _ = tokio::time::timeout(FAREWELL, store.leave_entities(entity_type, self.epoch)).await;
        health
    }

    /// A new owner of the type may be erasing what this one reads: an inconsistency then is not a
    /// defect.
    async fn unless_deposed(&self, ended: Result<bool, Halt>) -> Result<bool, Halt> {
        match ended {
            Err(Halt::Fatal(fatal)) => match self.refused().await {
                Halt::Fenced => Err(Halt::Fenced),
                Halt::Unavailable(..) | Halt::Withdrawn | Halt::Fatal(_) => Err(Halt::Fatal(fatal)),
            },
            ended => ended,
        }
    }

    /// A refusal that is repeated in the same words is permanent. A time-out is not, however small
    /// the page: another process may succeed, or this one later.
    fn unless_for_ever(&mut self, ended: Result<bool, Halt>) -> Result<bool, Halt> {
        let why = match &ended {
            Ok(_) => {
                self.refusals.1 = 0;
                return ended;
            }
            Err(Halt::Unavailable(_, error)) if is_time_out(&**error) => {
                let gives_up = self.narrow >= NARROWEST && self.time_outs >= SAME_REFUSALS;
                if !gives_up {
                    return ended;
                }
                self.rest(format!(
                    "{error} ({} times in a row, even for the smallest request)",
                    self.time_outs
                ));
                return Err(Halt::Withdrawn);
            }
            Err(Halt::Unavailable(_, error)) => refusal(&**error),
            Err(Halt::Fenced | Halt::Withdrawn | Halt::Fatal(_)) => None,
        };
        // Whether the database can be reached says nothing about what it refuses.
        let Some(why) = why else { return ended };
        let times = if why == self.refusals.0 { self.refusals.1 + 1 } else { 1 };
        if times >= SAME_REFUSALS {
            return Err(Halt::Fatal(FatalError(format!("{why} ({times} times in a row)"))));
        }
        self.refusals = (why, times);
        ended
    }

    /// Gives up the type for a while.
    fn rest(&self, why: String) {
        tracing::error!(entity_type = E::TYPE, why, "a processor of entities pauses");
        let (parts, resting) = (Arc::clone(&self.parts), Health::Unhealthy(why));
        self.is(resting.clone());
        tokio::spawn(async move {
            tokio::time::sleep(REST).await;
            parts.health.send_if_modified(|known| {
                let recovers = *known == resting;
                if recovers {
                    *known = Health::Healthy;
                }
                recovers
            });
        });
    }

    /// The position may have been moved from outside, which an owner with nothing to commit would
    /// not notice.
    async fn look_again(&mut self) {
        let Parts { store, group, source, .. } = &*self.parts;
        if self.committed.is_some()
            && store.position(group, source).await.is_ok_and(|at| at != self.committed)
        {
            self.committed = None;
        }
    }

    fn is(&self, health: Health) {
        self.parts.health.send_if_modified(|known| {
            let changes = *known != health;
            *known = health;
            changes
        });
    }

    fn forget(&mut self) {
        (self.warm, self.load_progress) = (false, LoadProgress::default());
        self.parts.ready.send_replace(None);
        // Without waiting: an actor may be in the middle of an event, of which nothing is kept.
        self.parts.actors.tell_all(|shard| shard.forget());
    }

    /// Processes the events in the inbox. Returns whether an open transaction holds more of them
    /// back.
    async fn process_all(&mut self) -> Result<bool, Halt> {
        let cancel = self.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Halt::Withdrawn),
            settled = self.settle() => settled?,
        }
        loop {
            if self.cancel.is_cancelled() {
                return Err(Halt::Withdrawn);
            }
            let EntityConfig { batch, batch_bytes, .. } = self.parts.config;
            let limit = PageLimit { events: self.part_of(batch), bytes: self.part_of(batch_bytes) };
            let page = self.parts.provider.read(&self.parts.source, self.read_through, limit).await?;
            let (through, more, held) = (page.through, page.more, page.held);
            if std::mem::take(&mut self.is_wary) {
                self.alone_through = through;
            }
            let mut rest: Vec<InboxEvent> = page.events.into_iter().map(InboxEvent::of).collect();
            let mut passes = self.pass_over(&mut rest);
            while !rest.is_empty() {
                let done = self.process(&rest, through).await?;
                rest.drain(..done);
                passes |= self.pass_over(&mut rest);
                self.tend(false).await?;
            }
            self.read_through = self.read_through.max(through);
            if passes {
                self.move_over(through).await?;
            }
            self.catch_up().await?;
            (self.time_outs, self.narrow) = (0, (self.narrow / 2).max(1));
            self.tend(!more).await?;
            if !more {
                return Ok(held);
            }
        }
    }

    /// The part of a limit that is used: less after time-outs.
    pub(super) fn part_of(&self, whole: usize) -> usize {
        (whole / self.narrow).max(1)
    }

    pub(super) fn loader(&self) -> Loader<'_, E> {
        let loader = self.parts.loader();
        Loader { page_bytes: self.part_of(loader.page_bytes), ..loader }
    }

    /// Opens the position, and loads the entities.
    async fn settle(&mut self) -> Result<(), Halt> {
        if self.committed.is_none() {
            let Parts { store, group, source, .. } = &*self.parts;
            // From here on the previous owner can no longer commit. Its commits so far are read
            // below.
            let position = store.open_position(group, source, self.epoch).await?.ok_or(Halt::Fenced)?;
            if self.warm && position != self.last_known {
                // A commit whose answer was lost was carried out, so memory is older.
                self.forget();
            }
            let Parts { store, entity_type, .. } = &*self.parts;
            if store.own_entities(entity_type, self.epoch).await? {
                tracing::warn!(
                    entity_type = E::TYPE,
                    "the previous owner was lost; the events that it may have been processing are \
                     processed one at a time"
                );
                self.is_wary = true;
            }
            self.read_asides().await?;
            (self.committed, self.last_known, self.read_through) = (Some(position), position, position);
            self.announce_what_was_done(position);
        }
        if !self.warm {
            let parts = Arc::clone(&self.parts);
            let Parts { store, actors, entity_type, config, .. } = &*parts;
            if self.load_progress.begins() {
                actors.replace_hanging().await?;
                actors.ask_all(|shard| shard.forget()).await?;
                store.pin_repository(entity_type).await?;
            }
            let timed = parts.metrics.warms_up();
            let mut so_far = std::mem::take(&mut self.load_progress);
            let warm = self.loader().warm_up(config.memory_limit_bytes, &mut so_far).await;
            self.load_progress = so_far;
            let warm = warm?;
            timed.done();
            self.forget_asides().await?;
            let sizes = actors.ask_all(|shard| shard.size()).await?;
            tracing::info!(
                entity_type = E::TYPE,
                epoch = self.epoch,
                entities = warm.entities,
                replayed = warm.replayed,
                "the entities are in memory"
            );
            self.warm = true;
            self.takes(&sizes);
            self.parts.ready.send_replace(Some(warm));
        }
        Ok(())
    }

    /// Commits a batch; memory follows.
    pub(super) async fn commit(&mut self, batch: EntityBatch<'_>) -> Result<(), Halt> {
        if self.cancel.is_cancelled() {
            return Err(Halt::Withdrawn);
        }
        let (parts, to) = (Arc::clone(&self.parts), batch.position.to);
        let _committing = parts.committing.write().await;
        // If the answer is lost, the position shows whether it was committed.
        self.committed = None;
        let ended = parts.store.commit_entities(&batch).await;
        if let Ok(BatchEnd::Committed(inserted, answers)) = ended {
            wakeq::internals::fault::point("entity.committed");
            (self.committed, self.last_known, self.read_through) = (Some(to), to, self.read_through.max(to));
            self.unconfirmed = None;
            let sizes = parts.actors.ask_all(Shard::commit).await?;
            self.takes(&sizes);
            let dead = batch.decided.iter().filter(|one| one.dead.is_some()).count();
            let stored = batch.decided.iter().filter(|one| one.stored).count();
            parts.metrics.decided(stored, batch.decided.len().saturating_sub(stored + dead), dead);
            parts.queue.announce_inserted(batch.events, inserted);
            let (answers, inserted) = answers.into_iter().unzip();
            parts.queue.announce_inserted(answers, inserted);
            return Ok(());
        }
        parts.actors.ask_all(|shard| shard.roll_back()).await?;
        if ended.is_err() {
            self.unconfirmed = Some(UnconfirmedCommit { to, aside: batch.aside, events: batch.events });
        }
        match ended? {
            BatchEnd::Committed(..) => Ok(()),
            BatchEnd::Refused => Err(self.refused().await),
            BatchEnd::ForeignAppend(entity) => Err(Halt::Fatal(FatalError(format!(
                "the repository of {}/{entity} was appended to by something other than its \
                 processor, which is not allowed",
                E::TYPE
            )))),
        }
    }

    /// Announces the events of a commit whose answer was lost, if the position says that it was
    /// carried out.
    fn announce_what_was_done(&mut self, position: i64) {
        let asides = &self.asides;
        let was_done = |commit: &mut UnconfirmedCommit| {
            commit.to == position && commit.aside.as_ref().is_none_or(|step| asides.came_to(step))
        };
        if let Some(commit) = self.unconfirmed.take_if(was_done) {
            let inserted = vec![InsertOutcome::unanswered(); commit.events.len()];
            self.parts.queue.announce_inserted(commit.events, inserted);
        }
    }

    /// Notes the memory that the entities take, and logs once that some were evicted.
    fn takes(&mut self, sizes: &[Size]) {
        self.whole = sizes.iter().all(|size| size.is_whole);
        let evicted: usize = sizes.iter().map(|size| size.evicted.entities).sum();
        self.parts.metrics.took(sizes.iter().map(|size| size.bytes).sum(), evicted);
        // Entities that are set aside, or were on an actor that hung, are not missing for lack of
        // memory.
        let starts = self.asides.is_empty() && self.parts.ready.borrow().is_none();
        if self.whole || self.warned || evicted == 0 && !starts {
            return;
        }
        self.warned = true;
        let canvas = sizes.iter().find_map(|size| size.evicted.last).map(|canvas| canvas.to_string());
        tracing::warn!(
            entity_type = E::TYPE,
            canvas,
            limit_bytes = self.parts.config.memory_limit_bytes,
            "not all entities fit into memory: the least recently used leave it, and are loaded \
             again when events arrive for them; if wakeq.entity.loaded stays high, give the process \
             more memory and raise memory_limit_bytes"
        );
    }

    /// Why a commit was refused.
    pub(super) async fn refused(&self) -> Halt {
        let Parts { store, group, source, .. } = &*self.parts;
        match store.position_epoch(group, source).await {
            Ok(epoch) if epoch == self.epoch => {
                // It was moved from outside, or the answer to an earlier commit was lost: it is
                // opened again.
                let moved = std::io::Error::other("the position was moved");
                Halt::Unavailable("the position", Box::new(moved))
            }
            Ok(_) => Halt::Fenced,
            Err(error) => error.into(),
        }
    }

    /// Moves the position past events of other types, once per poll interval, or if it lags far
    /// behind.
    async fn catch_up(&mut self) -> Result<(), Halt> {
        let is_due = self.caught_up.elapsed() >= self.parts.config.poll_interval;
        let least = if is_due { 1 } else { IDLE_MOVE };
        if self.committed.is_none_or(|from| from + least > self.read_through) {
            return Ok(());
        }
        self.caught_up = Instant::now();
        self.move_to(self.read_through).await
    }

    /// Moves the position without a commit.
    pub(super) async fn move_to(&mut self, to: i64) -> Result<(), Halt> {
        if self.parts.store.move_position(&PositionMove { to, ..self.held() }).await? {
            (self.committed, self.last_known) = (Some(to), to);
            return Ok(());
        }
        self.committed = None;
        Err(self.refused().await)
    }
}
