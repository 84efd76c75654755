-- Fan-out: queues that services register. Each matching event is copied into them, and they are worked canvas after
-- canvas. Expands only. Register queues when no process of a release before this one runs any more: such an emitter
-- makes no copies, and such a worker takes a copy for an event of its own.

-- What emitters compare what they know with, in the statement that inserts: one row.
create table wakeq.queue_registry (
    one     boolean not null default true primary key check (one),
    -- Grows with each change of a pattern.
    version bigint not null check (version >= 0)
);
insert into wakeq.queue_registry (version) values (0);

create table wakeq.queues (
    name          wakeq.name not null primary key,
    -- It gets no copies any more, and goes when the last one is done.
    draining      boolean not null default false,
    -- Its copies are shown to their canvases, which may do with them as with their events, and hold them by their rules.
    tenant_visible boolean not null default false,
    -- What a canvas gets that has no settings of its own: events a round, and events in flight.
    weight        integer not null default 1 check (weight between 0 and 1000),
    in_flight_max integer check (in_flight_max between 1 and 10000),
    created_at    timestamptz not null default now(),
    created_by    text not null,
    updated_at    timestamptz not null default now(),
    updated_by    text not null
);

create table wakeq.queue_patterns (
    queue   wakeq.name not null references wakeq.queues (name) on delete cascade,
    pattern text not null check (octet_length(pattern) between 1 and 1024),
    constraint queue_patterns_pkey primary key (queue, pattern)
);

-- What a canvas gets of a queue, where that differs.
create table wakeq.facet_settings (
    queue         wakeq.name not null references wakeq.queues (name) on delete cascade,
    canvas_id     uuid not null,
    weight        integer check (weight between 0 and 1000),
    in_flight_max integer check (in_flight_max between 1 and 10000),
    constraint facet_settings_pkey primary key (queue, canvas_id)
);

-- What waits in a queue is to be woken since it may go on: of a canvas, or of all; from here on. It is nearly always empty, and
-- then costs the minute's statement, which looks, no page: so it has no index.
create table wakeq.queue_wakes (
    id           bigint generated always as identity,
    queue        wakeq.name not null references wakeq.queues (name) on delete cascade,
    canvas_id    uuid,
    after_canvas uuid not null default '00000000-0000-0000-0000-000000000000',
    after_due    timestamptz not null default '-infinity',
    after_id     uuid not null default '00000000-0000-0000-0000-000000000000',
    created_at   timestamptz not null default now()
);

alter table wakeq.events_v2
    add column queue wakeq.name,
    -- The event that it is a copy of.
    add column origin uuid,
    add constraint events_v2_copy check ((queue is null) = (origin is null)) not valid;
alter table wakeq.dead_events
    add column queue wakeq.name,
    add column origin uuid;

comment on column wakeq.events_v2.queue is 'The queue that this copy waits in; null for the event itself';

-- Whether what stands in a queue is its canvas's, which then sees it and holds it by rules: all that is in none.
create function wakeq.is_shown(queue text) returns boolean language sql stable
return queue is null or exists (select from wakeq.queues q where q.name = is_shown.queue and q.tenant_visible);

-- Counts of a canvas leave copies out, and read nothing but the index.
drop index wakeq.events_v2_handler;
create index events_v2_handler on wakeq.events_v2 (canvas_id, module, name, delay_until, id) include (queue);

-- A facet of a queue: the copies of one canvas, the one that was due first at the front.
create index events_v2_facet on wakeq.events_v2 (queue, canvas_id, delay_until, id) where queue is not null;

-- A chosen id is remembered while a copy of its event is left. Such ids are uuids of version 8: no other event has an
-- entry, nor its copies.
create index events_v2_origin on wakeq.events_v2 (canvas_id, origin)
    where origin is not null and get_byte(uuid_send(origin), 6) & 240 = 128;

-- Lanes: what is left of an object in a queue, and of the events themselves with a handler.
drop index wakeq.events_v2_lane;
drop index wakeq.events_v2_successor;
create unique index events_v2_lane on wakeq.events_v2 (canvas_id, object, module, name, seq)
    where object is not null and queue is null;
create unique index events_v2_successor on wakeq.events_v2 (canvas_id, object, prev)
    where object is not null and queue is null;
create unique index events_v2_queue_lane on wakeq.events_v2 (canvas_id, object, queue, seq)
    where object is not null and queue is not null;

alter table wakeq.halted_lanes add column queue wakeq.name;
alter table wakeq.halted_lanes drop constraint halted_lanes_pkey;
create unique index halted_lanes_of_handlers on wakeq.halted_lanes (canvas_id, object, module, name) where queue is null;
create unique index halted_lanes_of_queues on wakeq.halted_lanes (canvas_id, object, queue) where queue is not null;

-- What is missing from a chain: links whose events ended without being consumed. A consumer whose predecessor is missing reads
-- them, and passes over them.
create table wakeq.tombstones (
    canvas_id uuid not null,
    object    wakeq.object_key not null,
    seq       bigint not null,
    -- Whose consumers miss it: '' those of the handlers, '*' those of every registered queue, else those of the queue of this name.
    queue     text not null default '',
    prev      bigint not null,
    cause     text not null check (cause in ('cancelled', 'purged', 'dead', 'redriven')),
    left_at   timestamptz not null default now(),
    constraint tombstones_pkey primary key (canvas_id, object, seq, queue),
    constraint tombstones_link check (prev >= 0 and prev < seq)
);
create index tombstones_age on wakeq.tombstones (canvas_id, left_at);

-- The first event that is left of a lane: of a queue, if one is named, else of a handler.
create function wakeq.first_of_lane(canvas uuid, object text, queue text, module text, name text)
returns uuid language sql stable
return case when queue is null
    then (select e.id from wakeq.events_v2 e
           where e.canvas_id = first_of_lane.canvas and e.object = first_of_lane.object and e.module = first_of_lane.module
             and e.name = first_of_lane.name and e.queue is null
           order by e.seq limit 1)
    else (select e.id from wakeq.events_v2 e
           where e.canvas_id = first_of_lane.canvas and e.object = first_of_lane.object and e.queue = first_of_lane.queue
           order by e.seq limit 1) end;

-- Of the lanes that these events are in, each looked at once, the first events that are left.
create function wakeq.firsts_of_lanes(ids uuid[]) returns uuid[] language plpgsql stable as $$
begin
    return array(
        select wakeq.first_of_lane(l.canvas_id, l.object, l.queue, l.module, l.name)
          from (select distinct on (e.canvas_id, e.object, e.queue, case when e.queue is null then e.module end,
                                    case when e.queue is null then e.name end) e.*
                  from wakeq.events_v2 e where e.id = any (ids) and e.object is not null) as l);
end
$$;

-- The first event that is left of a lane once these are gone.
create function wakeq.first_without(canvas uuid, object text, queue text, module text, name text, gone uuid[])
returns uuid language sql stable
return case when queue is null
    then (select e.id from wakeq.events_v2 e
           where e.canvas_id = first_without.canvas and e.object = first_without.object and e.module = first_without.module
             and e.name = first_without.name and e.queue is null and e.id <> all (first_without.gone)
           order by e.seq limit 1)
    else (select e.id from wakeq.events_v2 e
           where e.canvas_id = first_without.canvas and e.object = first_without.object and e.queue = first_without.queue
             and e.id <> all (first_without.gone)
           order by e.seq limit 1) end;

-- The first event that is left of a lane after this link.
create function wakeq.next_in_lane(canvas uuid, object text, queue text, module text, name text, seq bigint)
returns uuid language sql stable
return case when queue is null
    then (select e.id from wakeq.events_v2 e
           where e.canvas_id = next_in_lane.canvas and e.object = next_in_lane.object and e.module = next_in_lane.module
             and e.name = next_in_lane.name and e.queue is null and e.seq > next_in_lane.seq
           order by e.seq limit 1)
    else (select e.id from wakeq.events_v2 e
           where e.canvas_id = next_in_lane.canvas and e.object = next_in_lane.object and e.queue = next_in_lane.queue
             and e.seq > next_in_lane.seq
           order by e.seq limit 1) end;

-- Whether a lane stands still.
create function wakeq.lane_halts(canvas uuid, object text, queue text, module text, name text)
returns boolean language sql stable
return case when queue is null
    then exists (select from wakeq.halted_lanes h
                  where h.canvas_id = lane_halts.canvas and h.object = lane_halts.object and h.module = lane_halts.module
                    and h.name = lane_halts.name and h.queue is null)
    else exists (select from wakeq.halted_lanes h
                  where h.canvas_id = lane_halts.canvas and h.object = lane_halts.object and h.queue = lane_halts.queue) end;

-- The facets of queues that have been in the rotation, and where they are in it. Only who holds the queue's lock writes
-- them, and who deletes one that is in no rotation and has no copies. Whatever may run has a notification or a promise, which puts
-- its facet back; only what runs of a facet with a limit is counted here. Of such a facet copies wait without a notification, too:
-- those after its head, those that were recalled, and those of `running` whose claims were given up or have run out.
create sequence wakeq.facet_seq as bigint;

create table wakeq.facets (
    queue     wakeq.name not null,
    canvas_id uuid not null,
    -- Where it is in the rotation; null while it is not in it.
    position  bigint,
    -- How many events it has had of its present round.
    used      integer not null default 0,
    -- Everything up to here has been looked at: taken, or passed over, because it is to be announced when it may run.
    head_at   timestamptz not null default '-infinity',
    head_id   uuid not null default '00000000-0000-0000-0000-000000000000',
    -- What stands before the head and was announced since, or met a facet that may have no more, or ran without an end.
    recalled  uuid[] not null default '{}',
    -- What was taken of it and may still run, if its number is limited.
    running   uuid[] not null default '{}',
    -- Whether as many ran as may, or a run had no end, at some time since it was last empty: some that wait may then have no
    -- notification left.
    was_full  boolean not null default false,
    constraint facets_pkey primary key (queue, canvas_id)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);
-- Those in which copies may wait without a notification.
create index facets_limited on wakeq.facets (queue, canvas_id) where running <> '{}' or was_full;
create index facets_rotation on wakeq.facets (queue, position) where position is not null;

-- Whether a canvas gets nothing of a queue now: it is paused there, or has as many in flight as it may.
create function wakeq.facet_holds(queue text, canvas uuid, lease interval)
returns boolean language sql volatile
return coalesce((
    select coalesce(s.weight, q.weight) = 0
        or coalesce(s.in_flight_max, q.in_flight_max) <= (
               select count(*) from wakeq.facets f
                 join wakeq.events_v2 e on e.id = any (f.running) and e.locked_at >= clock_timestamp() - facet_holds.lease
                where f.queue = facet_holds.queue and f.canvas_id = facet_holds.canvas)
      from wakeq.queues q
      left join wakeq.facet_settings s on s.queue = q.name and s.canvas_id = facet_holds.canvas
     where q.name = facet_holds.queue), false);

-- The facets that these copies are in, each looked at once, whose canvases get nothing now; as canvas and queue.
create function wakeq.held_facets(ids uuid[], lease interval) returns text[] language plpgsql volatile as $$
begin
    return array(
        select f.canvas_id || '/' || f.queue
          from (select distinct on (e.canvas_id, e.queue) e.canvas_id, e.queue
                  from wakeq.events_v2 e where e.id = any (ids) and e.queue is not null) as f
         where wakeq.facet_holds(f.queue, f.canvas_id, lease));
end
$$;

-- Whether a turn would not find this copy: it stands before its facet's head, and was not recalled.
create function wakeq.is_passed(queue text, canvas uuid, due timestamptz, id uuid)
returns boolean language sql stable
return exists (
    select from wakeq.facets f
     where f.queue = is_passed.queue and f.canvas_id = is_passed.canvas
       and (is_passed.due, is_passed.id) <= (f.head_at, f.head_id) and is_passed.id <> all (f.recalled));

-- Whether copies of a facet may wait without a notification, because as many ran as may.
create function wakeq.facet_was_full(queue text, canvas uuid)
returns boolean language sql stable
return coalesce((
    select f.was_full or cardinality(f.running) >= coalesce(s.in_flight_max, q.in_flight_max)
      from wakeq.facets f
      left join wakeq.queues q on q.name = f.queue
      left join wakeq.facet_settings s on s.queue = f.queue and s.canvas_id = f.canvas_id
     where f.queue = facet_was_full.queue and f.canvas_id = facet_was_full.canvas), false);

-- Copies that may run now in a facet with a limit, as many as there is room for, and at most so many: any of the first ones, so
-- that whoever asks at the same moment gets others. Where none of these may run, and with `thorough`, many more are looked at.
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
begin
    select * into facet from wakeq.facets f where f.queue = of_queue and f.canvas_id = of_canvas;
    select coalesce(s.in_flight_max, q.in_flight_max) - (
               select count(*) from wakeq.events_v2 e
                where e.id = any (facet.running) and e.locked_at >= clock_timestamp() - lease)
      into room
      from wakeq.queues q
      left join wakeq.facet_settings s on s.queue = q.name and s.canvas_id = of_canvas
     where q.name = of_queue;
    if facet.queue is null or room is null or room <= 0 then
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
                           and (e.delay_until, e.id) > (facet.head_at, facet.head_id) and e.id <> all (facet.running)
                         order by e.delay_until, e.id limit depth)) as l) as c
         where (c.locked_at is null or c.locked_at < clock_timestamp() - lease) and c.notify_at is not null
           and c.delay_until <= clock_timestamp()
           and not (shown and exists (
               select from wakeq.scheduling_rules r
                where r.canvas_id = c.canvas_id and r.event_space = c.module and r.handler_name = c.name
                  and (r.until is null or r.until > clock_timestamp())))
           -- Only the earliest of a lane can be its first: so each lane is looked at once.
           and (c.object is null
                or c.nth_of_lane = 1
                   and c.id = wakeq.first_of_lane(c.canvas_id, c.object, of_queue, c.module, c.name)
                   and not wakeq.lane_halts(c.canvas_id, c.object, of_queue, c.module, c.name))
         order by random()
         limit least(most, room);
        exit when found;
    end loop;
end
$$;

create type wakeq.head as (at timestamptz, id uuid);

-- Recalls those of these copies that stand before the heads of their facets. The queue's lock is held. What is asked for is
-- looked up one by one: no plan may read a table for it.
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

-- Puts the facets of copies into the rotation, and recalls those copies that stand before their heads. The queue's lock is
-- held.
create function wakeq.enter_rotation(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    insert into wakeq.facets as f (queue, canvas_id, position)
    select of_queue, canvas_id, nextval('wakeq.facet_seq')
      from (select e.canvas_id
              from unnest(ids) as asked (id)
             cross join lateral (
                   select x.canvas_id, x.delay_until from wakeq.events_v2 x
                    where x.id = asked.id and x.queue = of_queue offset 0) as e
             group by e.canvas_id order by min(e.delay_until), min(asked.id::text)) as new
        on conflict (queue, canvas_id) do update set position = excluded.position where f.position is null;
    perform wakeq.recall(of_queue, ids);
end
$$;

-- A row for each queue that has turns. Locking it is the lock of the queue.
create table wakeq.queue_turns (
    queue wakeq.name not null primary key
);

-- Takes the lock of a queue, which ends with the transaction. Others hold it for a statement of theirs. The row may be
-- missing, or be deleted while this waits for it: then a new one is inserted, which locks it as well.
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

-- Gives back the turns of copies that were chosen, and not taken after all: they come first, in this order, with what their
-- canvases have left of their rounds. The queue's lock is held.
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
             join wakeq.events_v2 e on e.id = asked.id and e.queue = of_queue
             left join wakeq.queues q on q.name = of_queue
             left join wakeq.facet_settings s on s.queue = of_queue and s.canvas_id = e.canvas_id
            group by e.canvas_id) as kept
     where f.queue = of_queue and f.canvas_id = kept.canvas_id;
end
$$;

-- Puts the facets of copies that were just committed into the rotation, so that they have their turns however late
-- their own notifications come. Lost with a server that crashes, which is no harm, it waits for no disk.
create function wakeq.announce(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    perform wakeq.lock_queue(of_queue);
    perform wakeq.enter_rotation(of_queue, ids);
end
$$;

-- Recalls copies whose notifications met a facet that may have no more, and are about to be answered: whoever makes room in it
-- finds them then. It is on the disk before that answer.
create function wakeq.recall_held(of_queue text, ids uuid[]) returns void language plpgsql volatile as $$
begin
    perform wakeq.lock_queue(of_queue);
    perform wakeq.recall(of_queue, ids);
end
$$;

-- The claim of events that are not in a queue: the only way to start one.
--
-- A function, because the gate has to be passed before the claiming statement's snapshot. `volatile` gives each statement
-- in it a snapshot of its own. An event on an object runs when no earlier one of its lane is left, and its lane does not
-- stand still. The first of each lane is looked for once, however many of it are asked for, and neither is asked for where no
-- event is on an object. What is earlier was committed earlier, so a claim that sees an event sees all before it.
--
-- Its statement is planned once for each session: planning it at each call takes several times as long as a claim.
create function wakeq.claim(
    -- In ascending order.
    ids             uuid[],
    -- Of the events, at the same positions; or the one that all are on.
    canvases        uuid[],
    one_canvas      uuid,
    handlers        text[],
    canvas_handlers text[],
    lease           interval,
    losses_below    integer,
    -- Larger values are claimed by those that have room for them.
    value_max       integer default 2147483647,
    -- Whose claims these are.
    by_worker       wakeq.name default null
)
returns table (
    id          uuid,
    canvas_id   uuid,
    module      text,
    name        text,
    modifier    text,
    value       text,
    retries     integer,
    delay_until timestamptz,
    enqueued_at timestamptz,
    locked_at   timestamptz,
    claims      integer,
    losses      integer,
    took_over   boolean,
    traceparent text,
    object      text,
    seq         bigint,
    prev        bigint
)
language plpgsql volatile set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
begin
    lock table wakeq.claim_gate in row exclusive mode;
    return query
    update wakeq.events_v2 e
       set locked_at = clock_timestamp(),
           worker = by_worker,
           claims = e.claims + 1,
           losses = e.losses + (e.locked_at is not null)::integer
     where e.id = any (ids)
       -- Not by "=", for which an index of handlers would do: batches have to visit rows in the order of their ids. The
       -- position is found by halves.
       and e.canvas_id is not distinct from coalesce(one_canvas, canvases[width_bucket(e.id, ids)])
       and e.queue is null
       and e.delay_until <= clock_timestamp()
       and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
       and e.losses + (e.locked_at is not null)::integer < losses_below
       and octet_length(e.value) <= value_max
       and (   e.module || '/' || e.name || '/' || e.modifier = any (handlers)
            or e.canvas_id || '/' || e.module || '/' || e.name || '/' || e.modifier = any (canvas_handlers))
       and not exists (
           select from wakeq.scheduling_rules r
            where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
              and (r.until is null or r.until > clock_timestamp()))
       and (e.object is null or (
               e.id = any (coalesce((select wakeq.firsts_of_lanes(ids)), '{}'))
           and (select true from wakeq.halted_lanes h
                 where h.canvas_id = e.canvas_id and h.object = e.object and h.module = e.module and h.name = e.name
                   and h.queue is null) is null))
    returning e.id, e.canvas_id, e.module::text, e.name::text, e.modifier::text, e.value::text, e.retries,
              e.delay_until, e.enqueued_at, e.locked_at, e.claims, e.losses,
              e.losses > 0 and exists (
                  select from wakeq.events_v2 before where before.id = e.id and before.locked_at is not null),
              e.traceparent::text, e.object::text, e.seq, e.prev;
end
$$;

-- Turns: claims the next copies of a queue, one of every facet in the rotation before any has a second one (or as many
-- as their weights say), the first of each facet. `asked` are the copies whose notifications asked for turns; with
-- `only_asked` they alone are meant, whatever the rotation says. One at a time takes turns of a queue.
--
-- A row that somebody else has locked is left out, and costs nobody but itself. What is passed over in a facet with a limit,
-- though nobody runs it and no lane holds it, may have no notification left: its promise is made again.
--
-- With `bytes_max` their values have at most so many bytes together, or there is one: what is beyond keeps its turn.
-- Planned at each call: what it looks at depends on `only_asked`, and on how much there is just now.
create function wakeq.take_turns(
    of_queue     text,
    asked        uuid[],
    wanted       integer,
    only_asked   boolean,
    lease        interval,
    losses_below integer,
    value_max    integer default 2147483647,
    grace        interval default '30 s',
    bytes_max    bigint default null,
    -- How long these claims stand, if not as long as a lease.
    held_for     interval default null,
    -- Whose claims these are.
    by_worker    wakeq.name default null
)
returns table (
    id          uuid,
    canvas_id   uuid,
    module      text,
    name        text,
    modifier    text,
    value       text,
    retries     integer,
    delay_until timestamptz,
    enqueued_at timestamptz,
    locked_at   timestamptz,
    claims      integer,
    losses      integer,
    took_over   boolean,
    traceparent text,
    object      text,
    seq         bigint,
    prev        bigint,
    origin      uuid,
    is_limited  boolean
)
language plpgsql volatile set enable_hashjoin = on as $$
#variable_conflict use_column
declare
    still  integer := wanted;
    taken  uuid[] := '{}';
    chosen uuid[];
    -- Of these, what could be locked at once, and what not.
    locked  uuid[];
    refused uuid[] := '{}';
    -- Passed over, and to be promised again.
    passed uuid[];
    -- Beyond the bytes.
    spared uuid[];
    seen   integer;
    -- In a variable, because only then an index can be read up to it.
    moment timestamptz;
    -- Whether rules hold its copies.
    ruled  boolean;
begin
    perform wakeq.lock_queue(of_queue);
    -- After the queue's: who pauses waits for as few as can be.
    lock table wakeq.claim_gate in row exclusive mode;
    perform wakeq.enter_rotation(of_queue, asked);
    ruled := wakeq.is_shown(of_queue);
    for pass in 1 .. 20 loop
        moment := clock_timestamp();
        with settled as (
            select f.queue, f.canvas_id, f.position, f.used, f.head_at, f.head_id, f.recalled || r.dropped as recalled,
                   coalesce(s.weight, q.weight, 1) as weight,
                   coalesce(s.in_flight_max, q.in_flight_max) as in_flight_max, r.running, r.barred,
                   r.dropped <> '{}' as has_dropped
              from (select * from wakeq.facets
                     where queue = of_queue
                       and case when only_asked
                                then canvas_id = any (array(select e.canvas_id from wakeq.events_v2 e where e.id = any (asked)))
                                else position is not null end
                     order by position limit least(still + 20, 250)) as f
              left join wakeq.queues q on q.name = f.queue
              left join wakeq.facet_settings s on s.queue = f.queue and s.canvas_id = f.canvas_id
             cross join lateral (
                   -- What runs; what could not be locked in a pass before; and what ran, did not end, and is behind the head.
                   select coalesce(array_agg(e.id) filter (where e.locked_at >= moment - lease or e.id = any (taken)), '{}') as running,
                          coalesce(array_agg(e.id) filter (where e.id = any (refused)), '{}') as barred,
                          coalesce(array_agg(e.id) filter (
                              where (e.locked_at is null or e.locked_at < moment - lease) and e.id <> all (taken || refused)
                                and (e.delay_until, e.id) <= (f.head_at, f.head_id) and e.id <> all (f.recalled)
                                and e.notify_at is not null), '{}') as dropped
                     from wakeq.events_v2 e
                    where coalesce(s.in_flight_max, q.in_flight_max) is not null and e.id = any (f.running)) as r
        ), shares as (
            select *, greatest(0, least(
                       case when weight = 0 then 0
                            when only_asked then 1
                            else weight * greatest(1, still / greatest(1, sum(weight) over ()))::bigint
                                 - least(used, weight - 1) end,
                       in_flight_max - cardinality(running)))::integer as share
              from settled
        ), slotted as (
            select *, greatest(0, least(share, still - (sum(share) over (order by position) - share)))::integer as slots from shares
        ), found as (
            select f.canvas_id, f.slots, f.position, f.in_flight_max, c.id, c.delay_until, c.notify_at, c.is_recalled,
                   c.locked_at, c.losses, c.module, c.name, c.object, octet_length(c.value) as bytes,
                   row_number() over (partition by c.canvas_id, c.object order by c.seq) as nth_of_lane
              from slotted f cross join lateral (
                  (select e.*, true as is_recalled from wakeq.events_v2 e
                    where e.id = any (case when only_asked then asked else f.recalled[1:f.slots + 20] end) and e.queue = of_queue)
                  union all
                  (select e.*, false from wakeq.events_v2 e
                    where not only_asked and e.queue = of_queue and e.canvas_id = f.canvas_id
                      and e.delay_until <= moment and (e.delay_until, e.id) > (f.head_at, f.head_id)
                    order by e.delay_until, e.id limit f.slots + least(100, 2 * pass * pass))) as c
             where f.slots > 0 and c.canvas_id = f.canvas_id
        ), looked as materialized (
            -- Only the earliest of a lane can be its first: so each lane is looked at once. Not materialized, it would be looked
            -- at wherever the state is asked for.
            select c.canvas_id, c.slots, c.position, c.in_flight_max, c.id, c.delay_until, c.notify_at, c.is_recalled,
                   case when (c.locked_at is null or c.locked_at < moment - lease) and c.id <> all (taken || refused)
                             and c.notify_at is not null and c.delay_until <= moment
                             and (c.object is null
                                  or c.nth_of_lane = 1
                                     and c.id = wakeq.first_of_lane(c.canvas_id, c.object, of_queue, c.module, c.name)
                                     and not wakeq.lane_halts(c.canvas_id, c.object, of_queue, c.module, c.name))
                        then case when c.losses + (c.locked_at is not null)::integer < losses_below
                                       and c.bytes <= value_max
                                       and not (ruled and exists (
                                           select from wakeq.scheduling_rules r
                                            where r.canvas_id = c.canvas_id and r.event_space = c.module
                                              and r.handler_name = c.name and (r.until is null or r.until > moment)))
                                  then 'free' else 'apart' end
                        else 'bound' end as state
              from found c
        ), judged as (
            select *, state = 'free' as is_free from looked
        ), ranked as (
            select *, sum(is_free::integer) over facet as number, row_number() over facet as nth,
                   sum((not is_recalled)::integer) over (partition by canvas_id) as scanned
              from judged window facet as (partition by canvas_id order by is_recalled desc, delay_until, id)
        ), done as (
            -- Looked at: all up to the last one taken, or all of them where there were too few.
            select *, number < slots or (number = slots and is_free) as is_done, is_free and number <= slots as is_taken
              from ranked
        ), moved as (
            select f.canvas_id, f.weight, f.used, f.position, f.in_flight_max, f.running, f.barred, f.share, f.slots,
                   f.head_at, f.head_id, f.recalled, f.has_dropped,
                   coalesce(d.taken, '{}') as taken, d.kept, d.head,
                   f.recalled[f.slots + 21:] as unread,
                   f.weight = 0 or cardinality(f.running) >= f.in_flight_max
                       or (cardinality(f.recalled) <= f.slots + 20 and coalesce(cardinality(d.taken), 0) < f.slots and coalesce(d.scanned, 0) < f.slots + least(100, 2 * pass * pass)) is true as leaves
              from slotted f left join (
                  select canvas_id, array_agg(id order by nth) filter (where is_taken) as taken,
                         array_agg(id order by nth) filter (where is_recalled and not is_done) as kept,
                         (array_agg(row(delay_until, id)::wakeq.head order by delay_until desc, id desc)
                             filter (where not is_recalled and is_done))[1] as head,
                         max(scanned) as scanned
                    from done group by canvas_id) as d on d.canvas_id = f.canvas_id
             where f.slots > 0 or f.share = 0
        ), placed as (
            select *, nextval('wakeq.facet_seq') as behind from (select * from moved order by position) as m
        ), written as (
            update wakeq.facets f
               set position = case when only_asked then f.position
                                   when p.leaves then null
                                   when least(p.used, p.weight - 1) + cardinality(p.taken) >= p.weight
                                        or cardinality(p.taken) < p.slots then p.behind
                                   else f.position end,
                   used = case when only_asked then f.used
                               when p.leaves or cardinality(p.taken) < p.slots then 0
                               else (least(p.used, p.weight - 1) + cardinality(p.taken)) % p.weight end,
                   head_at = case when cardinality(p.recalled) > 2000 then '-infinity' else coalesce((p.head).at, p.head_at) end,
                   head_id = coalesce((p.head).id, p.head_id),
                   recalled = case when cardinality(p.recalled) > 2000 then '{}'
                                   when only_asked or p.slots = 0 then p.recalled
                                   else coalesce(p.kept, '{}') || p.unread end,
                   running = case when p.in_flight_max is null then '{}' else p.running || p.barred || p.taken end,
                   -- One that leaves, and not because it may have no more, was seen to be empty.
                   was_full = p.in_flight_max is not null
                              and (cardinality(p.running || p.taken) >= p.in_flight_max
                                   or (f.was_full or p.has_dropped or cardinality(f.running) >= p.in_flight_max)
                                      and (only_asked or p.weight = 0 or not p.leaves))
              from placed p where f.queue = of_queue and f.canvas_id = p.canvas_id
        )
        select array_agg(d.id order by d.nth, d.position) filter (where d.is_taken),
               array_agg(d.id) filter (where d.is_done and d.state = 'apart' and not only_asked
                                         and d.in_flight_max is not null and d.notify_at > moment + grace),
               (select count(*) from moved)
          into chosen, passed, seen from done d;
        if chosen is not null then
            select coalesce(array_agg(l.id order by array_position(chosen, l.id)), '{}') into locked
              from (select e.id from wakeq.events_v2 e
                     where e.id = any (chosen) and e.delay_until <= clock_timestamp()
                       and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
                       for update skip locked) as l;
            taken := taken || locked;
            refused := refused || array(select c.id from unnest(chosen) as c (id) where c.id <> all (locked));
            still := still - cardinality(locked);
        end if;
        if passed is not null then
            update wakeq.events_v2 e set notify_at = clock_timestamp() + grace, probes = 0
             where e.id = any (array(
                   select p.id from wakeq.events_v2 p
                    where p.id = any (passed) and p.notify_at > moment + grace for update skip locked));
        end if;
        exit when still <= 0 or seen = 0 or only_asked;
    end loop;
    if bytes_max is not null then
        select coalesce(array_agg(t.id order by t.number) filter (where t.fits), '{}'),
               array_agg(t.id order by t.number) filter (where not t.fits)
          into taken, spared
          from (select o.id, o.number,
                       o.number = 1 or sum(octet_length(e.value)) over (order by o.number) <= bytes_max as fits
                  from unnest(taken) with ordinality as o (id, number)
                  join wakeq.events_v2 e on e.id = o.id) as t;
        if spared is not null then
            perform wakeq.keep_turns(of_queue, spared);
        end if;
    end if;
    return query
    with claimed as (
        update wakeq.events_v2 e
           set locked_at = clock_timestamp() + coalesce(held_for - lease, interval '0'),
               worker = by_worker,
               claims = e.claims + 1,
               losses = e.losses + (e.locked_at is not null)::integer
         where e.id = any (taken)
           and e.delay_until <= clock_timestamp()
           and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
        returning e.*,
                  e.losses > 0 and exists (
                      select from wakeq.events_v2 before where before.id = e.id and before.locked_at is not null) as took_over
    )
    select c.id, c.canvas_id, c.module::text, c.name::text, c.modifier::text, c.value::text, c.retries,
           c.delay_until, c.enqueued_at, c.locked_at, c.claims, c.losses, c.took_over,
           c.traceparent::text, c.object::text, c.seq, c.prev, c.origin,
           coalesce(s.in_flight_max, q.in_flight_max) is not null
      from claimed c
      join unnest(taken) with ordinality as o (id, number) on o.id = c.id
      left join wakeq.queues q on q.name = of_queue
      left join wakeq.facet_settings s on s.queue = of_queue and s.canvas_id = c.canvas_id
     order by o.number;
end
$$;
