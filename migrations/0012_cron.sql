-- Schedules. A row says by itself when its next tick is, and what a tick emits; no event is read for that.

create table wakeq.cron_records (
    canvas_id     uuid not null,
    name          wakeq.name not null,
    expression    text not null check (octet_length(expression) between 1 and 256),
    zone          text not null check (octet_length(zone) between 1 and 64),
    modifier      wakeq.name not null,
    value         wakeq.payload not null check (octet_length(value) <= 65536),
    -- What becomes of ticks that no process emitted in time.
    missed        text not null check (missed in ('skip', 'once', 'all')),
    -- The first tick that was not emitted, and the fence: who emits a tick moves it in the same transaction. Null:
    -- paused.
    next_at       timestamptz,
    -- The last tick that was emitted and has come.
    last_at       timestamptz,
    ticks         bigint not null default 0 check (ticks >= 0),
    -- Events that were emitted ahead of their ticks, which are to come: what a pause, a change or a deletion takes back. What
    -- it can't take back, because the event ran early, stays noted: that tick is not emitted again.
    ahead         uuid[] not null default '{}',
    ahead_at      timestamptz[] not null default '{}',
    paused_at     timestamptz,
    paused_by     text check (length(paused_by) between 1 and 200),
    paused_reason text check (length(paused_reason) <= 1000),
    created_by    text not null check (length(created_by) between 1 and 200),
    created_at    timestamptz not null,
    changed_at    timestamptz not null,
    constraint cron_records_pkey primary key (canvas_id, name),
    constraint cron_records_ahead check (cardinality(ahead) = cardinality(ahead_at)),
    constraint cron_records_moments check (
        next_at >= '0001-01-01Z' and next_at < '10000-01-01Z' and last_at >= '0001-01-01Z' and last_at < '10000-01-01Z'),
    constraint cron_records_paused check ((paused_at is null) = (paused_by is null) and (paused_at is null or next_at is null))
) with (
    -- Each tick leaves a dead entry in the index by which the minute's statement looks for what is due.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

create index cron_records_due on wakeq.cron_records (next_at) where next_at is not null;

comment on column wakeq.cron_records.next_at is
    'The first tick that was not emitted; whoever emits it moves this in the same transaction';
