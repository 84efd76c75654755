-- Order: the events on an object form a chain, and run one after the other.
--
-- Each event on an object names the event before it (`prev`). Those for one handler, or in one
-- queue, are a lane, and only the first event of a lane is claimed. A lane is halted while an event
-- that died stands in its way, and a tombstone stands for an event that left the chain without
-- being consumed.
--
-- All numbers come from one sequence, and are taken under the lock of the object's row, so they
-- grow along every chain. No emit writes down when an object was last used: marks tell which
-- objects are idle.

-- One sequence for all objects. No cache: a session must not hold back numbers that it took before
-- it locked an object.
create sequence wakeq.event_seq as bigint cache 1;

create table wakeq.objects (
    canvas_id  uuid not null,
    object     wakeq.object_key not null,
    -- The end of its chain. A session writes it only after it has locked the row, and with numbers
    -- that it took after that.
    last_seq   bigint not null default 0 check (last_seq >= 0),
    state      wakeq.payload,
    state_at   timestamptz,
    created_at timestamptz not null default now(),
    constraint objects_pkey primary key (canvas_id, object),
    constraint objects_state_at check ((state is null) = (state_at is null))
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

comment on column wakeq.objects.last_seq is 'The id of the last event that was emitted on the object; 0, if none was';

-- Lanes that are halted because one of their events died and its handler asks for that, until the
-- event is redriven or skipped.
create table wakeq.halted_lanes (
    id        bigint generated always as identity primary key,
    canvas_id uuid not null,
    object    wakeq.object_key not null,
    module    wakeq.name not null,
    name      wakeq.name not null,
    event_id  uuid not null,
    -- The link of that event.
    seq       bigint not null,
    prev      bigint not null,
    halted_at timestamptz not null default now(),
    -- Of a lane in a queue; null for the lane of a handler.
    queue     wakeq.name
);

-- What is missing from a chain: links whose events ended without being consumed. A consumer whose
-- predecessor is missing reads them, and passes over them.
create table wakeq.tombstones (
    canvas_id uuid not null,
    object    wakeq.object_key not null,
    seq       bigint not null,
    -- The consumers that miss it: '' for those of handlers, '*' for those of every registered
    -- queue, or the name of a queue for those of that queue.
    queue     text not null default '',
    prev      bigint not null,
    cause     text not null check (cause in ('cancelled', 'purged', 'dead', 'redriven')),
    left_at   timestamptz not null default now(),
    constraint tombstones_pkey primary key (canvas_id, object, seq, queue),
    constraint tombstones_link check (prev >= 0 and prev < seq)
);

-- Idle objects are forgotten. A mark records the number that the chains had reached at a moment: an
-- object whose last event has no higher number has not been used since.
create table wakeq.idle_marks (
    at  timestamptz not null default now() primary key,
    seq bigint not null check (seq >= 0)
);

-- How far the search for idle objects has come, in the order of their keys.
create table wakeq.idle_cursor (
    one       boolean not null default true primary key check (one),
    canvas_id uuid not null,
    object    text not null
);
insert into wakeq.idle_cursor (canvas_id, object) values ('00000000-0000-0000-0000-000000000000', '');

-- Those that are not unique, and that of tombstones by age, have conditions that hold for every
-- row: only statements that name the condition, or an event, are to use them (0001).
create index halted_lanes_event on wakeq.halted_lanes (canvas_id, event_id) where event_id is not null;
-- For lists: the longest halted first; and which handlers are halted, and how often.
create index halted_lanes_age on wakeq.halted_lanes (canvas_id, halted_at, event_id) where halted_at > '-infinity';
create index halted_lanes_handler on wakeq.halted_lanes (canvas_id, module, name) where module <> '';
create unique index halted_lanes_of_handlers on wakeq.halted_lanes (canvas_id, object, module, name)
    where queue is null;
create unique index halted_lanes_of_queues on wakeq.halted_lanes (canvas_id, object, queue) where queue is not null;
create index tombstones_age on wakeq.tombstones (canvas_id, left_at) where left_at > '-infinity';

-- The first event that is left of a lane: of a queue if one is named, else of a handler. Like the
-- others that are called for each lane, it is not in SQL: such a function is planned anew in each
-- statement that calls it.
create function wakeq.first_of_lane(canvas uuid, object text, queue text, module text, name text)
returns uuid language plpgsql stable as $$
begin
    if queue is null then
        return (select e.id from wakeq.events_v2 e
                 where e.canvas_id = first_of_lane.canvas and e.object = first_of_lane.object
                   and e.module = first_of_lane.module and e.name = first_of_lane.name and e.queue is null
                 order by e.seq limit 1);
    end if;
    return (select e.id from wakeq.events_v2 e
             where e.canvas_id = first_of_lane.canvas and e.object = first_of_lane.object
               and e.queue = first_of_lane.queue
             order by e.seq limit 1);
end
$$;

-- The first events that are left of the lanes of these events, or of those that are not halted;
-- each lane is looked at once.
create function wakeq.firsts_of_lanes(ids uuid[], only_running boolean default false)
returns uuid[] language plpgsql stable as $$
begin
    return array(
        select wakeq.first_of_lane(l.canvas_id, l.object, l.queue, l.module, l.name)
          from (select distinct on (e.canvas_id, e.object, e.queue, case when e.queue is null then e.module end,
                                    case when e.queue is null then e.name end) e.*
                  from wakeq.events_v2 e where e.id = any (ids) and e.object is not null) as l
         where not (only_running and wakeq.lane_halts(l.canvas_id, l.object, l.queue, l.module, l.name)));
end
$$;

-- The first event that is left of a lane once these are gone.
create function wakeq.first_without(canvas uuid, object text, queue text, module text, name text, gone uuid[])
returns uuid language sql stable
return case when queue is null
    then (select e.id from wakeq.events_v2 e
           where e.canvas_id = first_without.canvas and e.object = first_without.object
             and e.module = first_without.module and e.name = first_without.name and e.queue is null
             and e.id <> all (first_without.gone)
           order by e.seq limit 1)
    else (select e.id from wakeq.events_v2 e
           where e.canvas_id = first_without.canvas and e.object = first_without.object
             and e.queue = first_without.queue and e.id <> all (first_without.gone)
           order by e.seq limit 1) end;

-- The first event that is left of a lane after this link.
create function wakeq.next_in_lane(canvas uuid, object text, queue text, module text, name text, seq bigint)
returns uuid language plpgsql stable as $$
begin
    if queue is null then
        return (select e.id from wakeq.events_v2 e
                 where e.canvas_id = next_in_lane.canvas and e.object = next_in_lane.object
                   and e.module = next_in_lane.module and e.name = next_in_lane.name and e.queue is null
                   and e.seq > next_in_lane.seq
                 order by e.seq limit 1);
    end if;
    return (select e.id from wakeq.events_v2 e
             where e.canvas_id = next_in_lane.canvas and e.object = next_in_lane.object
               and e.queue = next_in_lane.queue and e.seq > next_in_lane.seq
             order by e.seq limit 1);
end
$$;

-- Whether a lane is halted.
create function wakeq.lane_halts(canvas uuid, object text, queue text, module text, name text)
returns boolean language plpgsql stable as $$
begin
    if queue is null then
        return exists (select from wakeq.halted_lanes h
                        where h.canvas_id = lane_halts.canvas and h.object = lane_halts.object
                          and h.module = lane_halts.module and h.name = lane_halts.name and h.queue is null);
    end if;
    return exists (select from wakeq.halted_lanes h
                    where h.canvas_id = lane_halts.canvas and h.object = lane_halts.object
                      and h.queue = lane_halts.queue);
end
$$;

-- Whether an event is the first of its lane, and the lane is not halted. It is not in SQL, so that
-- the statements which call it are planned without it.
create function wakeq.leads_lane(id uuid, canvas uuid, object text, queue text, module text, name text)
returns boolean language plpgsql stable as $$
begin
    return id = wakeq.first_of_lane(canvas, object, queue, module, name)
        and not wakeq.lane_halts(canvas, object, queue, module, name);
end
$$;

revoke all on all functions in schema wakeq from public;
