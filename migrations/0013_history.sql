-- History: the attempts at events that did not simply complete, and events that are kept after they
-- have ended.
--
-- An event is deleted when its handler has completed, and that statement knows nothing of this
-- file. The statements that retry and kill write a row of `attempts`. Where a route, a target or
-- the emit asks for it, another statement ends the event, which writes it to `ended_events` with
-- its result.
--
-- Both tables lose whole partitions and no rows. An attempt is in the partition of its day, and an
-- ended event in that of the week in which it is kept to the last (docs/adr/0085-history.md).

-- Attempts that were retried or postponed, and those that killed an event. That of a plain
-- completion has no row, nor one whose worker was lost or shut down: its number is missing. Of an
-- event that is tried very often, only some have rows (wakeq.is_noted).
create table wakeq.attempts (
    canvas_id  uuid not null,
    event_id   uuid not null,
    -- The day on which it ended, in UTC.
    day        date not null default (now() at time zone 'UTC')::date,
    -- The number of the claim, and its random half: with it, an id that is emitted again collides
    -- with nothing.
    number     integer not null,
    nonce      integer not null,
    outcome    text not null,
    -- Null for a lease by a program that gave no name.
    worker     text,
    started_at timestamptz not null,
    took_us    bigint not null,
    error      text,
    constraint attempts_pkey primary key (canvas_id, event_id, day, number, nonce),
    constraint attempts_outcome check (outcome in ('retried', 'postponed', 'dead')),
    constraint attempts_took check (took_us >= 0),
    constraint attempts_error check (octet_length(error) <= 4000)
) partition by range (day);

-- Events that were kept when they ended. Reads hide those whose time is over, which leave with
-- their partition within a week.
create table wakeq.ended_events (
    canvas_id     uuid not null,
    id            uuid not null,
    kept_until    timestamptz not null,
    module        wakeq.name not null,
    name          wakeq.name not null,
    modifier      wakeq.name not null,
    value         wakeq.payload not null,
    -- What its handler returned, as JSON; null if that is nothing.
    result        text,
    outcome       text not null,
    -- The last error or, of one that failed, the error value.
    error         text,
    -- Who cancelled it.
    ended_by      text,
    enqueued_at   timestamptz not null,
    due_at        timestamptz not null,
    ended_at      timestamptz not null default now(),
    -- Of the attempt that ended it; null if none did.
    started_at    timestamptz,
    took_us       bigint,
    worker        text,
    claims        integer not null,
    retries       integer not null,
    losses        integer not null,
    -- The last 100 rows of `attempts`, which go before this one.
    attempts      jsonb,
    traceparent   wakeq.traceparent,
    object        wakeq.object_key,
    seq           bigint,
    prev          bigint,
    options       jsonb,
    constraint ended_events_pkey primary key (canvas_id, id, kept_until),
    constraint ended_events_outcome check (outcome in ('completed', 'failed', 'cancelled')),
    constraint ended_events_result check (octet_length(result) <= 65536),
    constraint ended_events_took check (took_us >= 0 and (took_us is null) = (started_at is null)),
    -- In seconds, since a day of a caller's time zone may have 23 hours.
    constraint ended_events_kept check (kept_until > ended_at and kept_until <= ended_at + interval '7776000 seconds')
) partition by range (kept_until);

-- Lists of several outcomes are merged from one of each (wakeq.ended_after). The outcome in the
-- index of a canvas is an expression, so that a list of a handler can't use it: by its statistics
-- the planner might find a handler with few events by reading all of the canvas. The conditions
-- hold for every row, and keep both out of statements about an event, for which the planner might
-- take either where a partition was empty (0001).
create index ended_events_canvas on wakeq.ended_events (canvas_id, greatest(outcome, outcome), ended_at, id)
    where ended_at > '-infinity';
create index ended_events_handler on wakeq.ended_events (canvas_id, module, name, outcome, ended_at, id)
    where ended_at > '-infinity';

-- What comes when nobody has made partitions for days, so that no end of an event fails for it.
create table wakeq.attempts_rest partition of wakeq.attempts default;
create table wakeq.ended_events_rest partition of wakeq.ended_events default;

comment on table wakeq.attempts is 'Attempts that failed, and what came of them, by the day on which they ended';
comment on table wakeq.ended_events is 'Events that are kept after they have ended, by the week in which they expire';
comment on column wakeq.ended_events.attempts is
    'The earlier attempts: [{"number": …, "outcome": …, "worker": …, "started_at": …, "took_us": …, "error": …}]';

-- Whether the attempt of this number has a row: the first 100 have, of the next 900 each tenth, and
-- then each hundredth. It bounds the rows of an event that is postponed for days.
create function wakeq.is_noted(number integer) returns boolean language sql immutable parallel safe
return number <= 100 or number <= 1000 and number % 10 = 0 or number % 100 = 0;

-- Whether this is a number of seconds up to 90 days, or an object with some for outcomes.
create function wakeq.are_keep_times(times jsonb) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return jsonb_typeof(times) in ('number', 'object') and not exists (
        select from jsonb_each(case jsonb_typeof(times) when 'object' then times
                                    else jsonb_build_object('completed', times) end) as t (outcome, value)
         where t.outcome not in ('completed', 'failed', 'cancelled')
            or case jsonb_typeof(t.value)
               when 'number' then t.value::text::numeric not between 0 and 7776000 else true end);
end
$$;

-- For how many seconds an event with this outcome asks to be kept, or else `usual` or, if that is
-- null, its handler if it is pulled, or its target; null for none of them, and 0 for not at all. A
-- worker passes as `usual` what its route or target asks for, and 0 if that is nothing.
create function wakeq.keep_of(event wakeq.events_v2, usual double precision, outcome text) returns double precision
language plpgsql stable as $$
declare
    asked constant jsonb := event.options -> 'keep_s';
    times integer[];
begin
    if asked is not null then
        -- To the nanosecond, as the library reads it: JSON has numbers that are too small for a
        -- double, and an error would keep this event and others from being removed.
        return round((case jsonb_typeof(asked) when 'object' then coalesce(asked ->> keep_of.outcome, '0')
                                               else asked #>> '{}' end)::numeric, 9)::double precision;
    end if;
    if usual is not null then
        return usual;
    end if;
    select p.keep_s into times from wakeq.pulled_handlers p
     where p.canvas_id = event.canvas_id and p.module = event.module and p.name = event.name;
    if not found then
        select t.keep_s into times from wakeq.http_targets t
         where t.canvas_id = event.canvas_id and t.module = event.module and t.name = event.name
           and t.modifier = event.modifier;
    end if;
    return times[array_position(array['completed', 'failed', 'cancelled'], keep_of.outcome)];
end
$$;

-- The last 100 attempts at an event that have rows, as JSON; null if there are none.
create function wakeq.attempts_at(canvas uuid, event uuid) returns jsonb language plpgsql stable as $$
begin
    return (select jsonb_agg(jsonb_build_object(
                       'number', last.number, 'outcome', last.outcome, 'worker', last.worker,
                       'started_at', last.started_at, 'took_us', last.took_us, 'error', last.error)
                   order by last.number)
              from (select a.* from wakeq.attempts a
                     where a.canvas_id = attempts_at.canvas and a.event_id = attempts_at.event
                     order by a.number desc limit 100) as last);
end
$$;

-- Keeps an event that has just been deleted. `keep_s` is in seconds, and null or 0 keeps nothing.
-- `took_us` is that of the attempt that ended it, if one did. Copies in queues are not kept.
create function wakeq.keep_ended(
    event wakeq.events_v2, keep_s double precision, outcome text, took_us bigint, error text, result text,
    ended_by text)
returns void language plpgsql volatile as $$
begin
    if coalesce(keep_ended.keep_s, 0) <= 0 or event.queue is not null then
        return;
    end if;
    if octet_length(keep_ended.result) > 65536 then
        raise exception 'a result has at most 65,536 bytes'
            using errcode = 'program_limit_exceeded', hint = 'Store what is large elsewhere, and record where it is.';
    end if;
    insert into wakeq.ended_events
        (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, error, ended_by, enqueued_at,
         due_at, started_at, took_us, worker, claims, retries, losses, attempts, traceparent, object, seq, prev,
         options)
    values (event.canvas_id, event.id,
            now() + least(greatest(keep_ended.keep_s, 1), 7776000) * interval '1 second', event.module, event.name,
            event.modifier, event.value, keep_ended.result, keep_ended.outcome,
            left(coalesce(keep_ended.error, event.last_error), 4000), keep_ended.ended_by, event.enqueued_at,
            event.delay_until, clock_timestamp() - keep_ended.took_us * interval '1 microsecond', keep_ended.took_us,
            event.worker, event.claims, event.retries, event.losses,
            case when event.claims > 1 or event.locked_at is null and event.claims > 0
                 then wakeq.attempts_at(event.canvas_id, event.id) end,
            event.traceparent, event.object, event.seq, event.prev, event.options)
        on conflict do nothing;
end
$$;

-- Makes a partition for these bounds, unless it is there, another session makes it, or rows for it
-- have come to the rest in the meantime, where they stay. Returns whether it was made. It is
-- attached rather than made as a partition, which would wait for every transaction that writes to
-- another: a handler may keep one open that has completed its event.
create function wakeq.add_history_partition(parent text, part text, lower text, upper text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    if parent not in ('attempts', 'ended_events') or part !~ ('^' || parent || '_[0-9]{8}$') then
        raise exception 'not a partition of the history: %', part using errcode = 'invalid_parameter_value';
    end if;
    if to_regclass('wakeq.' || part) is not null then
        return false;
    end if;
    execute format('create table wakeq.%I (like wakeq.%I including all)', part, parent);
    execute format('alter table wakeq.%I attach partition wakeq.%I for values from (%L) to (%L)',
                   parent, part, lower, upper);
    return true;
exception when check_violation or duplicate_table or unique_violation then
    return false;
end
$$;

-- Makes the partitions that are needed until this many days from now; returns how many it made. It
-- runs with the rights of the schema's owner, as wakeq.add_log_partitions does, and waits for a
-- lock no longer than that of the log.
create function wakeq.add_history_partitions(days integer) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '150ms' set timezone = 'UTC' as $$
declare
    made integer := 0;
    today constant date := (now() at time zone 'UTC')::date;
    monday constant date := date_trunc('week', now() at time zone 'UTC')::date;
    first date;
begin
    if days not between 1 and 14 then
        raise exception 'partitions are made for 1 to 14 days ahead' using errcode = 'invalid_parameter_value';
    end if;
    for ahead in 0 .. days loop
        first := today + ahead;
        made := made + wakeq.add_history_partition(
            'attempts', 'attempts_' || to_char(first, 'YYYYMMDD'), first::text, (first + 1)::text)::integer;
    end loop;
    for ahead in 0 .. (90 + days) / 7 + 1 loop
        first := monday + 7 * ahead;
        made := made + wakeq.add_history_partition(
            'ended_events', 'ended_events_' || to_char(first, 'YYYYMMDD'), first::text, (first + 7)::text)::integer;
    end loop;
    return made;
end
$$;

-- Drops the first partition whose rows are all too old: attempts that are older than this, or ended
-- events whose time is over. Returns its name, or null. What came to the rest is deleted there, up
-- to 10,000 rows at a time. If there may be more, the name of the rest is returned.
create function wakeq.drop_history_partition(kept interval) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set lock_timeout = '150ms' set timezone = 'UTC' as $$
declare
    part text;
    parent text;
    gone bigint;
    today constant date := (now() at time zone 'UTC')::date;
begin
    if kept is null or kept < interval '1 day' then
        raise exception 'attempts are kept for a day at least' using errcode = 'invalid_parameter_value';
    end if;
    select p.relname, t.relname into part, parent
      from pg_class p join pg_inherits i on i.inhrelid = p.oid join pg_class t on t.oid = i.inhparent
     where i.inhparent in ('wakeq.attempts'::regclass, 'wakeq.ended_events'::regclass) and p.relname ~ '_[0-9]{8}$'
       and right(p.relname, 8)
           <= to_char(case t.relname when 'attempts' then (now() - kept)::date - 1 else today - 7 end, 'YYYYMMDD')
     order by right(p.relname, 8), p.relname limit 1;
    if part is not null then
        execute format('alter table wakeq.%I detach partition wakeq.%I', parent, part);
        execute format('drop table wakeq.%I', part);
        return part;
    end if;
    delete from wakeq.attempts_rest where ctid = any (array(
        select r.ctid from wakeq.attempts_rest r where r.day <= (now() - kept)::date - 1 limit 10000));
    get diagnostics gone = row_count;
    if gone >= 10000 then
        return 'attempts_rest';
    end if;
    delete from wakeq.ended_events_rest where ctid = any (array(
        select r.ctid from wakeq.ended_events_rest r where r.kept_until <= now() limit 10000));
    get diagnostics gone = row_count;
    return case when gone >= 10000 then 'ended_events_rest' end;
end
$$;

select wakeq.add_history_partitions(3);

revoke all on all functions in schema wakeq from public;
