-- Quotas: what a canvas may keep, where that differs from what every canvas may. Nothing counts here: how much there is is
-- measured where it lies (docs/adr/0043-quotas.md). Expands only.

create table wakeq.canvas_quotas (
    canvas_id uuid not null,
    quota     text not null check (quota in (
                  'events', 'event-bytes', 'objects', 'log-streams', 'log-bytes', 'entities', 'entity-events',
                  'crons', 'cron-ticks', 'keys', 'targets')),
    most      bigint not null check (most between 0 and 1000000000000000),
    set_at    timestamptz not null default now(),
    set_by    text not null check (length(set_by) between 1 and 200),
    constraint canvas_quotas_pkey primary key (canvas_id, quota)
);

-- A row for each canvas that has added what is counted exactly: crons, keys, targets. It is locked while one is added, so
-- that those added at the same time exceed no quota together.
create table wakeq.canvas_turns (
    canvas_id uuid not null primary key
);

-- The most events that a cron emits within one minute: one for each second that its expression names.
alter table wakeq.cron_records
    add column minute_ticks smallint not null default 1 check (minute_ticks between 1 and 60);

-- What was sent to entities and not processed yet: counted for a canvas, and what expires.
create index entity_events_accepted on wakeq.entity_events (canvas_id, sent_at) where status = 'accepted';

-- What a canvas may keep of something: what was set for it, or what every canvas may.
create function wakeq.quota_of(canvas uuid, what text, usual bigint) returns bigint language sql stable
return coalesce((select most from wakeq.canvas_quotas where canvas_id = canvas and quota = what), usual);

-- How long an event waits for its next look whose handler nobody knows: twice as long after each that the probe made, up to
-- twelve times.
create function wakeq.defer_for(wait interval, probes integer) returns interval language sql immutable parallel safe
return wait * least(12, power(2, least(probes, 20)));

-- What nobody uses any more goes by itself. A mark says which number the chains of objects had reached at a moment: an
-- object whose last event has no higher one has not been used since, although no emit writes the time down.
create table wakeq.idle_marks (
    at  timestamptz not null default now() primary key,
    seq bigint not null check (seq >= 0)
);

-- How far the look for such objects has come, in the order of their keys.
create table wakeq.idle_cursor (
    one       boolean not null default true primary key check (one),
    canvas_id uuid not null,
    object    text not null
);
insert into wakeq.idle_cursor (canvas_id, object) values ('00000000-0000-0000-0000-000000000000', '');

insert into wakeq.chores (name) values ('idle');
