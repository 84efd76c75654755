-- Order: the events of an object form a chain, and run in its order. Expands only. Emit on objects when no worker of a
-- release before this one runs any more: such a worker takes no notice of the order.

-- What events are ordered by, such as work:1.
create domain wakeq.object_key as text check (value ~ '^[A-Za-z0-9_.:@=+~-]{1,200}$');

-- One sequence for all objects. No cache: a session must not hold back ids that it took before it locked an object.
create sequence wakeq.event_seq as bigint cache 1;

create table wakeq.objects (
    canvas_id  uuid not null,
    object     wakeq.object_key not null,
    -- The end of its chain. Written only by who has locked the row, and took its ids after that.
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

alter table wakeq.events_v2
    add column object wakeq.object_key,
    add column seq bigint,
    add column prev bigint,
    -- Not valid: no row has an object yet, so that the table need not be read.
    add constraint events_v2_link check (case
        when object is null then seq is null and prev is null
        else coalesce(prev >= 0 and prev < seq, false) end) not valid;

-- The lanes: what is left of an object in a queue, the earliest first.
create unique index events_v2_lane on wakeq.events_v2 (canvas_id, object, module, name, seq) where object is not null;
-- No forks: an event has one successor.
create unique index events_v2_successor on wakeq.events_v2 (canvas_id, object, prev) where object is not null;

comment on column wakeq.events_v2.seq is 'The event''s id among those on objects, from one sequence';
comment on column wakeq.events_v2.prev is 'The seq of the event before it on the same object; 0 for the first';

alter table wakeq.dead_events
    add column object wakeq.object_key,
    add column seq bigint,
    add column prev bigint;
create index dead_events_object on wakeq.dead_events (canvas_id, object, seq) where object is not null;

-- Lanes that stand still because an event of theirs died and its handler wants that: until it is redriven or passed over.
create table wakeq.halted_lanes (
    canvas_id uuid not null,
    object    wakeq.object_key not null,
    module    wakeq.name not null,
    name      wakeq.name not null,
    event_id  uuid not null,
    -- The link of that event.
    seq       bigint not null,
    prev      bigint not null,
    halted_at timestamptz not null default now(),
    constraint halted_lanes_pkey primary key (canvas_id, object, module, name)
);
create index halted_lanes_event on wakeq.halted_lanes (canvas_id, event_id);

alter table wakeq.http_targets add column halts boolean not null default false;
