-- Who works: a row for each worker process.
--
-- A worker adds its row when it starts, and deletes it at the end of an orderly shutdown. In
-- between it writes what it does with each of its minute's statements. Nothing decides by these
-- rows: they are for people, and losing one loses nothing.

-- A domain, because the check of a column is repeated with each update of its row.
create domain wakeq.handler_list as text[] check (
    cardinality(value) <= 1000 and array_position(value, null) is null and octet_length(value::text) <= 131072);

create table wakeq.workers (
    name          wakeq.name not null,
    -- Another one at each start: a worker that was killed and one that took its name are two rows.
    instance      uuid not null,
    host          text check (octet_length(host) between 1 and 255),
    pid           integer check (pid > 0),
    -- The release of wakeq, and the build of the program, if it says which one it is.
    release       text not null check (octet_length(release) between 1 and 64),
    build         wakeq.name,
    started_at    timestamptz not null default now(),
    seen_at       timestamptz not null default now(),
    -- Its silence means nothing: it sends nothing while it is idle.
    may_sleep     boolean not null default false,
    is_stopping   boolean not null default false,
    capacity      integer not null check (capacity > 0),
    -- How many events it has claimed; and of those that it has had for longest, the event, the
    -- canvas, the handler, and since when.
    running       integer not null default 0 check (running >= 0),
    runs          jsonb not null default '[]' check (
        jsonb_typeof(runs) = 'array' and jsonb_array_length(runs) <= 100 and octet_length(runs::text) <= 65536),
    -- The targets that it slows down because they have no capacity: of each the canvas, the
    -- address, the revision, how many events it gets per second, and for how many seconds it gets
    -- none. Null if there is none.
    slowed        jsonb check (
        jsonb_typeof(slowed) = 'array' and jsonb_array_length(slowed) between 1 and 100
        and octet_length(slowed::text) <= 65536),
    -- How many handlers it has, the first of them, and whether it also calls HTTP targets.
    handler_count integer not null check (handler_count >= 0),
    handlers      wakeq.handler_list not null,
    has_targets   boolean not null,
    constraint workers_pkey primary key (name, instance)
) with (
    -- Each row is written once a minute, and no index mentions what is written while no target is
    -- slowed down.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- For those who ask how fast a target gets events.
create index workers_slowed on wakeq.workers (name, instance) where slowed is not null;

comment on column wakeq.workers.seen_at is
    'When it last wrote its row, as it does once a period of the minute''s pass, unless it may sleep';
comment on column wakeq.workers.runs is
    'Of every canvas, as it was at seen_at: [{"event": …, "canvas": …, "handler": …, "since": …}]';
comment on column wakeq.workers.slowed is
    'Of every canvas, as it was at seen_at: [{"canvas": …, "module": …, …, "per_second": …, "held_s": …}]';
