//! Deletes rows that are too old to keep. Each table has a statement of its own for at most a page,
//! so that one that fails or takes too long keeps nothing else from being deleted. One process at a
//! time does this.

use std::time::Duration;

use crate::store::kernel::{Store, StoreError, interval};

/// Maximum number of rows in a page. The statements repeat it, because a plan depends on it.
const PAGE: u64 = 1_000;
/// Maximum number of dead events of consumer groups that one statement deletes.
const GROUP_DEAD_PAGE: u64 = 10_000;
/// Maximum number of tombstones that are kept per canvas.
const TOMBSTONES_KEPT_MAX: i64 = 100_000;
/// Maximum number of tombstones that one statement removes.
const TOMBSTONES_PAGE: u64 = 1_000;

/// Maximum number of batches that one statement looks at, since it also deletes their ends.
const BATCHES_PAGE: u64 = 100;
/// How long batches that are over are remembered.
const BATCHES_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long data that is removed by age alone is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Ids chosen by callers, and outcomes of events that were sent to entities: within this time a
    /// repeat is recognized. An id of an event that still waits then is kept for as long again.
    /// Default 7 days.
    pub emitted_ids: Duration,
    /// Dead events, notes of handlers that workers did not know, and errors that are marked as
    /// known and of which nothing has died since. Default 30 days.
    pub dead_events: Duration,
    /// The audit log, and API keys that were revoked or have expired. Default 90 days.
    pub audit: Duration,
    /// Unused data: objects without a state and without new events, and the records of events that
    /// were sent to entities of a type without a processor. Default 90 days.
    pub idle: Duration,
    /// Attempts that failed, in whole days: at least a day. Those of an event that is kept after it
    /// has ended are kept with it. Default 7 days.
    pub attempts: Duration,
    /// Events of the log: whole partitions that are older and that no consumer group still needs.
    /// Default `None`: for ever.
    pub log: Option<Duration>,
}

/// How long the answer to an idempotent emit is repeated.
pub(in crate::store) const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(24 * 3600);

/// How long an operation that has ended is kept.
const OPERATIONS_KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

impl Default for Retention {
    fn default() -> Self {
        let days = |count: u64| Duration::from_secs(count * 24 * 3600);
        Self {
            emitted_ids: days(7),
            dead_events: days(30),
            audit: days(90),
            idle: days(90),
            attempts: days(7),
            log: None,
        }
    }
}

/// The kinds of data that are deleted by age, each by a statement of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpiryPart {
    PreviousSecrets,
    PreviousHookSecrets,
    GroupDead,
    Tombstones,
    EmittedIds,
    DeadEvents,
    UnknownHandlers,
    AuditLines,
    EntityEvents,
    Minutes,
    Hours,
    UniqueKeys,
    Batches,
    IdempotencyKeys,
    Workers,
    Programs,
    Checkpoints,
    Operations,
    LimitStates,
    KnownErrors,
}

impl ExpiryPart {
    /// In the order in which they are deleted.
    pub(crate) const ALL: [Self; 20] = [
        Self::PreviousSecrets,
        Self::GroupDead,
        Self::Tombstones,
        Self::PreviousHookSecrets,
        Self::EmittedIds,
        Self::DeadEvents,
        Self::UnknownHandlers,
        Self::AuditLines,
        Self::EntityEvents,
        Self::Minutes,
        Self::Hours,
        Self::UniqueKeys,
        Self::Batches,
        Self::IdempotencyKeys,
        Self::Workers,
        Self::Programs,
        Self::Checkpoints,
        Self::Operations,
        Self::LimitStates,
        Self::KnownErrors,
    ];

    /// Its name in log lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PreviousSecrets => "previous signing secrets",
            Self::PreviousHookSecrets => "previous secrets of hooks",
            Self::GroupDead => "dead events of groups",
            Self::Tombstones => "tombstones",
            Self::EmittedIds => "remembered ids",
            Self::DeadEvents => "dead events",
            Self::UnknownHandlers => "notes of unknown handlers",
            Self::AuditLines => "the audit log",
            Self::EntityEvents => "outcomes of entities' events",
            Self::Minutes => "statistics by minute",
            Self::Hours => "statistics by hour",
            Self::UniqueKeys => "unique keys",
            Self::Batches => "batches that are over",
            Self::IdempotencyKeys => "idempotency keys",
            Self::Workers => "rows of lost workers",
            Self::Programs => "rows of silent programs",
            Self::Checkpoints => "checkpoints of events that have ended",
            Self::Operations => "operations that have ended",
            Self::LimitStates => "states of limits that nothing uses",
            Self::KnownErrors => "known errors of which no event died lately",
        }
    }
}

impl Store {
    /// Whether this process is the one that deletes now, as one does in an hour. It has five
    /// minutes until it must have ended, so that others need not wait for longer if it dies.
    pub(crate) async fn begin_expiry(&self) -> Result<bool, StoreError> {
        let query = sqlx::query!(
            "update wakeq.chores set next_at = now() + interval '5 minutes', passes = passes + 1
              where name = 'expire' and (next_at <= now() or next_at > now() + interval '2 hours')"
        );
        Ok(self.session().await?.execute("begin the expiry", query).await?.rows_affected() > 0)
    }

    /// Makes the next expiry due an hour after the beginning of this one, because it was finished.
    pub(crate) async fn end_expiry(&self) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.chores set next_at = next_at + interval '55 minutes'
              where name = 'expire' and next_at <= now() + interval '5 minutes'"
        );
        self.session().await?.execute("end the expiry", query).await.map(drop)
    }

    /// Makes the next expiry due now, because this one was not finished.
    pub(crate) async fn hasten_expiry(&self) -> Result<(), StoreError> {
        let query =
            sqlx::query!("update wakeq.chores set next_at = now() where name = 'expire' and next_at > now()");
        self.session().await?.execute("make the expiry due", query).await.map(drop)
    }

    /// Deletes a page of one part; returns whether there may be more of it.
    pub(crate) async fn expire(&self, part: ExpiryPart, retention: Retention) -> Result<bool, StoreError> {
        let Retention { emitted_ids, dead_events, audit, .. } = retention;
        let (looked_at, page) = match part {
            ExpiryPart::PreviousSecrets => (self.clear_previous_secrets().await?, PAGE),
            ExpiryPart::PreviousHookSecrets => (self.clear_previous_hook_secrets().await?, PAGE),
            ExpiryPart::GroupDead => (self.expire_group_dead(dead_events).await?, GROUP_DEAD_PAGE),
            ExpiryPart::Tombstones => (self.expire_tombstones(dead_events).await?, TOMBSTONES_PAGE),
            ExpiryPart::EmittedIds => (self.expire_emitted_ids(emitted_ids).await?, PAGE),
            ExpiryPart::DeadEvents => (self.expire_dead(dead_events).await?, PAGE),
            ExpiryPart::UnknownHandlers => (self.expire_unknown_handlers(dead_events).await?, PAGE),
            ExpiryPart::AuditLines => (self.expire_audit(audit).await?, PAGE),
            ExpiryPart::EntityEvents => (self.expire_entity_events(emitted_ids).await?, PAGE),
            ExpiryPart::Minutes => (self.roll_up_statistics().await?, PAGE),
            ExpiryPart::Hours => (self.expire_statistics().await?, PAGE),
            ExpiryPart::UniqueKeys => (self.expire_unique_keys().await?, PAGE),
            ExpiryPart::Batches => (self.expire_batches().await?, BATCHES_PAGE),
            ExpiryPart::IdempotencyKeys => (self.expire_idempotency_keys().await?, PAGE),
            ExpiryPart::Workers => (self.expire_workers().await?, PAGE),
            ExpiryPart::Programs => (self.expire_programs().await?, PAGE),
            ExpiryPart::Checkpoints => (self.expire_checkpoints().await?, PAGE),
            ExpiryPart::Operations => (self.expire_operations().await?, PAGE),
            ExpiryPart::LimitStates => (self.expire_limit_states().await?, PAGE),
            ExpiryPart::KnownErrors => (self.expire_known_errors(dead_events).await?, PAGE),
        };
        Ok(looked_at >= page)
    }

    /// Clears signing secrets that are no longer valid.
    async fn clear_previous_secrets(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "update wakeq.http_targets t set previous_secret = null, previous_key = null, previous_until = null from (
                 select canvas_id, module, name, modifier from wakeq.http_targets
                  where previous_until <= now()
                  order by 1, 2, 3, 4 limit 1000 for update skip locked) as old
              where t.canvas_id = any (array[old.canvas_id]) and (t.module, t.name, t.modifier) = (old.module, old.name, old.modifier)"
        );
        let done = self.session().await?.execute("clear previous signing secrets", query).await?;
        Ok(done.rows_affected())
    }

    /// Clears secrets of hooks that are no longer accepted.
    async fn clear_previous_hook_secrets(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "update wakeq.hooks h set previous_secret = null, previous_key = null, previous_until = null from (
                 select canvas_id, name from wakeq.hooks
                  where previous_until <= now()
                  order by 1, 2 limit 1000 for update skip locked) as old
              where h.canvas_id = any (array[old.canvas_id]) and h.name = old.name"
        );
        let done = self.session().await?.execute("clear previous secrets of hooks", query).await?;
        Ok(done.rows_affected())
    }

    /// Deletes the dead events of groups that are older than this.
    pub(crate) async fn expire_group_dead(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.consumer_dead d using (
                 select consumer_group, source, seq from wakeq.consumer_dead
                  where died_at < now() - $1::interval order by died_at limit $2 for update skip locked) as old
              where d.consumer_group = any (array[old.consumer_group]) and (d.source, d.seq) = (old.source, old.seq)",
            interval(kept),
            GROUP_DEAD_PAGE.cast_signed()
        );
        Ok(self.session().await?.execute("delete old dead events of groups", query).await?.rows_affected())
    }

    /// Removes a page of tombstones that are older than this and on whose objects no event waits;
    /// and, of a canvas with more than [`TOMBSTONES_KEPT_MAX`], the oldest. Returns how many.
    pub(crate) async fn expire_tombstones(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "with recursive canvases as (
                 (select t.canvas_id from wakeq.tombstones t order by t.canvas_id limit 1)
                  union all
                 select (select t.canvas_id from wakeq.tombstones t where t.canvas_id > c.canvas_id order by t.canvas_id limit 1)
                   from canvases c where c.canvas_id is not null
             ), edges as materialized (
                 select c.canvas_id, (select t.left_at from wakeq.tombstones t where t.canvas_id = c.canvas_id and t.left_at > '-infinity'
                                       order by t.left_at desc offset $2 limit 1) as full_at
                   from canvases c where c.canvas_id is not null
             )
             delete from wakeq.tombstones t using (
                 select old.* from edges e
                  cross join lateral (
                        select t.canvas_id, t.object, t.seq, t.queue from wakeq.tombstones t
                         where t.canvas_id = e.canvas_id and t.left_at > '-infinity'
                           and (t.left_at <= e.full_at
                                or t.left_at < now() - $1::interval
                                   and not exists (select from wakeq.events_v2 x
                                                    where x.canvas_id = t.canvas_id and x.object = t.object and x.queue is null
                                                   offset 0)
                                   and not exists (select from wakeq.events_v2 x
                                                    where x.canvas_id = t.canvas_id and x.object = t.object and x.queue is not null
                                                   offset 0))
                         order by t.left_at limit $3) as old
                  limit $3) as old
              where t.canvas_id = any (array[old.canvas_id]) and (t.object, t.seq, t.queue) = (old.object, old.seq, old.queue)",
            interval(kept),
            TOMBSTONES_KEPT_MAX,
            TOMBSTONES_PAGE.cast_signed()
        );
        Ok(self.session().await?.execute("remove old tombstones", query).await?.rows_affected())
    }

    /// Forgets ids. One of an event that still waits, or of which a copy does, is looked at again
    /// when it is as old once more: a page that is read has moved on, however many such ids a
    /// canvas has. Returns how many were looked at.
    async fn expire_emitted_ids(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with page as materialized (
                   select i.canvas_id, i.id,
                          exists (select from wakeq.events_v2 e where e.id = i.id and e.canvas_id = i.canvas_id offset 0)
                       or exists (select from wakeq.events_v2 c where c.canvas_id = i.canvas_id and c.origin = i.id
                                     and c.origin is not null and get_byte(uuid_send(c.origin), 6) & 240 = 128 offset 0) as waits
                     from wakeq.emitted_ids i
                    where i.due_at < now() - $1::interval
                    order by i.due_at limit 1000 for update of i skip locked
               ), held as (
                   update wakeq.emitted_ids e set due_at = now() from page p
                    where p.waits and e.canvas_id = any (array[p.canvas_id]) and e.id = p.id
               ), forgotten as (
                   delete from wakeq.emitted_ids e using page p
                    where not p.waits and e.canvas_id = any (array[p.canvas_id]) and e.id = p.id
               )
               select count(*) as "count!" from page"#,
            interval(kept)
        );
        Ok(self.session().await?.one("forget old ids", query).await?.unsigned_abs())
    }

    /// Deletes dead events, except those that halt an object.
    async fn expire_dead(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.dead_events e using (
                 select canvas_id, id from wakeq.dead_events d
                  where d.died_at < now() - $1::interval and d.died_at < 'infinity'
                    and not exists (select from wakeq.halted_lanes h
                                     where h.canvas_id = d.canvas_id and h.event_id = d.id offset 0)
                  order by d.died_at limit 1000 for update skip locked) as old
              where e.canvas_id = any (array[old.canvas_id]) and e.id = old.id",
            interval(kept)
        );
        Ok(self.session().await?.execute("delete old dead events", query).await?.rows_affected())
    }

    /// Deletes checkpoints of events that are neither live nor dead any longer. The others are
    /// looked at again in the next hour: a page that is read has moved on. Returns how many were
    /// looked at.
    async fn expire_checkpoints(&self) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with page as materialized (
                   select c.canvas_id, c.event_id,
                          exists (select from wakeq.events_v2 e
                                   where e.id = c.event_id and e.canvas_id = c.canvas_id offset 0)
                       or exists (select from wakeq.dead_events d
                                   where d.canvas_id = c.canvas_id and d.id = c.event_id offset 0) as has_event
                     from wakeq.checkpoints c
                    where c.looked_at < now() - interval '10 minutes'
                    order by c.looked_at limit 1000 for update of c skip locked
               ), kept as (
                   update wakeq.checkpoints k set looked_at = now() from page p
                    where p.has_event and k.canvas_id = any (array[p.canvas_id]) and k.event_id = p.event_id
               ), gone as (
                   delete from wakeq.checkpoints k using page p
                    where not p.has_event and k.canvas_id = any (array[p.canvas_id]) and k.event_id = p.event_id
               )
               select count(*) as "count!" from page"#
        );
        Ok(self.session().await?.one("delete checkpoints of ended events", query).await?.unsigned_abs())
    }

    async fn expire_unknown_handlers(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.unknown_handlers u using (
                 select canvas_id, module, name, modifier from wakeq.unknown_handlers where last_seen < now() - $1::interval
                  order by 1, 2, 3, 4 limit 1000 for update skip locked) as old
              where u.canvas_id = any (array[old.canvas_id]) and (u.module, u.name, u.modifier) = (old.module, old.name, old.modifier)",
            interval(kept)
        );
        let done = self.session().await?.execute("delete old notes of unknown handlers", query).await?;
        Ok(done.rows_affected())
    }

    async fn expire_audit(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(r#"select wakeq.expire_audit($1) as "gone!""#, interval(kept));
        Ok(self.session().await?.one("delete old lines of the audit log", query).await?.unsigned_abs())
    }

    /// Deletes outcomes of events that were sent to entities. One from which something follows that
    /// may still be answered is looked at again when it is as old once more. Returns how many were
    /// looked at.
    async fn expire_entity_events(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with sent as (
                   select canvas_id, event_id,
                          exists (select from unnest(e.follow_ups) as f (id) cross join lateral (
                                      select from wakeq.events_v2 w where w.canvas_id = e.canvas_id and w.id = f.id offset 0) as w)
                       or exists (select from unnest(e.follow_ups) as f (id) cross join lateral (
                                      select from wakeq.dead_events d where d.canvas_id = e.canvas_id and d.id = f.id offset 0) as d) as open
                     from wakeq.entity_events e
                    where ended_at is not null and coalesce(held_at, ended_at) < now() - $1::interval
                    order by coalesce(held_at, ended_at) limit 1000 for update skip locked
               ), held as (
                   update wakeq.entity_events e set held_at = now() from sent s
                    where s.open and e.canvas_id = any (array[s.canvas_id]) and e.event_id = s.event_id
               ), forgotten as (
                   delete from wakeq.entity_events e using sent s
                    where not s.open and e.canvas_id = any (array[s.canvas_id]) and e.event_id = s.event_id
               )
               select count(*) as "count!" from sent"#,
            interval(kept)
        );
        Ok(self.session().await?.one("delete old outcomes of entities' events", query).await?.unsigned_abs())
    }

    /// Forgets the unique keys of events that have ended. One of an event that has not is in the
    /// event's row all the same.
    async fn expire_unique_keys(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.unique_keys k using (
                 select canvas_id, module, name, key from wakeq.unique_keys
                  where until < now() order by until limit 1000 for update skip locked) as old
              where k.canvas_id = any (array[old.canvas_id]) and (k.module, k.name, k.key) = (old.module, old.name, old.key)"
        );
        Ok(self.session().await?.execute("forget old unique keys", query).await?.rows_affected())
    }

    /// Forgets batches that are over. One that was given up while members of it are left is looked
    /// at again when it is as old once more: its name is not free before. One with rows of ends
    /// loses up to 10,000 of them, and goes the next time. Returns how many were looked at.
    async fn expire_batches(&self) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with page as materialized (
                   select b.canvas_id, b.name, wakeq.has_members(b.canvas_id, b.name) as has_members
                     from wakeq.batches b
                    where b.over_at < now() - $1::interval and b.over_at > '-infinity'
                    order by b.over_at limit 100 for update skip locked
               ), held as (
                   update wakeq.batches b set over_at = now() from page p
                    where p.has_members and b.canvas_id = any (array[p.canvas_id]) and b.name = p.name
               ), ends as materialized (
                   select e.canvas_id, e.batch, e.id
                     from page p cross join lateral (
                          select e.canvas_id, e.batch, e.id from wakeq.batch_ends e
                           where e.canvas_id = p.canvas_id and e.batch = p.name
                           order by e.canvas_id, e.batch, e.id limit 10000) as e
                    where not p.has_members limit 10000
               ), gone as (
                   delete from wakeq.batch_ends e using ends
                    where e.canvas_id = any (array[ends.canvas_id]) and e.batch = any (array[ends.batch])
                      and e.id = any (array[ends.id])
               ), forgotten as (
                   delete from wakeq.batches b using page p
                    where not p.has_members and b.canvas_id = any (array[p.canvas_id]) and b.name = p.name
                      and not exists (select from wakeq.batch_ends e
                                       where e.canvas_id = p.canvas_id and e.batch = p.name
                                       order by e.canvas_id, e.batch, e.id offset 0)
               )
               select count(*) as "count!" from page"#,
            interval(BATCHES_KEPT)
        );
        Ok(self.session().await?.one("forget batches", query).await?.unsigned_abs())
    }

    async fn expire_idempotency_keys(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.idempotency_keys k using (
                 select canvas_id, holder, key from wakeq.idempotency_keys
                  where created_at < now() - $1::interval
                  order by created_at limit 1000 for update skip locked) as old
              where k.canvas_id = any (array[old.canvas_id]) and (k.holder, k.key) = (old.holder, old.key)",
            interval(IDEMPOTENCY_KEPT)
        );
        Ok(self.session().await?.execute("delete old idempotency keys", query).await?.rows_affected())
    }

    /// Deletes operations that have ended.
    async fn expire_operations(&self) -> Result<u64, StoreError> {
        let query = sqlx::query!(
            "delete from wakeq.operations o using (
                 select canvas_id, id from wakeq.operations
                  where ended_at < now() - $1::interval and ended_at > '-infinity'
                  order by ended_at limit 1000 for update skip locked) as old
              where o.canvas_id = any (array[old.canvas_id]) and o.id = old.id",
            interval(OPERATIONS_KEPT)
        );
        Ok(self.session().await?.execute("delete old operations", query).await?.rows_affected())
    }

    async fn expire_limit_states(&self) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select wakeq.expire_limit_states($1) as "looked_at!""#,
            interval(self.timing().lease)
        );
        Ok(self.session().await?.one("delete unused states of limits", query).await?.unsigned_abs())
    }

    /// Forgets known errors that are as old as dead events get, and of which none is left. One of
    /// which there still are some is looked at again when it is as old once more: a page that is
    /// read has moved on. Returns how many were looked at.
    async fn expire_known_errors(&self, kept: Duration) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with page as materialized (
                   select k.canvas_id, k.error_group,
                          exists (select from wakeq.dead_events d
                                   where d.canvas_id = k.canvas_id and d.error_group = k.error_group
                                   order by d.canvas_id, d.error_group, d.died_at, d.id offset 0) as has_events
                     from wakeq.known_errors k
                    where k.looked_at < now() - $1::interval
                    order by k.looked_at limit 1000 for update of k skip locked
               ), held as (
                   update wakeq.known_errors k set looked_at = now() from page p
                    where p.has_events and k.canvas_id = any (array[p.canvas_id]) and k.error_group = p.error_group
               ), forgotten as (
                   delete from wakeq.known_errors k using page p
                    where not p.has_events and k.canvas_id = any (array[p.canvas_id]) and k.error_group = p.error_group
               )
               select count(*) as "count!" from page"#,
            interval(kept)
        );
        Ok(self.session().await?.one("forget old known errors", query).await?.unsigned_abs())
    }
}
