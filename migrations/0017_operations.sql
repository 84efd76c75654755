-- Operations: what an operator does to all events that match a filter, or that are named.
--
-- An operation is a row with its filter, the moment up to which events are meant, how far it has
-- come and what it did. Its page changes events and moves the row in one transaction. A job of the
-- kind `operation` (0001), whose name is the operation's id, brings it into the minute's pass,
-- which shares itself between the canvases; so an idle queue asks for nothing more.

create table wakeq.operations (
    canvas_id     uuid not null,
    id            uuid not null default gen_random_uuid(),
    kind          text not null check (kind in ('cancel', 'run-now', 'delete', 'redrive', 'delete-dead', 'retag')),
    -- Which events: as JSON of the library's filter. And what to do to them, beyond the kind.
    filter        jsonb not null check (jsonb_typeof(filter) = 'object' and octet_length(filter::text) <= 16384),
    arguments     jsonb not null default '{}' check (
        jsonb_typeof(arguments) = 'object' and octet_length(arguments::text) <= 4096),
    -- In place of a filter, which has no condition then: the ids that the events are named by,
    -- sorted.
    ids           uuid[] check (cardinality(ids) between 1 and 1000 and array_ndims(ids) = 1),
    -- Whether copies are meant that their queue does not show to the canvas.
    copies        boolean not null default false,
    -- Only events that were emitted before this or, of dead events, that died before it.
    cut_off       timestamptz not null,
    state         text not null default 'open' check (state in ('open', 'done', 'cancelled', 'failed')),
    -- How many pages were done, and where the last one ended, in the order of the index that it
    -- read.
    pages         bigint not null default 0,
    after_module  text not null default '' check (octet_length(after_module) <= 128),
    after_name    text not null default '' check (octet_length(after_name) <= 128),
    after_at      timestamptz not null default '-infinity',
    after_id      uuid not null default '00000000-0000-0000-0000-000000000000',
    -- How many events matched when it was begun, as far as they were counted.
    preview_count bigint not null default 0 check (preview_count >= 0),
    preview_more  boolean not null default false,
    looked_at     bigint not null default 0,
    matched       bigint not null default 0,
    changed       bigint not null default 0,
    skipped       bigint not null default 0,
    author        text not null check (length(author) between 1 and 200),
    job           bigint not null,
    started_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    ended_at      timestamptz,
    error         text check (length(error) <= 1000),
    constraint operations_pkey primary key (canvas_id, id),
    constraint operations_counts check (
        changed >= 0 and skipped >= 0 and changed + skipped <= matched and matched <= looked_at),
    constraint operations_ended check ((state = 'open') = (ended_at is null))
) with (
    -- Each page writes the row, and no index mentions what it writes.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Those of a canvas, the latest first.
create index operations_started on wakeq.operations (canvas_id, started_at, id);
-- The open one of a job, and those that are to be forgotten. Only for statements that name these
-- conditions, and so not for those about an operation or about a canvas (0001).
create unique index operations_job on wakeq.operations (job) where ended_at is null and job > 0;
create index operations_ended on wakeq.operations (ended_at) where ended_at > '-infinity';

comment on column wakeq.operations.matched is
    'Events that match the filter: those that were changed, and those that were skipped because they run, or are held';

revoke all on all functions in schema wakeq from public;
