-- Who changed what: a row is written by the statement that makes the change, so that neither stands without the other.

create table wakeq.audit_log (
    id         bigint generated always as identity primary key,
    at         timestamptz not null default now(),
    -- Null: about every canvas.
    canvas_id  uuid,
    actor      text not null check (length(actor) between 1 and 200),
    action     text not null check (length(action) between 1 and 64),
    module     wakeq.name,
    name       wakeq.name,
    event_id   uuid,
    outcome    text not null check (outcome in ('done', 'refused')),
    detail     text check (length(detail) <= 1000),
    -- How many events it was about, or how often it was refused.
    times      integer not null default 1 check (times > 0),
    request_id text check (length(request_id) between 1 and 64)
);
create index audit_log_canvas on wakeq.audit_log (canvas_id, id);
create index audit_log_age on wakeq.audit_log (at);
