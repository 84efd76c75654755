-- Statistics: what happened to the events of each handler, by minute and, after a day, by hour.
--
-- Processes count in memory. Once a minute each adds what it has counted since, in one statement,
-- and only if something happened. The hourly expiry moves minutes that are over a day old into
-- their hours, and deletes hours after 14 days (docs/adr/0076-statistics.md).
--
-- A row with empty names is about all handlers of its canvas, with those that have no row of their
-- own: a canvas has rows for about 1,000 handlers a minute, and 1,000 an hour.

-- The first column of the key is the time: rows are written at the end of its index, the oldest are
-- found at its beginning, and a chart looks each of its moments up.
create table wakeq.minute_statistics (
    at        timestamptz not null,
    canvas_id uuid not null,
    module    text not null,
    name      text not null,
    emitted   bigint not null,
    completed bigint not null,
    -- Attempts.
    failed    bigint not null,
    retried   bigint not null,
    dead      bigint not null,
    -- How long events had been due when attempts at them began, and how long the attempts took: the
    -- sums, and how many were in each bin. The first bin is for less than 1 ms, bin n for 2^(n-1)
    -- up to 2^n ms. What is left out at the end of an array is 0.
    wait_us   bigint not null,
    run_us    bigint not null,
    wait_bins integer[] not null,
    run_bins  integer[] not null,
    primary key (at, canvas_id, module, name),
    constraint statistics_of_a_handler check (
        (module = '') = (name = '') and octet_length(module) <= 128 and octet_length(name) <= 128),
    constraint statistics_bins check (cardinality(wait_bins) <= 28 and cardinality(run_bins) <= 28)
) with (
    -- Each process adds to the rows of the minute: room for a second version of every row on its
    -- page makes that a HOT update.
    fillfactor = 50
);

create table wakeq.hour_statistics (like wakeq.minute_statistics including constraints including indexes);

comment on table wakeq.minute_statistics is 'What happened to events in a minute; empty names: on the canvas';
comment on table wakeq.hour_statistics is 'What happened to events in an hour; empty names: on the canvas';

-- The sums of two histograms, bin by bin.
create function wakeq.add_bins(one integer[], other integer[]) returns integer[]
language sql immutable strict parallel safe
return array(
    select coalesce(a, 0) + coalesce(b, 0)
      from unnest(one, other) with ordinality as bins (a, b, bin) order by bin
);

revoke all on all functions in schema wakeq from public;
