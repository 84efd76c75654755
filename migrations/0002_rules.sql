-- Pauses (by users) and blocks (by admins); a rule covers every modifier of its handler.

create type wakeq.scheduling_rule_type as enum ('pause', 'block');

create table wakeq.scheduling_rules (
    id           serial primary key,
    rule_type    wakeq.scheduling_rule_type not null,
    canvas_id    uuid not null,
    handler_name wakeq.name not null,
    event_space  wakeq.name not null,
    created_at   timestamp without time zone not null default now(),
    reason       text check (length(reason) <= 1000),
    until        timestamptz check (until >= '0001-01-01Z' and until < '10000-01-01Z'),
    created_by   text not null default 'sql:' || session_user check (length(created_by) between 1 and 200),
    constraint scheduling_rules_one_of_a_kind unique (canvas_id, event_space, handler_name, rule_type)
);
create index scheduling_rules_until on wakeq.scheduling_rules (until) where until is not null;

-- Waking a handler's events is work that survives its worker: a job per lifted rule or newly known handler.
create table wakeq.resume_jobs (
    id         bigint generated always as identity primary key,
    kind       text not null check (kind in ('lifted', 'registered')),
    canvas_id  uuid not null,
    module     wakeq.name not null,
    name       wakeq.name not null,
    after_id   uuid not null default '00000000-0000-0000-0000-000000000000',
    after_due  timestamptz not null default '-infinity',
    -- Where the first rows were passed over that others held: the job goes back there when it has come to its end.
    back_id    uuid,
    back_due   timestamptz,
    created_at timestamptz not null default now(),
    constraint resume_jobs_back check ((back_id is null) = (back_due is null))
);

-- Handlers that events name and some worker did not know.
create table wakeq.unknown_handlers (
    canvas_id  uuid not null,
    module     wakeq.name not null,
    name       wakeq.name not null,
    modifier   wakeq.name not null,
    first_seen timestamptz not null default now(),
    last_seen  timestamptz not null default now(),
    primary key (canvas_id, module, name, modifier)
);
