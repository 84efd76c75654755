-- Entities: what their processors keep of them, and what became of the events that were sent to them. Expands only.

create table wakeq.entities (
    entity_type   wakeq.name not null,
    canvas_id     uuid not null,
    id            wakeq.object_key not null,
    -- How many events of it are in the repository.
    version       bigint not null check (version > 0),
    -- The link of the last event that was decided upon: stored or rejected.
    last_link     bigint not null check (last_link > 0),
    -- A snapshot: its state after its first `state_version` events; the rest is replayed.
    state         wakeq.payload,
    state_version bigint not null default 0 check (state_version between 0 and version),
    -- Where the last of them is in the log.
    state_seq     bigint not null default 0 check (state_seq >= 0),
    -- Of which shape the state is: the program says it, and reads no other.
    shape         integer not null default 0 check (shape >= 0),
    updated_at    timestamptz not null default now(),
    constraint entities_pkey primary key (entity_type, canvas_id, id),
    constraint entities_snapshot check ((state is null) = (state_version = 0) and (state is null) = (state_seq = 0))
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

comment on column wakeq.entities.version is 'How many events of it are in the repository: the category entities:TYPE';

-- The owner of each type, and the event that owners were lost with: what ends its process is found by that.
create table wakeq.entity_owners (
    entity_type wakeq.name not null primary key,
    -- Under which the inbox was opened last.
    epoch       bigint not null check (epoch > 0),
    -- It has not come to an orderly end.
    is_open     boolean not null default true,
    -- The seq of the event that is worked alone, and how often that came to nothing.
    suspect     bigint,
    losses      integer not null default 0 check (losses >= 0)
) with (fillfactor = 50);

-- What was sent to entities, and what became of it: for who asks, and so that an event that is sent again is known.
create table wakeq.entity_events (
    canvas_id      uuid not null,
    event_id       uuid not null,
    correlation_id uuid not null,
    entity_type    wakeq.name not null,
    entity         wakeq.object_key not null,
    name           wakeq.name not null,
    -- Its link in the inbox: its seq, and that of the event before it in its stream.
    link_id        bigint not null,
    link_prev      bigint not null,
    status         text not null default 'accepted' check (status in ('accepted', 'processed', 'failed')),
    -- The version of the entity with it, if it is in the repository and that is known.
    version        bigint check (version > 0),
    result         wakeq.payload,
    error          text,
    -- The events that were emitted because of it.
    follow_ups     uuid[] not null default '{}',
    sent_at        timestamptz not null default now(),
    ended_at       timestamptz,
    -- When it was old enough to be forgotten, and was kept: an event that followed from it had not ended, and may be answered.
    held_at        timestamptz,
    constraint entity_events_pkey primary key (canvas_id, event_id),
    constraint entity_events_link check (link_prev >= 0 and link_prev < link_id),
    constraint entity_events_ended check ((status = 'accepted') = (ended_at is null)),
    constraint entity_events_stored check (version is null or status = 'processed')
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

create index entity_events_correlation on wakeq.entity_events (canvas_id, correlation_id);
-- What is old enough to be forgotten; what has not ended is not.
create index entity_events_ended on wakeq.entity_events (coalesce(held_at, ended_at)) where ended_at is not null;
