-- The queue itself: one row per event, and the ids that callers chose.

-- Domains, not check constraints: they are checked when a value is written, not again at each claim.
create domain wakeq.name as text check (value ~ '^[A-Za-z0-9_.-]{1,128}$');
create domain wakeq.payload as text check (octet_length(value) <= 16777216);
create domain wakeq.traceparent as text check (value ~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$');

create table wakeq.events_v2 (
    id          uuid not null primary key,
    canvas_id   uuid not null,
    module      wakeq.name not null,
    name        wakeq.name not null,
    modifier    wakeq.name not null,
    value       wakeq.payload not null,
    retries     integer not null default 0,
    delay_until timestamptz not null default now(),
    enqueued_at timestamptz not null default now(),
    locked_at   timestamptz,
    worker      wakeq.name,
    -- The default makes a row that another program inserts due at the next probe.
    notify_at   timestamptz default now(),
    probes      integer not null default 0,
    claims      integer not null default 0,
    losses      integer not null default 0,
    traceparent wakeq.traceparent,
    last_error  text,
    constraint events_v2_counts check (retries >= 0 and probes >= 0 and losses between 0 and claims),
    -- No infinity, nor what clients can't hold: such an event would never run, and might stop who reads it.
    constraint events_v2_moments check (
        delay_until >= '0001-01-01Z' and delay_until < '10000-01-01Z'
        and enqueued_at >= '0001-01-01Z' and enqueued_at < '10000-01-01Z'
        and notify_at >= '0001-01-01Z' and notify_at < '10000-01-01Z'),
    constraint events_v2_locked_by_a_claim check (locked_at is null or claims > 0),
    constraint events_v2_worker_of_a_claim check (worker is null or locked_at is not null)
) with (
    -- Room for a second version of every row on its page: each claim is then a HOT update.
    fillfactor = 42,
    -- Rows live for milliseconds: clean up by count, not by a share of the table, and without pauses.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- No index and no index predicate may name locked_at, worker, claims, losses or retries: claims would stop being HOT.
create index events_v2_handler on wakeq.events_v2 (canvas_id, module, name, delay_until, id);
create index events_v2_promised on wakeq.events_v2 (notify_at) where notify_at is not null;
create index events_v2_parked on wakeq.events_v2 (canvas_id, module, name, id) where notify_at is null;

comment on column wakeq.events_v2.notify_at is
    'If the row still exists then, somebody must publish a notification for it; null only while parked under a rule';
comment on column wakeq.events_v2.claims is 'Fencing token: how often the event was claimed; never reset';
comment on column wakeq.events_v2.worker is
    'The name of the worker that made the claim; null where nobody has one, and for leases over HTTP';
comment on column wakeq.events_v2.losses is 'Claims that took over from an owner whose lease ran out';

-- When an event has to be woken: the one definition, for every writer.
create function wakeq.wake_at(due timestamptz, clock timestamptz, horizon interval, wait interval)
returns timestamptz language sql immutable parallel safe
return case when due > clock + horizon then due - horizon else greatest(due, clock) + wait end;

-- The id that an event has whose caller chose one: a chosen id counts within its canvas, and the primary key over all.
-- Random as one that is made here: 122 bits of SHA-256, marked as a uuid of version 8.
create function wakeq.chosen_id(canvas_id uuid, id uuid)
returns uuid language sql immutable strict parallel safe
return (select encode(set_byte(set_byte(bytes, 6, get_byte(bytes, 6) & 15 | 128), 8, get_byte(bytes, 8) & 63 | 128), 'hex')::uuid
          from (select substring(sha256('wakeq chosen id'::bytea || uuid_send(canvas_id) || uuid_send(id)) from 1 for 16)) as hash (bytes));

-- Ids chosen by callers are remembered, so that emitting one twice makes one event, also after it completed. They are
-- those of the events, as chosen_id makes them.
create table wakeq.emitted_ids (
    canvas_id  uuid not null,
    id         uuid not null,
    emitted_at timestamptz not null default now(),
    -- Remembered from then on: an event that is due in a month may complete in a month.
    due_at     timestamptz not null default now(),
    primary key (canvas_id, id)
);
create index emitted_ids_age on wakeq.emitted_ids (due_at);
