//! What the owner of a type does: warm up, then read the inbox, have it worked, commit, and only then answer; until it is told to
//! end, or finds that the inbox is another's.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use super::actors::Actors;
use super::batch::{Unmade, batch};
use super::config::EntityConfig;
use super::define::Entity;
use super::envelope::Received;
use super::halt::{Halt, refusal};
use super::shard::{Broken, Key, Shard, Size, Worked};
use super::warm::{Stove, Warm};
use crate::consumer::{EventProvider, Health};
use crate::emit::Queue;
use crate::event::{EntityId, EntityType, EventSource, Name, PageLimit};
use crate::store::{BatchEnd, EntityBatch, PositionMove, Recorded, Store};
use crate::telemetry::EntityMetrics;

/// How long after a failure it is tried again; doubled each time, up to the poll interval.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// How soon it is looked again for what an open transaction holds back; doubled each time, up to the poll interval.
const FIRST_HELD: Duration = Duration::from_millis(5);
/// How far the position may stay behind what was looked through, when none of it was for this type: in numbers of the log.
const IDLE_MOVE: i64 = 10_000;

/// So many times in a row the database may refuse the same before somebody has to look.
const SAME_REFUSALS: u32 = 20;

/// What a processor works with.
pub(super) struct Parts<E: Entity> {
    pub(super) entity_type: EntityType,
    pub(super) group: Name,
    pub(super) source: EventSource,
    pub(super) store: Store,
    pub(super) queue: Queue,
    pub(super) provider: Arc<dyn EventProvider>,
    pub(super) actors: Arc<Actors<E>>,
    pub(super) config: EntityConfig,
    pub(super) metrics: EntityMetrics,
    pub(super) health: watch::Sender<Health>,
    pub(super) ready: watch::Sender<Option<Warm>>,
    /// Held from before a commit until memory has followed it: whoever reads after an answer sees what was answered.
    pub(super) committing: RwLock<()>,
}

impl<E: Entity> Parts<E> {
    pub(super) fn stove(&self) -> Stove<'_, E> {
        let Self { store, actors, entity_type, config, .. } = self;
        Stove { store, actors, entity_type, page_bytes: config.batch_bytes }
    }
}

/// The inbox of a type, under one epoch.
pub(super) struct Owner<E: Entity> {
    parts: Arc<Parts<E>>,
    epoch: i64,
    cancel: CancellationToken,
    /// Where the position stands; none, before it was opened, or when that is not certain.
    committed: Option<i64>,
    /// Where it stood last, as far as is known.
    stood: i64,
    /// Up to where the inbox was looked through.
    looked: i64,
    /// Whether what is in memory is what the repository says.
    warm: bool,
    /// Whether all entities that there are are in memory, and whether it was said that some have left it.
    whole: bool,
    warned: bool,
    /// How many events at most are a batch: fewer, where a batch of more would write too much.
    most: usize,
    /// What the database refused last, and how often in a row.
    refusals: (String, u32),
    /// What was said about actors that hold up a batch; nothing, if none do.
    stalled: Option<Health>,
}

impl<E: Entity> Owner<E> {
    pub(super) fn new(parts: Arc<Parts<E>>, epoch: i64, cancel: CancellationToken) -> Self {
        let most = parts.config.batch;
        Self {
            parts,
            epoch,
            cancel,
            committed: None,
            stood: 0,
            looked: 0,
            warm: false,
            whole: false,
            warned: false,
            most,
            refusals: (String::new(), 0),
            stalled: None,
        }
    }

    /// Owns the inbox until it is told to end, or must; then nothing is kept in memory.
    pub(super) async fn run(mut self) {
        let mut grown = self.parts.provider.watch(&self.parts.source);
        let (mut wait, mut held_wait) = (FIRST_WAIT, FIRST_HELD);
        loop {
            // What is appended from here on is seen below, or changes this again.
            grown.mark_unchanged();
            let ended = self.process_all().await;
            let pause = match self.unless_for_ever(ended) {
                Ok(held) => {
                    wait = FIRST_WAIT;
                    self.is(Health::Healthy);
                    held_wait = if held { self.doubled(held_wait) } else { FIRST_HELD };
                    if held { held_wait } else { self.parts.config.poll_interval }
                }
                Err(Halt::Away(who, error)) => {
                    tracing::warn!(
                        entity_type = E::TYPE,
                        error = &*error as &dyn std::error::Error,
                        "{who} gave no answer to a processor of entities; tried again"
                    );
                    wait = self.doubled(wait);
                    wait
                }
                Err(Halt::Withdrawn) => break,
                Err(Halt::Fenced) => {
                    tracing::warn!(
                        entity_type = E::TYPE,
                        epoch = self.epoch,
                        "the inbox is another's by now; its entities are forgotten here"
                    );
                    break;
                }
                Err(Halt::Broken(broken)) => {
                    tracing::error!(
                        entity_type = E::TYPE,
                        error = &broken as &dyn std::error::Error,
                        "a processor of entities can't go on"
                    );
                    self.is(Health::Unhealthy(broken.to_string()));
                    break;
                }
            };
            let changed = async {
                if grown.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = changed => {}
            }
        }
        self.forget();
        self.recover_from_stall();
    }

    /// What the database refuses again and again, in the same words, it will refuse for ever.
    fn unless_for_ever(&mut self, ended: Result<bool, Halt>) -> Result<bool, Halt> {
        let why = match &ended {
            Ok(_) => {
                self.refusals.1 = 0;
                return ended;
            }
            Err(Halt::Away(_, error)) => refusal(&**error),
            Err(Halt::Fenced | Halt::Withdrawn | Halt::Broken(_)) => None,
        };
        // Whether it can be reached says nothing about what it refuses.
        let Some(why) = why else { return ended };
        let times = if why == self.refusals.0 { self.refusals.1 + 1 } else { 1 };
        if times >= SAME_REFUSALS {
            return Err(Halt::Broken(Broken(format!("{why} ({times} times in a row)"))));
        }
        self.refusals = (why, times);
        ended
    }

    /// Who was withdrawn because of a stall can work again when the actors answer again.
    fn recover_from_stall(&mut self) {
        let Some(stalled) = self.stalled.take() else { return };
        let parts = Arc::clone(&self.parts);
        tokio::spawn(async move {
            if parts.actors.ask_all(|_| ()).await.is_ok() {
                parts.health.send_if_modified(|known| {
                    let recovers = *known == stalled;
                    if recovers {
                        *known = Health::Healthy;
                    }
                    recovers
                });
            }
        });
    }

    fn doubled(&self, wait: Duration) -> Duration {
        wait.saturating_mul(2).min(self.parts.config.poll_interval.max(FIRST_WAIT))
    }

    fn is(&self, health: Health) {
        self.parts.health.send_if_modified(|known| {
            let changes = *known != health;
            *known = health;
            changes
        });
    }

    fn forget(&mut self) {
        self.warm = false;
        self.parts.ready.send_replace(None);
        // Without waiting: an actor may be in the midst of an event, of which nothing is kept.
        self.parts.actors.tell_all(|shard| shard.forget());
    }

    /// Processes what is in the inbox; whether more of it is held back.
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
            let limit = PageLimit { events: self.parts.config.batch, bytes: self.parts.config.batch_bytes };
            let page = self.parts.provider.read(&self.parts.source, self.looked, limit).await?;
            let (through, more, held) = (page.through, page.more, page.held);
            let events: Vec<Received> = page.events.into_iter().map(Received::of).collect();
            let mut rest = events.as_slice();
            while !rest.is_empty() {
                let done = self.process(rest, through).await?;
                rest = &rest[done..];
            }
            self.looked = self.looked.max(through);
            self.catch_up().await?;
            if !more {
                return Ok(held);
            }
        }
    }

    /// Opens the position, and has the entities in memory.
    async fn settle(&mut self) -> Result<(), Halt> {
        if self.committed.is_none() {
            let Parts { store, group, source, .. } = &*self.parts;
            // From here on whoever had it before commits nothing more; what it did commit is what is read below.
            let position = store.open_position(group, source, self.epoch).await?.ok_or(Halt::Fenced)?;
            if self.warm && position != self.stood {
                // The answer to a commit got lost that was carried out: what is in memory is older.
                self.forget();
            }
            (self.committed, self.stood, self.looked) = (Some(position), position, position);
        }
        if !self.warm {
            let Parts { store, actors, entity_type, config, .. } = &*self.parts;
            actors.ask_all(|shard| shard.forget()).await?;
            store.pin_repository(entity_type).await?;
            let warm = self.parts.stove().warm_up(config.memory_limit_bytes).await?;
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

    /// Has events of the inbox worked and committed, all of them or nothing, which go up to `through`: how many of them, one at least.
    async fn process(&mut self, rest: &[Received], through: i64) -> Result<usize, Halt> {
        let parts = Arc::clone(&self.parts);
        let mut part = first_part(rest, self.most);
        part = &part[..self.load(part).await?];
        let recorded = self.recorded(part).await?;
        let stored = recorded.as_ref().is_some_and(|recorded| recorded.stored);
        let (from, epoch) = (self.committed.unwrap_or_default(), self.epoch);
        let mut events = Cow::Borrowed(part);
        let (batch, done) = loop {
            let Some(worked) = self.work(&events, stored).await? else {
                self.most = (events.len() / 2).max(1);
                truncate(&mut events, self.most);
                continue;
            };
            let done = events.len();
            let to =
                if done == rest.len() { through } else { events.last().map_or(through, |last| last.seq) };
            let position = PositionMove { group: &parts.group, source: &parts.source, epoch, from, to };
            let made =
                batch::<E>(&parts.entity_type, position, &events, worked, recorded.as_ref(), &parts.queue);
            match made {
                Ok(batch) => break (batch, done),
                // All is worked again without these, so it comes to an end.
                Err(unmade) => doom(events.to_mut(), unmade),
            }
        };
        self.commit(batch).await?;
        self.most = self.most.saturating_mul(2).min(parts.config.batch);
        Ok(done)
    }

    /// Commits a batch; memory follows.
    async fn commit(&mut self, batch: EntityBatch<'_>) -> Result<(), Halt> {
        if self.cancel.is_cancelled() {
            return Err(Halt::Withdrawn);
        }
        let (parts, to) = (Arc::clone(&self.parts), batch.position.to);
        let _committing = parts.committing.write().await;
        // The position says what came of it, if the answer gets lost.
        self.committed = None;
        let ended = parts.store.commit_entities(&batch).await;
        if let Ok(BatchEnd::Committed(inserted)) = ended {
            crate::fault::point("entity.committed");
            (self.committed, self.stood, self.looked) = (Some(to), to, to);
            let sizes = parts.actors.ask_all(Shard::commit).await?;
            self.takes(&sizes);
            parts.queue.announce_inserted(batch.events, inserted);
            return Ok(());
        }
        parts.actors.ask_all(|shard| shard.roll_back()).await?;
        match ended? {
            BatchEnd::Committed(_) => Ok(()),
            BatchEnd::Refused => Err(self.refused().await),
            BatchEnd::Stranger(entity) => Err(Halt::Broken(Broken(format!(
                "somebody else has appended to the repository of {}/{entity}: nobody but its processor may",
                E::TYPE
            )))),
        }
    }

    /// Has the entities in memory that events are about: of how many of them, one at least. It costs nothing while all there are fit into memory.
    async fn load(&self, events: &[Received]) -> Result<usize, Halt> {
        if self.whole {
            return Ok(events.len());
        }
        let mut known = HashSet::new();
        let key = |event: &Received| Key { canvas: event.canvas, id: event.entity.clone() };
        let keys = events.iter().map(key).filter(|key| known.insert(key.clone())).collect();
        let cold = self.parts.actors.cold(keys).await?;
        if cold.is_empty() {
            return Ok(events.len());
        }
        let stove = self.parts.stove();
        let loaded = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Halt::Withdrawn),
            loaded = stove.load(&cold) => loaded?,
        };
        self.parts.metrics.loaded(loaded);
        let missing =
            cold.get(loaded).and_then(|missing| events.iter().position(|event| key(event) == *missing));
        Ok(missing.unwrap_or(events.len()).max(1))
    }

    /// Knows what the entities take, and says once that some have left.
    fn takes(&mut self, sizes: &[Size]) {
        self.whole = sizes.iter().all(|size| size.is_whole);
        let left: usize = sizes.iter().map(|size| size.left.entities).sum();
        self.parts.metrics.took(sizes.iter().map(|size| size.bytes).sum(), left);
        if self.whole || self.warned {
            return;
        }
        self.warned = true;
        let canvas = sizes.iter().find_map(|size| size.left.last).map(|canvas| canvas.to_string());
        tracing::warn!(
            entity_type = E::TYPE,
            canvas,
            limit_bytes = self.parts.config.memory_limit_bytes,
            "not all entities fit into memory: those that were not used for the longest time leave it, and are loaded again when \
             events come for them; if wakeq.entity.loaded stays high, give the process more memory and raise memory_limit_bytes"
        );
    }

    /// What it means that a commit was refused.
    async fn refused(&self) -> Halt {
        let Parts { store, group, source, .. } = &*self.parts;
        match store.position_epoch(group, source).await {
            Ok(epoch) if epoch == self.epoch => {
                // Somebody has moved it, or the answer to an earlier commit got lost: it is opened again.
                let moved = std::io::Error::other("the position was moved");
                Halt::Away("the position", Box::new(moved))
            }
            Ok(_) => Halt::Fenced,
            Err(error) => error.into(),
        }
    }

    /// Has the actors work; none, if that writes too much for a batch. `stored` says whether an event that was sent before is in the repository; they may be waited for no longer than until it is told to end: nothing of it is done before the
    /// commit.
    async fn work(&mut self, events: &[Received], stored: bool) -> Result<Option<Worked>, Halt> {
        let parts = Arc::clone(&self.parts);
        let stall = parts.config.stall;
        // One event is a batch, whatever it writes.
        let limit = if events.len() > 1 { parts.config.batch_bytes } else { usize::MAX };
        let working = parts.actors.work(events, stored, limit);
        tokio::pin!(working);
        loop {
            tokio::select! {
                biased;
                worked = &mut working => {
                    if self.stalled.take().is_some() {
                        self.is(Health::Healthy);
                    }
                    return Ok(worked?);
                }
                () = self.cancel.cancelled() => return Err(Halt::Withdrawn),
                () = tokio::time::sleep(stall) => {
                    let why = format!("validate and apply of {} hold up a batch for more than {stall:?}", E::TYPE);
                    tracing::error!(entity_type = E::TYPE, "{why}");
                    let stalled = Health::Unhealthy(why);
                    self.stalled = Some(stalled.clone());
                    self.is(stalled);
                }
            }
        }
    }

    /// What is known of an event that was sent before; it is alone in its batch.
    async fn recorded(&self, events: &[Received]) -> Result<Option<Recorded>, Halt> {
        let [event] = events else { return Ok(None) };
        if !event.is_repost() {
            return Ok(None);
        }
        let (canvas, id) = (event.canvas, event.entity.clone());
        let entity = EntityId { canvas, entity_type: self.parts.entity_type.clone(), id };
        Ok(Some(self.parts.store.entity_recorded(&entity, event.id).await?))
    }

    /// Moves the position over what was not for this type, now and then.
    async fn catch_up(&mut self) -> Result<(), Halt> {
        let Some(from) = self.committed.filter(|from| *from + IDLE_MOVE <= self.looked) else {
            return Ok(());
        };
        let Parts { store, group, source, .. } = &*self.parts;
        let to = PositionMove { group, source, epoch: self.epoch, from, to: self.looked };
        if store.move_position(&to).await? {
            (self.committed, self.stood) = (Some(self.looked), self.looked);
            return Ok(());
        }
        self.committed = None;
        Err(self.refused().await)
    }
}

/// These events must not be processed.
fn doom(events: &mut [Received], unmade: Vec<Unmade>) {
    for Unmade { place, why } in unmade {
        if let Some(event) = events.get_mut(place) {
            event.doomed = Some(why);
        }
    }
}

fn truncate(events: &mut Cow<'_, [Received]>, count: usize) {
    match events {
        Cow::Borrowed(all) => *all = &all[..count.min(all.len())],
        Cow::Owned(all) => all.truncate(count),
    }
}

/// What is one batch of a page: events that were not sent before, or a single one that was.
fn first_part(events: &[Received], most: usize) -> &[Received] {
    let fresh = events.iter().take(most).take_while(|event| !event.is_repost()).count();
    &events[..fresh.max(1)]
}
