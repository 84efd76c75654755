-- Registered queues: what a service subscribes to, and whose turn it is.
--
-- A service registers a queue with patterns, and each emit puts a copy of a matching event into it:
-- a row of `events_v2` with `queue` and `origin`. The copies of one canvas in a queue are a facet.
-- The facets with waiting copies are in a rotation, so that a flood on one canvas does not delay
-- the others. This file keeps the queues and the rotation; 0004 takes turns.
--
-- The rotation of a queue is changed only under the lock of the queue, a row of `queue_turns`.

-- One row: the version that emitters compare with what they know, in the statement that inserts.
create table wakeq.queue_registry (
    one     boolean not null default true primary key check (one),
    -- Grows with each change of a pattern, to the clock's microseconds: a server that lost a change
    -- in a failover does not give its version to another one.
    version bigint not null check (version >= 0)
);
insert into wakeq.queue_registry (version) values (0);

create table wakeq.queues (
    name          wakeq.name not null primary key,
    -- It gets no more copies, and is deleted when its last copy is done.
    draining      boolean not null default false,
    -- Canvases see their copies, handle them like their own events, and hold them by their rules.
    tenant_visible boolean not null default false,
    -- For canvases without settings of their own: events in a round, and events in flight.
    weight        integer not null default 1 check (weight between 0 and 1000),
    in_flight_max integer check (in_flight_max between 1 and 10000),
    created_at    timestamptz not null default now(),
    created_by    text not null,
    updated_at    timestamptz not null default now(),
    updated_by    text not null,
    -- Services pull it over HTTP: its copies are leased, and no worker is notified of them.
    pulled        boolean not null default false,
    -- How often, and when, a copy that was released as failed is tried again.
    pull_retries      integer not null default 2 check (pull_retries between 0 and 1000),
    pull_delay_ms     bigint not null default 300000 check (pull_delay_ms between 0 and 2592000000),
    pull_factor       integer not null default 1 check (pull_factor between 1 and 100),
    pull_delay_max_ms bigint not null default 86400000 check (pull_delay_max_ms between 0 and 2592000000),
    pull_halts        boolean not null default false,
    -- The tokens of leases are made with it, so that nobody can guess one. 244 random bits.
    lease_secret      bytea not null check (length(lease_secret) = 32)
                      default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    constraint queues_pull_delays check (pull_delay_ms <= pull_delay_max_ms),
    -- What waits in a pulled queue without a notification is found through what facets with a limit
    -- record.
    constraint queues_pulled_with_a_limit check (not pulled or in_flight_max is not null)
);

create table wakeq.queue_patterns (
    queue   wakeq.name not null references wakeq.queues (name) on delete cascade,
    pattern text not null check (octet_length(pattern) between 1 and 1024),
    constraint queue_patterns_pkey primary key (queue, pattern)
);

-- The weight and the limit of a canvas in a queue, where they differ from those of the queue.
create table wakeq.facet_settings (
    queue         wakeq.name not null references wakeq.queues (name) on delete cascade,
    canvas_id     uuid not null,
    weight        integer check (weight between 0 and 1000),
    in_flight_max integer check (in_flight_max between 1 and 10000),
    constraint facet_settings_pkey primary key (queue, canvas_id)
);

-- Jobs that wake what waits in a queue, because a canvas or the whole queue may continue: from the
-- given place on. The table is nearly always empty, and then the minute's statement, which looks at
-- it, reads no page. So it has no index, and replication names a row by all of it.
create table wakeq.queue_wakes (
    id           bigint generated always as identity,
    queue        wakeq.name not null references wakeq.queues (name) on delete cascade,
    canvas_id    uuid,
    after_canvas uuid not null default '00000000-0000-0000-0000-000000000000',
    after_due    timestamptz not null default '-infinity',
    after_id     uuid not null default '00000000-0000-0000-0000-000000000000',
    created_at   timestamptz not null default now()
);

alter table wakeq.queue_wakes replica identity full;

-- One row for each queue that has turns. The lock on the row is the lock of the queue.
create table wakeq.queue_turns (
    queue wakeq.name not null primary key
);

-- The places in the rotations.
create sequence wakeq.facet_seq as bigint;

-- Facets that have been in the rotation of their queue. They are written under the lock of the
-- queue, except that a facet in no rotation and without copies may be deleted without it.
--
-- A copy that may run has a notification or a promise, which puts its facet back into the rotation.
-- Of a facet with a limit, the copies that run are recorded here, because some may wait without a
-- notification: copies after the head, recalled copies, and those of `running` whose claims were
-- given up or have expired.
create table wakeq.facets (
    queue     wakeq.name not null,
    canvas_id uuid not null,
    -- Its place in the rotation; null while it is not in it.
    position  bigint,
    -- How many events it has had of its present round.
    used      integer not null default 0,
    -- The head. Every copy up to here was looked at: it was taken, or it was passed over and will
    -- be announced when it may run.
    head_at   timestamptz not null default '-infinity',
    head_id   uuid not null default '00000000-0000-0000-0000-000000000000',
    -- Copies before the head that have to be looked at again: they were announced since, their
    -- notification found the facet full, or their run had no end.
    recalled  uuid[] not null default '{}',
    -- What was taken and may still run, if there is a limit.
    running   uuid[] not null default '{}',
    -- Whether, since the facet was last empty, it was full or a run had no end: then some waiting
    -- copies may have no notification left.
    was_full  boolean not null default false,
    constraint facets_pkey primary key (queue, canvas_id)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- The head of a facet, as a value.
create type wakeq.head as (at timestamptz, id uuid);

-- Facets in which copies may wait without a notification.
create index facets_limited on wakeq.facets (queue, canvas_id) where running <> '{}' or was_full;
create index facets_rotation on wakeq.facets (queue, position) where position is not null;

-- Whether the canvas of an event sees it, and holds it by rules: true for all that is in no queue.
create function wakeq.is_shown(queue text) returns boolean language plpgsql stable as $$
begin
    return queue is null or exists (select from wakeq.queues q where q.name = is_shown.queue and q.tenant_visible);
end
$$;

-- The switch in force on an event's canvas or on everything, a block before a pause. That on a
-- canvas does not hold what the canvas does not see. Callers ask first whether there is any switch.
create function wakeq.switch_on(canvas uuid, queue text, moment timestamptz)
returns wakeq.scheduling_rule_type language plpgsql stable as $$
begin
    return (
        select max(r.rule_type) from wakeq.scheduling_rules r
         where r.canvas_id = any (array[canvas, 'ffffffff-ffff-ffff-ffff-ffffffffffff'])
           and r.event_space = 'CANVAS' and r.handler_name = '_' and (r.until is null or r.until > moment)
           and (r.canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff' or wakeq.is_shown(switch_on.queue)));
end
$$;

-- Which events of a handler the rules in force hold: none, all, or those that its canvas sees, so
-- not the copies in other queues.
create function wakeq.rules_hold(canvas uuid, module text, name text) returns text language plpgsql stable as $$
declare
    everything boolean;
begin
    select bool_or(r.canvas_id = 'ffffffff-ffff-ffff-ffff-ffffffffffff') into everything
      from (select s.canvas_id from wakeq.scheduling_rules s
             where s.canvas_id = any (array[canvas, 'ffffffff-ffff-ffff-ffff-ffffffffffff'])
               and s.event_space = 'CANVAS' and s.handler_name = '_'
               and (s.until is null or s.until > clock_timestamp())
             union all
            select h.canvas_id from wakeq.scheduling_rules h
             where h.canvas_id = canvas and h.event_space = module and h.handler_name = rules_hold.name
               and (h.until is null or h.until > clock_timestamp())) as r;
    return case when everything is null then 'none'
                when everything or not exists (select from wakeq.queue_registry where version > 0) then 'all'
                else 'shown' end;
end
$$;

-- Whether services pull a queue over HTTP.
create function wakeq.is_pulled(queue text) returns boolean language plpgsql stable as $$
begin
    return exists (select from wakeq.queues q where q.name = is_pulled.queue and q.pulled);
end
$$;

-- Whether a canvas gets nothing of a queue now: it is paused there, or has its limit in flight.
-- What runs is looked up only if there is a limit.
create function wakeq.facet_holds(queue text, canvas uuid, lease interval)
returns boolean language plpgsql volatile as $$
declare
    share wakeq.facet_settings;
begin
    select q.name, canvas, coalesce(s.weight, q.weight), coalesce(s.in_flight_max, q.in_flight_max) into share
      from wakeq.queues q
      left join wakeq.facet_settings s on s.queue = q.name and s.canvas_id = canvas
     where q.name = facet_holds.queue;
    if share.weight = 0 then
        return true;
    elsif share.in_flight_max is null then
        return false;
    end if;
    return share.in_flight_max <= (
        select count(*) from wakeq.events_v2 e
         where e.id = any (array(
               select unnest(f.running) from wakeq.facets f where f.queue = share.queue and f.canvas_id = canvas))
           and e.locked_at >= clock_timestamp() - lease);
end
$$;

-- The facets of these copies whose canvases get nothing now, as canvas and queue; each facet is
-- looked at once.
create function wakeq.held_facets(ids uuid[], lease interval) returns text[] language plpgsql volatile as $$
begin
    return array(
        select f.canvas_id || '/' || f.queue
          from (select distinct on (e.canvas_id, e.queue) e.canvas_id, e.queue
                  from wakeq.events_v2 e where e.id = any (ids) and e.queue is not null) as f
         where wakeq.facet_holds(f.queue, f.canvas_id, lease));
end
$$;

-- Whether a turn would not find this copy: it stands before the head of its facet, and was not
-- recalled.
create function wakeq.is_passed(queue text, canvas uuid, due timestamptz, id uuid)
returns boolean language sql stable
return exists (
    select from wakeq.facets f
     where f.queue = is_passed.queue and f.canvas_id = is_passed.canvas
       and (is_passed.due, is_passed.id) <= (f.head_at, f.head_id) and is_passed.id <> all (f.recalled));

-- Whether copies of a facet may wait without a notification, because it was full.
create function wakeq.facet_was_full(queue text, canvas uuid)
returns boolean language sql stable
return coalesce((
    select f.was_full or cardinality(f.running) >= coalesce(s.in_flight_max, q.in_flight_max)
      from wakeq.facets f
      left join wakeq.queues q on q.name = f.queue
      left join wakeq.facet_settings s on s.queue = f.queue and s.canvas_id = f.canvas_id
     where f.queue = facet_was_full.queue and f.canvas_id = facet_was_full.canvas), false);

-- Copies that may run now in a facet with a limit: as many as there is room for, and at most
-- `most`. They are drawn from the first ones, so that callers at the same moment get different
-- copies. If none of these may run, `thorough` looks at many more.
create function wakeq.room_in_facet(
    of_queue  text,
    of_canvas uuid,
    lease     interval,
    thorough  boolean default false,
    most      integer default 8
)
returns setof uuid language plpgsql volatile as $$
declare
    facet wakeq.facets;
    room  bigint;
    depth integer;
    shown boolean := wakeq.is_shown(of_queue);
    is_off boolean := exists (select from wakeq.scheduling_rules where event_space = 'CANVAS')
                      and wakeq.switch_on(of_canvas, of_queue, clock_timestamp()) is not null;
begin
    select * into facet from wakeq.facets f where f.queue = of_queue and f.canvas_id = of_canvas;
    select coalesce(s.in_flight_max, q.in_flight_max) - (
               select count(*) from wakeq.events_v2 e
                where e.id = any (facet.running) and e.locked_at >= clock_timestamp() - lease)
      into room
      from wakeq.queues q
      left join wakeq.facet_settings s on s.queue = q.name and s.canvas_id = of_canvas
     where q.name = of_queue;
    if facet.queue is null or room is null or room <= 0 or is_off then
        return;
    end if;
    foreach depth in array case when thorough then '{100, 2000}'::integer[] else '{100}' end loop
        return query
        select c.id
          from (select l.*, row_number() over (partition by l.object order by l.seq) as nth_of_lane
                  from (
                       (select e.* from wakeq.events_v2 e
                         where e.id = any (facet.running || facet.recalled[1:depth]) and e.queue = of_queue)
                       union all
                       (select e.* from wakeq.events_v2 e
                         where e.queue = of_queue and e.canvas_id = of_canvas and e.delay_until <= now()
                           and e.queue <> ''
                           and (e.delay_until, e.id) > (facet.head_at, facet.head_id) and e.id <> all (facet.running)
                         order by e.delay_until, e.id limit depth)) as l) as c
         where (c.locked_at is null or c.locked_at < clock_timestamp() - lease) and c.notify_at is not null
           and c.delay_until <= clock_timestamp()
           and not (shown and exists (
               select from wakeq.scheduling_rules r
                where r.canvas_id = c.canvas_id and r.event_space = c.module and r.handler_name = c.name
                  and (r.until is null or r.until > clock_timestamp())))
           -- Only the earliest of a lane can be its first, so each lane is looked at once.
           and (c.object is null
                or c.nth_of_lane = 1 and wakeq.leads_lane(c.id, c.canvas_id, c.object, of_queue, c.module, c.name))
         order by random()
         limit least(most, room);
        exit when found;
    end loop;
end
$$;

-- Takes the lock of a queue until the transaction ends. Other sessions hold it for one of their
-- statements. The row may be missing, or be deleted while this waits for it: then a new one is
-- inserted, which locks it as well.
create function wakeq.lock_queue(of_queue text) returns void language plpgsql volatile as $$
declare
    patience text := current_setting('lock_timeout');
begin
    perform set_config('lock_timeout', '1s', true);
    loop
        perform from wakeq.queue_turns t where t.queue = of_queue for update;
        exit when found;
        insert into wakeq.queue_turns (queue) values (of_queue) on conflict do nothing;
        exit when found;
    end loop;
    perform set_config('lock_timeout', patience, true);
end
$$;

-- Recalls those of these copies that stand before the heads of their facets. The caller holds the
-- lock of the queue. The copies are looked up one by one: no plan may read a table for them.
create function wakeq.recall(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    with asked as materialized (
        select distinct e.id, e.canvas_id, e.delay_until
          from unnest(ids) as asked (id)
         cross join lateral (
               select x.id, x.canvas_id, x.delay_until from wakeq.events_v2 x
                where x.id = asked.id and x.queue = of_queue offset 0) as e
    ), late as materialized (
        select e.canvas_id, array_agg(e.id) as ids
          from asked e
         cross join lateral (
               select g.head_at, g.head_id, g.recalled from wakeq.facets g
                where g.queue = of_queue and g.canvas_id = e.canvas_id offset 0) as g
         where (e.delay_until, e.id) <= (g.head_at, g.head_id) and e.id <> all (g.recalled)
         group by e.canvas_id
    )
    update wakeq.facets f
       set recalled = case when cardinality(f.recalled) < 1000 then f.recalled || late.ids else '{}' end,
           head_at = case when cardinality(f.recalled) < 1000 then f.head_at else '-infinity' end
      from late where f.queue = of_queue and f.canvas_id = late.canvas_id;
end
$$;

-- Puts the facets of copies into the rotation, and recalls those of the copies that stand before
-- their heads. The caller holds the lock of the queue. A facet that is in the rotation is not
-- inserted: the conflict would lock its row, which is a write.
create function wakeq.enter_rotation(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    insert into wakeq.facets as f (queue, canvas_id, position)
    select of_queue, canvas_id, nextval('wakeq.facet_seq')
      from (select e.canvas_id
              from unnest(ids) as asked (id)
             cross join lateral (
                   select x.canvas_id, x.delay_until from wakeq.events_v2 x
                    where x.id = asked.id and x.queue = of_queue offset 0) as e
             where (select g.position from wakeq.facets g
                     where g.queue = of_queue and g.canvas_id = e.canvas_id) is null
             group by e.canvas_id order by min(e.delay_until), min(asked.id::text)) as new
        on conflict (queue, canvas_id) do update set position = excluded.position where f.position is null;
    perform wakeq.recall(of_queue, ids);
end
$$;

-- Gives back the turns of copies that were chosen and then not taken: their facets come first, in
-- this order, with what is left of their rounds. The caller holds the lock of the queue.
create function wakeq.keep_turns(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    perform wakeq.enter_rotation(of_queue, ids);
    update wakeq.facets f
       set position = kept.lowest - kept.ahead, used = greatest(0, kept.weight - kept.turns)
      from (
           select e.canvas_id, count(*) as turns, coalesce(max(s.weight), max(q.weight), 1) as weight,
                  row_number() over (order by min(asked.number) desc) as ahead,
                  coalesce((select min(g.position) from wakeq.facets g where g.queue = of_queue), 0) as lowest
             from unnest(ids) with ordinality as asked (id, number)
             cross join lateral (
                   select x.canvas_id from wakeq.events_v2 x
                    where x.id = asked.id and x.queue = of_queue offset 0) as e
             left join wakeq.queues q on q.name = of_queue
             left join wakeq.facet_settings s on s.queue = of_queue and s.canvas_id = e.canvas_id
            group by e.canvas_id) as kept
     where f.queue = of_queue and f.canvas_id = kept.canvas_id;
end
$$;

-- Puts the facets of copies that were just committed into the rotation, so that they have their
-- turns however late their notifications come. It does not wait for the disk: if a server that
-- crashes loses it, no harm is done.
create function wakeq.announce(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    perform wakeq.lock_queue(of_queue);
    perform wakeq.enter_rotation(of_queue, ids);
end
$$;

-- Recalls copies whose notifications met a full facet and are about to be acknowledged: the run
-- that makes room in the facet then finds the copies. This is on disk before the acknowledgement.
create function wakeq.recall_held(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    perform wakeq.lock_queue(of_queue);
    perform wakeq.recall(of_queue, ids);
end
$$;

revoke all on all functions in schema wakeq from public;
