//! Deletes unused data that no other part of the minute's pass deletes: objects without a state,
//! events for entities of a type that has no processor, keys that are no longer valid. One process
//! at a time does this, in bounded pages.

use std::time::Duration;

use crate::store::kernel::{Store, StoreError, interval};

/// How many objects one page reads.
const OBJECTS: i64 = 5_000;

/// How long unused data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleRetention {
    pub(crate) objects: Duration,
    pub(crate) entity_events: Duration,
    pub(crate) keys: Duration,
}

impl Store {
    /// Deletes objects without a state on which nothing was emitted for that long and nothing
    /// waits, is dead or is halted; a state is user data and stays. Deletes the records of events
    /// for entities whose type no processor has ever read; the log keeps the events. Deletes keys
    /// that were revoked or expired that long ago.
    ///
    /// Returns whether there is more; the next call looks at the next page of objects.
    pub(crate) async fn expire_idle(&self, again: bool, kept: IdleRetention) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gate as materialized (
                   update wakeq.chores set next_at = now() + interval '1 hour', passes = passes + 1
                    where name = 'idle' and ($1 or next_at <= now() or next_at > now() + interval '2 hours')
                returning name
               ), marked as (
                   insert into wakeq.idle_marks (seq)
                   select coalesce(pg_sequence_last_value('wakeq.event_seq'), 0) from gate
                    where not exists (select from wakeq.idle_marks where at > now() - interval '1 day')
                       on conflict do nothing
               ), edge as materialized (
                   select max(seq) as seq, max(at) as at from wakeq.idle_marks where at <= now() - $2::interval
               ), unmarked as (
                   delete from wakeq.idle_marks where at < (select at from edge) and exists (select from gate)
               ), looked as materialized (
                   select canvas_id, object, last_seq, state is null as stateless from wakeq.objects
                    where (canvas_id, object) > ((select canvas_id from wakeq.idle_cursor), (select object from wakeq.idle_cursor))
                      and exists (select from gate) and (select seq from edge) is not null
                    order by canvas_id, object limit $3
               ), unused as materialized (
                   select o.canvas_id, o.object from looked l
                     join wakeq.objects o on o.canvas_id = any (array[l.canvas_id]) and o.object = l.object
                    where l.stateless and l.last_seq <= (select seq from edge)
                      and o.state is null and o.last_seq <= (select seq from edge)
                      and not exists (select from wakeq.events_v2 e
                                       where e.canvas_id = o.canvas_id and e.object = o.object and e.queue is null offset 0)
                      and not exists (select from wakeq.events_v2 e
                                       where e.canvas_id = o.canvas_id and e.object = o.object and e.queue is not null offset 0)
                      and not exists (select from wakeq.dead_events d
                                       where d.canvas_id = o.canvas_id and d.object = o.object offset 0)
                      and not exists (select from wakeq.halted_lanes h
                                       where h.canvas_id = o.canvas_id and h.object = o.object and h.queue is null offset 0)
                      and not exists (select from wakeq.halted_lanes h
                                       where h.canvas_id = o.canvas_id and h.object = o.object and h.queue is not null offset 0)
                      for update of o skip locked
               ), objects as (
                   delete from wakeq.objects o using unused u
                    where o.canvas_id = any (array[u.canvas_id]) and o.object = u.object
               ), cursor as (
                   update wakeq.idle_cursor set (canvas_id, object) = (
                       select coalesce((array_agg(canvas_id order by canvas_id desc, object desc))[1], uuid_nil.id),
                              coalesce((array_agg(object::text order by canvas_id desc, object desc))[1], '')
                         from (values ('00000000-0000-0000-0000-000000000000'::uuid)) as uuid_nil (id)
                         left join (select * from looked where (select count(*) from looked) >= $3) as full_page on true
                        group by uuid_nil.id)
                    where exists (select from gate)
               ), sent as (
                   delete from wakeq.entity_events s using (
                       select e.canvas_id, e.event_id from wakeq.entity_events e
                        where e.status = 'accepted' and e.sent_at < now() - $4::interval and exists (select from gate)
                          and not exists (select from wakeq.consumer_positions p
                                           where starts_with(p.source, 'category/entities:' || e.entity_type || '.inbox'))
                        limit 1000 for update skip locked) as old
                    where s.canvas_id = any (array[old.canvas_id]) and s.event_id = old.event_id
                returning s.event_id
               ), keys as (
                   select wakeq.expire_keys($5) as gone from gate
               )
               select greatest((select count(*) from sent) >= 1000, (select max(gone) from keys) >= 1000,
                               (select count(*) from looked) >= $3) as "more!""#,
            again,
            interval(kept.objects),
            OBJECTS,
            interval(kept.entity_events),
            interval(kept.keys)
        );
        self.session().await?.one("expire unused rows", query).await
    }
}
