-- How far consumer groups have come in the log, and what they could not handle. Expands only.

create table wakeq.consumer_positions (
    consumer_group wakeq.name not null,
    -- The source as text: category/companies/3-of-f.
    source     text not null check (length(source) between 1 and 700),
    -- The seq of the last event that is done with; 0 before the first.
    position   bigint not null default 0 check (position >= 0),
    -- Under which it was opened. It only grows; a commit under another one is refused.
    epoch      bigint not null default 0 check (epoch >= 0),
    updated_at timestamptz not null default now(),
    -- The event after the position, if it fails: since when, how often, and why.
    failing_seq      bigint,
    failing_since    timestamptz,
    failing_attempts integer check (failing_attempts > 0),
    failing_error    text check (octet_length(failing_error) <= 8000),
    constraint consumer_positions_failing check (num_nulls(failing_seq, failing_since, failing_attempts, failing_error) in (0, 4)),
    constraint consumer_positions_pkey primary key (consumer_group, source)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

-- Events that a group gave up on, with what they were: the log may have dropped them by then.
create table wakeq.consumer_dead (
    consumer_group wakeq.name not null,
    source     text not null check (length(source) between 1 and 700),
    seq        bigint not null,
    id         uuid not null,
    canvas_id  uuid not null,
    category   wakeq.object_key not null,
    stream     wakeq.object_key not null,
    name       wakeq.name not null,
    payload    wakeq.payload not null,
    attempts   integer not null check (attempts > 0),
    last_error text not null,
    died_at    timestamptz not null default now(),
    -- Since when it is to be tried again; null: it is not.
    redrive_at timestamptz,
    constraint consumer_dead_pkey primary key (consumer_group, source, seq)
);

-- What is old enough to be forgotten.
create index consumer_dead_died on wakeq.consumer_dead (died_at);
create index consumer_dead_latest on wakeq.consumer_dead (consumer_group, seq, source);
-- What is kept of an entity's events, when that is erased.
create index consumer_dead_stream on wakeq.consumer_dead (canvas_id, category, stream);
create index consumer_dead_redrive on wakeq.consumer_dead (consumer_group, source, seq) where redrive_at is not null;
