-- The queue: events and how they end, and the rules that hold them back.
--
-- An event is a row of `events_v2`, and is deleted when its handler has completed. No statement
-- searches the table for work: a notification names the row, and `notify_at` is the promise of
-- another notification if the row still exists then. Only parking under a rule clears a promise.
--
-- Here too: the ids and answers that make it harmless to emit twice, and what all processes of a
-- deployment share, which are its durations and its periodic chores.
--
-- The columns of events for objects (0002), for queues (0003) and for unique keys (0011) are here,
-- because a table is created once and all of its indexes follow the same rule.

-- Domains, not check constraints: a domain is checked when a value is written, and not again at
-- each claim. No pattern counts: Postgres makes the states of a bound such as {1,128} anew for each
-- value, which takes ten to thirty times as long (those patterns are in
-- tests/it/database/text_checks.rs).
-- A path can't contain . and .. as they are.
create domain wakeq.name as text check (
    octet_length(value) between 1 and 128 and value !~ '[^A-Za-z0-9_.-]' and value not in ('.', '..'));
create domain wakeq.payload as text check (octet_length(value) <= 16777216);
create domain wakeq.traceparent as text check (
    octet_length(value) = 55 and value like '__-________________________________-________________-__'
    and value not like '%-%-%-%-%' and value !~ '[^0-9a-f-]');
-- What events are ordered by, such as work:1.
create domain wakeq.object_key as text check (
    octet_length(value) between 1 and 200 and value !~ '[^A-Za-z0-9_.:@=+~-]' and value not in ('.', '..'));

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
    nonce       integer not null default 0,
    losses      integer not null default 0,
    traceparent wakeq.traceparent,
    last_error  text,
    postponed_since timestamptz,
    -- Its place in the chain of an object.
    object      wakeq.object_key,
    seq         bigint,
    prev        bigint,
    -- Of a copy: the queue that it waits in, and the event that it is a copy of.
    queue       wakeq.name,
    origin      uuid,
    -- Its unique key (0011), and for how long the event has it. Plain types: an event without a key
    -- is checked for nothing. Their writer, wakeq.insert_unique, checks the key.
    unique_key  text collate "C",
    unique_for  interval,
    -- Who has cancelled it while it ran: its handler has to stop, and it is then deleted.
    cancelled_by text,
    -- What its emit asked for beside it, as wakeq.kept_options returns it; null for most.
    options     jsonb,
    -- Not null while a limit has put it off (0018).
    starts_at   timestamptz,
    -- When its latest lease by a program began (0020), from which its attempt is measured.
    leased_at   timestamptz,
    -- Every statement that inserts or updates parses these anew, in a time that goes by how long
    -- they are: nearly half of what one event costs before its commit (docs/adr/0106).
    constraint events_v2_counts check (least(retries, probes, losses) >= 0 and losses <= claims),
    -- No infinity, and nothing that clients cannot represent: such an event would never run, and
    -- could break a program that reads it. Those that are null don't count.
    constraint events_v2_moments check (
        least(delay_until, enqueued_at, notify_at, postponed_since) >= '0001-01-01Z'
        and greatest(delay_until, enqueued_at, notify_at, postponed_since) < '10000-01-01Z'),
    constraint events_v2_locked_by_a_claim check (locked_at is null or claims > 0),
    constraint events_v2_worker_of_a_claim check (worker is null or locked_at is not null)
) with (
    -- Room for a second version of every row on its page: each claim is then a HOT update.
    fillfactor = 42,
    -- Rows live for milliseconds: clean up by count, not by a share of the table, and without
    -- pauses.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0
);

-- Checked for each row that is written. `not valid` only saves the scan of a table that is empty.
alter table wakeq.events_v2
    add constraint events_v2_link check (case
        when object is null then seq is null and prev is null
        else coalesce(prev >= 0 and prev < seq, false) end) not valid,
    add constraint events_v2_copy check ((queue is null) = (origin is null)) not valid;

comment on column wakeq.events_v2.notify_at is
    'If the row still exists then, somebody must publish a notification for it; null only while parked under a rule';
comment on column wakeq.events_v2.claims is
    'How often the event was claimed; never reset. The first half of the fencing token';
comment on column wakeq.events_v2.nonce is
    'A random number of the latest claim, the second half of the fencing token: one that a failover lost had another';
comment on column wakeq.events_v2.worker is
    'The name of the worker that made the claim, or of the program that leased it; null where there is none';
comment on column wakeq.events_v2.losses is 'Claims that took over from an owner whose lease ran out';
comment on column wakeq.events_v2.postponed_since is
    'When its handler first said that it is too early, since the emit, the redrive or the latest wait under a rule';
comment on column wakeq.events_v2.seq is 'The event''s id among those on objects, from one sequence';
comment on column wakeq.events_v2.prev is 'The seq of the event before it on the same object; 0 for the first';
comment on column wakeq.events_v2.cancelled_by is
    'The actor who cancelled it while it ran. It starts no more, and goes unless its handler completes it';
comment on column wakeq.events_v2.options is
    'What its emit asked for beside it: an object as src/event/options.rs writes it; null for most, and for copies';
comment on column wakeq.events_v2.queue is 'The queue that this copy waits in; null for the event itself';
comment on column wakeq.events_v2.unique_key is
    'The unique key that the event has among those of its handler; null for most';
comment on column wakeq.events_v2.unique_for is
    'How long it has the key: null: while it waits; else until it has ended, and this long after it was due';

-- Events that will not be tried again: their last state, and the cause of death.
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
    cause       text not null check (cause in ('retries', 'poison', 'rejected', 'expired')),
    died_at     timestamptz not null default now(),
    object      wakeq.object_key,
    seq         bigint,
    prev        bigint,
    queue       wakeq.name,
    origin      uuid,
    options     jsonb,
    primary key (canvas_id, id)
);

-- The ids that callers chose are remembered, so that emitting one twice makes one event, even after
-- that event has completed. They are stored as wakeq.chosen_id makes them.
create table wakeq.emitted_ids (
    canvas_id  uuid not null,
    id         uuid not null,
    emitted_at timestamptz not null default now(),
    -- Its age counts from here: an event that is due in a month may complete in a month.
    due_at     timestamptz not null default now(),
    -- The handler of its event. An emit of the id for another one is refused.
    module     wakeq.name,
    name       wakeq.name,
    primary key (canvas_id, id)
);

-- Answers that are given again when a request is repeated under the same key. A key is written in
-- the transaction of its events, so no state "in progress" can outlive its process.
create table wakeq.idempotency_keys (
    canvas_id   uuid not null,
    -- The principal that the key belongs to: two principals may choose the same key.
    holder      text not null check (length(holder) between 1 and 200),
    key         text not null check (octet_length(key) between 1 and 255 and key !~ '[^\x21-\x7e]'),
    fingerprint bytea not null check (octet_length(fingerprint) between 1 and 64),
    answer      text not null check (octet_length(answer) <= 16777216),
    created_at  timestamptz not null default now(),
    primary key (canvas_id, holder, key)
);

-- Pauses (by users) and blocks (by admins). A rule covers every modifier of its handler. One on '_'
-- of the module CANVAS, which no event has, is a switch: it covers the whole canvas or, on the
-- canvas ffffffff-ffff-ffff-ffff-ffffffffffff, which is no tenant's, everything.
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

-- The work of waking a handler's events, which survives the process that does it: a job is made for
-- each lifted rule and for each newly known handler, and replaces the older ones of its kind. That
-- of a lifted switch makes one for each handler or, if the switch was on everything, each canvas.
-- That of an operation (0017) names the operation.
create table wakeq.resume_jobs (
    id           bigint generated always as identity primary key,
    kind         text not null check (kind in ('lifted', 'registered', 'operation')),
    canvas_id    uuid not null,
    module       wakeq.name not null,
    name         wakeq.name not null,
    -- Where the last page ended: at an event; of a lifted switch, at a canvas or at a handler.
    after_id     uuid not null default '00000000-0000-0000-0000-000000000000',
    after_due    timestamptz not null default '-infinity',
    after_module text not null default '',
    after_name   text not null default '',
    -- The first place at which rows that other sessions held were passed over: the job returns to
    -- it when it has reached its end.
    back_id      uuid,
    back_due     timestamptz,
    created_at   timestamptz not null default now(),
    constraint resume_jobs_back check ((back_id is null) = (back_due is null))
);

create index resume_jobs_handler on wakeq.resume_jobs (canvas_id, module, name, kind);

-- A new job begins at the first event, so it wakes all that the older ones of its handler would. It
-- replaces them, except those that processes have in their hands. The sum keeps out the ids' index.
create function wakeq.replace_jobs() returns trigger language plpgsql as $$
begin
    delete from wakeq.resume_jobs where id = any (array(
        select j.id from wakeq.resume_jobs j
         where j.canvas_id = new.canvas_id and j.module = new.module and j.name = new.name and j.kind = new.kind
           and j.id + 0 < new.id and j.created_at <= new.created_at
           for update skip locked));
    return null;
end
$$;
create trigger resume_jobs_replace after insert on wakeq.resume_jobs
    for each row execute function wakeq.replace_jobs();

-- Up to 1,000 open jobs: the first of each canvas before the second of any, and that of all
-- canvases before those, since it makes theirs. However many there are, about as many are read.
create function wakeq.open_jobs() returns table (id bigint, canvas_id uuid, rank bigint) language sql stable as $$
    with recursive canvases as (
        (select j.canvas_id, 1 as number from wakeq.resume_jobs j order by j.canvas_id limit 1)
         union all
        select following.canvas_id, c.number + 1
          from canvases c
         cross join lateral (
               select j.canvas_id from wakeq.resume_jobs j where j.canvas_id > c.canvas_id
                order by j.canvas_id limit 1) as following
         where c.number < 1000
    )
    select j.id, c.canvas_id, row_number() over (partition by c.canvas_id order by j.id) as rank
      -- Unless all canvases are read, the last one is not.
      from (select canvas_id from canvases
             union
            select 'ffffffff-ffff-ffff-ffff-ffffffffffff' where (select count(*) from canvases) = 1000) as c
     cross join lateral (
           select o.id from wakeq.resume_jobs o where o.canvas_id = c.canvas_id
            order by o.module, o.name, o.kind limit (select 1 + 1000 / count(*) from canvases)) as j
     order by 3, c.canvas_id <> 'ffffffff-ffff-ffff-ffff-ffffffffffff', 1 limit 1000
$$;

-- Handlers that events name and that some worker did not know.
create table wakeq.unknown_handlers (
    canvas_id  uuid not null,
    module     wakeq.name not null,
    name       wakeq.name not null,
    modifier   wakeq.name not null,
    first_seen timestamptz not null default now(),
    last_seen  timestamptz not null default now(),
    primary key (canvas_id, module, name, modifier)
);

-- The gate of claims. Claims pass through it together, before their snapshots. A new rule is
-- committed and then passes through it alone, so that no claim that missed the rule commits after
-- it. The gate is a lock on an empty table and not an advisory lock, which any session of the
-- database could take: the rights on the table decide whose sessions can take this one.
create table wakeq.claim_gate (
    nothing boolean not null check (false)
);

alter table wakeq.claim_gate replica identity full;

comment on table wakeq.claim_gate is 'Always empty: claims and new rules lock it';

-- Periodic work that one process at a time may do: the row admits a process when the work is due.
create table wakeq.chores (
    name      text not null primary key,
    next_at   timestamptz not null default now(),
    passes    bigint not null default 0,
    -- Every promise before this moment has been kept: the probe starts to read here.
    low_water timestamptz not null default '-infinity',
    -- While the promises before the mark are read in slices: those before this are still to be
    -- read.
    behind    timestamptz
);
insert into wakeq.chores (name) values ('minute'), ('expire'), ('idle');

-- The durations that all processes of a deployment share, in microseconds. The first process writes
-- them.
create table wakeq.settings (
    name     text not null primary key,
    value_us bigint not null check (value_us >= 0),
    set_at   timestamptz not null default now()
);

-- How long trails are kept at least, whatever a process asks for: what was done, and what happened.
-- Only the owner of the schema changes it. Null: for ever.
create table wakeq.least_kept (
    trail text not null primary key check (trail in ('record', 'log')),
    kept  interval check (kept >= interval '1 hour')
);
insert into wakeq.least_kept values ('record', interval '90 days'), ('log', null);

-- No index of events and no predicate of one may name locked_at, worker, claims, nonce, losses or
-- retries: claims would no longer be HOT updates.
--
-- While the planner believes that the table is empty, every index seems to be one page, and any
-- that has the ids is as good for a condition on them as the primary key, although it is then read
-- as a whole for each id. So two indexes are only for statements that name their conditions, which
-- are true of every event and of every copy: delay_until > '-infinity', to read events by handler,
-- and queue <> '', to read copies by facet. One that is about ids names none
-- (docs/design/statements.md).
create index events_v2_promised on wakeq.events_v2 (notify_at) where notify_at is not null;
-- The same value as the id, which the primary key can't serve: it would be read from there on.
create index events_v2_parked on wakeq.events_v2 (canvas_id, module, name, greatest(id, id)) where notify_at is null;
-- Counts of a canvas leave copies out, and read nothing but this index.
create index events_v2_handler on wakeq.events_v2 (canvas_id, module, name, delay_until, id) include (queue)
    where delay_until > '-infinity';
-- A facet of a queue: the copies of one canvas, in the order of their due times.
create index events_v2_facet on wakeq.events_v2 (queue, canvas_id, delay_until, id)
    where queue <> '';
-- A chosen id is remembered while a copy of its event is left. Such ids are uuids of version 8: no
-- other event is in the index, nor are copies of other events.
create index events_v2_origin on wakeq.events_v2 (canvas_id, origin)
    where origin is not null and get_byte(uuid_send(origin), 6) & 240 = 128;
-- The lanes of handlers: what is left of an object for one handler, the earliest first.
create unique index events_v2_lane on wakeq.events_v2 (canvas_id, object, module, name, seq)
    where object is not null and queue is null;
-- Those that were cancelled while they ran, which is hardly any at a time.
create index events_v2_cancelled on wakeq.events_v2 (cancelled_by) where cancelled_by is not null;
-- No forks: an event has one successor. Neither this index nor that of lanes can serve the other's
-- statements, which name no `prev`, or the object itself: with the statistics of an empty table
-- each would do, and an object's events were read whole.
create unique index events_v2_successor on wakeq.events_v2 (canvas_id, greatest(object, object), prev)
    where queue is null and prev is not null;
-- The lanes of queues.
create unique index events_v2_queue_lane on wakeq.events_v2 (canvas_id, object, queue, seq)
    where object is not null and queue is not null;
-- Unique keys, each of one event of its handler.
create unique index events_v2_unique on wakeq.events_v2 (canvas_id, module, name, unique_key)
    where unique_key is not null;

-- Those by canvas and by handler are in 0022, because they include a column of it.
create index dead_events_age on wakeq.dead_events (died_at) where died_at < 'infinity';
create index dead_events_object on wakeq.dead_events (canvas_id, object, seq) where object is not null;
-- For lists by object, and by batch.
create index dead_events_of_object on wakeq.dead_events (canvas_id, object, died_at, id) where object is not null;
create index dead_events_batch on wakeq.dead_events (canvas_id, (options ->> 'batch'), died_at, id)
    where (options ->> 'batch') is not null;
create index emitted_ids_age on wakeq.emitted_ids (due_at);
create index idempotency_keys_age on wakeq.idempotency_keys (created_at);
create index scheduling_rules_until on wakeq.scheduling_rules (until) where until is not null;
create index scheduling_rules_switches on wakeq.scheduling_rules (canvas_id) where event_space = 'CANVAS';

-- The time at which an event has to be woken: the one definition, for every writer. Statements
-- inline it, as long as its arguments are not volatile: the clock is statement_timestamp().
create function wakeq.wake_at(due timestamptz, clock timestamptz, horizon interval, wait interval)
returns timestamptz language sql stable parallel safe
return case when due > clock + horizon then due - horizon else greatest(due, clock) + wait end;

-- How long an event whose handler is unknown waits for its next look: twice as long after each look
-- that the probe made, up to twelve times as long.
create function wakeq.defer_for(wait interval, probes integer) returns interval language sql immutable parallel safe
return wait * least(12, power(2, least(probes, 20)));

-- The id of an event whose caller chose one: a chosen id counts within its canvas, while the
-- primary key counts across all canvases. It is as random as an id that is made here: 122 bits of
-- SHA-256, marked as a uuid of version 8.
create function wakeq.chosen_id(canvas_id uuid, id uuid)
returns uuid language sql immutable strict parallel safe
return (
    select encode(set_byte(set_byte(bytes, 6, get_byte(bytes, 6) & 15 | 128), 8, get_byte(bytes, 8) & 63 | 128),
                  'hex')::uuid
      from (select substring(sha256('wakeq chosen id'::bytea || uuid_send(canvas_id) || uuid_send(id)) from 1 for 16))
           as hash (bytes));

-- A duration of the deployment, or the usual one if no process has written any.
create function wakeq.duration_of(setting text, usual interval) returns interval language plpgsql stable as $$
begin
    return coalesce((select s.value_us * interval '1 microsecond' from wakeq.settings s where s.name = setting), usual);
end
$$;

-- How long a trail is kept: as long as was asked for, and at least as long as the owner of the
-- schema wants. The owner itself may ask for less. To be called with the owner's rights, by a
-- function that deletes. Null: for ever.
create function wakeq.kept_for(trail text, asked interval) returns interval
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    bound interval;
begin
    if asked is null or asked < interval '1 hour' then
        raise exception 'the % is kept for an hour at least', kept_for.trail;
    end if;
    if pg_has_role(session_user, current_user, 'member') then
        return asked;
    end if;
    select l.kept into bound from wakeq.least_kept l where l.trail = kept_for.trail;
    return case when bound is not null then greatest(bound, asked) end;
end
$$;

-- Waits until every claim has ended that may have missed what was committed before. It runs with
-- the rights of the schema's owner: a role that makes rules does not have to be able to hold the
-- gate.
create function wakeq.await_claims() returns void language plpgsql volatile
security definer set search_path = pg_catalog, pg_temp set lock_timeout = '4s' as $$
begin
    lock table wakeq.claim_gate in share mode;
end
$$;

-- What an emit may ask for beside its event, in the form in which rows have it: null for nothing.
-- Refuses what the library refuses (src/event/options.rs). A moment may be in any form that
-- Postgres reads.
create function wakeq.kept_options(options jsonb) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    kept   jsonb := nullif(nullif(options, 'null'), '{}');
    moment timestamptz;
    wrong  text;
begin
    if kept is null then
        return null;
    end if;
    if jsonb_typeof(kept) <> 'object' or octet_length(kept::text) > 4096 then
        raise exception 'the options of an event are a JSON object of at most 4,096 bytes'
            using errcode = 'invalid_parameter_value', hint = 'Pass options => ''{"retries": 3}'', or none.';
    end if;
    if kept ? 'not_after' then
        begin
            moment := (kept ->> 'not_after')::timestamptz;
        exception when data_exception then
            moment := null;
        end;
        kept := kept || jsonb_build_object(
            'not_after', to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
    end if;
    select f.key into wrong
      from jsonb_each(kept) as f (key, value)
     where case f.key
           when 'retries' then jsonb_typeof(f.value) <> 'number' or f.value::text !~ '^(1000|[0-9]{1,3})$'
           when 'delays_s' then not wakeq.are_seconds(f.value, 0)
           when 'timeout_s' then not wakeq.are_seconds(jsonb_build_array(f.value), 0.001)
           when 'keep_s' then not wakeq.are_keep_times(f.value)
           when 'tags' then not wakeq.are_tags(f.value)
           when 'limits' then not wakeq.are_limit_keys(f.value)
           when 'urgent' then f.value <> 'true'
           when 'not_after' then (moment >= '0001-01-01Z' and moment < '10000-01-01Z') is not true
           when 'batch' then (
               jsonb_typeof(f.value) = 'string' and octet_length(f.value #>> '{}') between 1 and 255
               and f.value #>> '{}' !~ '[^\x21-\x7e]' and f.value #>> '{}' not in ('.', '..')) is not true
           else true end
     limit 1;
    if wrong is not null then
        raise exception 'not an option of an event, or out of bounds: %', wrong
            using
                errcode = 'invalid_parameter_value',
                hint = 'An event may have retries (0 to 1000), delays_s (1 to 100 numbers of seconds, up to 2592000), '
                    || 'timeout_s (0.001 to 2592000), keep_s (0 to 7776000, or such numbers for completed, failed and '
                    || 'cancelled), not_after (a moment), batch (the name of an open batch), tags (up to 10 different '
                    || 'texts of 1 to 100 printable ASCII characters without commas), limits (1 to 3 different keys of '
                    || 'up to 200 letters, digits and _.:@=+~-, other than canvas, canvas:… and handler:…) and urgent '
                    || '(true).';
    end if;
    return kept;
end
$$;

-- Whether this is an array of 1 to 100 numbers, each of at least `at_least` and at most 30 days.
create function wakeq.are_seconds(seconds jsonb, at_least numeric) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return jsonb_typeof(seconds) = 'array' and jsonb_array_length(seconds) between 1 and 100 and not exists (
        select from jsonb_array_elements(seconds) as s (value)
         where case jsonb_typeof(s.value)
               when 'number' then s.value::numeric not between are_seconds.at_least and 2592000
               else true end);
end
$$;

-- Whether this is an array of at most ten different tags, as src/event/tag.rs checks them.
create function wakeq.are_tags(tags jsonb) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return jsonb_typeof(tags) = 'array' and jsonb_array_length(tags) between 1 and 10
       and (select count(distinct t.value) = count(*) and bool_and(
                       jsonb_typeof(t.value) = 'string' and octet_length(t.value #>> '{}') between 1 and 100
                       and t.value #>> '{}' !~ '[^ -~]|,|^ | $')
              from jsonb_array_elements(tags) as t (value));
end
$$;

-- Only the owner has rights, until wakeq.grant_rights (0008) gives some to a role.
revoke all on schema wakeq from public;
revoke all on all functions in schema wakeq from public;
