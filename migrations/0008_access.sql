-- Access: what each caller may do, how much a canvas may keep, and the record of what was changed.
--
-- Callers of the API have keys or Google service accounts, with scopes on one canvas or on all; the
-- checks in keys are made with a secret of the deployment. Sessions on the database log in as a
-- role of the API or of workers, with the rights that wakeq.needed_rights lists and no others: a
-- table that is not in that list is for the owner of the schema alone. Roles that emit with plain
-- SQL have no right on any table; wakeq.emit checks what the library checks.
--
-- Nothing is counted for quotas: how much a canvas keeps is measured in the tables themselves
-- (docs/adr/0043-quotas.md).

-- Keys of programs and people. A row without a canvas counts on every canvas. A scope may be
-- limited to handlers: `emit:WORKER/*`, `operate:WORKER/resize`.
create table wakeq.access_keys (
    -- The public part of the key, 12 hexadecimal digits.
    id            text not null primary key check (id ~ '^[0-9a-f]{12}$'),
    -- SHA-256 of the 256 random bits of the key. The key itself is stored nowhere.
    secret_sha256 bytea not null check (length(secret_sha256) = 32),
    canvas_id     uuid,
    holder        text not null check (length(holder) between 1 and 190),
    scopes        text[] not null check (
        cardinality(scopes) between 1 and 20 and array_position(scopes, null) is null
        and array_to_string(scopes, ' ')
            ~ '^((admin|(emit|read|values|operate)(:[A-Za-z0-9_.-]{1,128}/([*]|[A-Za-z0-9_.-]{1,128}))?)( |$))+$'),
    created_at    timestamptz not null default now(),
    created_by    text not null check (length(created_by) between 1 and 200),
    expires_at    timestamptz not null,
    revoked_at    timestamptz,
    revoked_by    text check (length(revoked_by) between 1 and 200),
    last_used_at  timestamptz,
    -- One of the two places of a holder. A revoked key has none; an expired key loses its place to
    -- the next one.
    slot          smallint default null check (slot in (1, 2)),
    constraint access_keys_lifetime check (expires_at > created_at and expires_at <= created_at + interval '3653 days'),
    constraint access_keys_revoked_without_place check (revoked_at is null or slot is null),
    constraint access_keys_revoked_by_somebody check ((revoked_at is null) = (revoked_by is null))
);

-- Google service accounts that are let in.
create table wakeq.service_accounts (
    id         bigint generated always as identity primary key,
    email      text not null check (length(email) between 3 and 190 and email = lower(email)),
    canvas_id  uuid,
    scopes     text[] not null check (
        cardinality(scopes) between 1 and 20 and array_position(scopes, null) is null
        and array_to_string(scopes, ' ')
            ~ '^((admin|(emit|read|values|operate)(:[A-Za-z0-9_.-]{1,128}/([*]|[A-Za-z0-9_.-]{1,128}))?)( |$))+$'),
    created_at timestamptz not null default now(),
    created_by text not null check (length(created_by) between 1 and 200),
    revoked_at timestamptz,
    revoked_by text check (length(revoked_by) between 1 and 200),
    constraint service_accounts_one_per_canvas unique nulls not distinct (email, canvas_id),
    constraint service_accounts_revoked_by_somebody check ((revoked_at is null) = (revoked_by is null))
);

-- The record: each line is written by the statement that makes the change, so that neither stands
-- without the other.
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

-- What makes this deployment unique. Its processes know it, and tell nobody.
create table wakeq.deployment (
    sole      boolean not null primary key default true check (sole),
    -- What this deployment recognizes its own deliveries by.
    namespace uuid not null default gen_random_uuid(),
    -- Its own origins and audiences, as reported by the processes that serve its API: nothing is
    -- delivered to these.
    names     text[] not null default '{}' check (cardinality(names) <= 100),
    -- The checks in the texts of keys are made with it, so that a made-up key is refused without a
    -- look at the keys. 244 random bits.
    key_check_secret bytea not null check (length(key_check_secret) = 32)
                     default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    -- Names and keys of the channels on which processes notify each other follow from it, since
    -- every role that may connect can LISTEN and NOTIFY. It may be replaced at any time: processes
    -- notice within a minute.
    notice_secret    bytea not null check (length(notice_secret) = 32)
                     default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
);
insert into wakeq.deployment default values;

-- What a canvas may keep, where that differs from what every canvas may.
create table wakeq.canvas_quotas (
    canvas_id uuid not null,
    quota     text not null check (quota in (
                  'events', 'event-bytes', 'objects', 'object-bytes', 'chosen-ids', 'idempotency-keys', 'log-streams',
                  'log-bytes', 'entities', 'entity-events', 'crons', 'cron-ticks', 'keys', 'targets', 'hooks',
                  'batches', 'rules', 'audit-lines')),
    most      bigint not null check (most between 0 and 1000000000000000),
    set_at    timestamptz not null default now(),
    set_by    text not null check (length(set_by) between 1 and 200),
    constraint canvas_quotas_pkey primary key (canvas_id, quota)
);

-- One row for each canvas that has added what is counted exactly: crons, keys, targets and hooks.
-- It is locked while one is added, so that additions at the same time do not exceed a quota
-- together.
create table wakeq.canvas_turns (
    canvas_id uuid not null primary key
);

-- The roles of the database that may emit on a canvas with wakeq.emit; a member of such a role may
-- too. Null: on every canvas.
create table wakeq.emitters (
    role      name not null,
    canvas_id uuid,
    constraint emitters_once unique nulls not distinct (role, canvas_id),
    constraint emitters_canvas check (canvas_id <> 'ffffffff-ffff-ffff-ffff-ffffffffffff')
);

-- Without a primary key, since the canvas may be null: replication names a row by all of it.
alter table wakeq.emitters replica identity full;

comment on table wakeq.emitters is 'Which role may emit on which canvas by wakeq.emit; a null canvas stands for all';

create unique index access_keys_two_live on wakeq.access_keys (canvas_id, holder, slot) nulls not distinct
    where slot is not null;
create index access_keys_newest on wakeq.access_keys (canvas_id, created_at, id);
-- With the actor, so that the lines of a canvas are counted in the index alone.
create index audit_log_canvas on wakeq.audit_log (canvas_id, at, id) include (actor);
create index audit_log_age on wakeq.audit_log (at);

-- What a canvas may keep of something: what was set for it, or what every canvas may.
create function wakeq.quota_of(canvas uuid, what text, usual bigint) returns bigint language sql stable
return coalesce((select most from wakeq.canvas_quotas where canvas_id = canvas and quota = what), usual);

-- The record is deleted by age alone, no earlier than wakeq.least_kept has it: no role but the
-- owner deletes from it otherwise, or chooses the time of a line. Returns how many lines were
-- deleted, at most 1,000.
create function wakeq.expire_audit(kept interval) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone  bigint;
    bound constant interval := wakeq.kept_for('record', kept);
begin
    delete from wakeq.audit_log where id = any (array(
        select id from wakeq.audit_log where at < now() - bound order by at limit 1000 for update skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- Keys that were revoked or have expired are kept as long as the record of that. Returns how many
-- were deleted, at most 1,000.
create function wakeq.expire_keys(kept interval) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone  bigint;
    bound constant interval := wakeq.kept_for('record', kept);
begin
    delete from wakeq.access_keys where id = any (array(
        select id from wakeq.access_keys
         where least(revoked_at, expires_at) < now() - bound limit 1000 for update skip locked));
    get diagnostics gone = row_count;
    return gone;
end $$;

-- The role that the session has set, as a pooled session does for one tenant after another, or else
-- the one that it logged in as. Others than the session can't tell it by its rights: `emit` and
-- `complete` run with those of the schema's owner.
create function wakeq.caller() returns name
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(nullif(current_setting('role'), 'none'), session_user)
$$;

-- Whether the schema's owner, with whose rights this runs, lets the caller emit on a canvas.
create function wakeq.may_emit(caller name, canvas uuid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select pg_has_role(caller, current_user, 'member') or exists (
        select from wakeq.emitters e join pg_roles r on r.rolname = e.role
         where pg_has_role(caller, r.oid, 'member') and (e.canvas_id is null or e.canvas_id = may_emit.canvas))
$$;

-- Refuses an event that the caller may not emit, or that is not one.
create function wakeq.check_emit(canvas uuid, module text, value text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    caller constant name := wakeq.caller();
begin
    if not wakeq.may_emit(caller, check_emit.canvas) then
        raise exception 'the role % may not emit on the canvas %', caller, check_emit.canvas
            using
                errcode = 'insufficient_privilege',
                hint = format(
                    'The owner of the schema allows it: insert into wakeq.emitters (role, canvas_id) values (%L, %L);',
                    caller, check_emit.canvas);
    end if;
    if check_emit.canvas is null or check_emit.canvas = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
        or check_emit.module in ('ANSWER', 'CANVAS', 'CRON', 'QUEUE')
    then
        raise exception
            'reserved: the canvas ffffffff-ffff-ffff-ffff-ffffffffffff, and the modules ANSWER, CANVAS, CRON and QUEUE'
            using errcode = 'invalid_parameter_value', hint = 'Take the canvas of a tenant, and the module WORKER.';
    end if;
    if check_emit.value is null or octet_length(check_emit.value) > 262144 then
        raise exception 'a value has at most 262,144 bytes'
            using errcode = 'program_limit_exceeded', hint = 'Store what is large elsewhere, and emit where it is.';
    end if;
    perform check_emit.value::jsonb;
end
$$;

-- Emits an event in the caller's transaction.
--
-- `value` is JSON. The event does not run before `due`. A caller may choose the `id`: a repeat
-- emits nothing, even after completion, and raises if it is for another handler. Events on an
-- `object` run in order. `notified` says that the caller publishes the notification after its
-- commit, so that the promise may wait for the grace. `options` are those of wakeq.kept_options.
--
-- Returns the event's id, whether it is new, and the body of its notification.
create function wakeq.emit(
    handler       text,
    value         text,
    canvas        uuid default '00000000-0000-0000-0000-000000000000',
    module        text default 'WORKER',
    modifier      text default '_',
    due           timestamptz default null,
    id            uuid default null,
    object        text default null,
    traceparent   text default null,
    notified      boolean default false,
    options       jsonb default null,
    out event_id     uuid,
    out is_new       boolean,
    out notification text
)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    own_id   constant uuid := emit.id;
    moment   timestamptz := clock_timestamp();
    grace    interval := interval '0';
    link     bigint;
    previous bigint;
begin
    perform wakeq.check_emit(emit.canvas, emit.module, emit.value);
    if emit.object is not null then
        -- An idle object may be forgotten between the two statements.
        loop
            insert into wakeq.objects (canvas_id, object) values (emit.canvas, emit.object) on conflict do nothing;
            select o.last_seq into previous from wakeq.objects o
             where o.canvas_id = emit.canvas and o.object = emit.object for update;
            exit when found;
        end loop;
    end if;
    moment := coalesce(emit.due, moment);
    event_id := coalesce(wakeq.chosen_id(emit.canvas, own_id), gen_random_uuid());
    is_new := true;
    notification := format('{"id":"%s","canvasID":"%s"%s}', event_id, emit.canvas,
                           case when emit.options @> '{"urgent": true}' then ',"urgent":true' end);
    if own_id is not null then
        insert into wakeq.emitted_ids (canvas_id, id, due_at, module, name)
        select emit.canvas, event_id, greatest(now(), moment), emit.module, emit.handler
         where not exists (select from wakeq.events_v2 e where e.id = event_id and e.canvas_id = emit.canvas)
           and not exists (select from wakeq.dead_events d where d.id = event_id and d.canvas_id = emit.canvas)
            on conflict do nothing;
        if not found then
            perform wakeq.check_repeats(array[emit.canvas], array[event_id], array[emit.module], array[emit.handler]);
            is_new := false;
            return;
        end if;
    end if;
    if emit.options ? 'limits' then
        perform wakeq.check_waiting(emit.canvas, emit.options);
    end if;
    if emit.object is not null then
        -- After the lock, so that the numbers grow along the chain.
        link := nextval('wakeq.event_seq');
        update wakeq.objects o set last_seq = link where o.canvas_id = emit.canvas and o.object = emit.object;
    end if;
    if emit.notified then
        grace := wakeq.duration_of('grace', interval '30 seconds');
    end if;
    insert into wakeq.events_v2
        (id, canvas_id, module, name, modifier, value, delay_until, notify_at, traceparent, object, seq, prev, options)
    values (event_id, emit.canvas, emit.module, emit.handler, emit.modifier, emit.value, moment,
            wakeq.wake_at(moment, statement_timestamp(), wakeq.duration_of('horizon', interval '10 minutes'), grace),
            emit.traceparent, emit.object, link, previous, wakeq.kept_options(emit.options));
end
$$;

-- Completes an event in the caller's transaction, so that what its handler writes and its end are
-- one commit.
--
-- `claim` is the fencing token of the attempt, which the handler got with the event: 16 hex digits,
-- with which the token of a lease begins. If another attempt has begun in the meantime, or the
-- event has ended, this raises, and the transaction has to be rolled back. An event of a canvas on
-- which the caller may not emit is treated as one that has ended. An event that is kept
-- (wakeq.keep_of) has `result`, which is JSON, as its result.
create function wakeq.complete(event uuid, claim text, result text default null, keep_s double precision default null)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    caller constant name := wakeq.caller();
    -- Workers delete rows anyway.
    is_worker constant boolean := has_table_privilege(caller, 'wakeq.events_v2', 'delete');
    fence bigint;
    gone wakeq.events_v2;
begin
    perform complete.result::json;
    if complete.event is null or complete.claim is null or complete.claim !~ '^[0-9a-f]*$'
        or octet_length(complete.claim) not in (16, 40)
    then
        raise exception 'not the claim of an attempt'
            using
                errcode = 'invalid_parameter_value',
                hint = 'Pass the claim that came with the event (header wakeq-claim), or the lease, unchanged.';
    end if;
    fence := ('x' || left(complete.claim, 16))::bit(64)::bigint;
    delete from wakeq.events_v2 e
     where e.id = complete.event and e.claims::bigint << 32 | e.nonce = fence and e.locked_at is not null
       and (is_worker or wakeq.may_emit(caller, e.canvas_id))
    returning e.* into gone;
    if not found then
        raise exception 'the claim on the event % does not stand', complete.event
            using
                errcode = 'object_not_in_prerequisite_state',
                hint = 'Roll back: another attempt has begun, or the event has ended.';
    end if;
    -- Nothing asks to keep it, so it costs nothing more.
    if complete.keep_s is distinct from 0 or gone.options is not null then
        perform wakeq.keep_ended(
            gone, wakeq.keep_of(gone, complete.keep_s, 'completed'), 'completed', null, null, complete.result, null);
    end if;
    -- The worker hands over after the commit. If it dies first, the promise of the next event does.
    if gone.object is not null then
        update wakeq.events_v2 e
           set notify_at = wakeq.wake_at(
                   e.delay_until, statement_timestamp(), wakeq.duration_of('horizon', interval '10 minutes'),
                   wakeq.duration_of('grace', interval '30 seconds')),
               probes = 0
         where e.id = any (array(
               select x.id from wakeq.events_v2 x
                where x.id = wakeq.next_in_lane(
                          gone.canvas_id, gone.object, gone.queue, gone.module, gone.name, gone.seq)
                  for update skip locked));
    end if;
end
$$;

-- What processes may do with each table: `api` is for `wakeq serve` and commands of operators,
-- `worker` for `wakeq work`. `wakeq all`, and a service in push mode, need both.
create function wakeq.table_rights() returns table (name text, api text, worker text)
language sql immutable set search_path = pg_catalog, pg_temp as $$
    values
        ('_migrations',          'select',                         'select'),
        ('access_keys',          'select, insert, update',         null),
        ('attempts',             'select, insert',                 'select, insert'),
        -- Rows are added, but not with any id and time: wakeq.needed_rights lists the columns.
        ('audit_log',            'select',                         null),
        ('batch_ends',           'select, insert, update, delete', 'select, insert, update, delete'),
        -- An emit locks the batch of its event, which requires the right to update.
        ('batches',              'select, insert, update, delete', 'select, insert, update, delete'),
        ('canvas_quotas',        'select, insert, update, delete', 'select'),
        -- The expiry, which may run in both, locks and deletes what no event has.
        ('checkpoints',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('chores',               'select, update',                 'select, update'),
        ('claim_gate',           null,                             'insert'),
        ('canvas_turns',         'select, insert, update',         'select, insert, update'),
        ('cron_records',         'select, insert, update, delete', 'select, update'),
        ('dead_event_tags',      'select, insert, delete',         'select, insert, delete'),
        ('dead_events',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('deployment',           'select, update',                 'select'),
        ('emitted_ids',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('emitters',             null,                            null),
        ('ended_events',         'select, insert',                 'select, insert'),
        ('event_tags',           'select, insert, delete',         'select, insert, delete'),
        ('events_v2',            'select, insert, update, delete', 'select, insert, update, delete'),
        ('facet_settings',       'select, insert, update',        'select'),
        ('facets',               'select, insert, update, delete', 'select, insert, update, delete'),
        -- A redrive, which workers carry on, locks what halts a lane, for which it has to update.
        ('halted_lanes',         'select, insert, update, delete', 'select, insert, update, delete'),
        -- Workers clear replaced secrets.
        ('hooks',                'select, insert, update, delete', 'select, update'),
        ('hour_statistics',      'select',                         'select, insert, update, delete'),
        ('http_targets',         'select, insert, update, delete', 'select, update, delete'),
        ('idempotency_keys',     'select, insert, update, delete', 'select, insert, update, delete'),
        ('idle_cursor',          'select, update',                 'select, update'),
        ('idle_marks',           'select, insert, delete',         'select, insert, delete'),
        -- The expiry, which may run in both, locks and deletes old marks.
        ('known_errors',         'select, insert, update, delete', 'select, update, delete'),
        ('least_kept',           'select',                         'select'),
        -- A worker writes the limits of its routes.
        ('limit_states',         'select, insert, update, delete', 'select, insert, update, delete'),
        ('limit_waits',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('limits',               'select, insert, update, delete', 'select, insert, update'),
        ('minute_statistics',    'select, insert, update',         'select, insert, update, delete'),
        ('objects',              'select, insert, update, delete', 'select, insert, update, delete'),
        ('operations',           'select, insert, update, delete', 'select, update, delete'),
        ('page_sessions',        'select, insert, update, delete', null),
        ('programs',             'select, insert, update, delete', 'select, update, delete'),
        ('pulled_handlers',      'select, insert, update, delete', 'select'),
        ('queue_patterns',       'select, insert, delete',        'select'),
        ('queue_registry',       'select, update',                 'select'),
        ('queue_turns',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('queue_wakes',          'select, insert, update, delete', 'select, update, delete'),
        -- A worker that parks a copy locks the row of its queue, for which it has to update.
        ('queues',               'select, insert, update, delete', 'select, insert, update, delete'),
        ('resume_jobs',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('scheduling_rules',     'select, insert, update, delete', 'select, insert, update, delete'),
        ('service_accounts',     'select, insert, update',         null),
        ('settings',             'select, insert',                 'select, insert'),
        ('subscription_sources', 'select',                         'select'),
        ('tombstones',           'select, insert, delete',         'select, insert, delete'),
        ('unique_keys',          'select, insert, update, delete', 'select, insert, update, delete'),
        ('unknown_handlers',     'select, insert, update, delete', 'select, insert, update, delete'),
        -- The minute's statement, which both send, names it.
        ('workers',              'select, insert, update, delete', 'select, insert, update, delete')
    union all
    select l.name, l.api, l.worker from wakeq.log_table_rights() as l
$$;

-- The rights that processes of a kind need, 'api' or 'worker'. This is the only list of rights.
create function wakeq.needed_rights(kind text) returns table (object_kind text, object text, needed text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select 'schema', 'wakeq', 'usage'
    union all
    select 'table', format('wakeq.%I', c.relname),
           unnest(string_to_array(case kind when 'api' then r.api else r.worker end, ', '))
      from wakeq.table_rights() as r
      join pg_class c on c.relnamespace = 'wakeq'::regnamespace and c.relname = r.name
    union all
    select 'columns', format('wakeq.%I', c.relname), format('insert (%s)', string_agg(quote_ident(a.attname), ', '))
      from pg_class c
      join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relnamespace = 'wakeq'::regnamespace
       and (c.relname = 'audit_log' and a.attname not in ('id', 'at')
            or c.relname = 'log' and a.attname <> 'appended_at')
     group by c.relname
    union all
    select 'sequence', format('wakeq.%I', c.relname), unnest(array['usage', 'select'])
      from pg_class c where c.relnamespace = 'wakeq'::regnamespace and c.relkind = 'S'
    union all
    -- A function that is listed is for the kind beside it; both kinds have the others.
    select 'function', p.oid::regprocedure::text, 'execute'
      from pg_proc p
      left join (values
          ('await_claims', 'api'), ('pull_turns', 'api'), ('lease_events', 'api'), ('has_leasable', 'api'),
          ('lock_leasable', null), ('look_at', 'api'), ('leasable_of', 'api'), ('some_later_id', null),
          ('fit_events', null), ('drop_log_partition', 'worker'),
          ('add_history_partition', null), ('drop_history_partition', 'worker'),
          ('erase_entity', 'worker'), ('kept_for', null), ('emit', null), ('check_emit', null), ('grant_rights', null),
          ('emit_unique', null), ('caller', null), ('may_emit', null), ('complete', 'worker'),
          ('checkpoint', 'worker'), ('last_checkpoint', 'worker'), ('fence_of', null),
          ('take_turns', 'worker'), ('facets_in_turn', 'worker'), ('share_turns', 'worker'),
          ('copies_in_turn', 'worker'), ('recalled_in_turn', 'worker'), ('choose_copies', 'worker'),
          ('outcome_of_pass', 'worker'), ('move_facets', 'worker'), ('lock_copies', 'worker'),
          ('promise_passed', 'worker'), ('fit_turns', 'worker'), ('claim_copies', 'worker'),
          ('claim_limited', 'worker'), ('admit', 'worker'), ('lease_limited', null), ('choose_leasable', null)
      ) as only_for (name, kind) on only_for.name = p.proname
     where p.pronamespace = 'wakeq'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
       and (only_for.name is null or only_for.kind = needed_rights.kind)
$$;

-- Grants a role what a kind needs. It takes nothing away, except from `public`. `wakeq migrate
-- --api-role … --worker-role …` calls it each time it has migrated, which grants what is new. The
-- roles are made by others, since they belong to the whole server.
create function wakeq.grant_rights(role name, kind text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    granted record;
begin
    if kind is null or kind not in ('api', 'worker') then
        raise exception 'a role is of the kind api or worker, not %', coalesce(kind, 'null');
    end if;
    revoke all on schema wakeq from public;
    revoke all on all functions in schema wakeq from public;
    for granted in
        select n.object_kind, n.object, string_agg(n.needed, ', ') as needed
          from wakeq.needed_rights(kind) as n group by n.object_kind, n.object
    loop
        execute format('grant %s on %s %s to %I', granted.needed,
                       case granted.object_kind when 'columns' then 'table' else granted.object_kind end,
                       granted.object, role);
    end loop;
    -- Cloud SQL makes its users members of a role that may take on other roles, and lets them
    -- create roles.
    if exists (select from pg_roles r where r.rolname = 'cloudsqlsuperuser' and pg_has_role(role, r.oid, 'member')) then
        begin
            execute format('revoke cloudsqlsuperuser from %I', role);
            execute format('alter role %I nocreaterole nocreatedb', role);
        exception when insufficient_privilege then
            raise warning 'the role % is still a member of cloudsqlsuperuser', role;
        end;
    end if;
end $$;

revoke all on all functions in schema wakeq from public;
