-- Events that will not be tried again: their last state, and why.

create table wakeq.dead_events (
    canvas_id   uuid not null,
    id          uuid not null,
    module      wakeq.name not null,
    name        wakeq.name not null,
    modifier    wakeq.name not null,
    value       wakeq.payload not null,
    retries     integer not null,
    enqueued_at timestamptz not null,
    claims      integer not null,
    losses      integer not null,
    traceparent wakeq.traceparent,
    last_error  text,
    cause       text not null check (cause in ('retries', 'poison')),
    died_at     timestamptz not null default now(),
    primary key (canvas_id, id)
);
create index dead_events_handler on wakeq.dead_events (canvas_id, module, name, died_at, id);
create index dead_events_canvas on wakeq.dead_events (canvas_id, died_at, id);
create index dead_events_age on wakeq.dead_events (died_at);
