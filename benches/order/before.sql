-- The tables that an event without an object meets, and its claim, as they were before there were
-- objects and queues: to be compared with those of today.

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
    notify_at   timestamptz default now(),
    probes      integer not null default 0,
    claims      integer not null default 0,
    losses      integer not null default 0,
    traceparent wakeq.traceparent,
    last_error  text,
    constraint events_v2_counts check (retries >= 0 and probes >= 0 and losses between 0 and claims),
    constraint events_v2_moments check (
        delay_until >= '0001-01-01Z' and delay_until < '10000-01-01Z'
        and enqueued_at >= '0001-01-01Z' and enqueued_at < '10000-01-01Z'
        and notify_at >= '0001-01-01Z' and notify_at < '10000-01-01Z'),
    constraint events_v2_locked_by_a_claim check (locked_at is null or claims > 0),
    constraint events_v2_worker_of_a_claim check (worker is null or locked_at is not null)
) with (
    fillfactor = 42,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

create index events_v2_handler on wakeq.events_v2 (canvas_id, module, name, delay_until, id);
create index events_v2_promised on wakeq.events_v2 (notify_at) where notify_at is not null;
create index events_v2_parked on wakeq.events_v2 (canvas_id, module, name, id) where notify_at is null;

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

create table wakeq.claim_gate (
    nothing boolean not null check (false)
);

create function wakeq.wake_at(due timestamptz, clock timestamptz, horizon interval, wait interval)
returns timestamptz language sql immutable parallel safe
return case when due > clock + horizon then due - horizon else greatest(due, clock) + wait end;

create function wakeq.claim(
    ids             uuid[],
    handlers        text[],
    canvas_handlers text[],
    lease           interval,
    losses_below    integer
)
returns table (
    id          uuid,
    canvas_id   uuid,
    module      text,
    name        text,
    modifier    text,
    value       text,
    retries     integer,
    delay_until timestamptz,
    enqueued_at timestamptz,
    locked_at   timestamptz,
    claims      integer,
    losses      integer,
    took_over   boolean,
    traceparent text
)
language plpgsql volatile as $$
#variable_conflict use_column
begin
    lock table wakeq.claim_gate in row exclusive mode;
    return query
    update wakeq.events_v2 e
       set locked_at = clock_timestamp(),
           claims = e.claims + 1,
           losses = e.losses + (e.locked_at is not null)::integer
     where e.id = any (ids)
       and e.delay_until <= clock_timestamp()
       and (e.locked_at is null or e.locked_at < clock_timestamp() - lease)
       and e.losses + (e.locked_at is not null)::integer < losses_below
       and (   e.module || '/' || e.name || '/' || e.modifier = any (handlers)
            or e.canvas_id || '/' || e.module || '/' || e.name || '/' || e.modifier = any (canvas_handlers))
       and not exists (
           select from wakeq.scheduling_rules r
            where r.canvas_id = e.canvas_id and r.event_space = e.module and r.handler_name = e.name
              and (r.until is null or r.until > clock_timestamp()))
    returning e.id, e.canvas_id, e.module::text, e.name::text, e.modifier::text, e.value::text, e.retries,
              e.delay_until, e.enqueued_at, e.locked_at, e.claims, e.losses,
              e.losses > 0 and exists (
                  select from wakeq.events_v2 before where before.id = e.id and before.locked_at is not null),
              e.traceparent::text;
end
$$;
